"""One owner's open jobs are limited, whatever kind they are of, and no way to end one leaves it counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kinds.registry import KINDS
from tests.kinds.test_suite import DISPATCH, HOOK, WORKER, breaking, functions, submit
from tests.support.kinds import deadline
from tests.support.problems import assert_problem
from tests.support.service import Service

HOUR = 3600.0
SINCE = "2026-11-30T08:00:00Z"
COUNTED = ("OPEN#", "RUNNING#", "EXCLUSIVE#")
EVERY_KIND = pytest.mark.parametrize("name", KINDS)
Knob = Callable[..., None]


def counted(service: Service, owner: str = "ana") -> list[str]:
    """The items that count the owner's jobs."""
    return [sk for sk in service.rows(f"OWNER#{owner}") if sk.startswith(COUNTED)]


@contextmanager
def stopped(service: Service) -> Iterator[None]:
    """No job makes progress."""
    service.cloud.pause("start_job", WORKER, DISPATCH)
    yield
    service.cloud.resume()


def endpoint(service: Service, name: str = "in") -> str:
    made = service.call("POST", "/webhooks", json={"url": f"{HOOK}/{name}", "events": ["endpoint.disabled"]})
    return str(made.json()["webhook_id"])


def send_again(service: Service, webhook_id: str, mode: str = "replay", **headers: str) -> Any:
    return service.call("POST", f"/webhooks/{webhook_id}/{mode}", json={"since": SINCE}, headers=headers)


# ── every end ────────────────────────────────────────────────────────────────────────────────────────────────


def complete(service: Service, name: str, job_id: str) -> str:
    service.cloud.settle(within=HOUR)
    return "completed"


def cancel(service: Service, name: str, job_id: str) -> str:
    service.cancel(job_id)
    return "canceled"


def cancel_while_it_runs(service: Service, name: str, job_id: str) -> str:
    function = next(iter(functions(service, KINDS[name]).values()))
    service.cloud.on("*", "*", lambda call: service.cancel(job_id), function=function, times=1, after=True)
    service.cloud.settle(within=HOUR)
    return "canceled"


def fail(service: Service, name: str, job_id: str) -> str:
    if name == "replay":
        service.call("DELETE", f"/webhooks/{service.job(job_id)['webhook_id']}")
        service.cloud.settle(within=HOUR)
        return "failed"
    first = next(iter(functions(service, KINDS[name]).values()))
    with breaking(service, first, job_id, KINDS[name].stages[0]):
        service.cloud.settle(within=4 * HOUR)
    service.cloud.advance(120)  # the reaper handles dead letters
    return "failed"


def miss_the_deadline(service: Service, name: str, job_id: str) -> str:
    with stopped(service):
        service.cloud.clock.advance_to(service.cloud.clock.time + deadline(name) + HOUR)
        service.cloud.bus.skip_ticks()
        service.cloud.advance(61)
    return "failed"


def never_start(service: Service, name: str, job_id: str) -> str:
    if name == "replay":
        return miss_the_deadline(service, name, job_id)  # messages to `dispatch` are left for an operator
    starter = WORKER if KINDS[name].runs_on == "worker" else "start_job"
    with breaking(service, starter, job_id, KINDS[name].stages[0]):
        service.cloud.settle(within=4 * HOUR)
    service.cloud.advance(120)
    return "failed"


@EVERY_KIND
@pytest.mark.parametrize(
    "end",
    [complete, cancel, cancel_while_it_runs, fail, miss_the_deadline, never_start],
    ids=lambda end: end.__name__,
)
def test_every_end(service: Service, name: str, end: Callable[[Service, str, str], str]) -> None:
    """A job counts from its submission to its end, and not after it, however it ends."""
    job_id = submit(service, name)
    assert f"OPEN#{job_id}" in counted(service)
    assert any(sk.startswith("EXCLUSIVE#") for sk in counted(service)) == KINDS[name].exclusive
    status = end(service, name, job_id)
    service.cloud.settle(within=HOUR)
    assert (service.job(job_id)["status"], counted(service)) == (status, [])


@EVERY_KIND
def test_jobs_of_earlier_versions(service: Service, name: str) -> None:
    """A job without such items, as the version before wrote it, runs and ends like any other."""
    job_id = submit(service, name)
    table = service.cloud.table("Jobs")
    for sk in counted(service):
        table.delete_item(Key={"pk": "OWNER#ana", "sk": sk})
    service.cloud.settle(within=HOUR)
    assert (service.job(job_id)["status"], counted(service)) == ("completed", [])


# ── the limit ────────────────────────────────────────────────────────────────────────────────────────────────


@EVERY_KIND
def test_limit(service: Service, knob: Knob, name: str) -> None:
    """Beyond the limit, every kind is refused until one job has ended; nothing is stored, and others go on."""
    knob("Api", MAX_OPEN_JOBS=3)
    webhook_id = endpoint(service)
    with stopped(service):
        first, second = service.submit(), submit(service, name)
        service.cancel(first)
        again = service.call("POST", f"/jobs/{first}/retry").json()["job_id"]
        service.submit()
        files = service.keys()
        answers = [
            service.call("POST", "/jobs", json={"kind": "document", "input": {"text": "One more."}}),
            service.call("POST", f"/jobs/{first}/retry"),
            send_again(service, webhook_id),
            send_again(service, webhook_id, "recover"),
        ]
        for answer in answers:
            detail = assert_problem(answer, 429, "quota_exceeded")["detail"]
            assert detail.startswith("You have 3 open jobs, which is the limit.")
            assert answer.headers["Retry-After"] == "15"
        assert service.keys() == files
        Service(service.cloud, owner="ben").submit()
        service.cancel(second)
        service.submit()
        assert len(counted(service)) == 3
        assert service.job(again)["status"] == "queued"


def test_repetitions_above_the_limit(service: Service, knob: Knob) -> None:
    """A repetition of an accepted request returns its job, also at the limit; its key protects nothing else."""
    knob("Api", MAX_OPEN_JOBS=3)
    webhook_id, canceled = endpoint(service), service.submit()
    service.cancel(canceled)
    with stopped(service):
        calls = [
            ("/jobs", {"kind": "document", "input": {"text": "Once."}}),
            (f"/jobs/{canceled}/retry", None),
            (f"/webhooks/{webhook_id}/replay", {"since": SINCE}),
        ]
        headers = [{"Idempotency-Key": str(number)} for number in range(len(calls))]
        accepted, repeated = (
            [
                service.call("POST", path, json=body, headers=key)
                for (path, body), key in zip(calls, headers, strict=True)
            ]
            for _ in range(2)
        )
        for one, other in zip(accepted, repeated, strict=True):
            assert (other.status, other.headers["Idempotent-Replayed"]) == (202, "true")
            assert other.json()["job_id"] == one.json()["job_id"]
        body = {"kind": "document", "input": {"text": "Twice."}}
        assert_problem(service.call("POST", "/jobs", json=body, headers=headers[0]), 422, "invalid_request")
        other_key = {"Idempotency-Key": "other"}
        assert_problem(service.call("POST", "/jobs", json=body, headers=other_key), 429, "quota_exceeded")


# ── one replay at a time ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["replay", "recover"])
@pytest.mark.parametrize("other", ["replay", "recover"])
def test_one_replay_at_a_time(service: Service, mode: str, other: str) -> None:
    """While one is open, another for the same endpoint is a 409 with its id; other endpoints go on."""
    webhook_id, another = endpoint(service), endpoint(service, "other")
    with stopped(service):
        first = send_again(service, webhook_id, mode, **{"Idempotency-Key": "k"})
        repeated = send_again(service, webhook_id, mode, **{"Idempotency-Key": "k"})
        assert (first.status, repeated.json()["job_id"]) == (202, first.json()["job_id"])
        problem = assert_problem(send_again(service, webhook_id, other), 409, "conflict")
        assert problem["job_id"] == first.json()["job_id"]
        assert problem["job_id"] in problem["detail"]
        assert send_again(service, another, other).status == 202
    service.cloud.settle(within=HOUR)
    assert service.job(first.json()["job_id"])["status"] == "completed"
    assert send_again(service, webhook_id, other).status == 202


def test_retry_of_a_replay(service: Service) -> None:
    """A retry of a canceled replay counts like a new one."""
    webhook_id = endpoint(service)
    with stopped(service):
        first = send_again(service, webhook_id).json()["job_id"]
        service.cancel(first)
        second = send_again(service, webhook_id).json()["job_id"]
        problem = assert_problem(service.call("POST", f"/jobs/{first}/retry"), 409, "conflict")
        assert problem["job_id"] == second


def test_what_is_left_over_does_not_block(service: Service) -> None:
    """The item of a replay that ended without it, as the version before ends jobs, does not block the next one."""
    webhook_id = endpoint(service)
    with stopped(service):
        first = send_again(service, webhook_id).json()["job_id"]
        table = service.cloud.table("Jobs")
        left = [table.get_item(Key={"pk": "OWNER#ana", "sk": sk})["Item"] for sk in counted(service)]
        service.cancel(first)
        for item in left:
            table.put_item(Item=item)
        assert send_again(service, webhook_id).status == 202
