"""Objects of the data bucket. Messages carry the keys of large content (claim check pattern)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.errors import Contended, InvalidRequest, SourceNotFound

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

MAX_KEYS_PER_DELETE = 1000  # https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html

# https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
WRONG_PARTS = {"InvalidPart", "InvalidPartOrder", "EntityTooSmall"}
WRONG_PARTS_MESSAGE = "A part is missing or has another ETag. Upload it again, then complete the upload again."


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
            answer = self._client.get_object(Bucket=self._bucket, Key=key, **options)
        except ClientError as error:
            if aws_errors.code(error) == "InvalidRange":  # an empty object has no first byte
                return b""
            if aws_errors.code(error) in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                raise SourceNotFound(
                    "The job's file was deleted or changed after the job was submitted. "
                    "Upload it again and submit a new job."
                ) from error
            raise
        return answer["Body"].read()

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
