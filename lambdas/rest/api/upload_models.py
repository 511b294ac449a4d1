"""The requests and responses under /uploads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from core.models import Request, ShortText

# \w would accept letters that a header cannot contain
_TOKEN = "[A-Za-z0-9_.+-]+"  # noqa: S105 a token of a media type
MediaType = Annotated[
    str, StringConstraints(pattern=rf"^{_TOKEN}/{_TOKEN}(; ?{_TOKEN}={_TOKEN})?$", max_length=128)
]


class UploadRequest(Request):
    """A file to upload."""

    filename: ShortText
    kind: ShortText = Field("document", description="The kind of job that it is for: each has its own limit.")
    content_type: MediaType = "application/octet-stream"
    size: int = Field(gt=0, description="The exact size in bytes.")
    parts: bool = Field(False, description="Whether to upload the file in parts, several at a time.")


class SentPart(Request):
    """An uploaded part, with the `ETag` of S3's response."""

    number: int
    etag: ShortText


class CompleteRequest(Request):
    """All parts of an upload, in any order."""

    parts: list[SentPart] = Field(min_length=1, max_length=1000)


class Upload(BaseModel):
    """PUT the file to `url` with exactly these headers before `expires_at`."""

    s3_key: str
    url: str
    method: Literal["PUT"] = "PUT"
    headers: dict[str, str]
    expires_at: str
    curl: str


class UploadPart(BaseModel):
    """PUT these bytes of the file to `url`, with no header except `Content-Length`."""

    number: int
    size: int
    url: str


class MultipartUpload(BaseModel):
    """PUT the parts of the file before `expires_at`, in any order and several at a time.

    Part 1 starts at byte 0, and part n at (n - 1) × `part_size`. Then POST `links.complete`.
    """

    s3_key: str
    upload_id: str
    part_size: int
    parts: list[UploadPart]
    expires_at: str
    links: dict[str, str]


class Uploaded(BaseModel):
    """A complete file."""

    s3_key: str
    size: int
    etag: str
