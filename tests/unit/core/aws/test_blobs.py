"""Objects of the data bucket (core.aws.blobs)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ClientError

from core.aws import blobs as module
from core.aws.blobs import Blobs
from core.errors import Contended, InvalidRequest, SourceNotFound
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock


def test_round_trip(blobs: Blobs) -> None:
    """Objects are read as they were written, under keys with any characters."""
    key = "work/job/año 100%/a+b?c=d&e#f/👩‍🚀"
    blobs.put(key, b"\x00\xff")
    assert blobs.get(key) == b"\x00\xff"
    assert list(blobs.keys("work/job/a")) == [key]


def test_missing(blobs: Blobs) -> None:
    """The error for a missing object says what to do."""
    with pytest.raises(SourceNotFound, match="Upload it again and submit a new job"):
        blobs.get("uploads/ana/1")
    assert blobs.head("uploads/ana/1") is None
    assert not blobs.exists("uploads/ana/1")


def test_pinned_version(blobs: Blobs) -> None:
    """An object with another ETag than submitted counts as missing."""
    etag = blobs.put("uploads/ana/1", b"old")
    assert blobs.get("uploads/ana/1", etag=etag) == b"old"
    assert blobs.head("uploads/ana/1") == (3, etag)
    blobs.put("uploads/ana/1", b"new")
    with pytest.raises(SourceNotFound):
        blobs.get("uploads/ana/1", etag=etag)


@pytest.mark.parametrize(("data", "first"), [(b"", b""), (b"a", b"a"), (b"abc", b"abc"), (b"abcd", b"abc")])
def test_first_bytes(blobs: Blobs, data: bytes, first: bytes) -> None:
    """At most `max_bytes` are read, and an empty object is read as empty."""
    blobs.put("k", data)
    assert blobs.get("k", max_bytes=3) == first


def test_range_of_empty_object() -> None:
    """S3 refuses every range of an empty object: it is read as empty."""

    class Client:
        def get_object(self, **request: Any) -> Any:
            assert request["Range"] == "bytes=0-9"
            raise ClientError({"Error": {"Code": "InvalidRange"}}, "GetObject")

    assert Blobs(Client(), "data").get("k", max_bytes=10) == b""  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["GetObject", "HeadObject"])
def test_other_errors(blobs: Blobs, operation: str) -> None:
    """Other errors of S3 are raised."""
    blobs.put("k", b"x")
    calls = Calls(Clock())
    calls.fail("s3", operation, "AccessDenied", times=None)
    with calls.intercepted(), pytest.raises(ClientError, match="AccessDenied"):
        blobs.get("k") if operation == "GetObject" else blobs.exists("k")


def test_keys(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys with the prefix are listed in order, over several pages."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    names = [f"work/1/{number:03d}" for number in range(25)]
    for name in [*names, "work/10/000", "other"]:
        blobs.put(name, name.encode())
    calls = Calls(Clock())
    with calls.intercepted():
        assert list(blobs.keys("work/1/")) == names
    assert [call.operation for call in calls.log] == ["ListObjectsV2"] * 3
    assert list(blobs.sizes("work/10/")) == [("work/10/000", 11)]


def test_folders(blobs: Blobs) -> None:
    """Folders are the common prefixes directly below a prefix."""
    for key in ("vectors/a/1/2", "vectors/a/3", "vectors/b/1", "work/c/1"):
        blobs.put(key, b"")
    assert blobs.folders("vectors/") == ["a", "b"]
    assert blobs.folders("nothing/") == []


def test_delete(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are deleted in full requests, and missing keys are ignored."""
    monkeypatch.setattr(module, "MAX_KEYS_PER_DELETE", 2)
    for key in "abcde":
        blobs.put(key, b"x")
    calls = Calls(Clock())
    with calls.intercepted():
        blobs.delete([*list("abcd"), "gone"])
    assert [len(call.params["Delete"]["Objects"]) for call in calls.log] == [2, 2, 1]
    assert list(blobs.keys("")) == ["e"]
    blobs.delete([])


def test_failed_deletion(blobs: Blobs) -> None:
    """An error of S3 for a single key is raised."""
    calls = Calls(Clock())
    calls.answers["s3:DeleteObjects"] = lambda params: {"Errors": [{"Key": "a", "Code": "AccessDenied"}]}
    with calls.intercepted(), pytest.raises(RuntimeError, match="1 objects could not be deleted"):
        blobs.delete(["a"])


def test_presigned_put(blobs: Blobs) -> None:
    """Length, type and `if-none-match` are signed."""
    url = urlsplit(blobs.presign_put("uploads/ana/1", content_type="application/pdf", size=7, seconds=60))
    query = parse_qs(url.query)
    assert query["X-Amz-SignedHeaders"] == ["content-length;content-type;host;if-none-match"]
    assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert query["X-Amz-Expires"] == ["60"]
    assert url.path.endswith("/uploads/ana/1")


def test_signature_of_presigned_put(blobs: Blobs) -> None:
    """Another size, type or key gives another signature."""

    def signature(key: str, content_type: str, size: int) -> str:
        url = blobs.presign_put(key, content_type=content_type, size=size, seconds=60)
        return parse_qs(urlsplit(url).query)["X-Amz-Signature"][0]

    one = signature("k", "a/b", 1)
    assert one not in {signature("l", "a/b", 1), signature("k", "a/c", 1), signature("k", "a/b", 2)}


def test_presigned_host(blobs: Blobs) -> None:
    """The URL has the region's host: the global one redirects, and the signature includes the host."""
    url = urlsplit(blobs.presign_put("uploads/ana/1", content_type="a/b", size=1, seconds=60))
    assert url.netloc == "data.s3.eu-west-1.amazonaws.com"


def test_presigned_part(blobs: Blobs) -> None:
    """The length is signed, and the URL contains upload id and part number."""
    url = urlsplit(blobs.presign_part("uploads/ana/1", "id", number=2, size=7, seconds=60))
    query = parse_qs(url.query)
    assert query["X-Amz-SignedHeaders"] == ["content-length;host"]
    assert (query["uploadId"], query["partNumber"], query["X-Amz-Expires"]) == (["id"], ["2"], ["60"])
    assert (url.netloc, url.path) == ("data.s3.eu-west-1.amazonaws.com", "/uploads/ana/1")


def sent(s3: Any, upload_id: str, *parts: bytes) -> list[str]:
    place = {"Bucket": "data", "Key": "k", "UploadId": upload_id}
    return [s3.upload_part(**place, PartNumber=n, Body=part)["ETag"] for n, part in enumerate(parts, 1)]


def test_complete_multipart(blobs: Blobs, s3: Any) -> None:
    """The object has the type of the upload. Completing or aborting it again changes nothing."""
    upload_id = blobs.create_multipart("k", content_type="text/csv")
    etags = sent(s3, upload_id, b"a" * 5_242_880, b"b")
    assert blobs.head("k") is None
    for _ in range(2):
        blobs.complete_multipart("k", upload_id, etags)
        assert blobs.get("k") == b"a" * 5_242_880 + b"b"
        blobs.abort_multipart("k", upload_id)
    assert s3.head_object(Bucket="data", Key="k")["ContentType"] == "text/csv"


def test_abort_multipart(blobs: Blobs, s3: Any) -> None:
    """An upload can be aborted repeatedly, and then not completed."""
    upload_id = blobs.create_multipart("k", content_type="text/csv")
    etags = sent(s3, upload_id, b"a")
    blobs.abort_multipart("k", upload_id)
    blobs.abort_multipart("k", upload_id)
    blobs.complete_multipart("k", upload_id, etags)
    assert blobs.head("k") is None


def test_complete_multipart_does_not_overwrite(blobs: Blobs, s3: Any) -> None:
    """An object that was written under the key meanwhile stays."""
    upload_id = blobs.create_multipart("k", content_type="text/csv")
    etags = sent(s3, upload_id, b"new")
    blobs.put("k", b"old")
    blobs.complete_multipart("k", upload_id, etags)
    assert blobs.get("k") == b"old"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("InvalidPart", InvalidRequest),
        ("InvalidPartOrder", InvalidRequest),
        ("EntityTooSmall", InvalidRequest),
        ("ConditionalRequestConflict", Contended),
        ("AccessDenied", ClientError),
    ],
)
def test_errors_of_complete_multipart(blobs: Blobs, code: str, error: type[Exception]) -> None:
    """Wrong parts raise InvalidRequest, a conflict raises Contended, and other errors are raised."""
    calls = Calls(Clock())
    calls.fail("s3", "CompleteMultipartUpload", code)
    with calls.intercepted(), pytest.raises(error) as raised:
        blobs.complete_multipart("k", "id", ["e"])
    assert getattr(raised.value, "field", "parts") == "parts"


def test_errors_of_abort_multipart(blobs: Blobs) -> None:
    """Other errors of S3 are raised."""
    calls = Calls(Clock())
    calls.fail("s3", "AbortMultipartUpload", "AccessDenied")
    with calls.intercepted(), pytest.raises(ClientError, match="AccessDenied"):
        blobs.abort_multipart("k", "id")


# ── large files ──────────────────────────────────────────────────────────────────────────────────────────────

PART = 5 * 1024 * 1024  # the least that S3 takes


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART + 7])
def test_files(blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A file is written in parts and read in ranges, and comes back with the same bytes."""
    monkeypatch.setattr(module, "RANGE_BYTES", PART)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(random.Random(size).randbytes(size))
    blobs.upload("k", source)
    assert blobs.download("k", target) == size
    assert target.read_bytes() == source.read_bytes() == b"".join(blobs.stream("k"))


def test_pinned_file(blobs: Blobs, tmp_path: Path) -> None:
    """A file that is missing or has another ETag is not read."""
    etag = blobs.put("k", b"old")
    blobs.put("k", b"new")
    for key in ("k", "nothing"):
        with pytest.raises(SourceNotFound):
            blobs.download(key, tmp_path / "target", etag=etag)
        with pytest.raises(SourceNotFound):
            list(blobs.stream(key, etag=etag))


def test_file_replaced_while_it_is_read(blobs: Blobs, tmp_path: Path) -> None:
    """Every range has the ETag of the first request, so no file is mixed from two versions."""
    blobs.put("k", b"old")
    calls = Calls(Clock())
    calls.fail("s3", "GetObject", "PreconditionFailed")
    with calls.intercepted(), pytest.raises(SourceNotFound):
        blobs.download("k", tmp_path / "target")


def test_failed_part(blobs: Blobs, s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a part fails, the upload is aborted and the object does not exist."""
    monkeypatch.setattr(module, "RANGE_BYTES", PART)
    (tmp_path / "source").write_bytes(bytes(PART + 1))
    calls = Calls(Clock())
    calls.fail("s3", "UploadPart", "AccessDenied", times=None)
    with calls.intercepted(), pytest.raises(ClientError, match="AccessDenied"):
        blobs.upload("k", tmp_path / "source")
    assert blobs.head("k") is None
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
