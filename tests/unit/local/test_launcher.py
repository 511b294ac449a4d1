"""local.launcher: the amendments to the engine."""

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


def amended(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], event: Any) -> dict[str, Any]:
    """What the engine makes of `answer` to `event` once it is amended."""
    service = ModuleType("lambda_svc")
    service._execute_function = lambda function, event: answer  # type: ignore[attr-defined]
    services = ModuleType("ministack.services")
    services.lambda_svc = service  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ministack", ModuleType("ministack"))
    monkeypatch.setitem(sys.modules, "ministack.services", services)
    launcher.retry_failed_stream_batches()
    result: dict[str, Any] = service._execute_function({}, event)
    return result


def test_failed_records_of_a_stream_fail_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is what makes the engine bring a stream's batch again."""
    result = amended(monkeypatch, FAILED, STREAM)
    assert result["error"]
    assert result["log"] == "text"
    assert "7" in result["body"]["errorMessage"]


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (FAILED, QUEUE),
        ({"body": {"batchItemFailures": []}}, STREAM),
        ({"body": None}, STREAM),
        ({"body": "text"}, {"Records": []}),
        ({"body": {}}, ["no", "object"]),
    ],
)
def test_everything_else_passes(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], event: Any) -> None:
    """Queues report failures correctly by themselves, and an answer without failures is a success."""
    assert amended(monkeypatch, answer, event) is answer


def test_the_function_that_holds_requests_exists() -> None:
    """Its invocations take no turn, so its handler's name must be the one that is deployed."""
    file = Path(__file__).parents[3] / "lambdas" / f"{launcher.HOLDS_REQUESTS.replace('.', '/')}.py"
    assert file.is_file()
