"""ServiceStack: reads like the picture in README.

POST /jobs ▸ api ▸ jobs table ▸ stream ▸ publisher ▸ doc-events ▸ { indexing ▸ state machine, notify ▸ webhooks }
"""

from __future__ import annotations

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.alarms import Alarms
from stacks.constructs.document_pipeline import DocumentPipeline, embedding_environment, model_access
from stacks.constructs.fan_out import FanOut
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.gateway_logs import GatewayLogs
from stacks.constructs.job_queue import JobQueue
from stacks.constructs.jobs_stream import jobs_stream
from stacks.constructs.live_api import LiveApi
from stacks.constructs.rest_api import RestApi
from stacks.constructs.webhooks import Webhooks, outbound_environment
from stacks.storage import StorageStack

# What the indexing queue hears: a job to start, and jobs after which something must be cleaned up.
INDEXING_EVENTS = ("document.uploaded", "document.indexed", "document.failed", "document.canceled")


class ServiceStack(Stack):
    """Everything that can be deleted and deployed again without losing a job."""

    def __init__(
        self, scope: Construct, construct_id: str, *, config: Config, storage: StorageStack, **kwargs: object
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)  # type: ignore[arg-type]
        self._config, self._storage = config, storage
        self.functions = Functions(self, "Functions", config=config)
        self.fan_out = FanOut(self, "FanOut", alert_email=config.alert_email)
        self.pipeline = DocumentPipeline(
            self, "Document", config=config, functions=self.functions, storage=storage
        )
        self.webhooks = Webhooks(self, "Webhooks", config=config, functions=self.functions, storage=storage)
        self.publisher = self._publisher()
        self.indexing = self._indexing()
        self.fan_out.subscribe(self.indexing, event_types=INDEXING_EVENTS)
        self.fan_out.subscribe(self.webhooks.notify)
        self.sweep = self._sweep()
        self.gateway_logs = GatewayLogs(self, "GatewayLogs", config=config)
        self.live = LiveApi(
            self, "Live", config=config, functions=self.functions, storage=storage, logs=self.gateway_logs
        )
        self.api = self._api()
        self.alarms = self._alarms()
        self._end_jobs_whose_execution_ended()
        self._outputs()

    def _publisher(self) -> lambda_.Function:
        """The outbox's reader: each new event of the jobs table goes to SNS, in order within a job."""
        publisher = self.functions.create(
            "publisher",
            timeout=Duration.minutes(1),
            environment={
                "EVENTS_TOPIC": self.fan_out.events.topic_arn,
                "ALERTS_TOPIC": self.fan_out.alerts.topic_arn,
                "DATA_BUCKET": self._storage.data.bucket_name,
            },
        )
        self.fan_out.events.grant_publish(publisher)
        self.fan_out.alerts.grant_publish(publisher)
        self._storage.grant_objects(publisher, write=("parked/",))
        new_events = {
            "eventName": lambda_.FilterRule.is_equal("INSERT"),
            "dynamodb": {"NewImage": {"entity": {"S": lambda_.FilterRule.is_equal("event")}}},
        }
        publisher.add_event_source(
            jobs_stream(
                self._storage,
                filters=[new_events],
                retry_attempts=1000,  # for about 12 hours: the age is what bounds them
                max_record_age=Duration.hours(12),
            )
        )
        return publisher

    def _indexing(self) -> JobQueue:
        """Starts a document's execution, stops a canceled one, and removes what ended jobs left behind."""
        indexing = self.functions.create(
            "indexing",
            timeout=Duration.minutes(1),
            environment={
                "JOBS_TABLE": self._storage.jobs.table_name,
                "DATA_BUCKET": self._storage.data.bucket_name,
                "STATE_MACHINE": self.pipeline.state_machine.state_machine_arn,
            },
        )
        machine = self.pipeline.state_machine
        machine.grant_start_execution(indexing)
        machine.grant_execution(indexing, "states:DescribeExecution", "states:StopExecution")
        self._storage.jobs.grant_read_write_data(indexing)
        self._storage.grant_objects(indexing, delete=("work/", "vectors/"))
        return JobQueue(self, "Indexing", worker=indexing, max_concurrency=self._config.indexing_concurrency)

    def _sweep(self) -> lambda_.Function:
        """What Catch cannot see: dead messages and deadlines that have passed, once a minute."""
        dead = {
            "INDEXING_DLQ_URL": self.indexing.dead_letters,
            "EMBEDDING_DLQ_URL": self.pipeline.embedding.dead_letters,
        }
        sweep = self.functions.create(
            "sweep",
            timeout=Duration.seconds(50),
            retries=0,
            environment={"JOBS_TABLE": self._storage.jobs.table_name}
            | {key: queue.queue_url for key, queue in dead.items()},
        )
        for queue in dead.values():
            queue.grant_consume_messages(sweep)
        self._storage.jobs.grant_read_write_data(sweep)
        self.pipeline.state_machine.grant_task_response(sweep)
        call_every(self, "EveryMinute", Duration.minutes(1), sweep)
        return sweep

    def _api(self) -> RestApi:
        authorizer = self.functions.create(
            "authorizer",
            timeout=Duration.seconds(10),
            environment={"KEYS_TABLE": self._storage.keys.table_name},
        )
        self._storage.keys.grant(authorizer, "dynamodb:GetItem")
        return RestApi(
            self,
            "Rest",
            config=self._config,
            authorizer=authorizer,
            api=self._api_function(),
            wait=self._wait_function(),
            search=self._search_function(),
            logs=self.gateway_logs,
        )

    def _api_function(self) -> lambda_.Function:
        config, storage = self._config, self._storage
        api = self.functions.create(
            "api",
            timeout=Duration.seconds(29),
            memory_mb=1024,
            environment=self._http_environment()
            | outbound_environment(config)
            | {
                "DATA_BUCKET": storage.data.bucket_name,
                "SECRETS_KEY": storage.secrets_key.key_arn,
                "JOB_RETENTION_DAYS": str(config.job_retention_days),
                "JOB_DEADLINE_MINUTES": str(config.job_deadline_minutes),
                "IDEMPOTENCY_HOURS": str(config.idempotency_hours),
                "MAX_INLINE_BYTES": str(config.max_inline_bytes),
                "MAX_UPLOAD_BYTES": str(config.max_upload_bytes),
                "INDEXING_QUEUE_URL": self.indexing.queue.queue_url,
                "DELIVERIES_TABLE": storage.deliveries.table_name,
                "WEBHOOKS_QUEUE_URL": self.webhooks.queue.queue.queue_url,
                "WEBHOOK_CIRCUIT_FAILURES": str(config.webhook_circuit_failures),
                "MAX_WEBHOOKS": str(config.max_webhooks),
                "LINK_HOURS": str(config.link_hours),
                "LIVE_URL": self.live.url,
            },
            layers=("signing",),
        )
        self.indexing.queue.grant_send_messages(api)
        self.webhooks.queue.queue.grant_send_messages(api)
        storage.deliveries.grant(api, "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query")
        storage.deliveries.grant(api, "dynamodb:UpdateItem")  # what a circuit holds is let go after an edit
        storage.jobs.grant_read_write_data(api)
        storage.grant_objects(api, read=("uploads/",), write=("inputs/", "uploads/"), abort=("uploads/",))
        storage.secrets_key.grant(api, "kms:Encrypt")
        return api

    def _wait_function(self) -> lambda_.Function:
        wait = self.functions.create(
            "wait",
            timeout=Duration.seconds(29),
            environment=self._http_environment()
            | {
                "WAIT_SECONDS_MAX": str(self._config.wait_seconds_max),
                "DELIVERIES_TABLE": self._storage.deliveries.table_name,
                "JOB_RETENTION_DAYS": str(self._config.job_retention_days),
            },
        )
        self._storage.jobs.grant_read_data(wait)
        self._storage.jobs.grant(wait, "dynamodb:PutItem")  # the ping that tests a webhook
        self._storage.deliveries.grant(wait, "dynamodb:GetItem", "dynamodb:Query")
        return wait

    def _search_function(self) -> lambda_.Function:
        search = self.functions.create(
            "search",
            timeout=Duration.seconds(29),
            memory_mb=1769,  # one whole vCPU: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
            layers=("vectors",),
            environment=self._http_environment()
            | embedding_environment(self._config)
            | {"DATA_BUCKET": self._storage.data.bucket_name},
        )
        self._storage.jobs.grant_read_data(search)
        self._storage.grant_objects(search, read=("vectors/",))
        for function in (search, self.pipeline.embed):
            for statement in model_access(self._config, self):
                function.add_to_role_policy(statement)
        return search

    def _http_environment(self) -> dict[str, str]:
        return {
            "JOBS_TABLE": self._storage.jobs.table_name,
            "CORS_ORIGINS": ",".join(self._config.cors_origins),
        }

    def _alarms(self) -> Alarms:
        return Alarms(
            self,
            "Alarms",
            topic=self.fan_out.alerts,
            publisher=self.publisher,
            push=self.live.push,
            waker=self.webhooks.waker,
            webhooks=self.webhooks.queue,
            dead_letters=(self.indexing, self.pipeline.embedding, self.webhooks.notify, self.webhooks.queue),
        )

    def _end_jobs_whose_execution_ended(self) -> None:
        """TIMED_OUT and ABORTED pass by every Catch; this rule does not."""
        events.Rule(
            self,
            "ExecutionEnded",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                    "stateMachineArn": [self.pipeline.state_machine.state_machine_arn],
                },
            ),
            targets=[targets.LambdaFunction(self.pipeline.finish)],
        )

    def _outputs(self) -> None:
        CfnOutput(self, "ApiUrl", value=self.api.rest_api.url)
        CfnOutput(self, "LiveUrl", value=self.live.url)
        CfnOutput(self, "KeysTable", value=self._storage.keys.table_name)
        CfnOutput(self, "JobsTable", value=self._storage.jobs.table_name)
        CfnOutput(self, "DataBucket", value=self._storage.data.bucket_name)
        CfnOutput(self, "SecretsKey", value=self._storage.secrets_key.key_arn)
        CfnOutput(self, "DocEventsTopic", value=self.fan_out.events.topic_arn)
        CfnOutput(self, "ErrorAlertsTopic", value=self.fan_out.alerts.topic_arn)
        CfnOutput(self, "StateMachine", value=self.pipeline.state_machine.state_machine_arn)
