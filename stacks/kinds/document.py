"""The document state machine and its stage workers; its embedding queue is one global limit on the model."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions, log_retention
from stacks.constructs.job_queue import JobQueue
from stacks.storage import StorageStack

DEFINITION = Path("statemachines/document.asl.json")


class DocumentPipeline(Construct):
    """Validate ▸ Chunk ▸ Embed (Map over the queue) ▸ Store ▸ NotifySuccess; any error ▸ NotifyFailure."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        functions: Functions,
        storage: StorageStack,
    ) -> None:
        super().__init__(scope, construct_id)
        stage = {"JOBS_TABLE": storage.jobs.table_name, "DATA_BUCKET": storage.data.bucket_name}
        self.validate = functions.create(
            "validate_document",
            # reading, parsing within its own limit, and writing
            timeout=Duration.seconds(config.parse_timeout_seconds + 60),
            memory_mb=max(1024, config.parse_memory_mb + 512),
            layers=("documents",),
            environment=stage
            | {
                "MAX_UPLOAD_BYTES": str(config.max_upload_bytes),
                "MAX_CHARACTERS": str(config.max_characters),
                "PARSE_TIMEOUT_SECONDS": str(config.parse_timeout_seconds),
                "PARSE_MEMORY_MB": str(config.parse_memory_mb),
            },
        )
        self.chunk = functions.create(
            "chunk_document",
            timeout=Duration.minutes(5),
            memory_mb=1024,
            environment=stage
            | {
                "CHUNK_SIZE": str(config.chunk_size),
                "CHUNK_OVERLAP": str(config.chunk_overlap),
                "CHUNKS_PER_BATCH": str(config.chunks_per_batch),
            },
        )
        self.embed = functions.create(
            "embed_chunks",
            timeout=Duration.minutes(5),
            memory_mb=1024,
            environment=stage | embedding_environment(config),
        )
        self.store = functions.create(
            "store_vectors",
            timeout=Duration.minutes(5),
            environment=stage | embedding_environment(config),
        )
        self.finish = functions.create(
            "finish_job", timeout=Duration.seconds(30), environment={"JOBS_TABLE": storage.jobs.table_name}
        )
        self.embedding = JobQueue(
            self, "Embedding", worker=self.embed, batch_size=1, max_concurrency=config.embedding_concurrency
        )
        self.embed.add_environment("EMBEDDING_QUEUE_URL", self.embedding.queue.queue_url)
        self.state_machine = self._state_machine(config)
        self._grant(storage)

    def _state_machine(self, config: Config) -> sfn.StateMachine:
        machine = sfn.StateMachine(
            self,
            "Machine",
            # from_string keeps the definition in the template, where tests can read it
            definition_body=sfn.DefinitionBody.from_string(DEFINITION.read_text(encoding="utf-8")),
            definition_substitutions={
                "Partition": Stack.of(self).partition,
                "ValidateDocument": self.validate.function_arn,
                "ChunkDocument": self.chunk.function_arn,
                "StoreVectors": self.store.function_arn,
                "FinishJob": self.finish.function_arn,
                "EmbeddingQueueUrl": self.embedding.queue.queue_url,
            },
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "MachineLogs",
                    retention=log_retention(config),
                    removal_policy=RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=False,
            ),
        )
        for function in (self.validate, self.chunk, self.store, self.finish):
            function.grant_invoke_latest_version(machine)
        self.embedding.queue.grant_send_messages(machine)
        return machine

    def _grant(self, storage: StorageStack) -> None:
        for function in (self.validate, self.chunk, self.embed, self.store, self.finish):
            storage.jobs.grant_read_write_data(function)
        storage.grant_objects(self.validate, read=("inputs/", "uploads/"), write=("work/",), delete=("work/",))
        storage.grant_objects(self.chunk, read=("work/",), write=("work/",), delete=("work/",))
        storage.grant_objects(
            self.embed, read=("work/", "vectors/"), write=("work/", "vectors/"), delete=("work/", "vectors/")
        )
        storage.grant_objects(self.store)
        self.state_machine.grant_task_response(self.embed)


def embedding_environment(config: Config) -> dict[str, str]:
    """What a function needs to speak to the model, or to name the index that the model made."""
    return {
        "EMBEDDING": config.embedding,
        "EMBEDDING_MODEL": config.embedding_model,
        "EMBEDDING_DIMENSIONS": str(config.embedding_dimensions),
    }


def model_access(config: Config, stack: Stack) -> list[iam.PolicyStatement]:
    """Permission to call the one embedding model; none where the model runs inside the function."""
    if config.embedding != "bedrock":
        return []
    model = f"arn:{stack.partition}:bedrock:{stack.region}::foundation-model/{config.embedding_model}"
    return [iam.PolicyStatement(actions=["bedrock:InvokeModel"], resources=[model])]
