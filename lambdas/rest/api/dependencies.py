"""What the API's routes work with, made once per warm function."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from core.aws import clients, settings
from core.aws.blobs import Blobs
from core.jobs import JobStore, Kind
from core.live.subscriptions import Audience
from core.webhooks.deliveries.queue import WebhooksQueue
from core.webhooks.deliveries.store import DeliveryStore
from core.webhooks.endpoints.health import HealthStore
from core.webhooks.endpoints.owner_log import OwnerLog
from core.webhooks.endpoints.store import Endpoints, Vault
from core.webhooks.transport.guard import Policy
from kinds import KINDS

DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS = 86_400, 3_600, 60


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    data_bucket: str
    secrets_key: str
    job_retention_days: int
    job_deadline_minutes: int
    idempotency_hours: int
    max_inline_bytes: int
    max_upload_bytes: int
    webhook_allow_http: bool
    webhook_circuit_failures: int
    allow_private_cidrs: tuple[str, ...]
    cors_origins: str
    link_hours: int
    live_url: str
    webhooks_queue_url: str
    max_webhooks: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    kinds: Mapping[str, Kind]
    jobs: JobStore
    audience: Audience
    endpoints: Endpoints
    deliveries: DeliveryStore
    health: HealthStore
    owner_log: OwnerLog
    webhooks_queue: WebhooksQueue
    blobs: Blobs
    policy: Policy
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        KINDS,
        JobStore(dynamodb, config.jobs_table),
        Audience(dynamodb, config.jobs_table),
        Endpoints(dynamodb, config.jobs_table, Vault(clients.client("kms"), config.secrets_key)),
        DeliveryStore(dynamodb, config.deliveries_table),
        HealthStore(dynamodb, config.deliveries_table, failures_to_open=config.webhook_circuit_failures),
        OwnerLog(dynamodb, config.jobs_table, retention_seconds=config.job_retention_days * DAY_SECONDS),
        WebhooksQueue(clients.client("sqs"), config.webhooks_queue_url),
        Blobs(clients.s3(), config.data_bucket),
        Policy.of(allow_http=config.webhook_allow_http, allow_private_cidrs=config.allow_private_cidrs),
        config,
    )
