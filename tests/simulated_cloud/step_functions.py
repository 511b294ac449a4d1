"""Step Functions: moto's interpreter with cooperative threads and the virtual clock.

Corrections of moto, each with a test in tests/test_step_functions.py: stopping an execution that waits for a task
token, ending the tasks of a state that has timed out or failed, the response to a token that is closed, the cause
of a failed task, and the events for status changes.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import moto.stepfunctions.parser.models  # noqa: F401  (loads the interpreter that is patched here)
from moto.core.exceptions import AWSError
from moto.core.responses import ActionResult, EmptyResult
from moto.stepfunctions.exceptions import InvalidToken
from moto.stepfunctions.parser.api import (
    ExecutionAbortedEventDetails,
    ExecutionStatus,
    HistoryEventType,
)
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackEndpoint, CallbackOutcomeFailure
from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution
from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker
from moto.stepfunctions.parser.models import StepFunctionsParserBackend, stepfunctions_parser_backends
from moto.stepfunctions.parser.utils import TMP_THREADS
from moto.stepfunctions.responses import StepFunctionResponse

from .cooperative_threads import Scheduler
from .functions import ACCOUNT, REGION

INTERPRETER = "moto.stepfunctions.parser."


class TaskTimedOut(AWSError):
    """The token was used before, or its task has ended."""

    TYPE = "TaskTimedOut"
    STATUS = 400

    def __init__(self) -> None:
        super().__init__("Task Timed Out: 'Provided task does not exist anymore'")


@dataclass(frozen=True)
class ExecutionView:
    """A snapshot of an execution."""

    arn: str
    name: str
    status: str
    input: Any
    output: Any
    error: str | None
    cause: str | None
    events: list[dict[str, Any]]

    @property
    def states(self) -> list[str]:
        """The names of the states entered, in order."""
        return [
            event["stateEnteredEventDetails"]["name"]
            for event in self.events
            if "stateEnteredEventDetails" in event
        ]


class Executions:
    """All executions. `announce(detail, arn)` is called at each status change."""

    def __init__(self, scheduler: Scheduler, announce: Callable[[dict[str, Any], str], None]) -> None:
        self._scheduler = scheduler
        self._announce = announce

    def all(self) -> list[ExecutionView]:
        return [view(execution) for machine in self._machines() for execution in machine.executions]

    def find(self, name_or_arn: str) -> ExecutionView:
        return next(found for found in self.all() if name_or_arn in (found.name, found.arn))

    def reset(self) -> None:
        """End and forget all executions."""
        self._scheduler.reset()
        TMP_THREADS.clear()
        for machine in self._machines():
            machine.executions.clear()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Patch moto's interpreter inside the block."""
        with ExitStack() as patches:
            for module, attribute, replacement in self.replacements():
                patches.enter_context(mock.patch.object(module, attribute, replacement))
            for owner, name, method in self._methods():
                patches.enter_context(mock.patch.object(owner, name, method))
            yield

    def replacements(self) -> list[tuple[Any, str, Any]]:
        """The places where the interpreter refers to threads and events, with their replacements."""
        task, event = self._scheduler.Task, self._scheduler.Event
        module = SimpleNamespace(Thread=task, Event=event, Lock=threading.Lock, RLock=threading.RLock)
        substitutes = {
            "threading": (threading, module),
            "Thread": (threading.Thread, task),
            "Event": (threading.Event, event),
        }
        return [
            (loaded, attribute, replacement)
            for name, loaded in sorted(sys.modules.items())
            if name.startswith(INTERPRETER)
            for attribute, (original, replacement) in substitutes.items()
            if getattr(loaded, attribute, None) is original
        ]

    def _methods(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        return [
            (ExecutionWorker, "start", self._start_worker),
            (Execution, "start", self._announcing(Execution.start)),
            (Execution, "stop", self._stop),
            (BaseExecutionWorkerCommunication, "terminated", self._terminated),
            (ExecutionState, "_evaluate_with_timeout", self._ending_its_tasks()),
            (CallbackEndpoint, "notify", answered_once(CallbackEndpoint.notify)),
            (StepFunctionsParserBackend, "_get_executions", all_executions),
            (StepFunctionResponse, "send_task_failure", send_task_failure),
            (StepFunctionResponse, "stop_execution", stop_execution),
        ]

    def _machines(self) -> list[Any]:
        return list(stepfunctions_parser_backends[ACCOUNT][REGION].state_machines)

    @property
    def _start_worker(self) -> Callable[[ExecutionWorker], None]:
        def start(worker: Any) -> None:
            worker.task = task = self._scheduler.Task(target=worker._execution_logic)
            # An execution has no parent, because the function that started it may end first.
            task.parent = None
            self._scheduler.start_now(task)

        return start

    def _announcing(self, start: Callable[[Execution], None]) -> Callable[[Execution], None]:
        def announcing(execution: Any) -> None:
            start(execution)
            self._announce(status_detail(execution), execution.exec_arn)

        return announcing

    @property
    def _terminated(self) -> Callable[[BaseExecutionWorkerCommunication], None]:
        original = BaseExecutionWorkerCommunication.terminated

        def terminated(communication: Any) -> None:
            original(communication)
            execution = communication.execution
            close_tokens(execution)
            self._scheduler.abort_children(execution.exec_worker.task)
            self._announce(status_detail(execution), execution.exec_arn)

        return terminated

    @property
    def _stop(self) -> Callable[..., None]:
        def stop(execution: Any, stop_date: Any, error: str | None, cause: str | None) -> None:
            if execution.exec_status != ExecutionStatus.RUNNING:
                return
            worker = execution.exec_worker
            worker.env.set_stop(stop_date=stop_date, cause=cause, error=error)
            execution.exec_status, execution.stop_date = ExecutionStatus.ABORTED, stop_date
            execution.error, execution.cause = error, cause
            close_tokens(execution)
            add_aborted_event(worker.env, error, cause)
            self._scheduler.abort(worker.task)
            self._announce(status_detail(execution), execution.exec_arn)

        return stop

    def _ending_its_tasks(self) -> Callable[[ExecutionState, Any], None]:
        original = ExecutionState._evaluate_with_timeout

        def evaluate(state: ExecutionState, env: Any) -> None:
            try:
                original(state, env)
            finally:
                self._scheduler.abort_children(self._scheduler.current)

        return evaluate


def view(execution: Any) -> ExecutionView:
    return ExecutionView(
        arn=execution.exec_arn,
        name=execution.name,
        status=execution.status,
        input=execution.input_data,
        output=execution.output,
        error=execution.error,
        cause=execution.cause,
        events=execution.to_history_output()["events"],
    )


def status_detail(execution: Any) -> dict[str, Any]:
    """The detail of the event "Step Functions Execution Status Change"."""
    done = execution.output is not None and execution.exec_status == ExecutionStatus.SUCCEEDED
    return {
        "executionArn": execution.exec_arn,
        "stateMachineArn": execution.state_machine_arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": millis(execution.start_date),
        "stopDate": millis(execution.stop_date),
        "input": json.dumps(execution.input_data),
        "output": json.dumps(execution.output) if done else None,
        "inputDetails": {"included": True},
        "outputDetails": {"included": True} if done else None,
        "error": execution.error,
        "cause": execution.cause,
    }


def millis(when: Any) -> int | None:
    return int(when.timestamp() * 1000) if when else None


def add_aborted_event(env: Any, error: str | None, cause: str | None) -> None:
    env.event_manager.add_event(
        context=env.event_history_context,
        event_type=HistoryEventType.ExecutionAborted,
        event_details={"executionAbortedEventDetails": ExecutionAbortedEventDetails(error=error, cause=cause)},
    )


def close_tokens(execution: Any) -> None:
    """Refuse all later responses to the task tokens of the execution."""
    for endpoint in execution.exec_worker.env.callback_pool_manager._pool.values():
        endpoint.closed = True


def is_closed(endpoint: CallbackEndpoint) -> bool:
    return bool(getattr(endpoint, "closed", False) or endpoint._notify_event.is_set())


def answered_once(original: Callable[..., None]) -> Callable[..., None]:
    """Accept the first response to a token. Refuse later ones, and those to a task that has ended."""

    def notify(endpoint: CallbackEndpoint, outcome: Any) -> None:
        if is_closed(endpoint):
            raise TaskTimedOut
        original(endpoint, outcome)

    return notify


def all_executions(backend: Any, execution_status: Any = None) -> list[Any]:
    """Look tokens up in ended executions too, because their tokens are closed and not unknown."""
    return [execution for machine in backend.state_machines for execution in machine.executions]


def send_task_failure(response: StepFunctionResponse) -> Any:
    token, error, cause = (response._get_param(name) for name in ("taskToken", "error", "cause"))
    outcome = CallbackOutcomeFailure(callback_id=token, error=error, cause=cause)
    for execution in all_executions(response.stepfunction_backend):
        if execution.exec_worker.env.callback_pool_manager.notify(callback_id=token, outcome=outcome):
            return EmptyResult()
    raise InvalidToken


def stop_execution(response: StepFunctionResponse) -> Any:
    execution = response.stepfunction_backend.describe_execution(response._get_param("executionArn"))
    stop_date = execution.stop_date or datetime.now(UTC)
    execution.stop(stop_date, response._get_param("error"), response._get_param("cause"))
    return ActionResult({"stopDate": execution.stop_date})
