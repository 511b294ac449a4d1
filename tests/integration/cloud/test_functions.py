"""Functions run as in the Lambda runtime."""

from __future__ import annotations

import importlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support import sample
from tests.support.functions import TimedOut
from tests.support.sample import put, raising

Event = dict[str, Any]


def test_a_function_sees_its_own_environment_only(it: sample.Sample) -> None:
    """What a setting is read from in AWS, and nothing of the test's own."""
    os.environ["LEAK"] = "1"
    it.scripts["web"] = lambda event, context: {**os.environ}
    seen = it.invoke("sample_web", {}).value
    del os.environ["LEAK"]
    assert "LEAK" not in seen
    assert seen["NAME"] == "web"
    assert seen["AWS_LAMBDA_FUNCTION_NAME"] == it.name("AWS::Lambda::Function", "Web")


def test_caches_are_cleared_between_tests(it: sample.Sample) -> None:
    """A function starts cold: `functools` caches of its modules are empty."""
    shared = importlib.import_module("cloud_sample")
    shared.settings()
    it.cloud.reset()
    assert shared.settings.cache_info().currsize == 0


def test_threads_of_a_function_belong_to_it(it: sample.Sample) -> None:
    """They see its environment, and their calls count as its calls."""

    def web(event: Event, context: Any) -> Any:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: put(it, str(n)), range(8)))
            return list(pool.map(lambda _: os.environ["NAME"], range(2)))

    it.scripts["web"] = web
    assert it.invoke("sample_web", {}).value == ["web", "web"]
    assert [call.operation for call in it.calls.of("sample_web")] == ["PutItem"] * 8


def test_time_runs_out_on_the_virtual_clock(it: sample.Sample) -> None:
    """A function that sleeps past its timeout is killed, whatever it catches."""

    def web(event: Event, context: Any) -> Any:
        assert context.get_remaining_time_in_millis() == 30000
        try:
            time.sleep(31)
        except Exception:
            return "saved"

    it.scripts["web"] = web
    outcome = it.invoke("sample_web", {})
    assert isinstance(outcome.error, TimedOut)
    assert outcome.value["errorType"] == "Sandbox.Timedout"


def test_a_result_that_is_not_json_fails(it: sample.Sample) -> None:
    """As in the runtime, where the answer has to be marshalled."""
    it.scripts["web"] = lambda event, context: {1, 2}
    assert isinstance(it.invoke("sample_web", {}).error, TypeError)


def test_an_import_error_reaches_the_test(it: sample.Sample) -> None:
    """A handler that cannot be loaded is a mistake, not a behaviour."""

    def web(event: Event, context: Any) -> Any:
        import nothing_of_this_name  # noqa: F401

    it.scripts["web"] = web
    with pytest.raises(ImportError):
        it.invoke("sample_web", {})


def test_the_invoke_api_runs_the_handler(it: sample.Sample) -> None:
    """Answers and errors of handlers come back as Lambda's."""
    name = it.name("AWS::Lambda::Function", "Web")
    it.scripts["web"] = lambda event, context: event["n"] + 1
    answer = it.client("lambda").invoke(FunctionName=name, Payload=b'{"n": 1}')
    assert (answer["Payload"].read(), "FunctionError" in answer) == (b"2", False)
    it.scripts["web"] = raising
    answer = it.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Payload"].read())["errorType"] == "RuntimeError"


def test_asynchronous_invocations_are_tried_three_times(it: sample.Sample) -> None:
    """Again after one and after two minutes."""
    times: list[float] = []

    def web(event: Event, context: Any) -> Any:
        times.append(it.clock.time)
        raise RuntimeError

    it.scripts["web"] = web
    name = it.name("AWS::Lambda::Function", "Web")
    it.client("lambda").invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")
    assert times == []
    it.settle(within=1000)
    assert [round(later - times[0]) for later in times] == [0, 60, 180]
