"""Summaries: Plan ▸ Summarize (Map over the queue) ▸ Reduce (by the queue). The worker makes all calls."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_

from stacks.kinds.base import KindConstruct


class SummaryConstruct(KindConstruct):
    """The function of its first stage, which reads documents as those of the kind `document` do."""

    def tasks(self) -> Mapping[str, lambda_.Function]:
        config, work = self.shared.config, ("work/",)
        plan = self.function(
            "PlanSummary",
            "kinds/summary/plan_summary",
            # parsing has a timeout of its own; reading an index and writing the parts take a minute more, or two
            timeout=Duration.seconds(config.parse_timeout_seconds + 180),
            memory_mb=max(1024, config.parse_memory_mb + 512),
            layers=("documents",),
            reserved_concurrency=config.parsing_reserved_concurrency,
            environment={
                "MODELS": json.dumps(config.models),
                "SUMMARY_PART_TOKENS": str(config.summary_part_tokens),
                "MAX_DOCUMENT_BYTES": str(config.max_document_bytes),
                "MAX_CHARACTERS": str(config.max_characters),
                "PARSE_TIMEOUT_SECONDS": str(config.parse_timeout_seconds),
                "PARSE_MEMORY_MB": str(config.parse_memory_mb),
            },
            read=("inputs/", "uploads/", "vectors/"),
            write=work,
        )
        return {"PlanSummary": plan}

    def grant(self) -> None:
        """The last stage reads the result that the worker has written."""
        self.shared.storage.grant_objects(self.shared.finish_job, read=("work/",))
