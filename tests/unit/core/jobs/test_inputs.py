"""The inputs of submissions (core.jobs.inputs)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core import ids
from core.aws.blobs import Blobs
from core.errors import InvalidRequest, PayloadTooLarge, SourceNotFound
from core.jobs import Inputs
from core.jobs.inputs import copy_texts
from tests.unit.core.memory_blobs import MemoryBlobs

LIMIT = 20  # bytes, of a text and of an upload


def inputs(blobs: Blobs, **facts: Any) -> Inputs:
    defaults: dict[str, Any] = {"owner": "ana", "job_id": "job_1", "blobs": blobs}
    return Inputs(**defaults | {"max_inline_bytes": LIMIT, "max_upload_bytes": LIMIT} | facts)


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_is_stored(blobs: Blobs, s3: Any, bucket: str) -> None:
    """A text is stored in S3 under its owner and its job, as text/plain in UTF-8."""
    stored = inputs(blobs).keep_text("año 👩‍🚀", field="input.text")
    data = "año 👩‍🚀".encode()
    found = s3.head_object(Bucket=bucket, Key="inputs/ana/job_1")
    assert stored == {"source_key": "inputs/ana/job_1", "etag": found["ETag"], "bytes": len(data)}
    assert blobs.get(stored["source_key"], etag=stored["etag"]) == data
    assert found["ContentType"] == "text/plain; charset=utf-8"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=2 * LIMIT))
@example("n" * LIMIT)
@example("ñ" * (LIMIT // 2))
@example("ñ" * (LIMIT // 2) + "n")
def test_limit_of_text(text: str) -> None:
    """The limit is in bytes. A longer text is not stored; the error names its field and POST /uploads."""
    blobs, size = MemoryBlobs(), len(text.encode())
    if size <= LIMIT:
        assert inputs(blobs).keep_text(text, field="input.text")["bytes"] == size
        assert blobs.objects == {"inputs/ana/job_1": text.encode()}
        return
    message = f"The text has {size} bytes; the limit for inline text is 20.*POST /uploads"
    with pytest.raises(PayloadTooLarge, match=message) as caught:
        inputs(blobs).keep_text(text, field="input.prompt")
    assert (caught.value.field, blobs.objects) == ("input.prompt", {})


def test_several_texts() -> None:
    """A job can have several texts under different keys."""
    blobs = MemoryBlobs()
    own = inputs(blobs)
    first = own.keep_text("one", field="input.prompt")
    second = own.keep_text("two", field="input.system", name="system")
    assert [blobs.objects[each["source_key"]] for each in (first, second)] == [b"one", b"two"]


# ── uploads ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_upload_is_pinned(blobs: Blobs) -> None:
    """A job is bound to the ETag of the upload: a later upload with the same key is not read."""
    etag = blobs.put("uploads/ana/upl_1/a.csv", b"12345")
    pinned = inputs(blobs).pin_upload("uploads/ana/upl_1/a.csv", field="input.s3_key")
    assert pinned == {"source_key": "uploads/ana/upl_1/a.csv", "etag": etag, "bytes": 5}
    blobs.put("uploads/ana/upl_1/a.csv", b"54321")
    with pytest.raises(SourceNotFound):
        blobs.get(pinned["source_key"], etag=pinned["etag"])


@pytest.mark.parametrize(
    "key",
    [
        *("uploads/ben/upl_1/a", "uploads/ana2/upl_1/a", "uploads/ana", "inputs/ana/job_1", "work/job_1/text"),
        *(
            "",
            "/uploads/ana/upl_1/a",
            "Uploads/ana/upl_1/a",
            " uploads/ana/upl_1/a",
            "results/ana/job_1/result.json",
        ),
    ],
)
def test_foreign_keys(key: str) -> None:
    """A key outside the owner's uploads is refused without reading the bucket."""
    blobs = MemoryBlobs()
    blobs.put(key, b"secret")
    with pytest.raises(InvalidRequest, match="not an s3_key that POST /uploads returned") as caught:
        inputs(blobs).pin_upload(key, field="input.files.0")
    assert caught.value.field == "input.files.0"


def test_missing_upload() -> None:
    """The error for a file that was not uploaded says what to do."""
    with pytest.raises(InvalidRequest, match="PUT it first") as caught:
        inputs(MemoryBlobs()).pin_upload("uploads/ana/upl_1/a", field="input.s3_key")
    assert caught.value.field == "input.s3_key"


@pytest.mark.parametrize("size", [0, 1, LIMIT - 1, LIMIT, LIMIT + 1])
def test_limit_of_upload(size: int) -> None:
    """An upload of exactly the limit is accepted, and one more byte is refused."""
    blobs = MemoryBlobs()
    blobs.put("uploads/ana/upl_1/a", b"x" * size)
    if size <= LIMIT:
        assert inputs(blobs).pin_upload("uploads/ana/upl_1/a", field="f")["bytes"] == size
        return
    with pytest.raises(PayloadTooLarge, match=f"{size} bytes; the limit is {LIMIT}") as caught:
        inputs(blobs).pin_upload("uploads/ana/upl_1/a", field="input.s3_key")
    assert caught.value.field == "input.s3_key"


# ── copies for a retry ───────────────────────────────────────────────────────────────────────────────────────


def test_copies_of_texts() -> None:
    """A retry gets copies of its texts under its own id, wherever their keys are; uploads keep their keys."""
    blobs, first, second = MemoryBlobs(), ids.new("job"), ids.new("job")
    blobs.objects = {f"inputs/ana/{first}": b"a", f"inputs/ana/{first}/name": b"b", "uploads/ana/u/f": b"c"}
    stored = {
        "source_key": f"inputs/ana/{first}",
        "parts": [{"key": f"inputs/ana/{first}/name", "bytes": 1}],
        "file": "uploads/ana/u/f",
        "none": None,
    }
    copied = copy_texts(stored, owner="ana", job_id=second, blobs=blobs)
    assert copied == {
        "source_key": f"inputs/ana/{second}",
        "parts": [{"key": f"inputs/ana/{second}/name", "bytes": 1}],
        "file": "uploads/ana/u/f",
        "none": None,
    }
    assert {key: blobs.objects[key] for key in (f"inputs/ana/{second}", f"inputs/ana/{second}/name")} == {
        f"inputs/ana/{second}": b"a",
        f"inputs/ana/{second}/name": b"b",
    }


@pytest.mark.parametrize("owner", ["ben", "ana-2", ""])
def test_texts_of_others(owner: str) -> None:
    """A text that looks like the key of another owner's object, or of none, stays a text."""
    blobs, first = MemoryBlobs(), ids.new("job")
    blobs.objects = {f"inputs/ben/{first}": b"secret"}
    stored = {"text": f"inputs/{owner}/{first}", "missing": f"inputs/ana/{first}"}
    assert copy_texts(stored, owner="ana", job_id=ids.new("job"), blobs=blobs) == stored
    assert set(blobs.objects) == {f"inputs/ben/{first}"}
