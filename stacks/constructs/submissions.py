"""What functions need that submit jobs: the API, and the WebSocket API for questions."""

from __future__ import annotations

import json

from stacks.config import Config
from stacks.storage import StorageStack


def submission_environment(config: Config, storage: StorageStack) -> dict[str, str]:
    """The limits of a submission, and the settings with which kinds check and price their jobs."""
    return {
        "JOBS_TABLE": storage.jobs.table_name,
        "DATA_BUCKET": storage.data.bucket_name,
        "JOB_RETENTION_DAYS": str(config.job_retention_days),
        "JOB_DEADLINE_MINUTES": str(config.job_deadline_minutes),
        "IDEMPOTENCY_HOURS": str(config.idempotency_hours),
        "MAX_INLINE_BYTES": str(config.max_inline_bytes),
        "MAX_UPLOAD_BYTES": str(config.max_upload_bytes),
        "MAX_DOCUMENT_BYTES": str(config.max_document_bytes),
        "MAX_OPEN_JOBS": str(config.max_open_jobs),
        "MODELS": json.dumps(config.models),
    } | agent_environment(config)


def agent_environment(config: Config) -> dict[str, str]:
    """The sizes of an agent's calls."""
    return {
        "AGENT_CONTEXT_TOKENS": str(config.agent_context_tokens),
        "AGENT_ANSWER_TOKENS": str(config.agent_answer_tokens),
    }
