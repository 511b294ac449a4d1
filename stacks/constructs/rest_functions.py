"""The functions behind the REST API that serve every kind of job."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions
from stacks.constructs.jobs import CHANGE_JOBS
from stacks.constructs.language_models import models_environment
from stacks.constructs.webhooks import outbound_environment
from stacks.storage import RESULTS, StorageStack, table_actions

GATEWAY_TIMEOUT = Duration.seconds(29)
EPOCH_CACHE_SECONDS = 60
"""How long links live after a revocation, at most; never longer than a revoked key."""


class RestFunctions(Construct):
    """`authorizer` checks keys, `long_poll` holds requests open, `api` answers all others."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        functions: Functions,
        storage: StorageStack,
        indexing: sqs.Queue,
        webhooks: sqs.Queue,
        live_url: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._config, self._functions, self._storage = config, functions, storage
        self.authorizer = self._authorizer()
        self.api = self._api(indexing, webhooks, live_url)
        self.long_poll = self._long_poll()

    def _authorizer(self) -> lambda_.Function:
        authorizer = self._functions.create(
            "Authorizer",
            "rest/authorizer",
            timeout=Duration.seconds(10),
            environment={"KEYS_TABLE": self._storage.keys.table_name},
        )
        self._storage.keys.grant(authorizer, *table_actions("GetItem"))
        return authorizer

    def _api(self, indexing: sqs.Queue, webhooks: sqs.Queue, live_url: str) -> lambda_.Function:
        config, storage = self._config, self._storage
        api = self._functions.create(
            "Api",
            "rest/api",
            timeout=GATEWAY_TIMEOUT,
            memory_mb=1024,
            environment=self._http_environment()
            | outbound_environment(config)
            | models_environment(config)
            | {
                "EMBEDDING": config.embedding,
                "EMBEDDING_MODEL": config.embedding_model,
                "SUMMARY_PART_TOKENS": str(config.summary_part_tokens),
                "FINE_TUNE_MODELS": json.dumps(config.fine_tune_models),
                "DATA_BUCKET": storage.data.bucket_name,
                "SECRETS_KEY": storage.secrets_key.key_arn,
                "JOB_DEADLINE_MINUTES": str(config.job_deadline_minutes),
                "IDEMPOTENCY_HOURS": str(config.idempotency_hours),
                "MAX_INLINE_BYTES": str(config.max_inline_bytes),
                "MAX_UPLOAD_BYTES": str(config.max_upload_bytes),
                "INDEXING_QUEUE_URL": indexing.queue_url,
                "WEBHOOKS_QUEUE_URL": webhooks.queue_url,
                "WEBHOOK_CIRCUIT_FAILURES": str(config.webhook_circuit_failures),
                "MAX_WEBHOOKS": str(config.max_webhooks),
                "MAX_OPEN_JOBS": str(config.max_open_jobs),
                "MAX_UPLOADS_PER_DAY": str(config.max_uploads_per_day),
                "MAX_TICKETS_PER_DAY": str(config.max_tickets_per_day),
                "LINK_HOURS": str(config.link_hours),
                "DELIVERY_RETENTION_DAYS": str(config.delivery_retention_days),
                "LIVE_URL": live_url,
            },
            layers=("signing",),
        )
        indexing.grant_send_messages(api)
        webhooks.grant_send_messages(api)
        # UpdateItem: an edited endpoint's circuit closes, and the deliveries that waited for it become due
        storage.grant_deliveries(api, "GetItem", "BatchGetItem", "Query", "UpdateItem", index=True)
        storage.grant_jobs(api, *CHANGE_JOBS, "Query", "BatchGetItem", index=True)
        storage.grant_objects(
            api,
            read=("inputs/", "uploads/", RESULTS),
            write=("inputs/", "uploads/"),
            abort=("uploads/",),
        )
        storage.secrets_key.grant(api, "kms:Encrypt")
        storage.grant_epochs(api)
        return api

    def _long_poll(self) -> lambda_.Function:
        config, storage = self._config, self._storage
        long_poll = self._functions.create(
            "LongPoll",
            "rest/long_poll",
            timeout=GATEWAY_TIMEOUT,
            memory_mb=256,  # it sleeps most of the time
            environment=self._http_environment()
            | {
                "WAIT_SECONDS_MAX": str(config.wait_seconds_max),
                "MAX_HOLDS_PER_JOB": str(config.max_holds_per_job),
                "MAX_HOLDS_PER_OWNER": str(config.per_owner(config.max_holds_per_owner)),
            },
            reserved_concurrency=config.long_poll_reserved_concurrency,
        )
        # PutItem, DeleteItem: leases of held requests, and the `ping` event that tests a webhook
        storage.grant_jobs(long_poll, "GetItem", "Query", "PutItem", "DeleteItem")
        storage.grant_deliveries(long_poll, "GetItem", "Query")
        storage.grant_epochs(long_poll)
        return long_poll

    def _http_environment(self) -> dict[str, str]:
        return {
            "JOBS_TABLE": self._storage.jobs.table_name,
            "DELIVERIES_TABLE": self._storage.deliveries.table_name,
            "JOB_RETENTION_DAYS": str(self._config.job_retention_days),
            "CORS_ORIGINS": ",".join(self._config.cors_origins),
            "KEYS_TABLE": self._storage.keys.table_name,
            "EPOCH_CACHE_SECONDS": str(min(EPOCH_CACHE_SECONDS, self._config.authorizer_cache_seconds)),
        }
