"""Of a deleted job nothing comes back, nothing is sent, and nothing of other jobs is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from moto.dynamodb.models import dynamodb_backends

from core.jobs.results import MAX_RESULT_BYTES
from kinds.registry import KINDS
from tests.attacks.test_revocation import follow, is_refused, links, submit, ticket
from tests.simulated_cloud.calls import Call, CallRule, Killed
from tests.simulated_cloud.functions import ACCOUNT, REGION
from tests.simulated_cloud.rest_api import Response
from tests.support.kinds import example_input
from tests.support.receiver import Received, Receiver
from tests.support.service import Service, make_key

EVERY_KIND = pytest.mark.parametrize("kind", sorted(KINDS))
EVERY_SUBMITTABLE = pytest.mark.parametrize("kind", sorted(name for name in KINDS if KINDS[name].submittable))
MINUTE, HOUR = 60.0, 3600.0
HOOK = "https://hooks.example.com/in"
MARK = "a text that only this job has"
WORKERS = ("validate_document", "chunk_document", "store_vectors", "worker", "finish_job", "start_job")
TOMBSTONE = {"pk", "sk", "entity", "job_id", "owner", "kind", "deleted_at", "expires_at"}


def finish(service: Service) -> None:
    """Half an hour, with a run of the reaper every ten minutes: as if the others had failed."""
    for _ in range(3):
        service.cloud.clock.advance_to(service.cloud.clock.time + 10 * MINUTE)
        service.cloud.invoke("reaper", {})
        service.cloud.settle()


def ended(service: Service, kind: str) -> str:
    """The id of a job of this kind that has completed."""
    job_id = submit(service, kind)
    service.cloud.settle(within=HOUR)
    assert service.job(job_id)["status"] == "completed"
    return job_id


def delete(service: Service, job_id: str) -> Response:
    return service.call("DELETE", f"/jobs/{job_id}")


def deleted(service: Service, job_id: str) -> None:
    """Delete the job, and wait until all is removed, late writes included."""
    assert delete(service, job_id).status == 202
    finish(service)
    assert delete(service, job_id).status == 204


def rows(service: Service, table: str) -> list[dict[str, Any]]:
    """All items of a table, as texts."""
    items = dynamodb_backends[ACCOUNT][REGION].tables[service.cloud.table(table).name].all_items()
    return [{name: value.value for name, value in item.attrs.items()} for item in items]


def rows_of(service: Service, job_id: str) -> dict[str, set[str]]:
    """The attributes of the items of a job, by sort key."""
    return {row["sk"]: set(row) for row in rows(service, "Jobs") if row["pk"] == f"JOB#{job_id}"}


def deliveries(service: Service, job_id: str) -> list[dict[str, Any]]:
    found = [row for row in rows(service, "Deliveries") if row.get("entity") == "delivery"]
    return [row for row in found if json.loads(row["facts"]).get("job_id") == job_id]


def assert_gone(service: Service, job_id: str) -> None:
    """No route shows the job, and no table and no object has anything of it but its tombstone."""
    paths = ("", "/status", "/events")
    answers = [service.call("GET", f"/jobs/{job_id}{path}") for path in paths]
    answers += [service.call("POST", f"/jobs/{job_id}/{verb}") for verb in ("cancel", "retry")]
    answers.append(service.call("DELETE", f"/jobs/{job_id}/links"))
    assert {(answer.status, answer.json()["type"]) for answer in answers} == {
        (410, "urn:recado:problem:job_deleted")
    }
    assert job_id not in [one["job_id"] for one in service.call("GET", "/jobs").json()["jobs"]]
    assert rows_of(service, job_id) == {"META": TOMBSTONE}
    assert [key for key in service.keys("") if job_id in key and not key.startswith("vectors/")] == []
    assert {(row["body"], row["status"] in ("pending", "sending")) for row in deliveries(service, job_id)} <= {
        ("", False)
    }


def assert_quiet(service: Service) -> None:
    """No message waits or failed."""
    for queue in ("Indexing", "Embedding", "Webhooks/Notify"):
        for part in ("Queue", "DeadLetters"):
            assert service.cloud.queue(f"{queue}/{part}").bodies == []


# ── what is removed ──────────────────────────────────────────────────────────────────────────────────────────


@EVERY_KIND
def test_everything_goes(service: Service, receiver: Receiver, kind: str) -> None:
    """Row, log, files and payloads of a completed job are removed; late writes too."""
    service.call("POST", "/webhooks", json={"url": HOOK, "events": ["*"]})
    job_id = ended(service, kind)
    assert deliveries(service, job_id)
    deleted(service, job_id)
    assert_gone(service, job_id)
    assert_quiet(service)


@EVERY_KIND
def test_large_results_and_files(service: Service, kind: str) -> None:
    """A result in S3, intermediate files, several texts and parked events are removed, those of others are not."""
    job_id, other = ended(service, kind), ended(service, kind)
    event_id = service.events(job_id)[0]["event_id"]
    s3, bucket = service.cloud.client("s3"), service.cloud.bucket("Data")
    names = ("inputs/ana/{}", "inputs/ana/{}/name", "work/{}/a/b", "results/ana/{}/result.json")
    foreign = [name.format(other) for name in names] + ["parked/evt_1.json", f"inputs/ben/{job_id}"]
    own = [name.format(job_id) for name in names] + [f"parked/{event_id}.json"]
    for key in own + foreign:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x" * MAX_RESULT_BYTES)
    deleted(service, job_id)
    assert set(foreign) <= set(service.keys())
    assert set(own) & set(service.keys()) == set()


def test_live_document_stays(service: Service) -> None:
    """The live version of a document is found after its job was deleted; other versions were removed."""
    first = service.submit("The old text.", document_id="d")
    service.cloud.settle(within=HOUR)
    second = service.submit("The cellar key hangs behind the door.", document_id="d")
    service.cloud.settle(within=HOUR)
    before = set(service.keys("vectors/"))
    deleted(service, first)
    deleted(service, second)
    assert set(service.keys("vectors/")) == before
    assert [hit["text"] for hit in service.search("cellar key")] == ["The cellar key hangs behind the door."]
    assert set(service.documents()) == {"d"}


def test_upload_of_two_jobs_stays(service: Service) -> None:
    """An upload belongs to no job, so another job that names it is done afterwards."""
    key = service.upload(b"One two three.", content_type="text/plain")
    first = service.submit(s3_key=key)
    service.cloud.settle(within=HOUR)
    deleted(service, first)
    second = service.submit(s3_key=key)
    service.cloud.settle(within=HOUR)
    assert service.job(second)["status"] == "completed"


@EVERY_SUBMITTABLE
def test_retry_keeps_its_input(service: Service, kind: str) -> None:
    """The retry of a job runs to its end although the job is deleted while it runs, and so does its own retry."""
    service.cloud.pause("start_job", "worker")
    job_id = submit(service, kind)
    service.cancel(job_id)
    again = service.call("POST", f"/jobs/{job_id}/retry").json()["job_id"]
    service.cancel(again)
    last = service.call("POST", f"/jobs/{again}/retry").json()["job_id"]
    assert (delete(service, job_id).status, delete(service, again).status) == (202, 202)
    service.cloud.resume()
    service.cloud.settle(within=HOUR)
    assert service.job(last)["status"] == "completed"
    finish(service)
    assert_gone(service, job_id)
    assert_gone(service, again)


# ── who may delete what ──────────────────────────────────────────────────────────────────────────────────────


@EVERY_KIND
def test_open_job(service: Service, kind: str) -> None:
    """An open job is a 409 that says to cancel it, and goes on."""
    service.cloud.pause("start_job", "worker", "dispatch")
    job_id = submit(service, kind)
    answer = delete(service, job_id)
    assert (answer.status, f"/jobs/{job_id}/cancel" in answer.json()["detail"]) == (409, True)
    service.cloud.resume()
    service.cloud.settle(within=HOUR)
    assert service.job(job_id)["status"] == "completed"


@EVERY_KIND
def test_other_owners(service: Service, kind: str) -> None:
    """For another owner the job is a 404, before and after its deletion. Only its owner can delete it."""
    job_id, ben = ended(service, kind), Service(service.cloud, owner="ben")
    assert delete(ben, job_id).status == 404
    headers = {"Authorization": f"Bearer {make_key(service.cloud, 'ana', scopes=('jobs:read',))}"}
    assert service.call("DELETE", f"/jobs/{job_id}", headers=headers).status == 403
    assert service.job(job_id)["status"] == "completed"
    deleted(service, job_id)
    answers = [ben.call(method, f"/jobs/{job_id}") for method in ("GET", "DELETE")]
    assert {(answer.status, answer.json()["type"]) for answer in answers} == {
        (404, "urn:recado:problem:not_found")
    }


@pytest.mark.parametrize("text", ["", "job_", "job_%20", "META", "..", "job_01JDXQ3V8N2M4K6H8G0F2E4D6C"])
def test_other_texts(service: Service, text: str) -> None:
    """What is not the id of a job deletes nothing."""
    job_id = service.submit()
    service.cloud.settle(within=HOUR)
    before = len(rows(service, "Jobs"))
    assert service.call("DELETE", f"/jobs/{text}").status in (403, 404, 405)
    assert len(rows(service, "Jobs")) == before
    assert delete(service, job_id).status == 202


@EVERY_KIND
def test_twice(service: Service, kind: str) -> None:
    """Deleting again is a 202 until all is removed, and then a 204."""
    job_id = ended(service, kind)
    service.cloud.pause("start_job")
    assert [delete(service, job_id).status for _ in range(3)] == [202] * 3
    service.cloud.resume()
    service.cloud.settle()
    assert [delete(service, job_id).status for _ in range(3)] == [204] * 3
    finish(service)
    assert_gone(service, job_id)
    assert_quiet(service)


@EVERY_SUBMITTABLE
def test_idempotency_key(service: Service, kind: str) -> None:
    """The key of a deleted job is a 410 that says so, and makes no new job; with another body it is a 422."""
    body, headers = {"kind": kind, "input": example_input(service, kind)}, {"Idempotency-Key": "k"}
    job_id = service.call("POST", "/jobs", json=body, headers=headers).json()["job_id"]
    service.cloud.settle(within=HOUR)
    assert delete(service, job_id).status == 202
    for _ in range(2):
        answer = service.call("POST", "/jobs", json=body, headers=headers)
        assert (answer.status, answer.json()["type"]) == (410, "urn:recado:problem:job_deleted")
        assert (answer.json()["field"], "new key" in answer.json()["detail"]) == ("Idempotency-Key", True)
        finish(service)
    other = service.call("POST", "/jobs", json=body | {"metadata": {"a": "b"}}, headers=headers)
    assert other.status == 422
    assert service.call("GET", "/jobs").json()["jobs"] == []
    assert service.call("POST", "/jobs", json=body, headers={"Idempotency-Key": "k2"}).status == 202


# ── what is under way ────────────────────────────────────────────────────────────────────────────────────────


def test_pending_deliveries(service: Service, receiver: Receiver) -> None:
    """Deliveries that wait for a retry or in the queue are canceled with the reason, and nothing more is sent."""
    hook = service.call("POST", "/webhooks", json={"url": HOOK, "events": ["*"]}).json()["webhook_id"]
    receiver.always = 500
    job_id = service.submit(MARK, webhook_url=f"{HOOK}/own")
    service.cloud.settle()
    sent = len(receiver.requests)
    assert sent > 0
    assert delete(service, job_id).status == 202
    assert {(row["status"], row["reason"], row["body"]) for row in deliveries(service, job_id)} == {
        ("canceled", "job_deleted", "")
    }
    service.let_pass(4 * 24 * HOUR)
    assert len(receiver.requests) == sent
    shown = service.call("GET", f"/webhooks/{hook}/deliveries?status=canceled").json()["deliveries"]
    assert {one["job_id"] for one in shown} == {job_id}


def test_nothing_sends_an_erased_delivery(service: Service, receiver: Receiver) -> None:
    """Redeliver, recover and replay send no delivery of a deleted job, and no empty body."""
    hook = service.call("POST", "/webhooks", json={"url": HOOK, "events": ["*"]}).json()["webhook_id"]
    receiver.always = 410
    job_id = ended(service, "document")
    receiver.always = 200
    service.call("PATCH", f"/webhooks/{hook}", json={"enabled": True})
    (row, *_) = deliveries(service, job_id)
    identifier = row["pk"].removeprefix("DELIVERY#")
    service.cloud.pause("sender")
    assert service.call("POST", f"/deliveries/{identifier}/redeliver").status == 202  # its message waits
    sent = len(receiver.requests)
    assert delete(service, job_id).status == 202
    service.cloud.resume()
    service.cloud.settle()
    answer = service.call("POST", f"/deliveries/{identifier}/redeliver")
    assert (answer.status, "deleted" in answer.json()["detail"]) == (409, True)
    assert service.call("GET", f"/deliveries/{identifier}").json()["payload"] == ""
    for mode in ("recover", "replay"):
        assert (
            service.call("POST", f"/webhooks/{hook}/{mode}", json={"since": "2000-01-01T00:00:00Z"}).status == 202
        )
        service.cloud.settle(within=HOUR)
    assert {json.loads(request.body)["event"].partition(".")[0] for request in receiver.requests[sent:]} <= {
        "replay"
    }


def test_attempt_in_progress(service: Service, receiver: Receiver) -> None:
    """A delivery whose attempt is under way is erased after the attempt, and is not tried again."""
    service.call("POST", "/webhooks", json={"url": HOOK, "events": ["document.indexed"]})
    seen: list[int] = []

    def react(received: Received) -> int:
        if not seen:
            job_id = json.loads(received.body)["job_id"]
            seen.append(delete(service, job_id).status)
        return 500

    receiver.react = react
    job_id = service.submit(MARK)
    service.cloud.settle()
    assert seen == [202]
    finish(service)
    assert_gone(service, job_id)
    assert len(receiver.requests) == 1


def test_deleted_endpoint(service: Service, receiver: Receiver) -> None:
    """The payloads of deliveries to an endpoint that was deleted before are removed, too."""
    hook = service.call("POST", "/webhooks", json={"url": HOOK, "events": ["*"]}).json()["webhook_id"]
    job_id = ended(service, "document")
    assert service.call("DELETE", f"/webhooks/{hook}").status == 204
    deleted(service, job_id)
    assert_gone(service, job_id)


@EVERY_KIND
@pytest.mark.parametrize("paused", ["publisher", "dispatch", "start_job", "worker", "push"])
def test_late_events(service: Service, receiver: Receiver, kind: str, paused: str) -> None:
    """Events and messages that are handled after the deletion are dropped quietly, wherever they waited."""
    service.call("POST", "/webhooks", json={"url": HOOK, "events": [f"{kind}.*"]})
    socket = service.cloud.connect(ticket(service))
    socket.send({"action": "follow", "kind": kind})
    service.cloud.settle()
    socket.take()
    service.cloud.pause("start_job", "worker", paused)
    if kind == "replay":
        service.cloud.pause("dispatch")
    job_id = submit(service, kind)
    service.cancel(job_id)
    if paused in ("publisher", "push"):
        assert delete(service, job_id).status == 202
    service.cloud.settle()
    sent, published = len(receiver.requests), len(service.published("DocEventsTopic", job_id=job_id))
    assert delete(service, job_id).status == 202
    socket.take()
    service.cloud.resume()
    finish(service)
    assert len(receiver.requests) == sent
    assert len(service.published("DocEventsTopic", job_id=job_id)) == published
    assert [event for message in socket.take() for event in message.get("events", [])] == []
    assert_gone(service, job_id)
    assert_quiet(service)
    assert service.execution_status(job_id) != "RUNNING"


@EVERY_KIND
def test_links_and_sockets(service: Service, kind: str) -> None:
    """The links of a deleted job are refused at once, and WebSockets that they opened end within five minutes."""
    job_id = ended(service, kind)
    found, socket = links(service, job_id), service.cloud.connect(links(service, job_id)["live"])
    assert delete(service, job_id).status == 202
    assert {answer.status for answer in follow(service, found)} == {403}
    assert is_refused(service, found["live"])
    service.cloud.advance(300)
    assert not socket.is_open


@EVERY_SUBMITTABLE
def test_work_goes_on(service: Service, kind: str) -> None:
    """A job that is canceled and deleted during any function that works on it leaves nothing."""
    submit(service, kind)
    service.cloud.settle(within=HOUR)
    runs = [run for run in service.cloud.functions.invocations if run.name in WORKERS]
    jobs = []
    for function in sorted({run.name for run in runs}):
        calls = max(run.calls for run in runs if run.name == function)
        for number in {1, (calls + 1) // 2, calls}:
            jobs.append(submit(service, kind))
            rule = at_call(service, function, number, partial(cancel_and_delete, service, jobs[-1]))
            with service.paused_reaper():
                service.cloud.settle(within=HOUR)
            rule.remove()
            delete(service, jobs[-1])  # where the function has no call of this number
    finish(service)
    for job_id in jobs:
        assert_gone(service, job_id)
        assert service.execution_status(job_id) != "RUNNING"
    assert set(service.vectors()) <= {one["version"] for one in service.documents().values()}
    assert_quiet(service)


def cancel_and_delete(service: Service, job_id: str) -> None:
    service.cancel(job_id)
    delete(service, job_id)


def at_call(service: Service, function: str, number: int, action: Callable[[], object]) -> CallRule:
    """Do something once before a function's AWS call of this number. An exception that it returns is raised."""

    def act(call: Call) -> None:
        outcome = action()
        if isinstance(outcome, BaseException):
            raise outcome

    return service.cloud.on("*", "*", act, function=function, when=lambda call: call.index == number, times=1)


# ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", ["api", "start_job"])
def test_kill_and_repeat(service: Service, receiver: Receiver, function: str) -> None:
    """Wherever the deletion is killed it is finished, by itself once the tombstone stands, or by a repetition."""
    service.call("POST", "/webhooks", json={"url": HOOK, "events": ["*"]})
    jobs, hits = [], 1
    while hits:
        jobs.append(service.submit(" "))
        service.cloud.settle(within=HOUR)
        rule = at_call(service, function, len(jobs), Killed)
        delete(service, jobs[-1])
        service.cloud.settle()
        rule.remove()
        hits = rule.hits
        if service.call("GET", f"/jobs/{jobs[-1]}").status != 410:
            delete(service, jobs[-1])
    assert len(jobs) > 5
    finish(service)
    for job_id in jobs:
        assert delete(service, job_id).status == 204
        assert_gone(service, job_id)


def test_long_log(service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that cannot be deleted in the time of one run is deleted by further ones."""
    job_id = ended(service, "document")
    table = service.cloud.table("Jobs")
    event = table.get_item(Key={"pk": f"JOB#{job_id}", "sk": "EVENT#000001"})["Item"]
    for number in range(100, 400):
        table.put_item(Item=event | {"sk": f"EVENT#{number:06d}", "event_id": f"evt_{number:026d}"})
    monkeypatch.setattr("jobs.start_job.handler.DELETION_SECONDS", -1)
    monkeypatch.setattr("rest.api.jobs.CANCEL_SECONDS", -1)
    assert delete(service, job_id).status == 202
    service.cloud.settle()
    assert len(rows_of(service, job_id)) > 200
    service.cloud.advance(HOUR)
    assert_gone(service, job_id)
