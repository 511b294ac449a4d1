"""What the sender works with, made once per warm function."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

from core.aws import clients, settings
from core.jobs import JobStore
from core.webhooks.deliveries.after_attempt import Aftermath
from core.webhooks.deliveries.bulk import BulkStore
from core.webhooks.deliveries.queue import WebhooksQueue
from core.webhooks.deliveries.store import DeliveryStore
from core.webhooks.endpoints.health import HealthStore
from core.webhooks.endpoints.owner_log import OwnerLog
from core.webhooks.endpoints.store import Endpoints, Vault
from core.webhooks.transport.connections import Connections
from core.webhooks.transport.guard import Policy

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    webhooks_queue_url: str
    webhook_schedule_seconds: tuple[int, ...]
    webhook_timeout_seconds: int
    webhook_circuit_failures: int
    webhook_disable_after_hours: int
    webhook_allow_http: bool
    allow_private_cidrs: tuple[str, ...]
    secrets_key: str
    job_retention_days: int
    delivery_retention_days: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    dynamodb: Any
    aftermath: Aftermath
    deliveries: DeliveryStore
    bulk: BulkStore
    endpoints: Endpoints
    health: HealthStore
    owner_log: OwnerLog
    queue: WebhooksQueue
    connections: Connections
    policy: Policy
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    deliveries = DeliveryStore(dynamodb, config.deliveries_table)
    queue = WebhooksQueue(clients.busy("sqs"), config.webhooks_queue_url)
    return Dependencies(
        dynamodb,
        Aftermath(JobStore(dynamodb, config.jobs_table), deliveries, queue),
        deliveries,
        BulkStore(clients.busy("dynamodb"), config.deliveries_table, deliveries),
        Endpoints(dynamodb, config.jobs_table, Vault(clients.client("kms"), config.secrets_key)),
        HealthStore(dynamodb, config.deliveries_table, failures_to_open=config.webhook_circuit_failures),
        OwnerLog(dynamodb, config.jobs_table, retention_seconds=config.job_retention_days * DAY_SECONDS),
        queue,
        Connections(),
        Policy.of(
            allow_http=config.webhook_allow_http,
            allow_private_cidrs=config.allow_private_cidrs,
            runtime_api=os.environ.get("AWS_LAMBDA_RUNTIME_API", ""),
            credentials_uri=os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", ""),
        ),
        config,
    )
