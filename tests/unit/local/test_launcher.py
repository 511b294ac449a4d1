"""local.launcher: the patches of the engine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from local import launcher

STREAM = {"Records": [{"eventSource": "aws:dynamodb"}]}
QUEUE = {"Records": [{"eventSource": "aws:sqs"}]}
FAILED = {"body": {"batchItemFailures": [{"itemIdentifier": "7"}]}, "log": "text"}


def invoke(monkeypatch: pytest.MonkeyPatch, response: dict[str, Any], event: Any) -> dict[str, Any]:
    """The result of an invocation in the patched engine if the function returns `response`."""
    service = ModuleType("lambda_svc")
    service._execute_function = lambda function, event: response  # type: ignore[attr-defined]
    services = ModuleType("ministack.services")
    services.lambda_svc = service  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ministack", ModuleType("ministack"))
    monkeypatch.setitem(sys.modules, "ministack.services", services)
    launcher.retry_failed_stream_batches()
    result: dict[str, Any] = service._execute_function({}, event)
    return result


def test_failed_records_of_a_stream_fail_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine retries a batch only after an error."""
    result = invoke(monkeypatch, FAILED, STREAM)
    assert result["error"]
    assert result["log"] == "text"
    assert "7" in result["body"]["errorMessage"]


@pytest.mark.parametrize(
    ("response", "event"),
    [
        (FAILED, QUEUE),
        ({"body": {"batchItemFailures": []}}, STREAM),
        ({"body": None}, STREAM),
        ({"body": "text"}, {"Records": []}),
        ({"body": {}}, ["no", "object"]),
    ],
)
def test_other_results_are_not_changed(monkeypatch: pytest.MonkeyPatch, response: Any, event: Any) -> None:
    """The engine handles failures of queue messages itself, and a response without failures is a success."""
    assert invoke(monkeypatch, response, event) is response


def test_the_function_that_holds_requests_exists() -> None:
    """It is excluded from the limit of concurrent invocations by the name of its handler."""
    file = Path(__file__).parents[3] / "lambdas" / f"{launcher.HOLDS_REQUESTS.replace('.', '/')}.py"
    assert file.is_file()


def test_large_bodies_are_files() -> None:
    """A body in a file is read like bytes, whole and in part, and no file is left."""
    data = bytes(range(256)) * 8192
    body = launcher.MappedBody.of(data)
    assert (len(body), body[:], body[5:9], b"".join([body])) == (len(data), data, data[5:9], data)
