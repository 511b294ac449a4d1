"""What dispatching works with, made once per warm function."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.aws import clients, settings
from core.jobs import JobStore, Kind
from core.webhooks.deliveries.queue import WebhooksQueue
from core.webhooks.deliveries.store import DeliveryStore
from core.webhooks.endpoints.store import Endpoints
from kinds import KINDS

DAY_SECONDS, MINUTE_SECONDS = 86_400, 60


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    webhooks_queue_url: str
    notify_queue_url: str
    delivery_retention_days: int
    job_deadline_minutes: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    kinds: Mapping[str, Kind]
    jobs: JobStore
    deliveries: DeliveryStore
    endpoints: Endpoints
    queue: WebhooksQueue
    sqs: Any
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb, sqs = settings.load(Settings), clients.dynamodb(), clients.client("sqs")
    return Dependencies(
        KINDS,
        JobStore(dynamodb, config.jobs_table),
        DeliveryStore(dynamodb, config.deliveries_table),
        Endpoints(dynamodb, config.jobs_table),
        WebhooksQueue(sqs, config.webhooks_queue_url),
        sqs,
        config,
    )
