from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.dependencies import Dependencies
from core.jobs import cancel, fail
from core.submission import MASK
from kinds.document.index.catalog import Catalog
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


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "document", "input": {"text": "x", "s3_key": "uploads/ana/1"}}, "input"),
        ({"kind": "document", "input": {"text": "\ud800"}}, "input.text"),
        ({"kind": "document", "input": {"text": "x", "document_id": ""}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "a\nb"}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "\udc00"}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "a" * 257}}, "input.document_id"),
        ({"kind": "document", "input": {"text": "x", "document_id": "👩" * 251}}, "input.document_id"),
        ({"kind": "document", "input": {"s3_key": "x" * 1025}}, "input.s3_key"),
        (TEXT | {"metadata": {"k": "v" * 1025}}, "metadata.k"),
        (TEXT | {"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        (TEXT | {"webhook_url": "https://127.0.0.1/x"}, "webhook_url"),
        (TEXT | {"webhook_url": "https://example.com/" + "x" * 2048}, "webhook_url"),
    ],
)
def test_invalid_requests(api: Api, deployed: Dependencies, body: Any, field: str) -> None:
    """An invalid request is a 422 with the field, and nothing is written."""
    assert problem(api("POST", "/jobs", body), 422, "invalid_request")["field"] == field
    assert deployed.jobs.listing.page("ana") == ([], None)


def test_longest_document_id(api: Api, dynamodb: Any, jobs_table: str) -> None:
    """The longest accepted id fits into the table's key."""
    name = "👩" * 250
    assert accepted(api("POST", "/jobs", {"kind": "document", "input": {"text": "x", "document_id": name}}))
    assert Catalog(dynamodb, jobs_table).delete("ana", name, seconds=1)


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


def keyed(api: Api, body: Any, key: str = "k") -> Answer:
    return api("POST", "/jobs", body, headers={"idempotency-Key": key})


def test_another_body(api: Api) -> None:
    """The same key with another body, which means the same, is a 422 with the header's name."""
    accepted(keyed(api, TEXT))
    refused = keyed(api, TEXT | {"metadata": {}})
    assert problem(refused, 422, "invalid_request")["field"] == "Idempotency-Key"


@pytest.mark.parametrize(("key", "status"), [("", 422), ("k" * 255, 202), ("k" * 256, 422), ("ключ", 202)])
def test_keys(api: Api, key: str, status: int) -> None:
    """A key has 1 to 255 characters."""
    assert keyed(api, TEXT, key).status == status


def test_key_in_use(api: Api) -> None:
    """After too many conflicts with a key the caller is asked to try again."""
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", transaction_canceled(), times=None)
    with pytest.MonkeyPatch.context() as patch, calls.intercepted():
        patch.setattr("core.jobs.store.JobStore._pause", lambda store: None)
        problem(keyed(api, TEXT), 409, "conflict")


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── retries ──────────────────────────────────────────────────────────────────────────────────────────────────


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


def test_retry_is_idempotent(api: Api, deployed: Dependencies) -> None:
    """A retry with a key creates one job, and the key cannot be used for another retry."""
    one, two = ended(api, deployed), ended(api, deployed)
    headers = {"Idempotency-Key": "k"}
    first, again = (accepted(api("POST", f"/jobs/{one}/retry", headers=headers)) for _ in range(2))
    assert first["job_id"] == again["job_id"]
    problem(api("POST", f"/jobs/{two}/retry", headers=headers), 422, "invalid_request")
