"""Step Functions on the virtual clock."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.simulated_cloud.tests.sample import Sample, put, raising

Event = dict[str, Any]


def test_a_retry_waits_in_virtual_time(sample: Sample) -> None:
    """A Retry waits ten and then twenty seconds; the name of the error is that of the exception class."""
    Unavailable = type("Unavailable", (Exception,), {})
    times: list[float] = []

    def step(event: Event, context: Any) -> Any:
        times.append(sample.clock.time)
        if len(times) < 3:
            raise Unavailable
        return {"ok": True}

    sample.scripts["step"] = step
    sample.start("Calling", {"n": 1})
    sample.settle()
    assert len(times) == 1
    sample.settle(within=60)
    assert [round(when - times[0]) for when in times] == [0, 10, 30]
    assert (sample.execution("run").status, sample.execution("run").output) == ("SUCCEEDED", {"ok": True})


def test_a_catch_keeps_the_input(sample: Sample) -> None:
    """A Catch with a ResultPath adds the error to the input, with the runtime's error JSON as its cause."""
    sample.scripts["step"] = raising
    sample.start("Calling", {"n": 1})
    sample.settle()
    output = sample.execution("run").output
    assert (output["n"], output["error"]["Error"]) == (1, "RuntimeError")
    assert json.loads(output["error"]["Cause"])["errorMessage"] == "no"
    assert sample.execution("run").states == ["Call", "Failed"]


def test_an_execution_runs_only_when_the_cloud_settles(sample: Sample) -> None:
    """StartExecution invokes no function at once."""
    sample.start("Calling", {})
    assert sample.functions.invocations == []
    assert sample.execution("run").status == "RUNNING"
    sample.settle()
    assert len(sample.functions.invocations) == 1


def test_a_name_is_used_once(sample: Sample) -> None:
    """The same name with the same input is the same execution while it runs; afterwards it is refused."""
    assert sample.start("Asking", {"n": 1}) == sample.start("Asking", {"n": 1})
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        sample.start("Asking", {"n": 2})
    sample.settle(within=math.inf)
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        sample.start("Asking", {"n": 1})


def test_a_wait_takes_an_hour_of_virtual_time(sample: Sample) -> None:
    """A Wait state ends when the clock has passed its time."""
    sample.start("Waiting", {})
    sample.settle(within=3599)
    assert sample.execution("run").status == "RUNNING"
    sample.settle(within=3601)
    assert sample.execution("run").status == "SUCCEEDED"


def test_a_task_ends_with_the_output_sent_for_its_token(sample: Sample) -> None:
    """The output of SendTaskSuccess is the output of the state."""

    def worker(event: Event, context: Any) -> Any:
        token = json.loads(event["Records"][0]["body"])["token"]
        boto3.client("stepfunctions").send_task_success(taskToken=token, output='{"vectors": 3}')

    sample.scripts["worker"] = worker
    sample.start("Asking", {"n": 1})
    sample.settle()
    assert sample.execution("run").output == {"vectors": 3}


def test_a_task_fails_with_the_error_sent_for_its_token(sample: Sample) -> None:
    """The error and cause of SendTaskFailure reach the Catch."""

    def worker(event: Event, context: Any) -> Any:
        token = json.loads(event["Records"][0]["body"])["token"]
        sample.client("stepfunctions").send_task_failure(taskToken=token, error="TooBad", cause="because")

    sample.scripts["worker"] = worker
    sample.start("Asking", {"n": 1})
    sample.settle()
    assert sample.execution("run").output["error"] == {"Error": "TooBad", "Cause": "because"}


def test_a_task_token_is_used_once(sample: Sample) -> None:
    """A second response gets TaskTimedOut, even after the execution; an unknown token gets InvalidToken."""
    states = sample.client("stepfunctions")
    sample.pause("sample_worker")
    sample.start("Asking", {})
    sample.settle()
    token = json.loads(sample.queue("Queue").bodies[0])["token"]
    states.send_task_success(taskToken=token, output='"first"')
    with pytest.raises(states.exceptions.TaskTimedOut):
        states.send_task_success(taskToken=token, output='"second"')
    sample.settle()
    assert sample.execution("run").output == "first"
    with pytest.raises(states.exceptions.TaskTimedOut):
        states.send_task_failure(taskToken=token)
    with pytest.raises(states.exceptions.InvalidToken):
        states.send_task_success(taskToken="unknown", output="1")


def test_a_task_token_without_a_response_times_out(sample: Sample) -> None:
    """The state fails after TimeoutSeconds on the virtual clock, and its token is closed."""
    sample.pause("sample_worker")
    sample.start("Asking", {"n": 1})
    sample.settle(within=599)
    assert sample.execution("run").status == "RUNNING"
    sample.settle(within=601)
    assert sample.execution("run").output["error"]["Error"] == "States.Timeout"
    token = json.loads(sample.queue("Queue").bodies[0])["token"]
    with pytest.raises(ClientError, match="TaskTimedOut"):
        sample.client("stepfunctions").send_task_success(taskToken=token, output="1")


def test_an_execution_that_waits_for_a_token_can_be_stopped(sample: Sample) -> None:
    """It becomes ABORTED at once, its token is closed, and the event rule gets the error and cause."""
    received: list[Event] = []
    sample.scripts["ended"] = lambda event, context: received.append(event)
    sample.pause("sample_worker")
    arn = sample.start("Asking", {"n": 1})
    sample.settle()
    sample.client("stepfunctions").stop_execution(executionArn=arn, error="Canceled", cause="by its owner")
    assert sample.execution("run").status == "ABORTED"
    sample.settle()
    (event,) = received
    assert event["detail"]["status"] == "ABORTED"
    assert (event["detail"]["error"], event["detail"]["cause"]) == ("Canceled", "by its owner")
    assert json.loads(event["detail"]["input"]) == {"n": 1}
    token = json.loads(sample.queue("Queue").bodies[0])["token"]
    with pytest.raises(ClientError, match="TaskTimedOut"):
        sample.client("stepfunctions").send_task_success(taskToken=token, output="1")
    assert sample.settle(within=math.inf) >= 0
    assert sample.execution("run").status == "ABORTED"


def test_an_execution_can_be_stopped_before_its_first_state(sample: Sample) -> None:
    """No state of it runs."""
    arn = sample.start("Calling", {})
    sample.client("stepfunctions").stop_execution(executionArn=arn)
    sample.settle()
    assert sample.execution("run").status == "ABORTED"
    assert [invocation.name for invocation in sample.functions.invocations] == ["sample_ended"]


def test_a_state_machine_times_out(sample: Sample) -> None:
    """The event rule gets the status TIMED_OUT."""
    received: list[str] = []
    sample.scripts["ended"] = lambda event, context: received.append(event["detail"]["status"])
    sample.pause("sample_worker")
    sample.start("Limited", {})
    sample.settle(within=299)
    assert received == []
    sample.settle(within=301)
    assert (sample.execution("run").status, received) == ("TIMED_OUT", ["TIMED_OUT"])


def test_a_map_runs_max_concurrency_iterations_at_once(sample: Sample) -> None:
    """The next iteration starts when one has ended, in order."""
    asked: list[int] = []
    sample.pause("sample_worker")
    sample.start("Mapping", {"items": [0, 1, 2, 3, 4]})
    sample.settle()
    assert len(sample.queue("Queue")) == 2

    def worker(event: Event, context: Any) -> Any:
        for record in event["Records"]:
            body = json.loads(record["body"])
            asked.append(body["item"])
            sample.client("stepfunctions").send_task_success(
                taskToken=body["token"], output=json.dumps(body["item"] * 10)
            )

    sample.scripts["worker"] = worker
    sample.resume()
    sample.settle()
    assert asked == [0, 1, 2, 3, 4]
    assert sample.execution("run").output == [0, 10, 20, 30, 40]


def test_a_failed_iteration_ends_the_others(sample: Sample) -> None:
    """The tokens of the other iterations are closed, and no further iteration starts."""
    states = sample.client("stepfunctions")
    sample.pause("sample_worker")
    sample.start("Mapping", {"items": [0, 1, 2, 3]})
    sample.settle()
    first, second = (json.loads(body)["token"] for body in sample.queue("Queue").bodies)
    states.send_task_failure(taskToken=first, error="Bad", cause="x")
    sample.settle()
    assert sample.execution("run").states[-1] == "Failed"
    assert len(sample.queue("Queue")) == 2
    with pytest.raises(ClientError, match="TaskTimedOut"):
        states.send_task_success(taskToken=second, output="1")


def test_a_killed_function_fails_its_task(sample: Sample) -> None:
    """The error is Runtime.ExitError, as for a process that exits."""
    sample.scripts["step"] = lambda event, context: put(sample, "a")
    sample.kill("sample_step", after=1)
    sample.start("Calling", {})
    sample.settle()
    assert sample.execution("run").output["error"]["Error"] == "Runtime.ExitError"
    assert sample.table("Table").scan()["Count"] == 1


def test_two_executions_sleep_at_the_same_time(sample: Sample) -> None:
    """Functions of different executions sleep concurrently on the virtual clock."""
    ended: list[float] = []

    def step(event: Event, context: Any) -> Any:
        time.sleep(20)
        ended.append(sample.clock.time)

    sample.scripts["step"] = step
    started = sample.clock.time
    sample.start("Calling", {}, name="one")
    sample.start("Calling", {}, name="two")
    sample.settle(within=60)
    assert [round(when - started) for when in ended] == [20, 20]
    assert [sample.execution(name).status for name in ("one", "two")] == ["SUCCEEDED"] * 2


def test_no_threads_are_left(sample: Sample) -> None:
    """A reset ends the threads of all executions."""
    before = threading.active_count()  # other tests of this process may have left some of their own
    sample.pause("sample_worker")
    for number in range(3):
        sample.start("Mapping", {"items": [1, 2]}, name=f"run-{number}")
    sample.settle()
    assert threading.active_count() > before + 4
    sample.cloud.reset()
    assert threading.active_count() <= before
