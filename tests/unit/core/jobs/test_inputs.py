"""core.jobs.inputs"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.aws.blobs import Blobs
from core.errors import InvalidRequest, PayloadTooLarge, SourceNotFound
from core.jobs import Inputs
from tests.unit.core.memory_blobs import MemoryBlobs

LIMIT = 20  # bytes, of a text and of an upload


def inputs(blobs: Blobs, **facts: Any) -> Inputs:
    defaults: dict[str, Any] = {"owner": "ana", "job_id": "job_1", "blobs": blobs}
    return Inputs(**defaults | {"max_inline_bytes": LIMIT, "max_upload_bytes": LIMIT} | facts)


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_is_kept(blobs: Blobs, s3: Any, bucket: str) -> None:
    """A text goes to S3 under its owner and its job, as text, and the job is told where and which."""
    kept = inputs(blobs).keep_text("año 👩‍🚀", field="input.text")
    data = "año 👩‍🚀".encode()
    found = s3.head_object(Bucket=bucket, Key="inputs/ana/job_1")
    assert kept == {"source_key": "inputs/ana/job_1", "etag": found["ETag"], "bytes": len(data)}
    assert blobs.get(kept["source_key"], etag=kept["etag"]) == data
    assert found["ContentType"] == "text/plain; charset=utf-8"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=2 * LIMIT))
def test_the_limit_of_a_text(text: str) -> None:
    """The limit counts bytes: what has one more is refused by its field's name, and nothing is stored of it."""
    blobs, size = MemoryBlobs(), len(text.encode())
    if size <= LIMIT:
        assert inputs(blobs).keep_text(text, field="input.text")["bytes"] == size
        assert blobs.objects == {"inputs/ana/job_1": text.encode()}
        return
    with pytest.raises(PayloadTooLarge, match=f"The text has {size} bytes, and 20 can be sent inline") as caught:
        inputs(blobs).keep_text(text, field="input.prompt")
    assert (caught.value.field, blobs.objects) == ("input.prompt", {})


@pytest.mark.parametrize("text", ["ñ" * 10, "n" * 20, ""])
def test_at_the_limit_of_a_text(text: str) -> None:
    """The last byte that fits fits; one more is refused with what to do instead."""
    assert inputs(MemoryBlobs()).keep_text(text, field="input.text")["bytes"] == len(text.encode())
    with pytest.raises(PayloadTooLarge, match="POST /uploads"):
        inputs(MemoryBlobs()).keep_text(text + "n" * (21 - len(text.encode())), field="input.text")


def test_several_texts() -> None:
    """A kind may keep several texts of one job, and each stays where it is."""
    blobs = MemoryBlobs()
    mine = inputs(blobs)
    first = mine.keep_text("one", field="input.prompt")
    second = mine.keep_text("two", field="input.system", name="system")
    assert [blobs.objects[each["source_key"]] for each in (first, second)] == [b"one", b"two"]


# ── uploads ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_upload_is_pinned(blobs: Blobs) -> None:
    """A job is bound to the upload as it is now: another under the same key is not what was submitted."""
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
def test_what_is_not_an_upload_of_ones_own(key: str) -> None:
    """A key that was not given to this owner is refused without a look at what is there."""
    blobs = MemoryBlobs()
    blobs.put(key, b"secret")
    with pytest.raises(InvalidRequest, match="not a key that POST /uploads gave you") as caught:
        inputs(blobs).pin_upload(key, field="input.files.0")
    assert caught.value.field == "input.files.0"


def test_an_upload_that_is_not_there() -> None:
    """A file that was never put is asked for."""
    with pytest.raises(InvalidRequest, match="PUT the file first") as caught:
        inputs(MemoryBlobs()).pin_upload("uploads/ana/upl_1/a", field="input.s3_key")
    assert caught.value.field == "input.s3_key"


@pytest.mark.parametrize("size", [0, 1, LIMIT - 1, LIMIT, LIMIT + 1])
def test_the_limit_of_an_upload(size: int) -> None:
    """An upload may have just as many bytes as are allowed."""
    blobs = MemoryBlobs()
    blobs.put("uploads/ana/upl_1/a", b"x" * size)
    if size <= LIMIT:
        assert inputs(blobs).pin_upload("uploads/ana/upl_1/a", field="f")["bytes"] == size
        return
    with pytest.raises(PayloadTooLarge, match="more than the limit") as caught:
        inputs(blobs).pin_upload("uploads/ana/upl_1/a", field="input.s3_key")
    assert caught.value.field == "input.s3_key"
