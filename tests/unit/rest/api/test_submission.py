from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from core import ids
from core.aws.blobs import Blobs
from core.dependencies import Dependencies
from core.errors import InvalidRequest
from core.jobs import begin, cancel, fail
from kinds.document.index.catalog import Catalog
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from rest.api.submission import MASK, Accepted, submit_replay
from tests.simulated_cloud.calls import Calls, transaction_canceled
from tests.simulated_cloud.clock import Clock
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
TEXT = {"kind": "document", "input": {"text": "año 👩‍🚀"}}
HOOK = TEXT | {"webhook_url": "https://example.com/hook?token=1"}


def accepted(answer: Answer) -> dict[str, Any]:
    body: dict[str, Any] = answer.json
    assert answer.status == 202, answer
    return body


# ── a job ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_accepted(api: Api, deployed: Dependencies, blobs: Blobs) -> None:
    """The 202 has the job's location and Retry-After. The job and its text in S3 are written."""
    answer = api("POST", "/jobs", TEXT | {"metadata": {"year": "2026"}})
    body = accepted(answer)
    assert answer.headers["location"] == f"jobs/{body['job_id']}"
    assert answer.headers["retry-after"] == "5"
    assert "idempotent-replayed" not in answer.headers
    written = deployed.jobs.get(body["job_id"], owner="ana")
    assert (written.status, dict(written.subject), dict(written.metadata)) == (
        "queued",
        {"document_id": written.job_id},
        {"year": "2026"},
    )
    assert written.input["source_key"] == f"inputs/ana/{written.job_id}"
    assert blobs.get(written.input["source_key"], etag=written.input["etag"]) == "año 👩‍🚀".encode()
    assert written.input["bytes"] == len("año 👩‍🚀".encode())


def test_times(api: Api, deployed: Dependencies) -> None:
    """The deadline and the retention of a job are as configured."""
    made = deployed.jobs.get(accepted(api("POST", "/jobs", TEXT))["job_id"])
    created = datetime.fromisoformat(made.created_at).timestamp()
    deadline = datetime.fromisoformat(made.deadline).timestamp()
    assert deadline - created == pytest.approx(240 * 60)
    assert made.expires_at == int(created) + 90 * 86_400


def test_named_document(api: Api, deployed: Dependencies) -> None:
    """A document has the id that its owner gives it."""
    named = {"kind": "document", "input": {"text": "x", "document_id": "a/b 100%.txt"}}
    assert accepted(api("POST", "/jobs", named))["document_id"] == "a/b 100%.txt"


def test_limit_of_inline_text(api: Api) -> None:
    """The limit of inline text is in bytes. One byte more is a 413 that says what to do."""
    api("POST", "/jobs", {"kind": "document", "input": {"text": "ñ" * 50}})
    refused = api("POST", "/jobs", {"kind": "document", "input": {"text": "ñ" * 50 + "n"}})
    document = problem(refused, 413, "payload_too_large")
    assert document["field"] == "input.text"
    assert "POST /uploads" in document["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "kind"),
        ({"kind": "document"}, "input"),
        ({"kind": "nothing", "input": {"text": "x"}}, "kind"),
        ({"kind": "document", "input": {}}, "input"),
        ({"kind": "document", "input": {"text": "x", "s3_key": "uploads/ana/1"}}, "input"),
        ({"kind": "document", "input": {"text": 1}}, "input.text"),
        ({"kind": "document", "input": {"text": "x", "documentid": "y"}}, "input.documentid"),
        ({"kind": "document", "input": {"text": "\ud800"}}, "input.text"),
        ({"kind": "document", "input": {"text": "x", "document_id": ""}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "a\nb"}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "\udc00"}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "a" * 257}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "👩" * 251}}, "input.document_id"),
        ({"kind": "document", "input": {"s3_key": "x" * 1025}}, "input.s3_key"),
        (TEXT | {"metadata": {"k": 1}}, "metadata.k"),
        (TEXT | {"metadata": {"k": "v" * 1025}}, "metadata.k"),
        (TEXT | {"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        (TEXT | {"webhook_url": "http://example.com"}, "webhook_url"),
        (TEXT | {"webhook_url": "https://127.0.0.1/x"}, "webhook_url"),
        (TEXT | {"webhook_url": "https://example.com/" + "x" * 2048}, "webhook_url"),
        (HOOK | {"webhook_events": []}, "webhook_events"),
        (HOOK | {"webhook_events": ["document.nothing"]}, "webhook_events"),
        (TEXT | {"priority": 1}, "priority"),
    ],
)
def test_invalid_requests(api: Api, deployed: Dependencies, body: Any, field: str) -> None:
    """An invalid request is a 422 with the field, and nothing is written."""
    assert problem(api("POST", "/jobs", body), 422, "invalid_request")["field"] == field
    assert deployed.jobs.listing.page("ana") == ([], None)


def test_webhook_events_need_a_url(api: Api) -> None:
    """Webhook events without a URL are refused."""
    refused = problem(api("POST", "/jobs", TEXT | {"webhook_events": ["document.failed"]}), 422, "invalid_request")
    assert "webhook_url" in refused["detail"]


def test_longest_document_id(api: Api, deployed: Dependencies, dynamodb: Any, jobs_table: str) -> None:
    """The longest accepted id fits into the table's key."""
    name = "👩" * 250
    assert accepted(api("POST", "/jobs", {"kind": "document", "input": {"text": "x", "document_id": name}}))
    assert Catalog(dynamodb, jobs_table).delete("ana", name, seconds=1)


def test_scope(api: Api, deployed: Dependencies) -> None:
    """A key that can only read cannot submit, retry or cancel."""
    job_id = accepted(api("POST", "/jobs", TEXT))["job_id"]
    for path in ("/jobs", f"/jobs/{job_id}/cancel", f"/jobs/{job_id}/retry"):
        problem(api("POST", path, TEXT, scopes="jobs:read search"), 403, "forbidden")
    assert deployed.jobs.get(job_id).status == "queued"


# ── uploads ──────────────────────────────────────────────────────────────────────────────────────────────────


def uploaded(key: str) -> dict[str, Any]:
    return {"kind": "document", "input": {"s3_key": key}}


def test_upload(api: Api, deployed: Dependencies, blobs: Blobs) -> None:
    """The job has the size and the ETag of the upload."""
    etag = blobs.put("uploads/ana/upl_1/a.pdf", b"12345")
    made = deployed.jobs.get(accepted(api("POST", "/jobs", uploaded("uploads/ana/upl_1/a.pdf")))["job_id"])
    assert (made.input["source_key"], made.input["etag"], made.input["bytes"]) == (
        "uploads/ana/upl_1/a.pdf",
        etag,
        5,
    )


@pytest.mark.parametrize(
    "key",
    [
        "uploads/ben/upl_1/a.pdf",
        "uploads/ana2/upl_1/a.pdf",
        "uploads/ana",
        "inputs/ana/job_1",
        "work/job_1/text",
        "vectors/x",
        "",
        "/uploads/ana/upl_1/a.pdf",
    ],
)
def test_upload_of_another_owner(api: Api, blobs: Blobs, key: str) -> None:
    """An S3 key of another owner is refused, whether or not it exists."""
    if key:
        blobs.put(key, b"secret")
    refused = api("POST", "/jobs", uploaded(key))
    assert problem(refused, 422, "invalid_request")["field"] == "input.s3_key"


def test_missing_upload(api: Api) -> None:
    """A job for a missing upload is a 422 that says to upload it first."""
    refused = problem(api("POST", "/jobs", uploaded("uploads/ana/upl_1/a.pdf")), 422, "invalid_request")
    assert refused["field"] == "input.s3_key"
    assert "PUT it first" in refused["detail"]


def test_too_large_upload(api: Api, blobs: Blobs) -> None:
    """A job for an upload over the limit is a 413."""
    blobs.put("uploads/ana/upl_1/a.pdf", b"x" * 1001)
    refused = api("POST", "/jobs", uploaded("uploads/ana/upl_1/a.pdf"))
    assert problem(refused, 413, "payload_too_large")["field"] == "input.s3_key"


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_job_signs_its_own_links(api: Api, deployed: Dependencies) -> None:
    """Each job, also a retried one, has its own link key, which no response contains."""
    first = accepted(api("POST", "/jobs", TEXT))
    deployed.jobs.apply(first["job_id"], cancel)
    again = accepted(api("POST", f"/jobs/{first['job_id']}/retry"))
    made = [deployed.jobs.get(body["job_id"]) for body in (first, again, accepted(api("POST", "/jobs", TEXT)))]
    assert len({job.link_key for job in made}) == 3
    assert all(len(job.link_key) == 32 for job in made)
    shown = f"{first}{again}" + api("GET", f"/jobs/{first['job_id']}").body + api("GET", "/jobs").body
    assert not [job for job in made if job.link_key in shown]


# ── idempotency ──────────────────────────────────────────────────────────────────────────────────────────────


def keyed(api: Api, body: Any, key: str = "k", **options: Any) -> Answer:
    return api("POST", "/jobs", body, headers={"idempotency-Key": key}, **options)


def test_idempotent_replay(api: Api, deployed: Dependencies) -> None:
    """The same key and body, in any JSON form, return the current job, marked as a replay."""
    body = {"kind": "document", "input": {"text": "x", "document_id": "d"}}
    first = accepted(keyed(api, json.dumps(body)))
    deployed.jobs.apply(first["job_id"], cancel)
    again = keyed(api, json.dumps({"input": {"document_id": "d", "text": "x"}, "kind": "document"}, indent=2))
    assert accepted(again)["job_id"] == first["job_id"]
    assert again.json["status"] == "canceled"
    assert again.headers["idempotent-replayed"] == "true"
    assert len(deployed.jobs.listing.page("ana")[0]) == 1


@pytest.mark.parametrize("other", [TEXT | {"metadata": {}}, {"kind": "document", "input": {"text": "y"}}])
def test_another_body(api: Api, other: Any) -> None:
    """The same key with another body is a 422 with the header's name."""
    accepted(keyed(api, TEXT))
    assert problem(keyed(api, other), 422, "invalid_request")["field"] == "Idempotency-Key"


@pytest.mark.parametrize(("key", "status"), [("", 422), ("k" * 255, 202), ("k" * 256, 422), ("ключ", 202)])
def test_keys(api: Api, key: str, status: int) -> None:
    """A key has 1 to 255 characters."""
    assert keyed(api, TEXT, key).status == status


@pytest.mark.parametrize(
    ("headers", "status", "kind"), [({"Idempotency-Key": "k"}, 409, "conflict"), ({}, 503, "contended")]
)
def test_conflict_that_does_not_end(api: Api, headers: dict[str, str], status: int, kind: str) -> None:
    """After too many conflicts the caller is asked to try again."""
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", transaction_canceled(), times=None)
    with pytest.MonkeyPatch.context() as patch, calls.intercepted():
        patch.setattr("core.jobs.store.JobStore._pause", lambda store: None)
        problem(api("POST", "/jobs", TEXT, headers=headers), status, kind)


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_secret_is_shown_once(api: Api, deployed: Dependencies) -> None:
    """The owner's first job with a webhook shows the new secret, which signs; later ones mask it."""
    first = accepted(api("POST", "/jobs", HOOK))
    endpoint = deployed.endpoints.find("ana")
    assert endpoint is not None
    assert first["webhook_secret"] == deployed.endpoints_with_secrets.secrets(endpoint)[0]
    assert accepted(api("POST", "/jobs", HOOK))["webhook_secret"] == MASK
    assert deployed.endpoints.find("ana") == endpoint


def test_a_replay_masks_the_secret(api: Api) -> None:
    """A repeated request of the first job does not show the secret again."""
    secret = accepted(keyed(api, HOOK))["webhook_secret"]
    replayed = keyed(api, HOOK)
    assert replayed.json["webhook_secret"] == MASK
    assert secret not in replayed.body


def test_no_webhook_no_secret(api: Api, deployed: Dependencies) -> None:
    """A job without a webhook creates no secret."""
    assert accepted(api("POST", "/jobs", TEXT)).get("webhook_secret") is None
    assert deployed.endpoints.find("ana") is None


def test_the_job_does_not_show_the_secret(api: Api, dynamodb: Any, jobs_table: str) -> None:
    """No later response and no item of the table contains the secret."""
    first = accepted(api("POST", "/jobs", HOOK))
    assert first["webhook_secret"] not in api("GET", f"/jobs/{first['job_id']}").body
    assert first["webhook_secret"] not in str(dynamodb.scan(TableName=jobs_table)["Items"])


def test_each_owner_has_a_secret(api: Api) -> None:
    """Owners have different secrets."""
    mine, other = (accepted(api("POST", "/jobs", HOOK, owner=owner))["webhook_secret"] for owner in ("ana", "ben"))
    assert MASK not in (mine, other)
    assert mine != other


def test_two_first_submissions_at_once(api: Api, deployed: Dependencies) -> None:
    """Of two concurrent first jobs both are accepted, and one shows the secret that signs."""
    calls, answers = Calls(Clock()), []
    calls.on("dynamodb", "TransactWriteItems", lambda call: answers.append(api("POST", "/jobs", HOOK)))
    with calls.intercepted():
        answers.append(api("POST", "/jobs", HOOK))
    secrets = [accepted(answer)["webhook_secret"] for answer in answers]
    endpoint = deployed.endpoints.find("ana")
    assert endpoint is not None
    assert secrets == [deployed.endpoints_with_secrets.secrets(endpoint)[0], MASK]
    assert len(deployed.jobs.listing.page("ana")[0]) == 2


def test_the_same_first_submission_twice_at_once(api: Api, deployed: Dependencies) -> None:
    """Of two equal concurrent first requests, the second one shows no secret."""
    calls, answers = Calls(Clock()), []
    calls.on("dynamodb", "TransactWriteItems", lambda call: answers.append(keyed(api, HOOK)))
    with calls.intercepted():
        answers.append(keyed(api, HOOK))
    winner, loser = (accepted(answer) for answer in answers)
    assert winner["job_id"] == loser["job_id"]
    endpoint = deployed.endpoints.find("ana")
    assert endpoint is not None
    assert (winner["webhook_secret"], loser["webhook_secret"]) == (
        deployed.endpoints_with_secrets.secrets(endpoint)[0],
        MASK,
    )


def test_a_secret_of_others_each_time(api: Api, deployed: Dependencies, monkeypatch: pytest.MonkeyPatch) -> None:
    """After too many conflicts about the secret the caller is asked to try again, and no job is written."""
    api("POST", "/jobs", HOOK)
    monkeypatch.setattr(deployed.endpoints.__class__, "find", lambda *_: None)
    problem(api("POST", "/jobs", HOOK), 409, "conflict")
    assert len(deployed.jobs.listing.page("ana")[0]) == 1


def test_lost_response(api: Api) -> None:
    """A transaction whose response was lost still shows the secret that it created."""
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", "TransactionInProgressException", after=True)
    with calls.intercepted():
        answer = keyed(api, HOOK)
    assert accepted(answer)["webhook_secret"].startswith("whsec_")
    assert answer.json["webhook_secret"] != MASK
    assert "idempotent-replayed" not in answer.headers


# ── retry and cancel ─────────────────────────────────────────────────────────────────────────────────────────


def ended(api: Api, deployed: Dependencies, change: Any = cancel, **facts: Any) -> str:
    job_id: str = accepted(api("POST", "/jobs", TEXT | facts))["job_id"]
    deployed.jobs.apply(job_id, change)
    return job_id


@pytest.mark.parametrize("change", [cancel, fail(code="no_text", message="Nothing.")])
def test_retry(api: Api, deployed: Dependencies, change: Any) -> None:
    """A failed or canceled job is retried as a new job with the same fields, and the old one's id."""
    job_id = ended(api, deployed, change, metadata={"k": "v"}, webhook_url="https://example.com/x")
    answer = api("POST", f"/jobs/{job_id}/retry")
    again = accepted(answer)
    assert answer.headers["location"] == f"../{again['job_id']}"
    assert (again["retry_of"], again["status"], again["attempts"]) == (job_id, "queued", 0)
    old, new = deployed.jobs.get(job_id), deployed.jobs.get(again["job_id"])
    for name in ("metadata", "webhook_url", "webhook_events", "owner", "kind"):
        assert getattr(new, name) == getattr(old, name)
    copy = old.input["source_key"].replace(job_id, new.job_id)
    assert new.input == {**old.input, "source_key": copy}
    assert deployed.blobs.get(copy, etag=new.input["etag"]) == deployed.blobs.get(old.input["source_key"])
    assert old.status in ("canceled", "failed")
    assert [event.name for event in deployed.jobs.log.read(new.job_id)] == ["document.uploaded"]


def test_retry_of_an_open_job(api: Api, deployed: Dependencies) -> None:
    """An open or completed job cannot be retried."""
    job_id = accepted(api("POST", "/jobs", TEXT))["job_id"]
    problem(api("POST", f"/jobs/{job_id}/retry"), 409, "conflict")
    deployed.jobs.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    problem(api("POST", f"/jobs/{job_id}/retry"), 409, "conflict")


def test_retry_is_idempotent(api: Api, deployed: Dependencies) -> None:
    """A retry with a key creates one job, and the key cannot be used for another retry."""
    one, two = ended(api, deployed), ended(api, deployed)
    headers = {"Idempotency-Key": "k"}
    first, again = (accepted(api("POST", f"/jobs/{one}/retry", headers=headers)) for _ in range(2))
    assert first["job_id"] == again["job_id"]
    problem(api("POST", f"/jobs/{two}/retry", headers=headers), 422, "invalid_request")


def test_cancel(api: Api, deployed: Dependencies) -> None:
    """Canceling returns the canceled job, also when repeated. A job with another end is a 409."""
    job_id = accepted(api("POST", "/jobs", TEXT))["job_id"]
    first, again = (api("POST", f"/jobs/{job_id}/cancel") for _ in range(2))
    assert (first.status, first.json["status"]) == (200, "canceled")
    assert again.json == first.json
    problem(api("POST", f"/jobs/{ended(api, deployed, fail(code='x', message='y'))}/cancel"), 409, "conflict")


# ── replays ──────────────────────────────────────────────────────────────────────────────────────────────────


ENDPOINT = "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"
SINCE, UNTIL = "2026-11-29T08:00:00.000Z", "2026-11-29T09:00:00.000Z"


def requested(**facts: Any) -> Accepted:
    asked: dict[str, Any] = {
        "owner": "ana",
        "endpoint_id": ENDPOINT,
        "mode": "recover",
        "since": SINCE,
        "until": UNTIL,
        "statuses": ("failed", "discarded"),
        "events": (),
        "idempotency_key": None,
    }
    return submit_replay(**asked | facts)


def test_replay_is_drafted(deployed: Dependencies) -> None:
    """A replay is a queued job with the request's values and without a webhook of its own."""
    written = requested(events=["document.*"])
    made = deployed.jobs.get(written.submission.job.job_id, owner="ana")
    assert made == written.submission.job
    assert (made.kind, made.status, made.stage) == ("replay", "queued", "queued")
    assert made.input == {
        "webhook_id": ENDPOINT,
        "mode": "recover",
        "since": SINCE,
        "until": UNTIL,
        "statuses": ["failed", "discarded"],
        "events": ["document.*"],
    }
    created = datetime.fromisoformat(made.created_at).timestamp()
    assert datetime.fromisoformat(made.deadline).timestamp() - created == pytest.approx(240 * 60)
    assert made.expires_at == int(created) + 90 * 86_400
    assert (written.webhook_secret, made.webhook_url) == (None, None)
    assert deployed.endpoints.find("ana") is None


def test_replay_until_now(deployed: Dependencies) -> None:
    """The default of `until` is the time of submission, so a replay does not send its own events."""
    made = requested(until=None).submission.job
    assert made.input["until"] == made.created_at


@pytest.mark.parametrize("until", [UNTIL, None])
def test_replay_with_a_key(deployed: Dependencies, until: str | None) -> None:
    """An idempotency key creates one replay per request, also without `until`."""
    first = requested(until=until, idempotency_key="k").submission
    with pytest.MonkeyPatch.context() as patch:
        later = datetime.fromisoformat(first.job.created_at).timestamp() + 60
        patch.setattr("rest.api.submission.time.time", lambda: later)
        again = requested(until=until, idempotency_key="k").submission
        assert (again.replayed, again.job) == (True, first.job)
        with pytest.raises(InvalidRequest, match="used for another request"):
            requested(until=until, mode="replay", idempotency_key="k")


def test_replay_is_shown(api: Api, deployed: Dependencies) -> None:
    """A replay is shown with its endpoint, alone and in lists; a document's job has no such field."""
    replay, document = requested().submission.job, accepted(api("POST", "/jobs", TEXT))
    shown = api("GET", f"/jobs/{replay.job_id}").json
    assert (shown["kind"], shown["webhook_id"]) == ("replay", ENDPOINT)
    assert "document_id" not in shown
    assert "webhook_id" not in api("GET", f"/jobs/{document['job_id']}").json
    (line,) = api("GET", "/jobs", query={"kind": "replay"}).json["jobs"]
    assert (line["job_id"], line["webhook_id"]) == (replay.job_id, ENDPOINT)
    assert "document_id" not in line
    (line,) = api("GET", "/jobs", query={"kind": "document"}).json["jobs"]
    assert line["document_id"] == document["job_id"]
    assert "webhook_id" not in line


@pytest.mark.parametrize("change", [cancel, fail(code="unavailable", message="Later.")])
def test_retry_of_a_replay(api: Api, deployed: Dependencies, change: Any) -> None:
    """A failed or canceled replay is retried for the same time window."""
    old = requested(until=None).submission.job
    deployed.jobs.apply(old.job_id, change)
    again = accepted(api("POST", f"/jobs/{old.job_id}/retry"))
    assert (again["kind"], again["retry_of"], again["webhook_id"]) == ("replay", old.job_id, ENDPOINT)
    assert deployed.jobs.get(again["job_id"]).input == old.input
    assert [event.name for event in deployed.jobs.log.read(again["job_id"])] == ["replay.requested"]


def test_cancel_of_a_replay(api: Api, deployed: Dependencies) -> None:
    """A running replay can be canceled like any job."""
    job_id = requested().submission.job.job_id
    deployed.jobs.apply(job_id, begin(REPLAY, stage="send", lease="x"))
    answer = api("POST", f"/jobs/{job_id}/cancel")
    assert (answer.status, answer.json["status"], answer.json["webhook_id"]) == (200, "canceled", ENDPOINT)
    assert deployed.jobs.log.read(job_id)[-1].name == "replay.canceled"


def test_a_replay_is_not_posted(api: Api) -> None:
    """POST /jobs creates no replays."""
    asked = {"kind": "replay", "input": {"webhook_id": ENDPOINT}}
    assert problem(api("POST", "/jobs", asked), 422, "invalid_request")["field"] == "kind"
    refused = problem(
        api("POST", "/jobs", HOOK | {"webhook_events": ["replay.completed"]}), 422, "invalid_request"
    )
    assert refused["field"] == "webhook_events"
    assert "document.indexed" in refused["detail"]
    assert "replay." not in refused["detail"]


# ── others ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_others_do_not_see_it(api: Api) -> None:
    """Another owner's job is answered exactly like one that does not exist."""
    job_id = accepted(api("POST", "/jobs", TEXT))["job_id"]
    foreign = api("GET", f"/jobs/{job_id}", owner="ben")
    none = api("GET", f"/jobs/{ids.new('job')}", owner="ben")
    problem(foreign, 404, "not_found")
    assert foreign.body == none.body


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_others_do_not_touch_it(api: Api, deployed: Dependencies, action: str) -> None:
    """Another owner's job cannot be canceled or retried, with the same error as for an unknown one."""
    job_id = accepted(api("POST", "/jobs", TEXT))["job_id"]
    foreign = api("POST", f"/jobs/{job_id}/{action}", owner="ben")
    assert foreign.body == api("POST", f"/jobs/{ids.new('job')}/{action}", owner="ben").body
    assert deployed.jobs.get(job_id).status == "queued"
