"""What a kind of job needs on AWS. A kind whose needs are the ordinary ones has no construct of its own."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.config import SQS_RETENTION_MINUTES, Config
from stacks.constructs.functions import Functions, log_retention
from stacks.constructs.job_queue import JobQueue
from stacks.kinds.declarations import NOTIFY, Kind, retryable_errors
from stacks.kinds.definition import DefinitionError, camel, expand, single_task
from stacks.storage import RESULTS, StorageStack

DEFINITIONS = Path(__file__).parents[2] / "statemachines"
LAMBDA_TIMEOUT = Duration.minutes(15)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What all kinds share.

    `start` starts and cleans up jobs and so calls the hooks `execution_input`, `on_ended` and `on_message`;
    `finish` calls `on_complete`; `worker` calls `on_batch`, `work`, `on_complete` and `on_ended`.
    """

    config: Config
    storage: StorageStack
    functions: Functions
    start: lambda_.Function
    finish: lambda_.Function
    worker: lambda_.Function
    embedding: JobQueue


class KindConstruct(Construct):
    """Functions, state machine and grants of one kind.

    A subclass gives what differs: `tasks`, the functions that the state machine calls, by the names of the states,
    and `grant`, what its hooks may do. `routes` are functions that answer paths of the API of their own.
    """

    def __init__(self, scope: Construct, *, kind: Kind, shared: Shared) -> None:
        super().__init__(scope, camel(kind.name))
        self.kind, self.shared = kind, shared
        self.routes: dict[str, lambda_.Function] = {}
        self.state_machine = self._state_machine(self.tasks()) if kind.runs_on == "machine" else None
        self.grant()

    # ── what a subclass may give ─────────────────────────────────────────────────────────────────────────

    def tasks(self) -> Mapping[str, lambda_.Function]:
        """By the state that calls it. `lambdas/kinds/<kind>/handler.py` if nothing else is said."""
        if len(self.kind.stages) != 1:
            raise DefinitionError(
                f"{self.kind.name}: it has several stages; say in its construct which functions do them"
            )
        return {camel(self.kind.stages[0]): self.function(camel(self.kind.name), f"kinds/{self.kind.name}")}

    def grant(self) -> None:
        """Allow functions what the kind's hooks do beyond the ordinary."""

    # ── what a subclass may use ──────────────────────────────────────────────────────────────────────────

    def function(
        self,
        construct_id: str,
        handler: str,
        *,
        timeout: Duration = LAMBDA_TIMEOUT,
        memory_mb: int = 1024,
        layers: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        read: Sequence[str] = ("inputs/", "uploads/", "work/"),
        write: Sequence[str] = ("work/", RESULTS),
        delete: Sequence[str] = ("work/",),
    ) -> lambda_.Function:
        """A Task's function, which may read and write jobs, and objects below these prefixes."""
        storage = self.shared.storage
        common = {"JOBS_TABLE": storage.jobs.table_name, "DATA_BUCKET": storage.data.bucket_name}
        function = self.shared.functions.create(
            construct_id,
            handler,
            timeout=timeout,
            memory_mb=memory_mb,
            layers=layers,
            environment=common | dict(environment or {}),
        )
        storage.jobs.grant_read_write_data(function)
        storage.grant_objects(function, read=read, write=write, delete=delete)
        return function

    # ── the state machine ────────────────────────────────────────────────────────────────────────────────

    def _state_machine(self, tasks: Mapping[str, lambda_.Function]) -> sfn.StateMachine:
        text = json.dumps(self._definition(tasks), indent=2)
        stack, shared = Stack.of(self), self.shared
        fillings = {name: function.function_arn for name, function in tasks.items()} | {
            "FinishJob": shared.finish.function_arn,
            "Partition": stack.partition,
            "EmbeddingQueueUrl": shared.embedding.queue.queue_url,
        }
        machine = sfn.StateMachine(
            self,
            "Machine",
            # from_string keeps the definition in the template, where tests can read it
            definition_body=sfn.DefinitionBody.from_string(text),
            definition_substitutions={name: value for name, value in fillings.items() if f"${{{name}}}" in text},
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "MachineLogs",
                    retention=log_retention(shared.config),
                    removal_policy=RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=False,
            ),
        )
        for function in (*tasks.values(), shared.finish):
            function.grant_invoke_latest_version(machine)
        if "${EmbeddingQueueUrl}" in text:
            shared.embedding.queue.grant_send_messages(machine)
            machine.grant_task_response(shared.worker)
        machine.grant_start_execution(shared.start)
        machine.grant_execution(shared.start, "states:DescribeExecution", "states:StopExecution")
        self._end_jobs_whose_execution_ended(machine)
        return machine

    def _definition(self, tasks: Mapping[str, lambda_.Function]) -> Mapping[str, object]:
        kind, file = self.kind, DEFINITIONS / f"{self.kind.name}.asl.json"
        if file.exists():
            definition = json.loads(file.read_text(encoding="utf-8"))
        elif len(tasks) == 1:
            ((name, function),) = tasks.items()
            seconds = function.timeout.to_seconds() if function.timeout else 3
            definition = single_task(name, timeout_seconds=int(seconds) + 60)
        else:
            raise DefinitionError(f"{kind.name}: it has several Tasks; write statemachines/{file.name}")
        stages = (*kind.stages, NOTIFY)
        return expand(definition, stages=stages, retryable=retryable_errors(), attempts=kind.max_attempts)

    def _end_jobs_whose_execution_ended(self, machine: sfn.StateMachine) -> None:
        """TIMED_OUT and ABORTED pass by every Catch; this rule does not."""
        events.Rule(
            self,
            "ExecutionEnded",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                    "stateMachineArn": [machine.state_machine_arn],
                },
            ),
            targets=[targets.LambdaFunction(self.shared.finish)],
        )


def construct(scope: Construct, *, kind: Kind, shared: Shared) -> KindConstruct:
    """What the kind needs on AWS, as `stacks/kinds/<kind>.py` says, if there is such a file."""
    if kind.deadline is not None:
        _check_deadline(kind.name, kind.deadline, shared.config)
    return _construct_class(kind.name)(scope, kind=kind, shared=shared)


def _check_deadline(name: str, deadline: timedelta, config: Config) -> None:
    """What a job needs must last as long as it may run, its messages too, which SQS keeps for four days."""
    days = min(config.job_retention_days, config.file_retention_days, SQS_RETENTION_MINUTES / (24 * 60))
    if not timedelta(0) < deadline < timedelta(days=days):
        raise DefinitionError(f"{name}: its deadline is {deadline}; let it be less than {days:g} days")


def _construct_class(name: str) -> type[KindConstruct]:
    place = f"stacks.kinds.{name}"
    if find_spec(place) is None:
        return KindConstruct
    own = [cls for _, cls in inspect.getmembers(import_module(place), inspect.isclass) if cls.__module__ == place]
    found = [cls for cls in own if issubclass(cls, KindConstruct)]
    if len(found) != 1:
        raise DefinitionError(
            f"stacks/kinds/{name}.py: give it one subclass of KindConstruct; it has {len(found)}"
        )
    return found[0]
