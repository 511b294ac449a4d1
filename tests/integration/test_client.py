"""The client against the deployed service: real handlers, checked signatures, and a clock that jumps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from recado import Recado, _uploads
from recado.errors import InvalidRequest, NotFound
from tests.support import pdfs
from tests.support.recado_client import connected
from tests.support.service import Service


@pytest.fixture
def client(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recado]:
    """The client of the owner `ana`."""
    with connected(service, monkeypatch) as client:
        yield client


def test_a_file_in_parts(client: Recado, service: Service) -> None:
    """From 16 MiB on: three parts, with progress to the end, joined to what was given, and submitted."""
    sent: list[tuple[int, int]] = []
    noise = pdfs.stream(random.Random(3).randbytes(_uploads.MULTIPART_THRESHOLD_BYTES))
    data = pdfs.write(pdfs.document(pdfs.show("The cellar key")) | {9: noise})
    job = client.submit(data, filename="keys.pdf", on_progress=lambda *both: sent.append(both))
    assert client.wait(job, transport="sse").status == "completed"
    assert sent == sorted(sent)
    assert sent[-1] == (len(data), len(data))
    (key,) = service.keys("uploads/")
    bucket = service.cloud.bucket("Data")
    found = service.cloud.client("s3").get_object(Bucket=bucket, Key=key)
    assert (found["Body"].read(), found["ETag"][-3:]) == (data, '-3"')


@pytest.mark.parametrize("way", ["auto", "websocket", "sse", "long_poll", "poll"])
def test_a_document_from_the_file_to_the_answer(client: Recado, way: Any) -> None:
    """A file is uploaded, watched while it is indexed, found, listed and removed; a text is waited for."""
    sent: list[tuple[int, int]] = []
    data = b"# Keys\n\nThe cellar key hangs behind the door.\n"
    job = client.submit(
        data, filename="keys.md", document_id="keys/1", on_progress=lambda *both: sent.append(both)
    )
    assert sent[-1] == (len(data), len(data))
    events = [event.event for event in client.watch(job, transport=way)]
    assert (events[0], events[-1]) == ("document.uploaded", "document.indexed")
    done = client.wait(client.submit(text="Another."), transport=way)
    assert done.status == client.status(job.job_id).status == "completed"
    client.delete_document(str(done.document_id))
    assert [event.event for event in client.events(job.job_id)] == events
    (hit,) = client.search("Where is the cellar key?", document_ids=["keys/1"])
    assert "behind the door" in hit.text
    assert [found.document_id for found in client.documents()] == ["keys/1"]
    assert client.document("keys/1").chunks == 1
    assert [found.job_id for found in client.jobs(kind="document")] == [done.job_id, job.job_id]
    client.delete_document("keys/1")
    assert client.documents() == ()


def test_an_endpoint_from_its_making_to_its_end(client: Recado, service: Service, receiver: Any) -> None:
    """An endpoint is added, listed, changed, rotated, asked for its deliveries and deleted."""
    hook = client.webhooks.add("https://receiver.test/hook", ["document.*"], description="mine")
    assert hook.secret
    assert [found.description for found in client.webhooks.list()] == ["mine"]
    client.wait(client.submit(text="Short."), transport="poll")
    service.cloud.settle()
    sent = list(client.webhooks.deliveries(hook.webhook_id))
    assert {delivery.status for delivery in sent} == {"delivered"}
    assert client.webhooks.delivery(sent[0].delivery_id).attempts[0].status
    assert client.webhooks.redeliver(sent[0].delivery_id).delivery_id == sent[0].delivery_id
    assert client.webhooks.change(hook.webhook_id, enabled=False).enabled is False
    assert client.webhooks.rotate(hook.webhook_id, grace_seconds=60).secret != hook.secret
    client.webhooks.delete(hook.webhook_id)
    assert client.webhooks.list() == ()


def test_the_services_problems_are_errors(client: Recado) -> None:
    """What the service refuses names the field, and what is not there is NotFound."""
    with pytest.raises(InvalidRequest) as caught:
        client.search("Why?", top_k=0)
    assert caught.value.field == "top_k"
    with pytest.raises(NotFound):
        client.job("job_nowhere")


def test_a_second_submission_with_the_same_key_is_the_same_job(client: Recado) -> None:
    """The idempotency key is the service's: the same text under the same key is one job."""
    first, second = (client.submit(text="Once.", idempotency_key="k") for _ in range(2))
    assert first.job_id == second.job_id
