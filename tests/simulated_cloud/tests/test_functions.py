"""Functions run as in the Lambda runtime for Python."""

from __future__ import annotations

import importlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.simulated_cloud.functions import TimedOut
from tests.simulated_cloud.tests.sample import Sample, put, raising

Event = dict[str, Any]


def test_a_function_sees_its_own_environment_only(sample: Sample) -> None:
    """A function sees its own environment variables and none of the test process."""
    os.environ["LEAK"] = "1"
    sample.scripts["web"] = lambda event, context: {**os.environ}
    seen = sample.invoke("sample_web", {}).value
    del os.environ["LEAK"]
    assert "LEAK" not in seen
    assert seen["NAME"] == "web"
    assert seen["AWS_LAMBDA_FUNCTION_NAME"] == sample.name("AWS::Lambda::Function", "Web")


def test_caches_are_cleared_between_tests(sample: Sample) -> None:
    """A function starts cold: everything in its modules that has `cache_clear` is empty."""
    shared = importlib.import_module("cloud_sample")
    shared.settings()
    shared.cache["a"] = 1
    sample.cloud.reset()
    assert (shared.settings.cache_info().currsize, shared.cache) == (0, {})


def test_threads_of_a_function_belong_to_it(sample: Sample) -> None:
    """Threads see the environment of their function, and their calls count as its calls."""

    def web(event: Event, context: Any) -> Any:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: put(sample, str(n)), range(8)))
            return list(pool.map(lambda _: os.environ["NAME"], range(2)))

    sample.scripts["web"] = web
    assert sample.invoke("sample_web", {}).value == ["web", "web"]
    assert [call.operation for call in sample.calls.of("sample_web")] == ["PutItem"] * 8


def test_a_function_times_out_on_the_virtual_clock(sample: Sample) -> None:
    """A function that sleeps past its timeout is killed, even if it catches exceptions."""

    def web(event: Event, context: Any) -> Any:
        assert context.get_remaining_time_in_millis() == 30000
        try:
            time.sleep(31)
        except Exception:
            return "saved"

    sample.scripts["web"] = web
    outcome = sample.invoke("sample_web", {})
    assert isinstance(outcome.error, TimedOut)
    assert outcome.value["errorType"] == "Sandbox.Timedout"


def test_a_result_that_is_not_json_fails(sample: Sample) -> None:
    """A result that cannot be written as JSON fails the invocation."""
    sample.scripts["web"] = lambda event, context: {1, 2}
    assert isinstance(sample.invoke("sample_web", {}).error, TypeError)


def test_an_import_error_reaches_the_test(sample: Sample) -> None:
    """An ImportError is raised in the test, because it is a mistake of the setup."""

    def web(event: Event, context: Any) -> Any:
        import nothing_of_this_name  # type: ignore[import-not-found]  # noqa: F401

    sample.scripts["web"] = web
    with pytest.raises(ImportError):
        sample.invoke("sample_web", {})


def test_the_invoke_api_runs_the_handler(sample: Sample) -> None:
    """lambda:Invoke returns the results and errors of the handler."""
    name = sample.name("AWS::Lambda::Function", "Web")
    sample.scripts["web"] = lambda event, context: event["n"] + 1
    answer = sample.client("lambda").invoke(FunctionName=name, Payload=b'{"n": 1}')
    assert (answer["Payload"].read(), "FunctionError" in answer) == (b"2", False)
    sample.scripts["web"] = raising
    answer = sample.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Payload"].read())["errorType"] == "RuntimeError"


def test_asynchronous_invocations_are_tried_three_times(sample: Sample) -> None:
    """The retries come after one and after two minutes."""
    times: list[float] = []

    def web(event: Event, context: Any) -> Any:
        times.append(sample.clock.time)
        raise RuntimeError

    sample.scripts["web"] = web
    name = sample.name("AWS::Lambda::Function", "Web")
    sample.client("lambda").invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")
    assert times == []
    sample.settle(within=1000)
    assert [round(later - times[0]) for later in times] == [0, 60, 180]
