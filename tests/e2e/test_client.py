"""Both clients and the command `recado` with the deployed system, and programs that use neither."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from core.jobs import JobStore
from local import corpus
from local.receiver import is_genuine
from recado import AsyncRecado, Recado, _uploads
from recado.errors import Forbidden, WaitTimeout
from recado.models import Delivery, JobFailed
from tests.e2e.conftest import System, know_jobs_as_short, wait_for
from tests.e2e.sites import Site, site
from tests.e2e.test_system import NOTE
from tests.support import pdfs

OWNER = "client"


@pytest.fixture(scope="module")
def key(system: System) -> str:
    return system.caller(OWNER).key


@pytest.fixture(scope="module")
def client(system: System, key: str, store: JobStore) -> Iterator[Recado]:
    with Recado(system.url, key) as client:
        know_jobs_as_short(client, store)
        yield client


@pytest.fixture(scope="module")
def environment(client: Recado, key: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the command: nothing of this user, and the file that RECADO_CONFIG names."""
    home = tmp_path_factory.mktemp("home")
    here = {"PATH": os.environ["PATH"], "HOME": str(home), "RECADO_CONFIG": str(home / "local.toml")}
    login = subprocess.run(
        [COMMAND, "login", "--url", client.url], env=here, input=key, capture_output=True, text=True, check=False
    )
    assert login.returncode == 0, login.stderr
    return here


COMMAND = str(Path(sys.executable).with_name("recado"))


@pytest.fixture
def recado(environment: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command without a terminal."""

    def run(*arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, input=given, capture_output=True, text=True, check=False
        )

    return run


Run = Callable[..., subprocess.CompletedProcess[str]]


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """The JSON lines of its standard output. It must have succeeded."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────


def poll_as_in_tutorials(url: str, base: float = 1, cap: float = 60, max_attempts: int = 200) -> dict[str, Any]:
    """A loop without a key, a header, or this package."""
    for attempt in range(max_attempts):
        response = requests.get(url, timeout=30)
        response.raise_for_status()
        data: dict[str, Any] = response.json()
        if data["status"] == "completed":
            return data
        if data["status"] == "failed":
            raise RuntimeError(data["error"])
        time.sleep(min(base * 2**attempt, cap))
    raise TimeoutError("Polling exceeded maximum attempts")


def test_a_simple_polling_loop_works(client: Recado) -> None:
    """With the status link, it returns for a completed job and raises for a failed one."""
    good, bad = client.submit(text=NOTE), client.submit(corpus.scan(), filename="scan.pdf")
    assert poll_as_in_tutorials(good.links["status"])["job_id"] == good.job_id
    with pytest.raises(RuntimeError, match="no_text"):
        poll_as_in_tutorials(bad.links["status"])


def test_a_link_is_valid_for_one_job(client: Recado) -> None:
    """A link with a changed character or the id of another job is a 403. The link `self` needs the key."""
    mine, other = client.submit(text="Mine."), client.submit(text="Other.")
    link = mine.links["status"]
    assert requests.get(link, timeout=30).json()["job_id"] == mine.job_id
    foreign = link.replace(mine.job_id.removeprefix("job_"), other.job_id.removeprefix("job_"))
    changed = re.sub(r"\.(.)([^./]+)/status$", lambda m: f".{'A' if m[1] != 'A' else 'B'}{m[2]}/status", link)
    assert len({link, foreign, changed}) == 3
    for wrong in (foreign, changed):
        answer = requests.get(wrong, timeout=30)
        assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert requests.get(mine.links["self"], timeout=30).status_code == 401


class Stream:
    """Reads one link as an EventSource does, by the specification. `cut` ends a connection in the middle."""

    def __init__(self, link: str) -> None:
        self.url = urlsplit(link)
        self.last_id, self.retry = "", 3.0
        self.answers: list[int] = []

    def connect(self, cut: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, str]]:
        """(event, data) of one connection. An event that was cut in the middle is dropped."""
        connection = http.client.HTTPConnection(str(self.url.hostname), self.url.port, timeout=40)
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.last_id} if self.last_id else {})
        with contextlib.closing(connection):
            connection.request("GET", self.url.path, headers=headers)
            answer = connection.getresponse()
            self.answers.append(answer.status)
            if answer.status == 204:
                return
            assert answer.getheader("Content-Type", "").startswith("text/event-stream")
            yield from self._parse(answer, cut)

    def _parse(self, answer: http.client.HTTPResponse, cut: Callable[[], bool]) -> Iterator[tuple[str, str]]:
        event, data, last_id = "", list[str](), self.last_id
        for raw in answer:
            if cut():
                return
            name, _, value = raw.decode().rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            match name:
                case "event":
                    event = value
                case "data":
                    data.append(value)
                case "id":
                    last_id = value
                case "retry":
                    self.retry = int(value) / 1000
                case "" if not value and data:
                    self.last_id = last_id
                    yield event, "\n".join(data)
                    event, data = "", []


def test_an_event_source_follows_to_the_end(client: Recado) -> None:
    """After each cut it reconnects with the Last-Event-ID. No event is lost or repeated, and 204 follows `end`."""
    job = client.submit(text="\n\n".join(corpus.reference()[name] for name in ("with", "while")))
    chance = random.Random(4)  # the same cuts in every run
    stream, received, ends = Stream(job.links["events"]), list[Any](), list[Any]()
    deadline = time.monotonic() + 60
    while 204 not in stream.answers:
        assert time.monotonic() < deadline, received
        for event, data in stream.connect(lambda: len(received) < 5 and chance.random() < 0.15):
            (ends if event == "end" else received).append(json.loads(data))
    assert stream.retry == 1
    assert received == [event.raw for event in client.events(job.job_id)]
    assert ends[-1] == {"status": "completed"}
    assert len(stream.answers) > 3  # it was cut, or held in parts


def test_few_requests_are_enough(client: Recado) -> None:
    """The service sends the expected completion, a Retry-After, and a 304 for a known ETag."""
    job = client.job(client.submit(text=NOTE).job_id)
    assert job.expected_completion
    assert job.expected_completion > job.created_at
    answer = requests.get(job.links["status"], timeout=30)
    if answer.json()["status"] in ("queued", "running"):
        assert 1 <= int(answer.headers["retry-after"]) <= 30
    client.wait(job, transport="poll")
    answer = requests.get(job.links["status"], timeout=30)
    assert "retry-after" not in answer.headers
    known = {"If-None-Match": answer.headers["etag"]}
    assert requests.get(job.links["status"], headers=known, timeout=30).status_code == 304


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_uploaded_indexed_and_found(client: Recado, recado: Run, tmp_path: Path) -> None:
    """The client reports the progress, and the command waits and prints the result."""
    (tmp_path / "house.md").write_text(NOTE)
    (result,) = lines(recado("submit", "house.md", "--wait", "--json"))
    assert (result["status"], result["document_id"]) == ("completed", "house.md")
    sent: list[tuple[int, int]] = []
    pages = corpus.pdf(corpus.reference()["debugger"], title="pdb")
    job = client.submit(pages, filename="pdb.pdf", document_id="pdb", on_progress=lambda *both: sent.append(both))
    assert sent[-1] == (len(pages), len(pages))
    assert client.wait(job).status == "completed"
    assert client.search("stepping through a program to find a bug", top_k=1)[0].document_id == "pdb"
    (hit,) = lines(recado("search", "¿Dónde está la llave del sótano?", "-k", "1", "--json"))
    assert hit["document_id"] == "house.md"
    assert recado("search", "key", "--document", "house.md").stdout.split("\t")[1] == "house.md"
    assert {document.document_id for document in client.documents()} >= {"house.md", "pdb"}


def test_a_large_file_is_uploaded_in_parts(
    system: System, client: Recado, key: str, recado: Run, tmp_path: Path
) -> None:
    """The asyncio client uploads three parts, which are joined, and the command's document is found."""
    pages = pdfs.document(pdfs.show("The lighthouse keeper counts ships."))
    noise = pdfs.stream(random.Random(5).randbytes(_uploads.MULTIPART_THRESHOLD_BYTES))  # nothing refers to it
    file, sent = tmp_path / "lighthouse.pdf", list[tuple[int, int]]()
    file.write_bytes(pdfs.write(pages | {9: noise}))

    async def upload() -> str:
        async with AsyncRecado(client.url, key) as apart:
            return await apart.upload(file, on_progress=lambda *both: sent.append(both))

    s3_key = asyncio.run(upload())
    assert sent == sorted(set(sent))
    assert sent[-1] == (file.stat().st_size, file.stat().st_size)
    found = system.client("s3").get_object(Bucket=system.outputs["DataBucket"], Key=s3_key)
    assert found["Body"].read() == file.read_bytes()
    assert found["ETag"].endswith('-3"')
    (result,) = lines(recado("submit", file, "--wait", "--json"))
    assert result["status"] == "completed"
    (hit,) = client.search("Who counts the ships?", top_k=1, document_ids=["lighthouse.pdf"])
    assert "lighthouse keeper" in hit.text


def test_exit_codes(client: Recado, recado: Run, tmp_path: Path) -> None:
    """0 completed, 1 refused, 2 usage error, 3 failed, 4 canceled, 5 timeout, 6 no access."""
    (tmp_path / "scan.pdf").write_bytes(corpus.scan())
    canceled = client.cancel(client.submit(text="\n\n".join(corpus.reference().values())).job_id)
    cases: list[tuple[int, str, tuple[object, ...]]] = [
        (0, "", ("submit", "--text", NOTE, "--wait")),
        (1, "There is no such job", ("status", "job_nowhere")),
        (2, "usage:", ("submit",)),
        (3, "no_text", ("submit", "scan.pdf", "--wait")),
        (4, "canceled", ("watch", canceled.job_id)),
        (5, "The job continues", ("submit", "--text", NOTE, "--wait", "--timeout", "0.01")),
    ]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda case: recado(*case[2]), cases))
    for (code, words, arguments), ended in zip(cases, done, strict=True):
        assert ended.returncode == code, (arguments, ended)
        assert words in ended.stderr, arguments
    elsewhere = {"PATH": os.environ["PATH"], "RECADO_URL": client.url, "RECADO_API_KEY": "rk_nobody"}
    refused = subprocess.run([COMMAND, "ls"], env=elsewhere, capture_output=True, text=True, check=False)
    assert (refused.returncode, "recado login" in refused.stderr) == (6, True)


def test_failures_and_timeouts_are_raised(client: Recado, key: str) -> None:
    """A failed job raises its code and stage. A timeout does not end the job."""
    with pytest.raises(JobFailed) as caught:
        client.wait(client.submit(corpus.scan(), filename="scan.pdf"))
    assert (caught.value.code, caught.value.stage) == ("no_text", caught.value.job.stage)
    job = client.submit(text=NOTE)
    with pytest.raises(WaitTimeout):
        client.wait(job, timeout=0.01)
    assert client.wait(job).status == "completed"
    assert [found.status for found in client.jobs(limit=1)] == ["completed"]


def test_a_key_for_reading_may_not_write(system: System, client: Recado) -> None:
    """A missing scope raises Forbidden."""
    with Recado(system.url, system.caller(OWNER, "jobs:read").key) as reader:
        assert next(reader.jobs(limit=1))
        with pytest.raises(Forbidden):
            reader.submit(text="no")


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────


def delivered(client: Recado, webhook_id: str, event: str) -> Delivery:
    """Wait for the endpoint's successful delivery of this event."""

    def look() -> list[Delivery]:
        return list(client.webhooks.deliveries(webhook_id, event=event, status="delivered"))

    found: list[Delivery] = wait_for(look, seconds=30)
    return found[0]


def test_an_endpoint_from_creation_to_deletion(client: Recado, recado: Run) -> None:
    """The command adds and tests it, the client rotates its secret, and each secret verifies its own requests."""
    with site() as server:
        webhook_id, old = recado("webhooks", "add", server.url, "--event", "document.*").stdout.split()
        assert recado("webhooks", "test", webhook_id).stdout.split("\t")[1] == "delivered"
        assert is_genuine(server.visits[-1].received, old)
        new = client.webhooks.rotate(webhook_id, grace_seconds=0).secret
        client.wait(client.submit(text=NOTE))
        sent = delivered(client, webhook_id, "document.indexed")
        (visit,) = server.of(sent.event_id)
        assert is_genuine(visit.received, str(new))
        assert not is_genuine(visit.received, old)
        listed = lines(recado("webhooks", "deliveries", webhook_id, "--event", "document.indexed", "--json"))
        assert [delivery["delivery_id"] for delivery in listed] == [sent.delivery_id]
        assert recado("webhooks", "redeliver", sent.delivery_id).returncode == 0
        wait_for(lambda: twice(server, sent.event_id))
        assert recado("webhooks", "rm", webhook_id).returncode == 0
        assert webhook_id not in {hook.webhook_id for hook in client.webhooks.list()}


def twice(server: Site, event_id: str) -> bool:
    bodies = [visit.received.body for visit in server.of(event_id)]
    return len(bodies) == 2 and len(set(bodies)) == 1


def test_listen_verifies_and_deletes_its_endpoint(client: Recado, environment: dict[str, str]) -> None:
    """`recado webhooks listen` creates an endpoint, prints a verified delivery, and deletes the endpoint."""
    command = [COMMAND, "webhooks", "listen", "--port", "0", "--event", "document.indexed", "--json"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout is not None
        assert listener.stderr is not None
        try:
            announced = listener.stderr.readline()
            (webhook_id,) = re.findall(r"wh_\w+", announced)
            assert client.webhooks.get(webhook_id).events == ("document.indexed",)
            job = client.wait(client.submit(text=NOTE))
            received = json.loads(listener.stdout.readline())
        finally:
            listener.send_signal(signal.SIGTERM)
        assert listener.wait(timeout=15) == 0
    assert (received["verified"], received["problem"], received["again"]) == (True, None, False)
    assert received["payload"] == client.events(job.job_id)[-1].raw
    assert webhook_id not in {hook.webhook_id for hook in client.webhooks.list()}
