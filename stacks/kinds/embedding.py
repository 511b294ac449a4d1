"""Bulk embeddings: Plan ▸ Embed (Map over the queue) ▸ Export. The worker makes all calls."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_

from stacks.kinds.base import KindConstruct
from stacks.storage import RESULTS

MAX_LINES = 50_000
"""Of a job, as in lambdas/kinds/embedding/lines.py."""
BYTES_PER_NUMBER = 4 + 4 + 17
"""On the disk: the vector as it was stored, in Parquet, and in JSON."""
MAX_DISK_MB = 10_240  # https://docs.aws.amazon.com/lambda/latest/dg/configuration-ephemeral-storage.html


class EmbeddingConstruct(KindConstruct):
    """The functions of its first and its last stage."""

    def tasks(self) -> Mapping[str, lambda_.Function]:
        config, work = self.shared.config, ("work/",)
        plan = self.function(
            "PlanEmbedding",
            "kinds/embedding/plan_embedding",
            timeout=Duration.minutes(5),
            environment={
                "TEXTS_PER_BATCH": str(config.texts_per_batch),
                "TOKENS_PER_BATCH": str(config.tokens_per_batch),
            },
            read=("inputs/", "uploads/"),
            write=work,
        )
        export = self.function(
            "ExportEmbedding",
            "kinds/embedding/export_embedding",
            memory_mb=1769,  # one whole vCPU: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
            disk_mb=min(MAX_DISK_MB, 512 + MAX_LINES * config.embedding_dimensions * BYTES_PER_NUMBER // 2**20),
            environment={"EMBEDDING_DIMENSIONS": str(config.embedding_dimensions)},
            read=work,
            write=(RESULTS,),
            delete=("work/", RESULTS),
        )
        return {"PlanEmbedding": plan, "ExportEmbedding": export}
