"""Fine-tunes: Validate ▸ Train (by the queue). Amazon Bedrock trains, and says when it has ended."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from stacks.kinds.base import KindConstruct

DATASETS = "work/*/fine_tune/dataset.jsonl"
OUTPUT = "results/*/fine_tune/"
JOB_NAMES = "recado-"
_MB = 1024 * 1024


class FineTuneConstruct(KindConstruct):
    """The function of its first stage, the role that Amazon Bedrock assumes, and the rule for its events."""

    def tasks(self) -> Mapping[str, lambda_.Function]:
        config = self.shared.config
        validate = self.function(
            "ValidateDataset",
            "kinds/fine_tune/validate_dataset",
            # the file, the same in another format, and what is known of each line
            memory_mb=max(1024, 512 + 3 * config.max_document_bytes // _MB),
            environment={"FINE_TUNE_MIN_EXAMPLES": str(config.fine_tune_min_examples)},
            read=("uploads/",),
            write=("work/",),
        )
        return {"ValidateDataset": validate}

    def grant(self) -> None:
        """The worker starts trainings, and it and `start_job` stop them; the last stage reads the result."""
        shared, role = self.shared, self._role()
        shared.storage.grant_objects(shared.finish_job, read=("work/",))
        shared.worker.add_environment("FINE_TUNE_ROLE", role.role_arn)
        shared.worker.add_to_role_policy(
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "bedrock.amazonaws.com"}},
            )
        )
        # https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonbedrock.html
        shared.worker.add_to_role_policy(
            iam.PolicyStatement(
                actions=["bedrock:CreateModelCustomizationJob"],
                resources=[
                    *self._base_models(),
                    self._arn("custom-model/*"),
                    self._arn("model-customization-job/*"),
                ],
            )
        )
        for function in (shared.worker, shared.start_job):
            function.add_to_role_policy(
                iam.PolicyStatement(
                    actions=["bedrock:GetModelCustomizationJob", "bedrock:StopModelCustomizationJob"],
                    resources=[self._arn("model-customization-job/*")],
                )
            )
        self._look_at_ended_trainings()

    def _role(self) -> iam.Role:
        """Amazon Bedrock reads datasets and writes its own files with it, for jobs of this account only.

        https://docs.aws.amazon.com/bedrock/latest/userguide/model-customization-iam-role.html
        """
        data, account = self.shared.storage.data, Stack.of(self).account
        role = iam.Role(
            self,
            "BedrockRole",
            assumed_by=iam.ServicePrincipal(
                "bedrock.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": account},
                    "ArnLike": {"aws:SourceArn": self._arn("model-customization-job/*")},
                },
            ),
        )
        for action, resource in (
            ("s3:ListBucket", data.bucket_arn),
            ("s3:GetObject", data.arn_for_objects(DATASETS)),
            ("s3:GetObject", data.arn_for_objects(f"{OUTPUT}*")),
            ("s3:PutObject", data.arn_for_objects(f"{OUTPUT}*")),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[resource]))
        return role

    def _look_at_ended_trainings(self) -> None:
        shared = self.shared
        ended = shared.functions.create(
            "TrainingEnded",
            "kinds/fine_tune/training_ended",
            timeout=Duration.seconds(30),
            environment={
                "DATA_BUCKET": shared.storage.data.bucket_name,
                "EMBEDDING_QUEUE_URL": shared.embedding.queue.queue_url,
            },
        )
        shared.storage.grant_objects(ended, read=("work/",))
        shared.embedding.queue.grant_send_messages(ended)
        events.Rule(
            self,
            "TrainingEnded",
            # https://docs.aws.amazon.com/bedrock/latest/userguide/monitoring-eventbridge-how-it-works.html
            event_pattern=events.EventPattern(
                source=["aws.bedrock"],
                detail_type=["Model Customization Job State Change"],
                detail={"jobStatus": ["Completed", "Failed", "Stopped"], "jobName": [{"prefix": JOB_NAMES}]},
            ),
            targets=[targets.LambdaFunction(ended)],
        )

    def _base_models(self) -> list[str]:
        stack = Stack.of(self)
        place = f"arn:{stack.partition}:bedrock:{stack.region}::foundation-model"
        return [f"{place}/{model}" for model in self.shared.config.fine_tune_models]

    def _arn(self, resource: str) -> str:
        stack = Stack.of(self)
        return f"arn:{stack.partition}:bedrock:{stack.region}:{stack.account}:{resource}"
