"""Claim checks: what is too large for a message lives in the data bucket, and the message carries its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.errors import Contended, InvalidRequest, SourceNotFound

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

MAX_KEYS_PER_DELETE = 1000  # https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html

# https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
WRONG_PARTS = {"InvalidPart", "InvalidPartOrder", "EntityTooSmall"}
OTHER_PARTS = "A part is not there, or has another ETag than you say. Upload it again, then complete again."


def work_folder(job_id: str) -> str:
    """What lies between the stages of a job, and goes with it."""
    return f"work/{job_id}/"


def batch_key(job_id: str, batch: int) -> str:
    """One batch of a job's chunks: written by the chunker, read by the embedding worker."""
    return f"{work_folder(job_id)}chunks/{batch:04d}.jsonl"


class Blobs:
    """Objects of one bucket, by key."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    def put(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> str:
        """Write, and return the ETag."""
        answer = self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType=content_type)
        return answer["ETag"]

    def get(self, key: str, *, etag: str | None = None, max_bytes: int | None = None) -> bytes:
        """Read it all, or the first `max_bytes`.

        Raises SourceNotFound where there is no such object, or none with this ETag any more.
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
                    "The job's file is gone, or was changed after the job was submitted. "
                    "Upload it again and submit a new job."
                ) from error
            raise
        return answer["Body"].read()

    def head(self, key: str) -> tuple[int, str] | None:
        """Size in bytes and ETag, or None where there is no such object."""
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
        """Every key that begins with `prefix`, in order."""
        return (key for key, _ in self.sizes(prefix))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Every key that begins with `prefix`, in order, with the object's size in bytes."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        for page in pages:
            yield from ((item["Key"], item["Size"]) for item in page.get("Contents", []))

    def folders(self, prefix: str) -> list[str]:
        """The names directly below `prefix`, each of which holds objects."""
        answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, Delimiter="/")
        return [item["Prefix"].removeprefix(prefix).rstrip("/") for item in answer.get("CommonPrefixes", [])]

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
        """A URL that takes exactly one upload of this size and type.

        Content length, type and `if-none-match` are signed (SigV4), so that the caller cannot change them.
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
        """A URL that reads the object."""
        return self._client.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=seconds
        )

    def begin_parts(self, key: str, *, content_type: str) -> str:
        """Begin an upload in parts, and return S3's id for it."""
        answer = self._client.create_multipart_upload(Bucket=self._bucket, Key=key, ContentType=content_type)
        return answer["UploadId"]

    def presign_part(self, key: str, s3_id: str, *, number: int, size: int, seconds: int) -> str:
        """A URL that takes this part, of exactly this size. It may be sent again, until the parts are joined."""
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

    def join_parts(self, key: str, s3_id: str, etags: Sequence[str]) -> None:
        """Make one object of the parts 1, 2, … with these ETags, and never a second one under the key.

        Whether there is one then, `head` says: nothing happens where the upload is over, joined or dropped. Raises
        InvalidRequest where S3 has other parts, and Contended where somebody else is just joining them.
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
                raise InvalidRequest(OTHER_PARTS, field="parts") from error
            if aws_errors.code(error) == "ConditionalRequestConflict":
                raise Contended("Another request is completing this upload.") from error
            if aws_errors.code(error) not in ("NoSuchUpload", "PreconditionFailed"):
                raise

    def drop_parts(self, key: str, s3_id: str) -> None:
        """Remove what has come of an upload in parts, if there is anything of it."""
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=s3_id)
        except ClientError as error:
            if aws_errors.code(error) != "NoSuchUpload":
                raise
