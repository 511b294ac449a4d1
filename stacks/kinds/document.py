"""Documents: Validate ▸ Chunk ▸ Embed (Map over the queue) ▸ Store, and the search in their chunks."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from stacks.config import Config
from stacks.kinds.base import KindConstruct


class DocumentConstruct(KindConstruct):
    """The functions of its stages, and the search. The worker that all kinds share does the embedding."""

    def tasks(self) -> Mapping[str, lambda_.Function]:
        config = self.shared.config
        work = ("work/",)
        return {
            "ValidateDocument": self.function(
                "ValidateDocument",
                "kinds/document/validate_document",
                # parsing has a timeout of its own; reading and writing take some seconds more
                timeout=Duration.seconds(config.parse_timeout_seconds + 60),
                memory_mb=max(1024, config.parse_memory_mb + 512),
                layers=("documents",),
                reserved_concurrency=config.parsing_reserved_concurrency,
                environment={
                    "MAX_UPLOAD_BYTES": str(config.max_upload_bytes),
                    "MAX_CHARACTERS": str(config.max_characters),
                    "PARSE_TIMEOUT_SECONDS": str(config.parse_timeout_seconds),
                    "PARSE_MEMORY_MB": str(config.parse_memory_mb),
                },
                read=("inputs/", "uploads/"),
                write=work,
            ),
            "ChunkDocument": self.function(
                "ChunkDocument",
                "kinds/document/chunk_document",
                timeout=Duration.minutes(5),
                layers=("chunking",),
                reserved_concurrency=config.parsing_reserved_concurrency,
                environment={
                    "CHUNK_SIZE": str(config.chunk_size),
                    "CHUNK_OVERLAP": str(config.chunk_overlap),
                    "CHUNKS_PER_BATCH": str(config.chunks_per_batch),
                },
                read=work,
                write=work,
            ),
            "StoreVectors": self.function(
                "StoreVectors",
                "kinds/document/store_vectors",
                timeout=Duration.minutes(5),
                memory_mb=512,
                environment=index_environment(config),
                read=(),
                write=(),
                delete=(),
            ),
        }

    def grant(self) -> None:
        """The worker writes vectors, and `start_job` deletes them when it cleans up."""
        shared, vectors = self.shared, ("vectors/",)
        for name, value in embedding_environment(shared.config).items():
            shared.worker.add_environment(name, value)
        shared.storage.grant_objects(shared.worker, read=vectors, write=vectors, delete=vectors)
        shared.storage.grant_objects(shared.start_job, delete=vectors)
        search = self._search()
        self.routes["search"] = search
        for function in (search, shared.worker):
            for statement in model_access(shared.config, Stack.of(self)):
                function.add_to_role_policy(statement)

    def _search(self) -> lambda_.Function:
        config, storage = self.shared.config, self.shared.storage
        search = self.shared.functions.create(
            "Search",
            "kinds/document/search",
            timeout=Duration.seconds(29),
            memory_mb=1769,  # one whole vCPU: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
            layers=("vectors",),
            reserved_concurrency=config.search_reserved_concurrency,
            environment=embedding_environment(config)
            | {
                "JOBS_TABLE": storage.jobs.table_name,
                "DATA_BUCKET": storage.data.bucket_name,
                "CORS_ORIGINS": ",".join(config.cors_origins),
            },
        )
        storage.grant_jobs(search, "Query")
        storage.grant_objects(search, read=("vectors/",))
        return search


def embedding_environment(config: Config) -> dict[str, str]:
    """Which model embeds, where it runs, and how many of its calls a batch makes side by side."""
    calls = {"EMBEDDING_PARALLEL_CALLS": str(config.embedding_parallel_calls)}
    return {"EMBEDDING": config.embedding} | calls | index_environment(config)


def index_environment(config: Config) -> dict[str, str]:
    """The model and its dimensions name the vector index."""
    return {
        "EMBEDDING_MODEL": config.embedding_model,
        "EMBEDDING_DIMENSIONS": str(config.embedding_dimensions),
    }


def model_access(config: Config, stack: Stack) -> list[iam.PolicyStatement]:
    """Permission to call the configured embedding model; none if the model runs inside the function."""
    if config.embedding != "bedrock":
        return []
    model = f"arn:{stack.partition}:bedrock:{stack.region}::foundation-model/{config.embedding_model}"
    return [iam.PolicyStatement(actions=["bedrock:InvokeModel"], resources=[model])]
