"""Step Functions in virtual time, one thing at a time."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.support import sample
from tests.support.sample import put, raising

Event = dict[str, Any]


def test_a_retry_waits_in_virtual_time(it: sample.Sample) -> None:
    """Ten and then twenty seconds; the error's name is the exception's."""
    Unavailable = type("Unavailable", (Exception,), {})
    times: list[float] = []

    def step(event: Event, context: Any) -> Any:
        times.append(it.clock.time)
        if len(times) < 3:
            raise Unavailable
        return {"ok": True}

    it.scripts["step"] = step
    it.start("Calling", {"n": 1})
    it.settle()
    assert len(times) == 1
    it.settle(within=60)
    assert [round(when - times[0]) for when in times] == [0, 10, 30]
    assert (it.execution("run").status, it.execution("run").output) == ("SUCCEEDED", {"ok": True})


def test_a_catch_keeps_the_input(it: sample.Sample) -> None:
    """With a ResultPath the error is beside it, with the runtime's JSON as its cause."""
    it.scripts["step"] = raising
    it.start("Calling", {"n": 1})
    it.settle()
    output = it.execution("run").output
    assert (output["n"], output["error"]["Error"]) == (1, "RuntimeError")
    assert json.loads(output["error"]["Cause"])["errorMessage"] == "no"
    assert it.execution("run").states == ["Call", "Failed"]


def test_nothing_runs_before_the_starter_has_ended(it: sample.Sample) -> None:
    """An execution moves only when the cloud settles: tests are deterministic."""
    it.start("Calling", {})
    assert it.functions.invocations == []
    assert it.execution("run").status == "RUNNING"
    it.settle()
    assert len(it.functions.invocations) == 1


def test_a_name_is_used_once(it: sample.Sample) -> None:
    """Again with the same input while it runs is the same execution; afterwards it is refused."""
    assert it.start("Asking", {"n": 1}) == it.start("Asking", {"n": 1})
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        it.start("Asking", {"n": 2})
    it.settle(within=math.inf)
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        it.start("Asking", {"n": 1})


def test_a_wait_takes_an_hour_of_virtual_time(it: sample.Sample) -> None:
    """It ends when the clock has passed it, and not before."""
    it.start("Waiting", {})
    it.settle(within=3599)
    assert it.execution("run").status == "RUNNING"
    it.settle(within=3601)
    assert it.execution("run").status == "SUCCEEDED"


def test_a_task_token_is_answered_by_the_worker(it: sample.Sample) -> None:
    """The state goes on with the worker's output."""

    def worker(event: Event, context: Any) -> Any:
        token = json.loads(event["Records"][0]["body"])["token"]
        boto3.client("stepfunctions").send_task_success(taskToken=token, output='{"vectors": 3}')

    it.scripts["worker"] = worker
    it.start("Asking", {"n": 1})
    it.settle()
    assert it.execution("run").output == {"vectors": 3}


def test_a_failed_token_carries_error_and_cause(it: sample.Sample) -> None:
    """Both reach the Catch."""

    def worker(event: Event, context: Any) -> Any:
        token = json.loads(event["Records"][0]["body"])["token"]
        it.client("stepfunctions").send_task_failure(taskToken=token, error="TooBad", cause="because")

    it.scripts["worker"] = worker
    it.start("Asking", {"n": 1})
    it.settle()
    assert it.execution("run").output["error"] == {"Error": "TooBad", "Cause": "because"}


def test_the_first_answer_to_a_token_counts(it: sample.Sample) -> None:
    """A second one is refused as timed out, also after the execution has ended; an unknown one as invalid."""
    states = it.client("stepfunctions")
    it.pause("sample_worker")
    it.start("Asking", {})
    it.settle()
    token = json.loads(it.queue("Queue").bodies[0])["token"]
    states.send_task_success(taskToken=token, output='"first"')
    with pytest.raises(states.exceptions.TaskTimedOut):
        states.send_task_success(taskToken=token, output='"second"')
    it.settle()
    assert it.execution("run").output == "first"
    with pytest.raises(states.exceptions.TaskTimedOut):
        states.send_task_failure(taskToken=token)
    with pytest.raises(states.exceptions.InvalidToken):
        states.send_task_success(taskToken="unknown", output="1")


def test_a_token_that_nobody_answers_times_out(it: sample.Sample) -> None:
    """After the state's TimeoutSeconds, on the virtual clock; then its token is closed."""
    it.pause("sample_worker")
    it.start("Asking", {"n": 1})
    it.settle(within=599)
    assert it.execution("run").status == "RUNNING"
    it.settle(within=601)
    assert it.execution("run").output["error"]["Error"] == "States.Timeout"
    token = json.loads(it.queue("Queue").bodies[0])["token"]
    with pytest.raises(ClientError, match="TaskTimedOut"):
        it.client("stepfunctions").send_task_success(taskToken=token, output="1")


def test_heartbeats_keep_a_task_alive(it: sample.Sample) -> None:
    """Missing one ends it."""
    it.pause("sample_worker")
    it.start("Beating", {})
    it.settle()
    token = json.loads(it.queue("Queue").bodies[0])["token"]
    for _ in range(3):
        it.advance(50)
        it.client("stepfunctions").send_task_heartbeat(taskToken=token)
    it.settle()
    assert it.execution("run").status == "RUNNING"
    it.advance(61)
    assert it.execution("run").error == "States.Timeout"


def test_an_execution_that_waits_for_a_token_can_be_stopped(it: sample.Sample) -> None:
    """It is ABORTED at once with the reason given, its token is closed, and the rule hears of it."""
    heard: list[Event] = []
    it.scripts["ended"] = lambda event, context: heard.append(event)
    it.pause("sample_worker")
    arn = it.start("Asking", {"n": 1})
    it.settle()
    it.client("stepfunctions").stop_execution(executionArn=arn, error="Canceled", cause="by its owner")
    assert it.execution("run").status == "ABORTED"
    it.settle()
    (event,) = heard
    assert event["detail"]["status"] == "ABORTED"
    assert (event["detail"]["error"], event["detail"]["cause"]) == ("Canceled", "by its owner")
    assert json.loads(event["detail"]["input"]) == {"n": 1}
    token = json.loads(it.queue("Queue").bodies[0])["token"]
    with pytest.raises(ClientError, match="TaskTimedOut"):
        it.client("stepfunctions").send_task_success(taskToken=token, output="1")
    assert it.settle(within=math.inf) >= 0
    assert it.execution("run").status == "ABORTED"


def test_an_execution_can_be_stopped_before_it_has_moved(it: sample.Sample) -> None:
    """None of its states runs."""
    arn = it.start("Calling", {})
    it.client("stepfunctions").stop_execution(executionArn=arn)
    it.settle()
    assert it.execution("run").status == "ABORTED"
    assert [invocation.name for invocation in it.functions.invocations] == ["sample_ended"]


def test_a_machine_has_a_time_limit(it: sample.Sample) -> None:
    """TIMED_OUT, which no Catch sees, is announced to the rule."""
    heard: list[str] = []
    it.scripts["ended"] = lambda event, context: heard.append(event["detail"]["status"])
    it.pause("sample_worker")
    it.start("Limited", {})
    it.settle(within=299)
    assert heard == []
    it.settle(within=301)
    assert (it.execution("run").status, heard) == ("TIMED_OUT", ["TIMED_OUT"])


def test_a_map_runs_as_many_at_once_as_it_may(it: sample.Sample) -> None:
    """Two of five items are asked for; each answer lets the next one go, in order."""
    asked: list[int] = []
    it.pause("sample_worker")
    it.start("Mapping", {"items": [0, 1, 2, 3, 4]})
    it.settle()
    assert len(it.queue("Queue")) == 2

    def worker(event: Event, context: Any) -> Any:
        for record in event["Records"]:
            body = json.loads(record["body"])
            asked.append(body["item"])
            it.client("stepfunctions").send_task_success(
                taskToken=body["token"], output=json.dumps(body["item"] * 10)
            )

    it.scripts["worker"] = worker
    it.resume()
    it.settle()
    assert asked == [0, 1, 2, 3, 4]
    assert it.execution("run").output == [0, 10, 20, 30, 40]


def test_a_failed_iteration_ends_the_others(it: sample.Sample) -> None:
    """Their tokens are closed, and no further item is asked for."""
    states = it.client("stepfunctions")
    it.pause("sample_worker")
    it.start("Mapping", {"items": [0, 1, 2, 3]})
    it.settle()
    first, second = (json.loads(body)["token"] for body in it.queue("Queue").bodies)
    states.send_task_failure(taskToken=first, error="Bad", cause="x")
    it.settle()
    assert it.execution("run").states[-1] == "Failed"
    assert len(it.queue("Queue")) == 2
    with pytest.raises(ClientError, match="TaskTimedOut"):
        states.send_task_success(taskToken=second, output="1")


def test_a_killed_function_fails_its_task(it: sample.Sample) -> None:
    """As when the process exits: Runtime.ExitError."""
    it.scripts["step"] = lambda event, context: put(it, "a")
    it.kill("sample_step", after=1)
    it.start("Calling", {})
    it.settle()
    assert it.execution("run").output["error"]["Error"] == "Runtime.ExitError"
    assert it.table("Table").scan()["Count"] == 1


def test_two_executions_sleep_at_the_same_time(it: sample.Sample) -> None:
    """Functions of different executions that sleep do not wait for each other."""
    ended: list[float] = []

    def step(event: Event, context: Any) -> Any:
        time.sleep(20)
        ended.append(it.clock.time)

    it.scripts["step"] = step
    started = it.clock.time
    it.start("Calling", {}, name="one")
    it.start("Calling", {}, name="two")
    it.settle(within=60)
    assert [round(when - started) for when in ended] == [20, 20]
    assert [it.execution(name).status for name in ("one", "two")] == ["SUCCEEDED"] * 2


def test_no_threads_are_left(it: sample.Sample) -> None:
    """Whatever waits when a test ends is unwound."""
    before = threading.active_count()  # other tests of this process may have left some of their own
    it.pause("sample_worker")
    for number in range(3):
        it.start("Mapping", {"items": [1, 2]}, name=f"run-{number}")
    it.settle()
    assert threading.active_count() > before + 4
    it.cloud.reset()
    assert threading.active_count() <= before
