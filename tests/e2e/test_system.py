"""The deployed system from outside: real HTTP, real webhooks, processes that are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import urllib3

from bench import end_to_end
from local import corpus, deploy
from local.api import Api, ApiError
from local.receiver import Received, is_genuine, listening, tampered
from tests.e2e.conftest import System, ended, wait_for

NOTE = "The cellar key hangs on a nail behind the kitchen door.\n\nThe boiler is serviced every October."


@pytest.fixture(scope="module")
def api(system: System) -> Api:
    return system.caller("acme")


@pytest.fixture
def received() -> Iterator[tuple[str, list[Received], list[int]]]:
    """A receiver: its URL, what came, and the statuses it is still to answer before 204."""
    came: list[Received] = []
    answers: list[int] = []

    def take(request: Received) -> int:
        came.append(request)
        return answers.pop(0) if answers else 204

    with listening(take) as url:
        yield url, came, answers


def document(text: str, **facts: Any) -> dict[str, Any]:
    return {"kind": "document", "input": {"text": text, **facts}}


def log(api: Api, job_id: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = api.get(f"/jobs/{job_id}/events")["events"]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    return events


def test_document_is_indexed_announced_and_found(
    api: Api, system: System, received: tuple[str, list[Received], list[int]]
) -> None:
    """From POST to a verified webhook, and to a hit for a question in another language."""
    url, came, _ = received
    accepted = api.post("/jobs", document(NOTE, document_id="notes/house.txt") | {"webhook_url": url})
    job = ended(api, accepted["job_id"])
    assert (job["status"], job["result"]["chunks"]) == ("completed", 1)
    wait_for(lambda: came)
    secret = accepted["webhook_secret"]
    assert is_genuine(came[0], secret)
    assert not is_genuine(tampered(came[0]), secret)
    assert came[0].event == log(api, job["job_id"])[-1]
    hits = api.post("/search", {"query": "¿Dónde está la llave del sótano?", "top_k": 1})["hits"]
    assert hits[0]["document_id"] == "notes/house.txt"
    assert "cellar key" in hits[0]["text"]
    assert system.caller("somebody-else").post("/search", {"query": "cellar key"})["hits"] == []


def test_links_lead_back_to_the_job(api: Api) -> None:
    """`links` and `Location` are addresses that answer, wherever the API stands."""
    body = json.dumps(document(NOTE)).encode()
    headers = {"Authorization": f"Bearer {api.key}", "Content-Type": "application/json"}
    answer = urllib3.request("POST", f"{api.url}/jobs", body=body, headers=headers)
    job = answer.json()
    location = f"{api.url}/{answer.headers['location']}"
    for link in (location, job["links"]["self"], job["links"]["status"], job["links"]["events"]):
        assert urllib3.request("GET", link, headers=headers).status == 200, link


def test_twenty_parallel_posts_with_one_key_make_one_job(api: Api) -> None:
    """Whoever wins the transaction, all twenty are told the same job."""
    start = threading.Barrier(20)

    def post(_: int) -> str:
        start.wait()
        return str(api.post("/jobs", document("once only"), {"Idempotency-Key": "parallel"})["job_id"])

    with ThreadPoolExecutor(20) as pool:
        ids = set(pool.map(post, range(20)))
    assert len(ids) == 1
    (job_id,) = ids
    assert ended(api, job_id)["status"] == "completed"
    assert Counter(event["event"] for event in log(api, job_id))["document.uploaded"] == 1


def test_the_bench_tells_the_functions_apart(api: Api, system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """bench/end_to_end.py finds each function's processes, by its path."""

    def index() -> None:
        ended(api, api.post("/jobs", document(NOTE))["job_id"])

    end_to_end.report(system.engine, "one job", index)
    shown = capsys.readouterr().out
    assert {"engine", "rest/api", "kinds/document/chunk_document"} <= set(shown.split())


def test_killed_embedding_workers_lose_nothing(api: Api, system: System) -> None:
    """SIGKILL amid the batches: the messages come again, and each chunk has its vector once."""
    sqs = system.client("sqs")
    url = next(url for url in sqs.list_queues()["QueueUrls"] if "EmbeddingQueue" in url)
    # As deployed, a killed worker's message waits half an hour for its visibility timeout.
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "10"})
    text = "\n\n".join(corpus.reference()[name] for name in ("compound", "specialnames"))
    accepted = api.post("/jobs", document(text, document_id="long"))
    job_id = accepted["job_id"]
    wait_for(lambda: (api.get(f"/jobs/{job_id}/status")["progress"] or {}).get("done"))
    assert kill_workers(system, "jobs.worker")
    job = ended(api, job_id, seconds=150)
    assert job["status"] == "completed", job
    assert Counter(event["event"] for event in log(api, job_id))["document.indexed"] == 1
    assert stored_vectors(system, job["result"]["version"]) == job["result"]["chunks"]


def kill_workers(system: System, function: str) -> int:
    """SIGKILL every process of this engine that runs the function; how many there were."""
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            ours = os.getpgid(int(process.name)) == os.getpgid(system.engine.pid)
        except (OSError, ProcessLookupError):
            continue
        if ours and f"{function}.handler.handler".encode() in command:
            os.kill(int(process.name), signal.SIGKILL)
            killed += 1
    return killed


def stored_vectors(system: System, version: str) -> int:
    objects = system.client("s3").list_objects_v2(Bucket=system.outputs["DataBucket"], Prefix="vectors/")
    sizes = [o["Size"] for o in objects["Contents"] if version in o["Key"] and o["Key"].endswith(".f32")]
    return sum(sizes) // (4 * int(deploy.OVERRIDES["embedding_dimensions"]))


def test_failed_webhook_is_tried_again_with_the_same_bytes(
    api: Api, received: tuple[str, list[Received], list[int]]
) -> None:
    """A 503 is followed by another attempt: same id and body, and the job shows both."""
    url, came, answers = received
    answers.append(503)
    job_id = api.post("/jobs", document(NOTE) | {"webhook_url": url})["job_id"]
    wait_for(lambda: len(came) == 2)
    assert came[0].body == came[1].body
    assert came[0].headers["webhook-id"] == came[1].headers["webhook-id"]
    assert int(came[1].headers["webhook-timestamp"]) > int(came[0].headers["webhook-timestamp"])
    webhook = wait_for(lambda: (w := api.get(f"/jobs/{job_id}")["webhook"])["status"] == "delivered" and w)
    assert (webhook["attempts"], webhook["last_attempt"]["status"]) == (2, 204)


def test_upload_takes_the_announced_file_and_no_other(api: Api) -> None:
    """Another length, another type or a second file is refused; the announced PDF is indexed."""
    data = corpus.pdf(corpus.reference()["with"], title="with")
    slot = api.post("/uploads", {"filename": "with.pdf", "content_type": "application/pdf", "size": len(data)})

    def put(body: bytes, **headers: str) -> int:
        return urllib3.request("PUT", slot["url"], body=body, headers=slot["headers"] | headers).status

    assert put(data + b"x") == 403
    assert put(data, **{"Content-Type": "text/plain"}) == 403
    assert put(data) == 200
    assert put(data) == 412
    job = ended(api, api.post("/jobs", {"kind": "document", "input": {"s3_key": slot["s3_key"]}})["job_id"])
    assert (job["status"], job["result"]["media_type"]) == ("completed", "application/pdf")


def test_waiting_ends_when_the_job_changes(api: Api) -> None:
    """`?wait=` answers long before its time is up."""
    job_id = api.post("/jobs", document(NOTE))["job_id"]
    begin = time.monotonic()
    while api.get(f"/jobs/{job_id}/status", wait=25)["status"] != "completed":
        pass
    assert time.monotonic() - begin < 25


def test_keys_open_only_what_they_are_for(system: System) -> None:
    """No key, a wrong one and a revoked one: 401; a key without the scope: 403; all as problem documents."""
    searcher = system.caller("acme", "search")
    with pytest.raises(ApiError, match=r"403.*urn:recado:problem:forbidden"):
        searcher.get("/jobs")
    for key in ("", "rk_0000000000000000_" + "0" * 64, searcher.key[:-1] + "x"):
        with pytest.raises(ApiError, match=r"401.*urn:recado:problem:unauthorized"):
            Api(system.url, key).get("/jobs")
    revoked = system.caller("acme")
    assert system.ops("keys", "revoke", revoked.key.split("_")[1]).returncode == 0
    with pytest.raises(ApiError, match=r"401.*urn:recado:problem:unauthorized"):
        revoked.get("/jobs")
    listed = system.ops("keys", "ls").stdout
    assert "revoked" in listed
    assert revoked.key.split("_")[2] not in listed


def test_queue_of_somebody_else_can_subscribe(api: Api, system: System) -> None:
    """A direct SNS subscriber gets the event's JSON, filtered by attribute."""
    sqs, sns = system.client("sqs"), system.client("sns")
    url = sqs.create_queue(QueueName="theirs")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(
        TopicArn=system.outputs["DocEventsTopic"],
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RawMessageDelivery": "true", "FilterPolicy": '{"event_type": ["document.indexed"]}'},
    )
    job_id = api.post("/jobs", document(NOTE))["job_id"]
    messages = wait_for(lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages"))
    assert json.loads(messages[0]["Body"]) == log(api, job_id)[-1]


def test_deploying_again_keeps_what_is_there(api: Api, system: System) -> None:
    """The same app once more: no job is lost, and the API stands where it stood."""
    before = [job["job_id"] for job in api.get("/jobs", limit=100)["jobs"]]
    assert deploy.deploy(system.engine, system.assembly) == system.outputs
    assert [job["job_id"] for job in api.get("/jobs", limit=100)["jobs"]] == before
