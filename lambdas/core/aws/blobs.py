"""Objects of the data bucket. Messages carry the keys of large content (claim check pattern)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.errors import Contended, InvalidRequest, SourceNotFound

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

MAX_KEYS_PER_DELETE = 1000  # https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html

RANGE_BYTES = 8 * 1024 * 1024
"""Of a large file, so much is moved in one request. S3 takes parts from 5 MiB on."""
RANGES_AT_ONCE = 4
MAX_PARTS = 10_000  # https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html

# https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
WRONG_PARTS = {"InvalidPart", "InvalidPartOrder", "EntityTooSmall"}
WRONG_PARTS_MESSAGE = "A part is missing or has another ETag. Upload it again, then complete the upload again."


GONE = ("NoSuchKey", "404", "PreconditionFailed", "412")
SOURCE_GONE = (
    "The job's file was deleted or changed after the job was submitted. Upload it again and submit a new job."
)


def work_folder(job_id: str) -> str:
    """The prefix of a job's temporary files, which are deleted when it ends."""
    return f"work/{job_id}/"


def batch_key(job_id: str, batch: int) -> str:
    """The key of a batch of chunks: `chunk_document` writes it, the worker reads it."""
    return f"{work_folder(job_id)}chunks/{batch:04d}.jsonl"


def inputs_of(owner: str, job_id: str) -> str:
    """The key of a job's text, and the prefix of further ones."""
    return f"inputs/{owner}/{job_id}"


def results_of(owner: str, job_id: str) -> str:
    """The prefix of a job's result."""
    return f"results/{owner}/{job_id}/"


def parked_key(event_id: str) -> str:
    """The key of an event that SNS refused."""
    return f"parked/{event_id}.json"


class Blobs:
    """Objects of one bucket."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    def put(self, key: str, data: bytes | IO[bytes], *, content_type: str = "application/octet-stream") -> str:
        """Write an object of at most 5 GB and return its ETag. An open file is not read into memory."""
        answer = self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType=content_type)
        return answer["ETag"]

    def get(self, key: str, *, etag: str | None = None, max_bytes: int | None = None) -> bytes:
        """Read an object, or its first `max_bytes`.

        Raises SourceNotFound if it does not exist or has another ETag.
        """
        options: dict[str, Any] = {"IfMatch": etag} if etag else {}
        if max_bytes is not None:
            options["Range"] = f"bytes=0-{max_bytes - 1}"
        try:
            return self._read(key, **options)
        except ClientError as error:
            if aws_errors.code(error) == "InvalidRange":  # an empty object has no first byte
                return b""
            raise

    def download(self, key: str, path: Path, *, etag: str | None = None) -> int:
        """Read an object into a file, several ranges at a time, and return its size in bytes.

        Raises SourceNotFound if it does not exist, has another ETag, or is replaced meanwhile.
        """
        size, pinned = self._pin(key, etag)
        with path.open("wb") as file:

            def copy(start: int) -> None:
                data = self._range(key, start, min(start + RANGE_BYTES, size), etag=pinned)
                os.pwrite(file.fileno(), data, start)

            _side_by_side(copy, range(0, size, RANGE_BYTES))
        return size

    def stream(self, key: str, *, etag: str | None = None) -> Iterator[bytes]:
        """The bytes of an object in order, in blocks; the next ones are read meanwhile. Raises as `download`."""
        size, pinned = self._pin(key, etag)

        def read(start: int) -> bytes:
            return self._range(key, start, min(start + RANGE_BYTES, size), etag=pinned)

        if size <= RANGE_BYTES:
            yield from [read(0)] if size else []
            return
        with ThreadPoolExecutor(RANGES_AT_ONCE, thread_name_prefix="range") as pool:
            starts = iter(range(0, size, RANGE_BYTES))
            waiting = deque(pool.submit(read, start) for start in islice(starts, RANGES_AT_ONCE))
            while waiting:
                block = waiting.popleft().result()
                waiting.extend(pool.submit(read, start) for start in islice(starts, 1))
                yield block

    def _pin(self, key: str, etag: str | None) -> tuple[int, str]:
        """The size and the ETag of an object. Raises SourceNotFound if there is none, or it has another ETag."""
        found = self.head(key)
        if found is None or etag not in (None, found[1]):
            raise SourceNotFound(SOURCE_GONE)
        return found

    def _range(self, key: str, start: int, end: int, *, etag: str) -> bytes:
        """The bytes from `start` to before `end`."""
        return self._read(key, IfMatch=etag, Range=f"bytes={start}-{end - 1}")

    def _read(self, key: str, **options: Any) -> bytes:
        """`options` of GetObject. Raises SourceNotFound."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key, **options)
        except ClientError as error:
            if aws_errors.code(error) in GONE:
                raise SourceNotFound(SOURCE_GONE) from error
            raise
        return answer["Body"].read()

    def upload(self, key: str, path: Path, *, content_type: str = "application/octet-stream") -> None:
        """Write a file, a large one in parts, several at a time. If a part fails, no part is left."""
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= RANGE_BYTES:
                self.put(key, file, content_type=content_type)
                return
            s3_id = self.create_multipart(key, content_type=content_type)
            try:
                self._upload_parts(key, s3_id, file.fileno(), size)
            except BaseException:
                self.abort_multipart(key, s3_id)
                raise

    def _upload_parts(self, key: str, s3_id: str, file: int, size: int) -> None:
        part_size = max(RANGE_BYTES, -(-size // MAX_PARTS))

        def send(start: int) -> dict[str, Any]:
            number, data = start // part_size + 1, os.pread(file, part_size, start)
            answer = self._client.upload_part(
                Bucket=self._bucket, Key=key, UploadId=s3_id, PartNumber=number, Body=data
            )
            return {"PartNumber": number, "ETag": answer["ETag"]}

        parts = _side_by_side(send, range(0, size, part_size))
        self._client.complete_multipart_upload(
            Bucket=self._bucket,
            Key=key,
            UploadId=s3_id,
            MultipartUpload={"Parts": parts},
        )

    def head(self, key: str) -> tuple[int, str] | None:
        """Size in bytes and ETag, or None if the object does not exist."""
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if aws_errors.code(error) in ("404", "NoSuchKey", "NotFound"):
                return None
            raise
        return answer["ContentLength"], answer["ETag"]

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys that begin with `prefix`, in order."""
        return (key for key, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """The keys that begin with `prefix`, in order, with the objects' sizes in bytes."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        for page in pages:
            yield from ((item["Key"], item["Size"]) for item in page.get("Contents", []))

    def folders(self, prefix: str) -> list[str]:
        """The common prefixes directly below `prefix`, without it and without slashes."""
        answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, Delimiter="/")
        return [item["Prefix"].removeprefix(prefix).rstrip("/") for item in answer.get("CommonPrefixes", [])]

    def copy(self, source: str, target: str) -> bool:
        """Copy an object of at most 5 GB. Returns False if the source does not exist."""
        try:
            self._client.copy_object(
                Bucket=self._bucket, Key=target, CopySource={"Bucket": self._bucket, "Key": source}
            )
        except ClientError as error:
            if aws_errors.code(error) in ("404", "NoSuchKey"):
                return False
            raise
        return True

    def delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), MAX_KEYS_PER_DELETE):
            batch = keys[start : start + MAX_KEYS_PER_DELETE]
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
            )
            if answer.get("Errors"):
                raise RuntimeError(f"{len(answer['Errors'])} objects could not be deleted")

    def delete_all(self, prefix: str) -> None:
        """Delete every object whose key begins with `prefix`."""
        self.delete(list(self.keys(prefix)))

    def presign_put(self, key: str, *, content_type: str, size: int, seconds: int) -> str:
        """A URL for one upload of exactly this size and type.

        Content length, type and `if-none-match` are signed (SigV4), so the caller cannot change them.
        """
        return self._client.generate_presigned_url(
            "put_object",
            Params={
                "Bucket": self._bucket,
                "Key": key,
                "ContentType": content_type,
                "ContentLength": size,
                "IfNoneMatch": "*",
            },
            ExpiresIn=seconds,
        )

    def presign_get(self, key: str, *, seconds: int) -> str:
        """A URL for reading the object."""
        return self._client.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=seconds
        )

    def create_multipart(self, key: str, *, content_type: str) -> str:
        """Start a multipart upload and return S3's id for it."""
        answer = self._client.create_multipart_upload(Bucket=self._bucket, Key=key, ContentType=content_type)
        return answer["UploadId"]

    def presign_part(self, key: str, s3_id: str, *, number: int, size: int, seconds: int) -> str:
        """A URL for this part, of exactly this size. It can be used again until the upload is completed."""
        return self._client.generate_presigned_url(
            "upload_part",
            Params={
                "Bucket": self._bucket,
                "Key": key,
                "UploadId": s3_id,
                "PartNumber": number,
                "ContentLength": size,
            },
            ExpiresIn=seconds,
        )

    def complete_multipart(self, key: str, s3_id: str, etags: Sequence[str]) -> None:
        """Complete a multipart upload of the parts 1, 2, … with these ETags. Never overwrites an object.

        Does nothing if the upload was completed or aborted before: `head` tells whether the object exists. Raises
        InvalidRequest if S3 has other parts, and Contended if another request is completing the upload.
        """
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        try:
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=s3_id,
                IfNoneMatch="*",
                MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
            )
        except ClientError as error:
            if aws_errors.code(error) in WRONG_PARTS:
                raise InvalidRequest(WRONG_PARTS_MESSAGE, field="parts") from error
            if aws_errors.code(error) == "ConditionalRequestConflict":
                raise Contended("Another request is completing this upload.") from error
            if aws_errors.code(error) not in ("NoSuchUpload", "PreconditionFailed"):
                raise

    def abort_multipart(self, key: str, s3_id: str) -> None:
        """Abort a multipart upload and delete its parts. Does nothing if it was completed or aborted before."""
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=s3_id)
        except ClientError as error:
            if aws_errors.code(error) != "NoSuchUpload":
                raise


def _side_by_side(move: Callable[[int], Any], starts: Sequence[int]) -> list[Any]:
    """Move each range, and return what came of it. After the first failure no further range is begun."""
    if len(starts) <= 1:
        return [move(start) for start in starts]
    with ThreadPoolExecutor(RANGES_AT_ONCE, thread_name_prefix="range") as pool:
        running = [pool.submit(move, start) for start in starts]
        try:
            return [each.result() for each in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
