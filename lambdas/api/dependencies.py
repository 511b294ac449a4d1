"""What the API's routes work with, made once per warm function."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from core import clients, settings
from core.blobs import Blobs
from core.documents.catalog import Catalog
from core.jobs import JobStore
from core.webhooks.endpoints import Endpoints, Vault
from core.webhooks.guard import Policy

DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS = 86_400, 3_600, 60


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    data_bucket: str
    secrets_key: str
    job_retention_days: int
    job_deadline_minutes: int
    idempotency_hours: int
    max_inline_bytes: int
    max_upload_bytes: int
    webhook_allow_http: bool
    allow_private_cidrs: tuple[str, ...]
    cors_origins: str
    indexing_queue_url: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    catalog: Catalog
    endpoints: Endpoints
    blobs: Blobs
    sqs: Any
    policy: Policy
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        Catalog(dynamodb, config.jobs_table),
        Endpoints(dynamodb, config.jobs_table, Vault(clients.client("kms"), config.secrets_key)),
        Blobs(clients.s3(), config.data_bucket),
        clients.client("sqs"),
        Policy.of(allow_http=config.webhook_allow_http, allow_private_cidrs=config.allow_private_cidrs),
        config,
    )
