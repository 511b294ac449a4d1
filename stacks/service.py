"""ServiceStack: reads like the picture in README.

POST /jobs ▸ api ▸ jobs table ▸ stream ▸ publisher ▸ doc-events ▸ { indexing ▸ a state machine a kind,
                                                                    embedding ▸ workers, notify ▸ webhooks }
"""

from __future__ import annotations

from collections.abc import Collection

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.alarms import Alarms
from stacks.constructs.fan_out import FanOut
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.gateway_logs import GatewayLogs
from stacks.constructs.job_queue import JobQueue
from stacks.constructs.jobs_stream import jobs_stream
from stacks.constructs.live_api import LiveApi
from stacks.constructs.rest_api import RestApi
from stacks.constructs.webhooks import Webhooks, outbound_environment
from stacks.kinds.base import Shared
from stacks.kinds.base import construct as kind_construct
from stacks.kinds.declarations import Kind
from stacks.kinds.definition import camel
from stacks.storage import RESULTS, StorageStack


class ServiceStack(Stack):
    """Everything that can be deleted and deployed again without losing a job."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        storage: StorageStack,
        kinds: Collection[Kind],
        **kwargs: object,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)  # type: ignore[arg-type]
        self._config, self._storage = config, storage
        self.functions = Functions(self, "Functions", config=config)
        self.fan_out = FanOut(self, "FanOut", alert_email=config.alert_email)
        self.webhooks = Webhooks(self, "Webhooks", config=config, functions=self.functions, storage=storage)
        self.publisher = self._publisher()
        self.finish = self._finish()
        self.embedding = self._embedding()
        self.indexing = self._indexing()
        shared = Shared(
            config=config,
            storage=storage,
            functions=self.functions,
            start=self.starter,
            finish=self.finish,
            worker=self.worker,
            embedding=self.embedding,
        )
        place = Construct(self, "Kinds")  # a kind may have the name of a construct of this stack
        self.kinds = [kind_construct(place, kind=kind, shared=shared) for kind in kinds]
        self._name_state_machines()
        self._subscribe(kinds)
        self.sweep = self._sweep()
        self.gateway_logs = GatewayLogs(self, "GatewayLogs", config=config)
        self.live = LiveApi(
            self, "Live", config=config, functions=self.functions, storage=storage, logs=self.gateway_logs
        )
        self.api = self._api()
        self.alarms = self._alarms()
        self._outputs()

    def _publisher(self) -> lambda_.Function:
        """The outbox's reader: each new event of the jobs table goes to SNS, in order within a job."""
        publisher = self.functions.create(
            "Publisher",
            "jobs/publisher",
            timeout=Duration.minutes(1),
            environment={
                "EVENTS_TOPIC": self.fan_out.events.topic_arn,
                "ALERTS_TOPIC": self.fan_out.alerts.topic_arn,
                "DATA_BUCKET": self._storage.data.bucket_name,
            },
        )
        self.fan_out.events.grant_publish(publisher)
        self.fan_out.alerts.grant_publish(publisher)
        self._storage.grant_objects(publisher, write=("parked/",))
        new_events = {
            "eventName": lambda_.FilterRule.is_equal("INSERT"),
            "dynamodb": {"NewImage": {"entity": {"S": lambda_.FilterRule.is_equal("event")}}},
        }
        publisher.add_event_source(
            jobs_stream(
                self._storage,
                filters=[new_events],
                retry_attempts=1000,  # for about 12 hours: the age is what bounds them
                max_record_age=Duration.hours(12),
            )
        )
        return publisher

    def _finish(self) -> lambda_.Function:
        """Ends the jobs that state machines run."""
        finish = self.functions.create(
            "FinishJob", "jobs/finish_job", timeout=Duration.seconds(30), environment=self._data_environment()
        )
        self._storage.jobs.grant_read_write_data(finish)
        self._storage.grant_objects(finish, read=(RESULTS,), write=(RESULTS,))
        return finish

    def _embedding(self) -> JobQueue:
        """Every call of a model, whatever the kind: the queue's concurrency is one limit on all of them."""
        self.worker = self.functions.create(
            "Worker",
            "jobs/worker",
            timeout=Duration.minutes(5),
            memory_mb=1024,
            environment=self._data_environment(),
            # It waits by a message to its own queue; hops are limited by the message, not by AWS's loop guard.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        self._storage.jobs.grant_read_write_data(self.worker)
        self._storage.grant_objects(
            self.worker, read=("inputs/", "work/"), write=("work/", RESULTS), delete=("work/",)
        )
        queue = JobQueue(
            self,
            "Embedding",
            worker=self.worker,
            batch_size=1,
            max_concurrency=self._config.embedding_concurrency,
        )
        self.worker.add_environment("EMBEDDING_QUEUE_URL", queue.queue.queue_url)
        queue.queue.grant_send_messages(self.worker)
        return queue

    def _indexing(self) -> JobQueue:
        """Starts the executions of kinds that a state machine runs, and cleans up after jobs of every kind."""
        self.starter = self.functions.create(
            "StartJob", "jobs/start_job", timeout=Duration.minutes(1), environment=self._data_environment()
        )
        self._storage.jobs.grant_read_write_data(self.starter)
        self._storage.grant_objects(self.starter, delete=("work/",))
        return JobQueue(self, "Indexing", worker=self.starter, max_concurrency=self._config.indexing_concurrency)

    def _name_state_machines(self) -> None:
        machines = {one.kind.name: one.state_machine for one in self.kinds if one.state_machine}
        arns = {name: machine.state_machine_arn for name, machine in machines.items()}
        self.starter.add_environment("STATE_MACHINES", self.to_json_string(arns))
        for name, arn in arns.items():
            CfnOutput(self, f"{camel(name)}StateMachine", value=arn)

    def _subscribe(self, kinds: Collection[Kind]) -> None:
        """Which events each queue hears follows from what the kinds declare."""
        started = [kind.first_name for kind in kinds if kind.runs_on == "machine"]
        ended = [name for kind in kinds if kind.leaves_files for name in kind.final_names]
        worked = [kind.first_name for kind in kinds if kind.is_queued_to_worker]
        self.fan_out.subscribe(self.indexing, event_types=[*started, *ended])
        self.fan_out.subscribe(self.embedding, event_types=worked)
        self.fan_out.subscribe(self.webhooks.notify)

    def _sweep(self) -> lambda_.Function:
        """What Catch cannot see: dead messages and deadlines that have passed, once a minute."""
        dead = {
            "INDEXING_DLQ_URL": self.indexing.dead_letters,
            "EMBEDDING_DLQ_URL": self.embedding.dead_letters,
        }
        sweep = self.functions.create(
            "Reaper",
            "jobs/reaper",
            timeout=Duration.seconds(50),
            retries=0,
            environment={"JOBS_TABLE": self._storage.jobs.table_name}
            | {key: queue.queue_url for key, queue in dead.items()},
        )
        for queue in dead.values():
            queue.grant_consume_messages(sweep)
        self._storage.jobs.grant_read_write_data(sweep)
        for kind in self.kinds:
            if kind.state_machine:
                kind.state_machine.grant_task_response(sweep)
        call_every(self, "EveryMinute", Duration.minutes(1), sweep)
        return sweep

    def _api(self) -> RestApi:
        authorizer = self.functions.create(
            "Authorizer",
            "rest/authorizer",
            timeout=Duration.seconds(10),
            environment={"KEYS_TABLE": self._storage.keys.table_name},
        )
        self._storage.keys.grant(authorizer, "dynamodb:GetItem")
        return RestApi(
            self,
            "Rest",
            config=self._config,
            authorizer=authorizer,
            api=self._api_function(),
            wait=self._wait_function(),
            routes={path: function for kind in self.kinds for path, function in kind.routes.items()},
            logs=self.gateway_logs,
        )

    def _api_function(self) -> lambda_.Function:
        config, storage = self._config, self._storage
        api = self.functions.create(
            "Api",
            "rest/api",
            timeout=Duration.seconds(29),
            memory_mb=1024,
            environment=self._http_environment()
            | outbound_environment(config)
            | {
                "DATA_BUCKET": storage.data.bucket_name,
                "SECRETS_KEY": storage.secrets_key.key_arn,
                "JOB_RETENTION_DAYS": str(config.job_retention_days),
                "JOB_DEADLINE_MINUTES": str(config.job_deadline_minutes),
                "IDEMPOTENCY_HOURS": str(config.idempotency_hours),
                "MAX_INLINE_BYTES": str(config.max_inline_bytes),
                "MAX_UPLOAD_BYTES": str(config.max_upload_bytes),
                "INDEXING_QUEUE_URL": self.indexing.queue.queue_url,
                "DELIVERIES_TABLE": storage.deliveries.table_name,
                "WEBHOOKS_QUEUE_URL": self.webhooks.queue.queue.queue_url,
                "WEBHOOK_CIRCUIT_FAILURES": str(config.webhook_circuit_failures),
                "MAX_WEBHOOKS": str(config.max_webhooks),
                "LINK_HOURS": str(config.link_hours),
                "LIVE_URL": self.live.url,
            },
            layers=("signing",),
        )
        self.indexing.queue.grant_send_messages(api)
        self.webhooks.queue.queue.grant_send_messages(api)
        storage.deliveries.grant(api, "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query")
        storage.deliveries.grant(api, "dynamodb:UpdateItem")  # what a circuit holds is let go after an edit
        storage.jobs.grant_read_write_data(api)
        storage.grant_objects(api, read=("uploads/", RESULTS), write=("inputs/", "uploads/"), abort=("uploads/",))
        storage.secrets_key.grant(api, "kms:Encrypt")
        return api

    def _wait_function(self) -> lambda_.Function:
        wait = self.functions.create(
            "LongPoll",
            "rest/long_poll",
            timeout=Duration.seconds(29),
            environment=self._http_environment()
            | {
                "WAIT_SECONDS_MAX": str(self._config.wait_seconds_max),
                "DELIVERIES_TABLE": self._storage.deliveries.table_name,
                "JOB_RETENTION_DAYS": str(self._config.job_retention_days),
            },
        )
        self._storage.jobs.grant_read_data(wait)
        self._storage.jobs.grant(wait, "dynamodb:PutItem")  # the ping that tests a webhook
        self._storage.deliveries.grant(wait, "dynamodb:GetItem", "dynamodb:Query")
        return wait

    def _data_environment(self) -> dict[str, str]:
        return {"JOBS_TABLE": self._storage.jobs.table_name, "DATA_BUCKET": self._storage.data.bucket_name}

    def _http_environment(self) -> dict[str, str]:
        return {
            "JOBS_TABLE": self._storage.jobs.table_name,
            "CORS_ORIGINS": ",".join(self._config.cors_origins),
        }

    def _alarms(self) -> Alarms:
        return Alarms(
            self,
            "Alarms",
            topic=self.fan_out.alerts,
            publisher=self.publisher,
            push=self.live.push,
            waker=self.webhooks.waker,
            webhooks=self.webhooks.queue,
            dead_letters=(self.indexing, self.embedding, self.webhooks.notify, self.webhooks.queue),
        )

    def _outputs(self) -> None:
        CfnOutput(self, "ApiUrl", value=self.api.rest_api.url)
        CfnOutput(self, "LiveUrl", value=self.live.url)
        CfnOutput(self, "KeysTable", value=self._storage.keys.table_name)
        CfnOutput(self, "JobsTable", value=self._storage.jobs.table_name)
        CfnOutput(self, "DataBucket", value=self._storage.data.bucket_name)
        CfnOutput(self, "SecretsKey", value=self._storage.secrets_key.key_arn)
        CfnOutput(self, "DocEventsTopic", value=self.fan_out.events.topic_arn)
        CfnOutput(self, "ErrorAlertsTopic", value=self.fan_out.alerts.topic_arn)
