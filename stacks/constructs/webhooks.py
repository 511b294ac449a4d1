"""Webhooks: `dispatch` writes one delivery per event and endpoint, `sender` sends it when it is due."""

from __future__ import annotations

import json
from collections.abc import Collection

from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.job_queue import JobQueue
from stacks.constructs.jobs import CHANGE_JOBS
from stacks.storage import StorageStack


class Webhooks(Construct):
    """notify ▸ dispatch ▸ webhooks ▸ sender ▸ the endpoint's URL; `retry_scheduler` queues later attempts."""

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
            drained=False,
        )
        self.dispatch.add_environment("NOTIFY_QUEUE_URL", self.notify.queue.queue_url)
        self.retry_scheduler = self._retry_scheduler()
        self._grant()

    def _sender(self) -> lambda_.Function:
        config = self._config
        return self._functions.create(
            "Sender",
            "webhooks/sender",
            # While attempts are slow it takes more messages, for 5 s and one webhook timeout. The last ones take
            # another webhook timeout, and some seconds to wait for room and to be stored.
            timeout=Duration.seconds(2 * config.webhook_timeout_seconds + 15),
            layers=("signing",),
            memory_mb=1024,  # Lambda gives CPU in proportion to memory, and a busy sender needs it
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
            # It waits by sending a message to its own queue. The retry schedule limits how often.
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
            # It continues a replay by a message to its own queue. Each message moves the cursor, so it ends.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )

    def _retry_scheduler(self) -> lambda_.Function:
        """Once a minute it queues deliveries that are due or were never queued, and drains the DLQ."""
        dead_letters = self.queue.dead_letters
        retry_scheduler = self._functions.create(
            "RetryScheduler",
            "webhooks/retry_scheduler",
            timeout=Duration.seconds(58),
            retries=0,
            environment=self._tables() | self._retries() | {"WEBHOOKS_DLQ_URL": dead_letters.queue_url},
        )
        dead_letters.grant_consume_messages(retry_scheduler)
        call_every(self, "EveryMinute", Duration.minutes(1), retry_scheduler)
        return retry_scheduler

    def _grant(self) -> None:
        """Exactly the calls that each makes. The sender may not scan or delete, since it calls unknown servers."""
        storage = self._storage
        for function in (self.sender, self.dispatch, self.retry_scheduler):
            function.add_environment("WEBHOOKS_QUEUE_URL", self.queue.queue.queue_url)
            self.queue.queue.grant_send_messages(function)
            index = function is not self.sender
            storage.grant_deliveries(function, "GetItem", "PutItem", "UpdateItem", index=index)
        storage.grant_deliveries(self.sender, "BatchGetItem", "BatchWriteItem")
        storage.grant_jobs(self.sender, "BatchGetItem", "PutItem")
        # CHANGE_JOBS: a replay that ends is not open any more
        storage.grant_jobs(self.dispatch, *CHANGE_JOBS, "BatchGetItem", "Query", index=True)
        storage.grant_jobs(self.retry_scheduler, "PutItem")  # a job's last webhook attempt
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
    """Which URLs webhooks may reach. The API checks them when they are set, the sender at each attempt."""
    return {
        "WEBHOOK_ALLOW_HTTP": json.dumps(config.webhook_allow_http),
        "ALLOW_PRIVATE_CIDRS": json.dumps(list(config.allow_private_cidrs)),
    }


def own_hosts(stack: Stack, config: Config, api_ids: Collection[str]) -> str:
    """The hosts of these APIs (REST and WebSocket) and of the configuration, as JSON.

    From the ids of the APIs: their URLs depend on the stage, and so on the functions that get this.
    """
    suffixes = (f"{stack.region}.{stack.url_suffix}", f"{stack.region}.api.aws")  # IPv4, and dual-stack
    hosts = [f"{api}.execute-api.{suffix}" for api in api_ids for suffix in suffixes]
    return stack.to_json_string([*hosts, *config.own_hosts])
