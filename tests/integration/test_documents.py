"""Documents from POST to search, with the real handlers and the template."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from reportlab.lib import pdfencrypt
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from core import errors
from tests.support import pdfs
from tests.support.service import Service

Knob = Callable[..., None]

GOOD = ["uploaded", "started", "chunked", "embedded", "indexed"]
TEXTS = {
    "text/plain": "Recado: ¿dónde está la niña? 世界，你好。日本語の文書 👩‍👩‍👧 🎉",
    "text/markdown": "# Título\n\nLa cigüeña voló.\n\n## 第二章\n\n天地玄黄 🐉",
    "text/html": "<!doctype html><title>t</title><h1>Œuvre</h1><p>naïve 東京 🗼</p><script>no()</script>",
}
HOSTILE = b"<html>" + b"<div>" * 200_000 + b"x"


def pdf(*lines: str, **options: object) -> bytes:
    """A page with a Chinese font, made by reportlab."""
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    file = io.BytesIO()
    canvas = Canvas(file, invariant=1, **options)
    canvas.setFont("STSong-Light", 12)
    for row, line in enumerate(lines):
        canvas.drawString(72, 700 - 20 * row, line)
    canvas.save()
    return file.getvalue()


def bomb() -> bytes:
    """A small PDF whose content unpacks to tens of megabytes."""
    content = zlib.compress(zlib.compress(b"q " * 30_000_000, 1), 9)
    packed = pdfs.stream(content, entries=b"/Filter [/FlateDecode /FlateDecode] ")
    return pdfs.write(pdfs.document(pdfs.show("a")) | {5: packed})


class TestDocuments:
    def test_text_types(self, service: Service) -> None:
        """Plain text, Markdown and HTML complete, and search returns their text in any script."""
        jobs = {kind: service.submit(text, document_id=kind) for kind, text in TEXTS.items()}
        service.cloud.settle(within=60)
        for kind, job_id in jobs.items():
            service.assert_over(job_id, "completed")
            assert service.steps(job_id) == GOOD
            assert service.documents()[kind]["media_type"] == kind
        (plain,) = service.search(TEXTS["text/plain"], top_k=1)
        assert (plain["document_id"], plain["text"]) == ("text/plain", TEXTS["text/plain"])
        assert plain["score"] == pytest.approx(1, abs=1e-5)
        (page,) = service.search("naïve", filter={"document_ids": ["text/html"]})
        assert (page["text"], page["heading"]) == ("# Œuvre\n\nnaïve 東京 🗼", "Œuvre")

    def test_pdf(self, service: Service) -> None:
        """A PDF that was uploaded completes, and its pages are found."""
        job_id = service.submit(s3_key=service.upload(pdf("Contrato número 7", "世界，你好")), document_id="pdf")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        (hit,) = service.search("Contrato")
        assert hit["text"].splitlines() == ["Contrato número 7", "世界，你好"]
        assert service.documents()["pdf"]["media_type"] == "application/pdf"

    def test_completed_job(self, service: Service) -> None:
        """A completed job has a result, times in order and its progress."""
        job_id = service.submit("Some words. " * 2000, metadata={"shelf": "3"})
        service.cloud.settle(within=60)
        job = service.job(job_id)
        assert job["created_at"] < job["started_at"] < job["finished_at"] == job["updated_at"]
        assert job["result"]["chunks"] > 16
        assert job["progress"] == {"done": 2, "total": 2}
        assert (job["stage"], job["error"], job["metadata"]) == ("notify", None, {"shelf": "3"})
        assert service.documents()[job_id]["chunks"] == service.vectors()[job_id[4:]] == job["result"]["chunks"]

    def test_events(self, service: Service) -> None:
        """The messages of SNS are byte for byte the log, in order, with times that do not decrease."""
        job_id = service.submit("# A\n\nb")
        service.cloud.settle(within=60)
        log = service.events(job_id)
        assert service.published("DocEventsTopic") == log
        assert all(early["timestamp"] <= late["timestamp"] for early, late in pairwise(log))
        published = [call for call in service.cloud.calls.of("publisher") if call.operation == "Publish"]
        bodies = [call.params["Message"] for call in published]
        stored = service.cloud.table("Jobs").scan()["Items"]
        assert sorted(bodies) == sorted(item["body"] for item in stored if item.get("entity") == "event")
        assert "".join(bodies).isascii()

    def test_no_text_in_messages(self, service: Service) -> None:
        """No queue, topic, execution or event contains text of the document."""
        job_id = service.submit("a xylophone " * 50)
        service.cloud.settle(within=60)
        carried = [
            call.params for call in service.cloud.calls.log if call.service in ("sqs", "sns", "stepfunctions")
        ]
        carried.append(service.cloud.execution(job_id).events)
        assert "xylophone" not in json.dumps([*carried, service.events(job_id)], default=str)

    def test_owners(self, service: Service) -> None:
        """Search and lists show the owner's documents only, also with equal ids."""
        other = Service(service.cloud, "bob")
        service.submit("mine", document_id="d")
        other.submit("theirs", document_id="d")
        service.cloud.settle(within=60)
        assert [hit["text"] for hit in service.search("theirs")] == ["mine"]
        assert [hit["text"] for hit in other.search("theirs")] == ["theirs"]

    def test_large_document(self, service: Service, knob: Knob) -> None:
        """Three megabytes make at most 400 batches, and an execution history of limited size."""
        service.cloud.pause("worker")
        text = "Lorem ipsum dolor sit amet. " * 110_000
        job_id = service.submit(s3_key=service.upload(text.encode(), content_type="text/plain"))
        knob("ChunkDocument", CHUNK_SIZE=3000, CHUNK_OVERLAP=0, CHUNKS_PER_BATCH=2)
        service.cloud.settle()
        (chunked,) = [event for event in service.events(job_id) if event["event"] == "document.chunked"]
        files = service.keys(f"work/{job_id}/chunks/")
        assert len(files) == chunked["batches"] <= 400
        assert chunked["chunks"] > 400 * 2
        assert len(service.cloud.queue("Embedding/Queue")) == 10
        service.cancel(job_id)
        service.cloud.resume()
        service.cloud.settle(within=60)
        service.assert_over(job_id, "canceled")


def unreadable() -> dict[str, tuple[str | bytes, dict[str, object]]]:
    """Documents that fail, by code, with the settings that they need."""
    page = pdfs.document(pdfs.show("hello"), pdfs.show("world"))
    locked = pdfencrypt.StandardEncryption("user", ownerPassword="owner", strength=128)
    return {
        "unsupported_type": (b"PK\x03\x04 a zip", {}),
        "too_large": ("123456789", {"MAX_CHARACTERS": 8}),
        "empty": (" \n\t", {}),
        "no_text": (pdfs.write(pdfs.document(b"0 0 9 9 re f")), {}),
        "encrypted": (pdf("secret", encrypt=locked), {}),
        "truncated": (pdfs.write(page)[:-9], {}),
        "timeout": (HOSTILE, {"PARSE_TIMEOUT_SECONDS": 1}),
        "too_complex": (bomb(), {"PARSE_MEMORY_MB": 128}),
    }


class TestUnreadableDocuments:
    @pytest.mark.parametrize("code", sorted(unreadable()))
    def test_codes(self, service: Service, knob: Knob, code: str) -> None:
        """An unreadable document fails its job at `validate` with a code, and leaves nothing."""
        document, knobs = unreadable()[code]
        knob("ValidateDocument", **knobs)
        inline = isinstance(document, str)
        job_id = service.submit(document) if inline else service.submit(s3_key=service.upload(document))
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", code, "validate")
        assert service.steps(job_id) == ["uploaded", "started", "failed"]
        (failed,) = service.published("ErrorAlertsTopic")
        assert failed["error"] == service.job(job_id)["error"]
        assert service.cloud.execution(job_id).states[-3:] == ["ValidateDocumentFailed", "NotifyFailure", "Failed"]

    def test_every_code_is_covered(self) -> None:
        """The tests cover all errors for invalid documents."""
        codes = {cls.code for cls in errors.InvalidDocument.__subclasses__()}
        assert codes == {*unreadable(), "not_found"}

    @pytest.mark.parametrize("change", ["deleted", "replaced"])
    def test_missing_source(self, service: Service, change: str) -> None:
        """A file that was deleted or replaced after the submission fails with `not_found`."""
        key = service.upload(b"text", content_type="text/plain")
        job_id = service.submit(s3_key=key)
        s3, place = service.cloud.client("s3"), {"Bucket": service.cloud.bucket("Data"), "Key": key}
        s3.delete_object(**place) if change == "deleted" else s3.put_object(**place, Body=b"other")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "not_found", "validate")

    def test_file_that_grew(self, service: Service, knob: Knob) -> None:
        """The limit on bytes is checked when the file is read, and no more than the limit is read."""
        knob("ValidateDocument", MAX_DOCUMENT_BYTES=8)
        job_id = service.submit("123456789")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "failed", "too_large", "validate")
        (read,) = [call for call in service.cloud.calls.of("validate_document") if call.operation == "GetObject"]
        assert read.params["Range"] == "bytes=0-8"

    def test_hostile_document(self, service: Service, knob: Knob) -> None:
        """While one document breaks the parser, others complete."""
        knob("ValidateDocument", PARSE_MEMORY_MB=128)
        keys = [service.upload(data) for data in (pdf("before"), bomb(), pdf("after"))]
        before, hostile, after = (service.submit(s3_key=key) for key in keys)
        service.cloud.settle(within=60)
        service.assert_over(before, "completed")
        service.assert_over(hostile, "failed", "too_complex", "validate")
        service.assert_over(after, "completed")

    def test_retry(self, service: Service) -> None:
        """A retry is a new job with the same input that names the old one, which does not change."""
        refusal = service.cloud.fail("bedrock-runtime", "InvokeModel", "ValidationException", times=None)
        failed = service.submit("text", document_id="d")
        with service.paused_reaper(), refusal:
            service.cloud.settle(within=3600)
        service.assert_over(failed, "failed", "model_rejected", "embed")
        answer = service.call("POST", f"/jobs/{failed}/retry")
        assert answer.status == 202
        again = answer.json()["job_id"]
        service.cloud.settle(within=60)
        service.assert_over(again, "completed")
        assert (service.job(again)["retry_of"], service.job(again)["document_id"]) == (failed, "d")
        service.assert_over(failed, "failed", "model_rejected", "embed")

    def test_no_retry(self, service: Service) -> None:
        """Retrying a completed or running job is a 409."""
        job_id = service.submit()
        assert service.call("POST", f"/jobs/{job_id}/retry").status == 409
        service.cloud.settle(within=60)
        assert service.call("POST", f"/jobs/{job_id}/retry").status == 409
        assert len(service.call("GET", "/jobs").json()["jobs"]) == 1


class TestVersions:
    def test_replacement(self, service: Service) -> None:
        """Search finds the live version only, and the vectors of the one before are deleted."""
        first = service.submit("old words", document_id="d")
        service.cloud.settle(within=60)
        second = service.submit("new words", document_id="d")
        service.cloud.settle(within=60)
        service.assert_over(first, "completed")
        service.assert_over(second, "completed")
        assert [hit["text"] for hit in service.search("old words")] == ["new words"]
        assert set(service.vectors()) == {second[4:]}

    @pytest.mark.parametrize("held", ["validate_document", "store_vectors", "finish_job"])
    def test_older_job_finishes_last(self, service: Service, held: str) -> None:
        """An older job that finishes later fails as superseded and leaves nothing."""
        older = service.submit("old words", document_id="d")
        newer = before_last_step(service, older, held, lambda: service.submit("new words", document_id="d"))
        service.assert_over(newer, "completed")
        service.assert_over(older, "failed", "superseded")
        assert [hit["text"] for hit in service.search("old words")] == ["new words"]

    def test_concurrent_jobs(self, service: Service) -> None:
        """Of two concurrent jobs, the newer is live at the end. The older completed before or was superseded."""
        older, newer = (service.submit(f"{age} words", document_id="d") for age in ("old", "new"))
        service.cloud.settle(within=60)
        service.assert_over(newer, "completed")
        assert service.documents()["d"]["job_id"] == newer
        older_job = service.job(older)
        service.assert_over(older, older_job["status"], (older_job.get("error") or {}).get("code"))
        assert set(service.vectors()) == {newer[4:]}

    def test_version_in_progress(self, service: Service) -> None:
        """Until the newer version is complete, search finds the old one."""
        service.submit("old words", document_id="d")
        service.cloud.settle(within=60)
        service.submit("new words " * 300, document_id="d")
        seen: list[str] = []
        service.cloud.on(
            "dynamodb",
            "TransactWriteItems",
            lambda call: seen.append(service.search("new words", top_k=1)[0]["text"]),
            function="finish_job",
        )
        service.cloud.settle(within=60)
        assert seen == ["old words"]
        assert "new words" in service.search("new words", top_k=1)[0]["text"]

    def test_failed_version(self, service: Service, knob: Knob) -> None:
        """A newer document that cannot be read changes nothing for searches."""
        service.submit("old words", document_id="d")
        service.cloud.settle(within=60)
        newer = service.submit(" ", document_id="d")
        service.cloud.settle(within=60)
        service.assert_over(newer, "failed", "empty", "validate")
        assert [hit["text"] for hit in service.search("words")] == ["old words"]


class TestDeletion:
    def test_delete(self, service: Service) -> None:
        """A deleted document is not found at once, and its vectors are deleted soon."""
        job_id = service.submit("text", document_id="a b/ñ")
        service.cloud.settle(within=60)
        assert service.call("DELETE", "/documents/a%20b%2F%C3%B1").status == 204
        assert (service.documents(), service.search("text")) == ({}, [])
        service.cloud.settle(within=60)
        assert service.vectors() == {}
        service.assert_over(job_id, "completed")
        assert service.call("DELETE", "/documents/a%20b%2F%C3%B1").status == 204  # again is the same as once

    @pytest.mark.parametrize("held", ["worker", "store_vectors"])
    def test_job_before_the_deletion(self, service: Service, held: str) -> None:
        """A job that was submitted before the deletion fails, in any stage."""
        first = service.submit("old words", document_id="d")
        service.cloud.settle(within=60)
        second = service.submit("new words", document_id="d")
        before_last_step(service, second, held, lambda: service.call("DELETE", "/documents/d"))
        service.assert_over(first, "completed")
        service.assert_over(second, "failed", "superseded")
        assert (service.documents(), dict(service.vectors())) == ({}, {})

    def test_job_after_the_deletion(self, service: Service) -> None:
        """A later job can use the name again."""
        service.submit("old words", document_id="d")
        service.cloud.settle(within=60)
        service.call("DELETE", "/documents/d")
        job_id = service.submit("new words", document_id="d")
        service.cloud.settle(within=60)
        service.assert_over(job_id, "completed")
        assert [hit["text"] for hit in service.search("words")] == ["new words"]


def before_last_step(service: Service, job_id: str, where: str, meanwhile: Callable[[], object]) -> str:
    """Calls `meanwhile` just before this function's last step for this job."""
    found: list[object] = []

    def action(call: object) -> None:
        found.append(meanwhile())
        for _ in range(30):
            for function in ("publisher", "start_job", "worker"):
                service.cloud.poll(function)
            service.cloud.scheduler.run_ready()

    last = {
        "validate_document": ("s3", "PutObject"),
        "worker": ("s3", "PutObject"),
        "store_vectors": ("s3", "ListObjectsV2"),
        "finish_job": ("dynamodb", "TransactWriteItems"),
    }
    service.cloud.on(*last[where], action, function=where)
    service.cloud.settle(within=3600)
    return str(found[0])
