"""What a submission brings: a text that goes to the data bucket, or a file that was uploaded before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.aws.blobs import Blobs
from core.errors import InvalidRequest, PayloadTooLarge


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Of one job that is about to be written. Limits are in bytes."""

    owner: str
    job_id: str
    blobs: Blobs
    max_inline_bytes: int
    max_upload_bytes: int

    def keep_text(self, text: str, *, field: str, name: str | None = None) -> dict[str, Any]:
        """Store it; returns `{source_key, etag, bytes}`. Raises PayloadTooLarge, naming the field.

        Where a job has several texts, all but one have a `name`.
        """
        data = text.encode()
        if len(data) > self.max_inline_bytes:
            raise PayloadTooLarge(
                f"The text has {len(data)} bytes, and {self.max_inline_bytes} can be sent inline. "
                "Use POST /uploads.",
                field=field,
            )
        key = f"inputs/{self.owner}/{self.job_id}" + (f"/{name}" if name else "")
        etag = self.blobs.put(key, data, content_type="text/plain; charset=utf-8")
        return {"source_key": key, "etag": etag, "bytes": len(data)}

    def pin_upload(self, s3_key: str, *, field: str) -> dict[str, Any]:
        """The upload as it is now, `{source_key, etag, bytes}`: the job reads what was submitted, or fails.

        Raises InvalidRequest where there is no such upload of this owner, and PayloadTooLarge.
        """
        if not s3_key.startswith(f"uploads/{self.owner}/"):
            raise InvalidRequest("This is not a key that POST /uploads gave you.", field=field)
        found = self.blobs.head(s3_key)
        if found is None:
            message = "There is no file yet. PUT the file first, and complete it if it goes in parts."
            raise InvalidRequest(message, field=field)
        size, etag = found
        if size > self.max_upload_bytes:
            raise PayloadTooLarge(f"The file has {size} bytes, more than the limit.", field=field)
        return {"source_key": s3_key, "etag": etag, "bytes": size}
