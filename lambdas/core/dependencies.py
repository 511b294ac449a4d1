"""What functions work with. Each part is made when it is first used, and kept while the function is warm.

A function uses the parts that it needs and so reads the settings that these need: a test holds the environment in
the template against that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from core.aws import clients
from core.aws.settings import Environment, Setting, flag, mapping, number, numbers, text, texts
from core.llm.catalog import read_models

if TYPE_CHECKING:
    from core.auth import Epochs, KeyStore
    from core.aws.blobs import Blobs
    from core.jobs.deletion import Deletion
    from core.jobs.kind import Services
    from core.jobs.publisher import EventPublisher
    from core.jobs.store import JobStore
    from core.jobs.tombstones import Tombstones
    from core.limits.daily import DailyQuotas
    from core.limits.holds import Holds
    from core.live.sockets import Sockets
    from core.live.subscriptions import Subscriptions
    from core.llm.caller import ModelCaller
    from core.llm.gate import ModelGate
    from core.llm.provider import Provider
    from core.webhooks.deliveries.after_attempt import AfterAttempt
    from core.webhooks.deliveries.bulk import BulkStore
    from core.webhooks.deliveries.health_store import HealthStore
    from core.webhooks.deliveries.index import DeliveryIndex
    from core.webhooks.deliveries.queue import WebhooksQueue
    from core.webhooks.deliveries.rate_limit import RateLimiter
    from core.webhooks.deliveries.store import DeliveryStore
    from core.webhooks.endpoints.owner_log import OwnerLog
    from core.webhooks.endpoints.store import Endpoints
    from core.webhooks.transport.connection_pool import ConnectionPool
    from core.webhooks.transport.guard import Policy

T = TypeVar("T")
DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS = 86_400, 3_600, 60


class Settings(Environment):
    """Every setting but those of single kinds. A function has those that it needs."""

    jobs_table = text()
    deliveries_table = text()
    keys_table = text()
    data_bucket = text()
    secrets_key = text()
    events_topic = text()
    alerts_topic = text()
    live_url = text()
    state_machines = mapping()
    indexing_queue_url = text()
    indexing_dlq_url = text()
    embedding_queue_url = text()
    embedding_dlq_url = text()
    notify_queue_url = text()
    webhooks_queue_url = text()
    webhooks_dlq_url = text()
    job_retention_days = number()
    job_deadline_minutes = number()
    delivery_retention_days = number()
    idempotency_hours = number()
    link_hours = number()
    epoch_cache_seconds = number()
    wait_seconds_max = number()
    max_inline_bytes = number()
    max_upload_bytes = number()
    max_document_bytes = number()
    max_webhooks = number()
    max_open_jobs = number()
    max_running_jobs = number()
    max_model_calls_per_owner = number()
    max_uploads_per_day = number()
    max_tickets_per_day = number()
    max_holds_per_job = number()
    max_holds_per_owner = number()
    cors_origins = text()
    models = Setting("an object of models", read_models)
    max_output_tokens = number()
    openai_base_url = text()
    openai_key_secret = text()
    webhook_allow_http = flag()
    allow_private_cidrs = texts()
    own_hosts = texts()
    webhook_schedule_seconds = numbers()
    webhook_timeout_seconds = number()
    webhook_circuit_failures = number()
    webhook_disable_after_hours = number()


class part(Generic[T]):  # noqa: N801 like functools.cached_property, which it is but for the lock
    """A property that is made once, by one thread: making a boto3 client is not thread-safe."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Parts, owner: type) -> T: ...
    def __get__(self, instance: Parts | None, owner: type) -> Self | T:
        if instance is None:
            return self
        made = vars(instance)
        with instance.lock:
            if self._name not in made:
                made[self._name] = self._make(instance)
        value: T = made[self._name]
        return value


class Parts:
    """Holds what its parts have made."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def cache_clear(self) -> None:
        """Forget all parts, as a cold start does."""
        lock = self.lock
        vars(self).clear()
        self.lock = lock


class Dependencies(Parts):
    """The parts that are not of a single kind."""

    @part
    def settings(self) -> Settings:
        return Settings()

    # ── clients ──────────────────────────────────────────────────────────────────────────────────────────

    @part
    def dynamodb(self) -> Any:
        return clients.dynamodb()

    @part
    def sqs(self) -> Any:
        return clients.client("sqs")

    @part
    def states(self) -> Any:
        return clients.client("stepfunctions")

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────

    @part
    def jobs(self) -> JobStore:
        from core.jobs.store import JobStore

        return JobStore(self.dynamodb, self.settings.jobs_table)

    @part
    def tombstones(self) -> Tombstones:
        from core.jobs.tombstones import Tombstones

        return Tombstones(self.dynamodb, self.settings.jobs_table)

    @part
    def deletion(self) -> Deletion:
        from core.jobs.deletion import Deletion
        from core.webhooks.deliveries.erasure import Erasure

        erasure = Erasure(self.deliveries, self.endpoints)
        return Deletion(self.dynamodb, self.settings.jobs_table, self.tombstones, self.blobs, erasure.erase)

    @part
    def blobs(self) -> Blobs:
        from core.aws.blobs import Blobs

        return Blobs(clients.s3(), self.settings.data_bucket)

    @part
    def services(self) -> Services:
        from core.jobs.kind import Services

        return Services(self.blobs, self.dynamodb, self.settings.jobs_table)

    @part
    def publisher(self) -> EventPublisher:
        from core.jobs.publisher import EventPublisher

        return EventPublisher(clients.client("sns"), self.settings.events_topic, self.settings.alerts_topic)

    # ── callers ──────────────────────────────────────────────────────────────────────────────────────────

    @part
    def keys(self) -> KeyStore:
        from core.auth import KeyStore

        return KeyStore(self.dynamodb, self.settings.keys_table)

    @part
    def daily_quotas(self) -> DailyQuotas:
        from core.limits.daily import DailyQuotas

        return DailyQuotas(self.dynamodb, self.settings.jobs_table)

    @part
    def holds(self) -> Holds:
        from core.limits.holds import Holds

        config = self.settings
        per_subject, per_owner = config.max_holds_per_job, config.max_holds_per_owner
        return Holds(self.dynamodb, config.jobs_table, per_subject=per_subject, per_owner=per_owner)

    @part
    def epochs(self) -> Epochs:
        from core.auth import Epochs

        return Epochs(self.keys, seconds=self.settings.epoch_cache_seconds)

    @part
    def subscriptions(self) -> Subscriptions:
        from core.live.subscriptions import Subscriptions

        return Subscriptions(self.dynamodb, self.settings.jobs_table)

    @part
    def sockets(self) -> Sockets:
        from core.live.sockets import Sockets

        return Sockets(clients.management(self.settings.live_url))

    # ── models ───────────────────────────────────────────────────────────────────────────────────────────

    @part
    def bedrock(self) -> Provider:
        from core.llm.bedrock import BedrockProvider

        return BedrockProvider(clients.model("bedrock-runtime"))

    @part
    def openai(self) -> Provider:
        from core.llm.openai import OpenAIProvider, read_key

        key = read_key(clients.client("secretsmanager"), self.settings.openai_key_secret)
        return OpenAIProvider(self.settings.openai_base_url, key)

    @part
    def model_gate(self) -> ModelGate:
        from core.llm.circuit import Circuits
        from core.llm.gate import ModelGate
        from core.llm.rate_limit import RateLimiter

        table = self.settings.jobs_table
        return ModelGate(Circuits(self.dynamodb, table), RateLimiter(self.dynamodb, table))

    @part
    def model_caller(self) -> ModelCaller:
        from core.jobs.usage import UsageStore
        from core.llm.caller import ModelCaller
        from core.llm.in_flight import ModelCalls

        usage = UsageStore(self.dynamodb, self.settings.jobs_table)
        providers = {"bedrock": lambda: self.bedrock, "openai": lambda: self.openai}
        limit = self.settings.max_model_calls_per_owner
        calls = ModelCalls(self.dynamodb, self.settings.jobs_table, per_owner=limit)
        return ModelCaller(lambda name: providers[name](), self.model_gate, calls, self.blobs, usage)

    # ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────

    @part
    def endpoints(self) -> Endpoints:
        """Endpoints without their secrets."""
        from core.webhooks.endpoints.store import Endpoints

        return Endpoints(self.dynamodb, self.settings.jobs_table)

    @part
    def endpoints_with_secrets(self) -> Endpoints:
        from core.webhooks.endpoints.cipher import SecretCipher
        from core.webhooks.endpoints.store import Endpoints

        cipher = SecretCipher(clients.client("kms"), self.settings.secrets_key)
        return Endpoints(self.dynamodb, self.settings.jobs_table, cipher)

    @part
    def owner_log(self) -> OwnerLog:
        from core.webhooks.endpoints.owner_log import OwnerLog

        seconds = self.settings.job_retention_days * DAY_SECONDS
        return OwnerLog(self.dynamodb, self.settings.jobs_table, retention_seconds=seconds)

    @part
    def health(self) -> HealthStore:
        from core.webhooks.deliveries.health_store import HealthStore

        failures = self.settings.webhook_circuit_failures
        return HealthStore(self.dynamodb, self.settings.deliveries_table, failures_to_open=failures)

    @part
    def deliveries(self) -> DeliveryStore:
        from core.webhooks.deliveries.store import DeliveryStore

        return DeliveryStore(self.dynamodb, self.settings.deliveries_table)

    @part
    def delivery_index(self) -> DeliveryIndex:
        from core.webhooks.deliveries.index import DeliveryIndex

        return DeliveryIndex(self.dynamodb, self.settings.deliveries_table)

    @part
    def rate_limiter(self) -> RateLimiter:
        from core.webhooks.deliveries.rate_limit import RateLimiter

        return RateLimiter(self.dynamodb, self.settings.deliveries_table)

    @part
    def bulk(self) -> BulkStore:
        from core.webhooks.deliveries.bulk import BulkStore

        return BulkStore(clients.high_throughput("dynamodb"), self.settings.deliveries_table, self.deliveries)

    @part
    def webhooks_queue(self) -> WebhooksQueue:
        from core.webhooks.deliveries.queue import WebhooksQueue

        return WebhooksQueue(clients.high_throughput("sqs"), self.settings.webhooks_queue_url)

    @part
    def after_attempt(self) -> AfterAttempt:
        from core.webhooks.deliveries.after_attempt import AfterAttempt

        return AfterAttempt(self.jobs, self.deliveries, self.webhooks_queue)

    @part
    def connection_pool(self) -> ConnectionPool:
        from core.webhooks.transport.connection_pool import ConnectionPool

        return ConnectionPool()

    @part
    def policy(self) -> Policy:
        """Which URLs webhooks may reach. The function's own surroundings are never among them."""
        from core.webhooks.transport.guard import Policy

        return Policy.of(
            allow_http=self.settings.webhook_allow_http,
            allow_private_cidrs=self.settings.allow_private_cidrs,
            own_hosts=self.settings.own_hosts,
            runtime_api=os.environ.get("AWS_LAMBDA_RUNTIME_API", ""),
            credentials_uri=os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", ""),
        )


dependencies = Dependencies()
