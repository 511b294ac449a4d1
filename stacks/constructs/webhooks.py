"""Webhooks: one delivery per event and endpoint (`dispatch`), sent and retried by `webhook_sender`."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions
from stacks.constructs.job_queue import JobQueue
from stacks.storage import StorageStack


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
        tables = {
            "JOBS_TABLE": storage.jobs.table_name,
            "DELIVERIES_TABLE": storage.deliveries.table_name,
        }
        self.sender = functions.create(
            "webhook_sender",
            # a batch is sent at once, each within its own deadline, so one deadline and some slack is enough
            timeout=Duration.seconds(config.webhook_timeout_seconds + 30),
            environment=tables
            | outbound_environment(config)
            | {
                "WEBHOOK_SCHEDULE_SECONDS": json.dumps(list(config.webhook_schedule_seconds)),
                "WEBHOOK_TIMEOUT_SECONDS": str(config.webhook_timeout_seconds),
                "SECRETS_KEY": storage.secrets_key.key_arn,
            },
            # It re-sends to its own queue to wait; hops are limited by the schedule, not by AWS's loop guard.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        self.queue = JobQueue(
            self, "Webhooks", worker=self.sender, batch_size=10, max_concurrency=config.webhooks_concurrency
        )
        self.dispatch = functions.create(
            "dispatch",
            timeout=Duration.seconds(30),
            environment=tables | {"DELIVERY_RETENTION_DAYS": str(config.delivery_retention_days)},
        )
        self.notify = JobQueue(
            self,
            "Notify",
            worker=self.dispatch,
            max_concurrency=config.notify_concurrency,
            swept=False,
        )
        for function in (self.sender, self.dispatch):
            function.add_environment("WEBHOOKS_QUEUE_URL", self.queue.queue.queue_url)
            self.queue.queue.grant_send_messages(function)
            storage.deliveries.grant_read_write_data(function)
        storage.jobs.grant_read_data(self.dispatch)
        storage.jobs.grant_read_write_data(self.sender)
        storage.secrets_key.grant_decrypt(self.sender)


def outbound_environment(config: Config) -> dict[str, str]:
    """Which URLs webhooks may reach; the API checks them when they are given, the sender at each attempt."""
    return {
        "WEBHOOK_ALLOW_HTTP": json.dumps(config.webhook_allow_http),
        "ALLOW_PRIVATE_CIDRS": json.dumps(list(config.allow_private_cidrs)),
    }
