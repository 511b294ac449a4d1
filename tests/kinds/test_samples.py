"""Features of single kinds: failing attempts, waits, large results; and a kind that was removed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

import kinds
from tests.kinds.test_suite import HOUR, assert_ended, submit, verbs
from tests.support.recado_client import connected
from tests.support.service import Service


def echo(service: Service, **given: Any) -> str:
    answer = service.call("POST", "/jobs", json={"kind": "echo", "input": {"words": ["hello"], **given}})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def status(service: Service, job_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = service.call("GET", f"/jobs/{job_id}/status").json()
    return shown


def test_failing_attempts(service: Service) -> None:
    """A job whose attempts fail is queued again with the reason, and completes in the third attempt."""
    job_id = echo(service, fail_attempts=2)
    service.cloud.settle()
    shown, retried = status(service, job_id), service.events(job_id)[-1]
    assert (shown["status"], shown["stage"], shown["attempts"]) == ("queued", "queued", 1)
    assert (shown["waiting_for"], shown["waiting_since"]) == ("backoff", retried["timestamp"])
    assert retried["error"] == {"code": "throttled", "message": "The echo is busy.", "stage": "answer"}
    assert retried["not_before"] > retried["timestamp"]
    service.cloud.settle(within=HOUR)
    log = assert_ended(service, job_id, "completed")
    assert verbs(log) == ["requested", "started", "received", *["retried", "started"] * 2, "completed"]
    assert [event["attempts"] for event in log if event["event"] == "echo.started"] == [1, 2, 3]
    assert "waiting_for" not in status(service, job_id)


def test_all_attempts_fail(service: Service) -> None:
    """A job whose three attempts fail ends with the error of the last."""
    job_id = echo(service, fail_attempts=3)
    service.cloud.settle(within=HOUR)
    assert assert_ended(service, job_id, "failed")[-1]["error"]["code"] == "throttled"


def test_wait(service: Service) -> None:
    """A job that must wait has the reason, logs nothing, and starts when it is due."""
    job_id = echo(service, wait=True)
    before = service.cloud.clock.time
    service.cloud.settle()
    shown = status(service, job_id)
    assert (shown["status"], shown["waiting_for"], shown["sequence"]) == ("queued", "rate_limit", 1)
    service.cloud.settle(within=HOUR)
    assert verbs(assert_ended(service, job_id, "completed")) == ["requested", "started", "received", "completed"]
    assert service.cloud.clock.time - before == pytest.approx(40, abs=2)


@pytest.mark.parametrize(
    ("kind", "given"),
    [("echo", {"words": ["ñ" * 40], "times": 1000}), ("tally", {"text": " ".join(["+" + "x" * 40] * 1000)})],
    ids=["worker", "machine"],
)
def test_large_result(service: Service, monkeypatch: pytest.MonkeyPatch, kind: str, given: dict[str, Any]) -> None:
    """A result over 32 KB is an object with the job's retention. The event says so, and the job has a link."""
    with connected(service, monkeypatch) as client:
        job = client.submit(kind=kind, input=given)
        service.cloud.settle(within=HOUR)
        last, shown = service.events(job.job_id)[-1], service.job(job.job_id)
        assert last["result_truncated"] is True
        assert not {"words", "all_words"} & last.keys()
        assert (shown["result"], shown["result_truncated"]) == (None, True)
        assert service.keys("results/") == [f"results/ana/{job.job_id}/result.json"]
        result = client.result(job.job_id)
        assert result is not None
        words = result["words" if kind == "echo" else "all_words"]
        assert len(words) == 1000


def test_large_input(service: Service) -> None:
    """An input that is too large for the job's item is refused, and the error names POST /uploads."""
    answer = service.call("POST", "/jobs", json={"kind": "echo", "input": {"words": ["x" * 40] * 1000}})
    assert (answer.status, answer.json()["field"]) == (413, "input")
    assert "POST /uploads" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["echo", "tally"])
def test_removed_kind(service: Service, name: str) -> None:
    """Jobs of a removed kind are shown, can be canceled and cannot be retried. Nothing returns 500."""
    service.cloud.pause("start_job", "worker")
    job_id, first = submit(service, name), kinds.registry.KINDS[name].submitted_event
    left = {key: kind for key, kind in kinds.registry.KINDS.items() if key != name}
    with mock.patch.dict(kinds.registry.KINDS, left, clear=True):
        shown = service.job(job_id)
        assert (shown["kind"], shown["status"]) == (name, "queued")
        assert shown.get("list_name") == ("words" if name == "tally" else None)
        (listed,) = service.call("GET", "/jobs").json()["jobs"]
        assert listed["kind"] == name
        assert service.call("GET", f"/jobs?kind={name}").status == 422
        assert [event["event"] for event in service.events(job_id)] == [first]
        assert service.cancel(job_id).status == 200
        refused = service.call("POST", f"/jobs/{job_id}/retry")
        assert (refused.status, name in refused.json()["detail"]) == (409, True)
        service.cloud.resume()
        service.cloud.settle(within=HOUR)
        assert service.job(job_id)["status"] == "canceled"
        assert all(service.cloud.queue(f"{queue}/Queue").bodies == [] for queue in ("Indexing", "Embedding"))


def test_removed_kind_on_worker(service: Service) -> None:
    """A queued job of a removed kind fails at once."""
    service.cloud.pause("worker")
    job_id = echo(service)
    service.cloud.settle()
    left = {key: kind for key, kind in kinds.registry.KINDS.items() if key != "echo"}
    with mock.patch.dict(kinds.registry.KINDS, left, clear=True):
        service.cloud.resume()
        service.cloud.settle()
        assert service.job(job_id)["error"]["code"] == "unknown_kind"
