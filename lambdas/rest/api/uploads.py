"""Routes under /uploads: presigned URLs, each for one file of one size and type."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Path

from core import events, ids
from core.dependencies import dependencies
from core.errors import InvalidRequest, NotFound, PayloadTooLarge
from core.http import caller, json_response, no_content, root_url
from core.submission import upload_limit
from kinds.registry import KINDS
from rest.api.parts import MISSING, MultipartId, part_sizes
from rest.api.upload_models import (
    CompleteRequest,
    MultipartUpload,
    SentPart,
    Upload,
    Uploaded,
    UploadRequest,
)

router = Router()
EXPIRES_SECONDS = 3600
MAX_PUT_BYTES = 5 * 1024**3  # https://docs.aws.amazon.com/AmazonS3/latest/userguide/upload-objects.html
UploadId = Annotated[str, Path(description="The `upload_id` that POST /uploads returned.")]


@router.post(
    "/uploads",
    tags=["uploads"],
    summary="Get a URL to upload a file to, or one for each of its parts",
    responses={201: {"description": "Created"}},
)
def create(request: UploadRequest) -> Response[Upload | MultipartUpload]:
    owner = caller(router, "jobs:write")
    _check_size(request)
    limit = dependencies.settings.max_uploads_per_day
    dependencies.daily_quotas.use(owner, "uploads", limit=limit, what="uploads")
    key = f"uploads/{owner}/{ids.new('upl')}/{_safe(request.filename)}"
    urls = _in_parts(key, request) if request.parts else _in_one_piece(key, request)
    expires_at = events.timestamp(time.time() + EXPIRES_SECONDS)
    return json_response({"s3_key": key, "expires_at": expires_at, **urls}, status=201)


@router.post("/uploads/<upload_id>/complete", tags=["uploads"], summary="Complete an upload in parts")
def complete(upload_id: UploadId, request: CompleteRequest) -> Response[Uploaded]:
    """Then the file can be submitted by its `s3_key`. Completing it again has no effect."""
    upload = MultipartId.read(upload_id, owner=caller(router, "jobs:write"))
    etags = _etags(request.parts, len(part_sizes(upload.size)))
    dependencies.blobs.complete_multipart(upload.key, upload.s3_id, etags)
    found = dependencies.blobs.head(upload.key)
    if found is None:
        raise NotFound(MISSING)
    size, etag = found
    return json_response({"s3_key": upload.key, "size": size, "etag": etag})


@router.delete(
    "/uploads/<upload_id>",
    tags=["uploads"],
    summary="Abort an upload in parts",
    responses={204: {"description": "Aborted", "content": {}}},
)
def abort(upload_id: UploadId) -> Response[Any]:
    """Deletes the uploaded parts, but not a complete file. Aborting it again has no effect."""
    upload = MultipartId.read(upload_id, owner=caller(router, "jobs:write"))
    dependencies.blobs.abort_multipart(upload.key, upload.s3_id)
    return no_content()


def _check_size(request: UploadRequest) -> None:
    kind = KINDS.get(request.kind)
    if kind is None or not kind.submittable:
        names = ", ".join(sorted(name for name, each in KINDS.items() if each.submittable))
        raise InvalidRequest(f"There is no such kind of job. The kinds are: {names}.", field="kind")
    limit = upload_limit(kind)
    if request.size > limit:
        message = f"The file has {request.size} bytes; the limit of the kind {kind.name} is {limit}. Split it."
        raise PayloadTooLarge(message, field="size")
    if request.size > MAX_PUT_BYTES and not request.parts:
        message = f'One request moves at most {MAX_PUT_BYTES} bytes. Send "parts": true to upload it in parts.'
        raise PayloadTooLarge(message, field="size")


def _in_one_piece(key: str, request: UploadRequest) -> dict[str, Any]:
    url = dependencies.blobs.presign_put(
        key, content_type=request.content_type, size=request.size, seconds=EXPIRES_SECONDS
    )
    headers = {"Content-Type": request.content_type, "If-None-Match": "*"}
    return {"url": url, "method": "PUT", "headers": headers, "curl": _curl(url, headers, request.filename)}


def _in_parts(key: str, request: UploadRequest) -> dict[str, Any]:
    blobs, sizes = dependencies.blobs, part_sizes(request.size)
    s3_id = blobs.create_multipart(key, content_type=request.content_type)
    upload_id = str(MultipartId(s3_id, key, request.size))
    location = f"{root_url(router)}/uploads/{upload_id}"
    return {
        "upload_id": upload_id,
        "part_size": sizes[0],
        "parts": [
            {
                "number": number,
                "size": size,
                "url": blobs.presign_part(key, s3_id, number=number, size=size, seconds=EXPIRES_SECONDS),
            }
            for number, size in enumerate(sizes, 1)
        ],
        "links": {"complete": f"{location}/complete", "abort": location},
    }


def _etags(parts: Sequence[SentPart], count: int) -> list[str]:
    """The ETags in the order of the parts. Each part must be listed once."""
    by_number = {part.number: part.etag for part in parts}
    if len(parts) != len(by_number) or by_number.keys() != set(range(1, count + 1)):
        raise InvalidRequest(f"List each part from 1 to {count} once, with its ETag.", field="parts")
    return [by_number[number] for number in range(1, count + 1)]


def _safe(filename: str) -> str:
    """The filename in the S3 key, which is only for people: `document_id` names the document.

    It does not begin with a dot: HTTP clients normalize paths with `..`, and the signature would not match.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", filename)[-100:].lstrip(".") or "file"


def _curl(url: str, headers: dict[str, str], filename: str) -> str:
    """A shell command. `-g`: otherwise curl would expand brackets in the filename."""
    options = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    return f"curl -fsS -T {shlex.quote(filename)} -g {options} {shlex.quote(url)}"
