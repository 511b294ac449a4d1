"""The inputs of a submission: texts, which are stored in the data bucket, and files that were uploaded before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.aws.blobs import Blobs, inputs_of
from core.errors import InvalidRequest, PayloadTooLarge

MAX_KEY_BYTES = 1024  # https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Of a job that is not written yet. Limits are in bytes."""

    owner: str
    job_id: str
    blobs: Blobs
    max_inline_bytes: int
    max_upload_bytes: int

    def keep_text(self, text: str, *, field: str, name: str | None = None) -> dict[str, Any]:
        """Store a text; returns `{source_key, etag, bytes}`. Raises PayloadTooLarge.

        If a job has several texts, all but one need a `name`. `field` is named in the error.
        """
        data = text.encode()
        if len(data) > self.max_inline_bytes:
            raise PayloadTooLarge(
                f"The text has {len(data)} bytes; the limit for inline text is {self.max_inline_bytes}. "
                "Use POST /uploads.",
                field=field,
            )
        key = inputs_of(self.owner, self.job_id) + (f"/{name}" if name else "")
        etag = self.blobs.put(key, data, content_type="text/plain; charset=utf-8")
        return {"source_key": key, "etag": etag, "bytes": len(data)}

    def pin_upload(self, s3_key: str, *, field: str) -> dict[str, Any]:
        """The upload's `{source_key, etag, bytes}`. The job reads this version of the file, or fails.

        Raises InvalidRequest if this owner has no such upload, and PayloadTooLarge.
        """
        if not s3_key.startswith(f"uploads/{self.owner}/") or len(s3_key.encode()) > MAX_KEY_BYTES:
            raise InvalidRequest("This is not an s3_key that POST /uploads returned to you.", field=field)
        found = self.blobs.head(s3_key)
        if found is None:
            message = "The file is not uploaded yet. PUT it first; an upload in parts must also be completed."
            raise InvalidRequest(message, field=field)
        size, etag = found
        if size > self.max_upload_bytes:
            raise PayloadTooLarge(f"The file has {size} bytes; the limit is {self.max_upload_bytes}.", field=field)
        return {"source_key": s3_key, "etag": etag, "bytes": size}


def copy_texts(stored: Any, *, owner: str, job_id: str, blobs: Blobs) -> Any:
    """The stored input of an earlier job with copies of its texts, which belong to the job `job_id`.

    So the deletion of the earlier job does not delete them. Uploads belong to no job.
    """
    key = re.compile(rf"{inputs_of(owner, 'job_')}[0-9A-Z]{{26}}((?:/.*)?)", re.DOTALL)

    def copied(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: copied(part) for name, part in value.items()}
        if isinstance(value, list):
            return [copied(part) for part in value]
        match = key.fullmatch(value) if isinstance(value, str) else None
        target = inputs_of(owner, job_id) + match[1] if match else ""
        return target if match and blobs.copy(value, target) else value

    return copied(stored)
