"""However many jobs one owner submits, few of them run at a time, so the parsers stay free for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kinds.registry import KINDS
from tests.kinds.test_suite import DISPATCH, submit
from tests.support.service import Service

HOUR = 3600.0
MACHINE_KINDS = [name for name, kind in KINDS.items() if kind.runs_on == "machine"]
MACHINES = pytest.mark.parametrize("name", MACHINE_KINDS)
Knob = Callable[..., None]


def started(service: Service) -> Counter[str]:
    """The owners of the executions that were started."""
    calls = [call for call in service.cloud.calls.log if call.action == "stepfunctions:StartExecution"]
    return Counter(
        owner for owner in ("ana", "ben") for call in calls if f'"owner": "{owner}"' in call.params["input"]
    )


def running(service: Service, owner: str = "ana") -> int:
    """The jobs of the owner that have a place."""
    return sum(sk.startswith("RUNNING#") for sk in service.rows(f"OWNER#{owner}"))


@MACHINES
def test_few_run_at_a_time(service: Service, knob: Knob, name: str) -> None:
    """Of an owner's jobs, no more than the limit run at any time; others' jobs start at once; all complete."""
    knob("StartJob", MAX_RUNNING_JOBS=2)
    most: list[int] = []
    service.cloud.on("dynamodb", "*", lambda call: most.append(running(service)), times=None)
    jobs = [submit(service, name) for _ in range(9)]
    ben = Service(service.cloud, owner="ben")
    of_ben = submit(ben, name)
    service.cloud.settle()
    assert started(service)["ben"] == 1
    with service.paused_reaper():
        service.cloud.settle(within=HOUR)
    assert {service.job(job_id)["status"] for job_id in jobs} == {ben.job(of_ben)["status"]} == {"completed"}
    assert (max(most), running(service), started(service)["ana"]) == (2, 0, len(jobs))


def occupy(service: Service) -> str:
    """A job of ana's that has a place and makes no progress."""
    service.cloud.pause(DISPATCH)
    job_id = submit(service, "replay")
    key = {"pk": "OWNER#ana", "sk": f"RUNNING#{job_id}"}
    service.cloud.table("Jobs").put_item(Item={**key, "expires_at": int(service.cloud.clock.time + 9 * HOUR)})
    return job_id


@MACHINES
def test_waiting_job(service: Service, knob: Knob, name: str) -> None:
    """A job that waits for a place says so, spends no attempt and no receive, and can be canceled."""
    knob("StartJob", MAX_RUNNING_JOBS=1)
    running_job = occupy(service)
    first, second = submit(service, name), submit(service, name)
    with service.paused_reaper():
        service.cloud.settle(within=HOUR)
    for job_id in (first, second):
        job = service.job(job_id)
        assert (job["status"], job["attempts"], job["waiting_for"]) == ("queued", 0, "running_jobs")
    assert [event["event"] for event in service.events(first)] == [KINDS[name].submitted_event]
    assert service.cancel(second).status == 200
    service.cancel(running_job)
    service.cloud.resume()
    with service.paused_reaper():
        service.cloud.settle(within=HOUR)
    job = service.job(first)
    assert (job["status"], "waiting_for" in job, running(service)) == ("completed", False, 0)
    assert started(service)["ana"] == 1
    assert service.cloud.queue("Indexing/DeadLetters").bodies == []


@pytest.mark.parametrize("name", [name for name in MACHINE_KINDS if KINDS[name].deadline is None])
def test_waiting_ends_at_the_deadline(service: Service, knob: Knob, name: str) -> None:
    """A job that never gets a place fails at its deadline, which says why, and its message is not sent again."""
    knob("StartJob", MAX_RUNNING_JOBS=1)
    occupy(service)
    job_id = submit(service, name)
    with service.paused_reaper():
        service.cloud.settle(within=5 * HOUR)
    assert service.job(job_id)["status"] == "queued"
    assert service.cloud.queue("Indexing/Queue").bodies == []
    service.cloud.advance(61)
    error = service.job(job_id)["error"]
    assert (error["code"], error["stage"]) == ("deadline_exceeded", "queued")
    assert "waited too long for your other jobs" in error["message"]
