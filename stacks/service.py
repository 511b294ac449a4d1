"""ServiceStack: reads like the picture in README.

POST /jobs ▸ api ▸ jobs table ▸ stream ▸ publisher ▸ doc-events ▸ { indexing ▸ start_job ▸ a state machine a kind,
                                                                    embedding ▸ worker,
                                                                    notify ▸ dispatch ▸ webhooks ▸ sender }
"""

from __future__ import annotations

from collections.abc import Collection

from aws_cdk import Annotations, CfnOutput, Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.config import Config
from stacks.constructs.alarms import Alarms
from stacks.constructs.fan_out import FanOut
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.gateway_logs import GatewayLogs
from stacks.constructs.jobs import Embedding, Indexing, JobFinisher, Publisher, Reaper
from stacks.constructs.live_api import LiveApi
from stacks.constructs.rest_api import RestApi
from stacks.constructs.rest_functions import RestFunctions
from stacks.constructs.webhooks import Webhooks, own_hosts
from stacks.kinds.base import KindConstruct, Shared
from stacks.kinds.base import construct as kind_construct
from stacks.kinds.declarations import Kind
from stacks.kinds.definition import camel
from stacks.storage import StorageStack


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
        self._say_what_a_small_account_lacks()
        self._functions = functions = Functions(self, "Functions", config=config)

        self.logs = GatewayLogs(self, "GatewayLogs", config=config)
        self.live = LiveApi(self, "Live", config=config, functions=functions, storage=storage, logs=self.logs)
        self.fan_out = FanOut(self, "FanOut", alert_email=config.alert_email)
        self.publisher = Publisher(self, "Publisher", functions=functions, storage=storage, fan_out=self.fan_out)
        self.indexing = Indexing(self, "Indexing", config=config, functions=functions, storage=storage)
        self.embedding = Embedding(
            self, "Embedding", config=config, functions=functions, storage=storage, live=self.live
        )
        self.webhooks = Webhooks(self, "Webhooks", config=config, functions=functions, storage=storage)
        self._subscribe(kinds)

        self.finisher = JobFinisher(self, "JobFinisher", functions=functions, storage=storage)
        self.reaper = Reaper(
            self,
            "Reaper",
            functions=functions,
            storage=storage,
            indexing=self.indexing,
            embedding=self.embedding,
        )
        call_every(self, "EveryMinute", Duration.minutes(1), self.reaper.function)
        self.kinds = self._kinds(kinds)
        self._connect_state_machines()

        self.rest = self._rest()
        self.alarms = self._alarms()
        self._outputs()

    def _say_what_a_small_account_lacks(self) -> None:
        config = self._config
        if config.can_reserve:
            return
        held, running = config.per_owner(config.max_holds_per_owner), config.per_owner(config.max_running_jobs)
        Annotations.of(self).add_info(
            f"account_concurrency is {config.account_concurrency}: AWS reserves nothing in such an account, so "
            "requests that wait, searches and parsers share it with all other functions. One owner may have "
            f"{held} waiting requests and {running} running jobs at a time. To change that, raise the quota "
            "'Concurrent executions' (Service Quotas, AWS Lambda) and set account_concurrency"
        )

    def _subscribe(self, kinds: Collection[Kind]) -> None:
        """What the kinds declare decides which events each queue gets."""
        started = [kind.submitted_event for kind in kinds if kind.runs_on == "machine"]
        ended = [name for kind in kinds if kind.needs_clean_up for name in kind.final_events]
        worked = [kind.submitted_event for kind in kinds if kind.is_queued_to_worker]
        self.fan_out.subscribe(self.indexing, event_types=[*started, *ended])
        self.fan_out.subscribe(self.embedding, event_types=worked)
        self.fan_out.subscribe(self.webhooks.notify)

    def _kinds(self, kinds: Collection[Kind]) -> list[KindConstruct]:
        shared = Shared(
            config=self._config,
            storage=self._storage,
            functions=self._functions,
            start_job=self.indexing.worker,
            finish_job=self.finisher.function,
            worker=self.embedding.worker,
            embedding=self.embedding,
        )
        scope = Construct(self, "Kinds")  # its own, since a kind may have the name of a construct of this stack
        return [kind_construct(scope, kind=kind, shared=shared) for kind in kinds]

    def _connect_state_machines(self) -> None:
        machines: dict[str, sfn.StateMachine] = {
            one.kind.name: one.state_machine for one in self.kinds if one.state_machine
        }
        arns = {name: machine.state_machine_arn for name, machine in machines.items()}
        self.indexing.worker.add_environment("STATE_MACHINES", self.to_json_string(arns))
        for name, machine in machines.items():
            machine.grant_task_response(self.reaper.function)
            CfnOutput(self, f"{camel(name)}StateMachine", value=arns[name])

    def _rest(self) -> RestApi:
        functions = RestFunctions(
            self,
            "RestFunctions",
            config=self._config,
            functions=self._functions,
            storage=self._storage,
            indexing=self.indexing.queue,
            webhooks=self.webhooks.queue.queue,
            live_url=self.live.url,
        )
        rest = RestApi(
            self,
            "Rest",
            config=self._config,
            authorizer=functions.authorizer,
            api=functions.api,
            long_poll=functions.long_poll,
            routes={path: function for kind in self.kinds for path, function in kind.routes.items()},
            logs=self.logs,
        )
        own = own_hosts(self, self._config, (rest.rest_api.rest_api_id, self.live.websocket_api.api_id))
        for function in (functions.api, self.webhooks.sender):
            function.add_environment("OWN_HOSTS", own)
        return rest

    def _alarms(self) -> Alarms:
        return Alarms(
            self,
            "Alarms",
            topic=self.fan_out.alerts,
            publisher=self.publisher.function,
            push=self.live.push,
            reaper=self.reaper.function,
            retry_scheduler=self.webhooks.retry_scheduler,
            webhooks=self.webhooks.queue,
            queues=(self.indexing, self.embedding, self.webhooks.notify),
        )

    def _outputs(self) -> None:
        outputs = {
            "ApiUrl": self.rest.rest_api.url,
            "LiveUrl": self.live.url,
            "KeysTable": self._storage.keys.table_name,
            "JobsTable": self._storage.jobs.table_name,
            "DataBucket": self._storage.data.bucket_name,
            "SecretsKey": self._storage.secrets_key.key_arn,
            "PublisherFunction": self.publisher.function.function_name,
            "DocEventsTopic": self.fan_out.events.topic_arn,
            "ErrorAlertsTopic": self.fan_out.alerts.topic_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
