"""What a kind of job needs on AWS. Most kinds need no construct of their own."""

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

    The functions call the hooks of a kind: `start_job` calls `execution_input`, `on_ended` and `on_message`;
    `finish_job` calls `on_complete`; `worker` calls `on_batch`, `work`, `on_complete` and `on_ended`. So a kind
    grants them what its hooks do.
    """

    config: Config
    storage: StorageStack
    functions: Functions
    start_job: lambda_.Function
    finish_job: lambda_.Function
    worker: lambda_.Function
    embedding: JobQueue


class KindConstruct(Construct):
    """Functions, state machine and grants of one kind.

    A subclass overrides `tasks`, the functions that the state machine calls, and `grant`, what the kind's hooks
    may do. `routes`: functions that answer REST API paths of the kind, by the first segment of the path.
    """

    def __init__(self, scope: Construct, *, kind: Kind, shared: Shared) -> None:
        super().__init__(scope, camel(kind.name))
        self.kind, self.shared = kind, shared
        self.routes: dict[str, lambda_.Function] = {}
        self.state_machine = self._state_machine(self.tasks()) if kind.runs_on == "machine" else None
        self.grant()

    # ── what a subclass may override ─────────────────────────────────────────────────────────────────────────

    def tasks(self) -> Mapping[str, lambda_.Function]:
        """Functions by the state that calls them. Default: `lambdas/kinds/<kind>/handler.py` for the one stage."""
        if len(self.kind.stages) != 1:
            raise DefinitionError(
                f"{self.kind.name}: it has several stages; say in its construct which functions do them"
            )
        return {camel(self.kind.stages[0]): self.function(camel(self.kind.name), f"kinds/{self.kind.name}")}

    def grant(self) -> None:
        """Allow the shared functions what the kind's hooks do in addition."""

    # ── what a subclass may use ──────────────────────────────────────────────────────────────────────────

    def function(
        self,
        construct_id: str,
        handler: str,
        *,
        timeout: Duration = LAMBDA_TIMEOUT,
        memory_mb: int = 1024,
        disk_mb: int = 512,
        layers: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        reserved_concurrency: int = 0,
        read: Sequence[str] = ("inputs/", "uploads/", "work/"),
        write: Sequence[str] = ("work/", RESULTS),
        delete: Sequence[str] = ("work/",),
    ) -> lambda_.Function:
        """A function for a Task. It may read and write jobs, and objects below these prefixes."""
        storage = self.shared.storage
        common = {"JOBS_TABLE": storage.jobs.table_name, "DATA_BUCKET": storage.data.bucket_name}
        function = self.shared.functions.create(
            construct_id,
            handler,
            timeout=timeout,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            layers=layers,
            environment=common | dict(environment or {}),
            reserved_concurrency=reserved_concurrency,
        )
        storage.grant_jobs(function, "GetItem", "PutItem", "UpdateItem")  # a Task ends no job
        storage.grant_objects(function, read=read, write=write, delete=delete)
        return function

    # ── the state machine ────────────────────────────────────────────────────────────────────────────────

    def _state_machine(self, tasks: Mapping[str, lambda_.Function]) -> sfn.StateMachine:
        text = json.dumps(self._definition(tasks), indent=2)
        stack, shared = Stack.of(self), self.shared
        substitutions = {name: function.function_arn for name, function in tasks.items()} | {
            "FinishJob": shared.finish_job.function_arn,
            "Partition": stack.partition,
            "EmbeddingQueueUrl": shared.embedding.queue.queue_url,
        }
        machine = sfn.StateMachine(
            self,
            "Machine",
            # from_string keeps the definition in the template, where tests can read it
            definition_body=sfn.DefinitionBody.from_string(text),
            definition_substitutions={
                name: value for name, value in substitutions.items() if f"${{{name}}}" in text
            },
            tracing_enabled=True,
            logs=self._machine_logs(),
        )
        for function in (*tasks.values(), shared.finish_job):
            function.grant_invoke_latest_version(machine)
        if "${EmbeddingQueueUrl}" in text:
            shared.embedding.queue.grant_send_messages(machine)
            machine.grant_task_response(shared.worker)
        machine.grant_start_execution(shared.start_job)
        machine.grant_execution(shared.start_job, "states:DescribeExecution", "states:StopExecution")
        self._finish_jobs_of_ended_executions(machine)
        return machine

    def _machine_logs(self) -> sfn.LogOptions:
        """Every transition, without the data that passes between states.

        Step Functions may write to all groups below /aws/vendedlogs/ by one entry of a policy; each other group is
        an entry of its own, and the policy ends at 5,120 characters.
        https://docs.aws.amazon.com/step-functions/latest/dg/bp-cwl.html
        """
        group = logs.LogGroup(
            self,
            "MachineLogs",
            log_group_name=f"/aws/vendedlogs/states/{Stack.of(self).stack_name}-{camel(self.kind.name)}",
            retention=log_retention(self.shared.config),
            removal_policy=RemovalPolicy.DESTROY,
        )
        return sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False)

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

    def _finish_jobs_of_ended_executions(self, machine: sfn.StateMachine) -> None:
        """No Catch handles TIMED_OUT and ABORTED, so a rule on the execution's status calls `finish_job`."""
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
            targets=[targets.LambdaFunction(self.shared.finish_job)],
        )


def construct(scope: Construct, *, kind: Kind, shared: Shared) -> KindConstruct:
    """The construct of the kind: the class in `stacks/kinds/<kind>.py` if that file exists, else KindConstruct.

    Raises DefinitionError if the kind cannot be deployed as it is declared.
    """
    if kind.deadline is not None:
        _check_deadline(kind.name, kind.deadline, shared.config)
    return _construct_class(kind.name)(scope, kind=kind, shared=shared)


def _check_deadline(name: str, deadline: timedelta, config: Config) -> None:
    """A job's items, files and messages must be kept longer than it may run; SQS keeps messages for four days."""
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
