"""Webhooks: `dispatch` writes one delivery per event and endpoint, `webhook_sender` sends it when it is due."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.job_queue import JobQueue
from stacks.storage import StorageStack, table_actions


class Webhooks(Construct):
    """notify ▸ dispatch ▸ webhooks ▸ webhook_sender ▸ somebody's URL."""

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
        self._config, self._functions, self._storage = config, functions, storage
        self.sender = self._sender()
        self.queue = JobQueue(
            self, "Webhooks", worker=self.sender, batch_size=10, max_concurrency=config.webhooks_concurrency
        )
        self.dispatch = self._dispatch()
        self.notify = JobQueue(
            self,
            "Notify",
            worker=self.dispatch,
            max_concurrency=config.notify_concurrency,
            swept=False,
        )
        self.dispatch.add_environment("NOTIFY_QUEUE_URL", self.notify.queue.queue_url)
        self.waker = self._waker()
        self._grant()

    def _sender(self) -> lambda_.Function:
        config = self._config
        return self._functions.create(
            "Sender",
            "webhooks/sender",
            # a batch is sent at once, each within its own deadline, so one deadline and some slack is enough
            timeout=Duration.seconds(config.webhook_timeout_seconds + 30),
            layers=("signing",),
            memory_mb=1024,  # it has as much CPU as memory, and a busy sender needs it
            environment=self._tables()
            | self._retries()
            | outbound_environment(config)
            | {
                "WEBHOOK_TIMEOUT_SECONDS": str(config.webhook_timeout_seconds),
                "WEBHOOK_DISABLE_AFTER_HOURS": str(config.webhook_disable_after_hours),
                "SECRETS_KEY": self._storage.secrets_key.key_arn,
                "JOB_RETENTION_DAYS": str(config.job_retention_days),
                "DELIVERY_RETENTION_DAYS": str(config.delivery_retention_days),
            },
            # It re-sends to its own queue to wait; hops are limited by the schedule, not by AWS's loop guard.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )

    def _dispatch(self) -> lambda_.Function:
        return self._functions.create(
            "Dispatch",
            "webhooks/dispatch",
            timeout=Duration.minutes(1),
            environment=self._tables()
            | {
                "DELIVERY_RETENTION_DAYS": str(self._config.delivery_retention_days),
                "JOB_DEADLINE_MINUTES": str(self._config.job_deadline_minutes),
            },
            # A replay goes on by a message to its own queue; each hop moves its cursor, so there is an end.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )

    def _waker(self) -> lambda_.Function:
        """What is due later than a queue can delay, what was never queued, and what the queue gave up."""
        dead_letters = self.queue.dead_letters
        waker = self._functions.create(
            "RetryScheduler",
            "webhooks/retry_scheduler",
            timeout=Duration.seconds(58),
            retries=0,
            environment=self._tables() | self._retries() | {"WEBHOOKS_DLQ_URL": dead_letters.queue_url},
        )
        dead_letters.grant_consume_messages(waker)
        call_every(self, "EveryMinute", Duration.minutes(1), waker)
        return waker

    def _grant(self) -> None:
        """What each calls and nothing else: none has to scan or to delete, and the sender talks to strangers."""
        jobs, deliveries = self._storage.jobs, self._storage.deliveries
        for function in (self.sender, self.dispatch, self.waker):
            function.add_environment("WEBHOOKS_QUEUE_URL", self.queue.queue.queue_url)
            self.queue.queue.grant_send_messages(function)
            deliveries.grant(function, *table_actions("GetItem", "PutItem", "UpdateItem"))
        deliveries.grant(self.sender, *table_actions("BatchGetItem", "BatchWriteItem"))
        deliveries.grant(self.dispatch, *table_actions("Query"))
        deliveries.grant(self.waker, *table_actions("Query"))
        jobs.grant(self.sender, *table_actions("BatchGetItem", "PutItem"))
        jobs.grant(self.dispatch, *table_actions("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem"))
        jobs.grant(self.waker, *table_actions("PutItem"))  # what a job shows of its webhook
        self.notify.queue.grant_send_messages(self.dispatch)
        self._storage.secrets_key.grant_decrypt(self.sender)

    def _tables(self) -> dict[str, str]:
        return {
            "JOBS_TABLE": self._storage.jobs.table_name,
            "DELIVERIES_TABLE": self._storage.deliveries.table_name,
        }

    def _retries(self) -> dict[str, str]:
        return {
            "WEBHOOK_SCHEDULE_SECONDS": json.dumps(list(self._config.webhook_schedule_seconds)),
            "WEBHOOK_CIRCUIT_FAILURES": str(self._config.webhook_circuit_failures),
        }


def outbound_environment(config: Config) -> dict[str, str]:
    """Which URLs webhooks may reach; the API checks them when they are given, the sender at each attempt."""
    return {
        "WEBHOOK_ALLOW_HTTP": json.dumps(config.webhook_allow_http),
        "ALLOW_PRIVATE_CIDRS": json.dumps(list(config.allow_private_cidrs)),
    }
