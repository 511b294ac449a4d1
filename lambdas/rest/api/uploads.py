"""Routes under /uploads: a place to put one file, described exactly enough that nothing else fits."""

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
from core.http import answer, caller, root_url
from core.models import CompleteRequest, MultipartUpload, SentPart, Upload, Uploaded, UploadRequest
from rest.api.parts import MISSING, Ticket, part_sizes

router = Router()
EXPIRES_SECONDS = 3600
UploadId = Annotated[str, Path(description="The `upload_id` that POST /uploads answered.")]


@router.post(
    "/uploads",
    tags=["uploads"],
    summary="Get a URL to upload a file to, or one for each of its parts",
    responses={201: {"description": "Created"}},
)
def create(request: UploadRequest) -> Response[Upload | MultipartUpload]:
    owner = caller(router, "jobs:write")
    limit = dependencies.settings.max_upload_bytes
    if request.size > limit:
        message = f"The file has {request.size} bytes, and {limit} is the limit. Split it."
        raise PayloadTooLarge(message, field="size")
    key = f"uploads/{owner}/{ids.new('upl')}/{_safe(request.filename)}"
    place = _in_parts(key, request) if request.parts else _whole(key, request)
    expires_at = events.timestamp(time.time() + EXPIRES_SECONDS)
    return answer({"s3_key": key, "expires_at": expires_at, **place}, status=201)


@router.post(
    "/uploads/<upload_id>/complete", tags=["uploads"], summary="Make one file of the parts that were uploaded"
)
def complete(upload_id: UploadId, request: CompleteRequest) -> Response[Uploaded]:
    """Again is the same as once. The file can be submitted from then on, by its `s3_key`."""
    ticket = Ticket.read(upload_id, owner=caller(router, "jobs:write"))
    etags = _etags(request.parts, len(part_sizes(ticket.size)))
    dependencies.blobs.join_parts(ticket.key, ticket.s3_id, etags)
    found = dependencies.blobs.head(ticket.key)
    if found is None:
        raise NotFound(MISSING)
    size, etag = found
    return answer({"s3_key": ticket.key, "size": size, "etag": etag})


@router.delete(
    "/uploads/<upload_id>",
    tags=["uploads"],
    summary="Give up an upload in parts",
    responses={204: {"description": "Removed", "content": {}}},
)
def abort(upload_id: UploadId) -> Response[Any]:
    """What was sent of it is removed, but a file that is complete stays. Again is the same as once."""
    ticket = Ticket.read(upload_id, owner=caller(router, "jobs:write"))
    dependencies.blobs.drop_parts(ticket.key, ticket.s3_id)
    return Response(status_code=204, content_type="application/json", body="")


def _whole(key: str, request: UploadRequest) -> dict[str, Any]:
    url = dependencies.blobs.presign_put(
        key, content_type=request.content_type, size=request.size, seconds=EXPIRES_SECONDS
    )
    headers = {"Content-Type": request.content_type, "If-None-Match": "*"}
    return {"url": url, "method": "PUT", "headers": headers, "curl": _curl(url, headers, request.filename)}


def _in_parts(key: str, request: UploadRequest) -> dict[str, Any]:
    blobs, sizes = dependencies.blobs, part_sizes(request.size)
    s3_id = blobs.begin_parts(key, content_type=request.content_type)
    upload_id = str(Ticket(s3_id, key, request.size))
    place = f"{root_url(router)}/uploads/{upload_id}"
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
        "links": {"complete": f"{place}/complete", "abort": place},
    }


def _etags(parts: Sequence[SentPart], count: int) -> list[str]:
    """In the order of the parts, each of which must be there once: the file is as long as was announced."""
    by_number = {part.number: part.etag for part in parts}
    if len(parts) != len(by_number) or by_number.keys() != set(range(1, count + 1)):
        raise InvalidRequest(f"Name each part from 1 to {count} once, with its ETag.", field="parts")
    return [by_number[number] for number in range(1, count + 1)]


def _safe(filename: str) -> str:
    """The name is a help for people; what the document is called is its `document_id`.

    It does not begin with a dot: clients shorten a path that has `..` in it, and the signature breaks.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", filename)[-100:].lstrip(".") or "file"


def _curl(url: str, headers: dict[str, str], filename: str) -> str:
    """A line for a shell. `-g`: curl takes brackets in a file's name for a pattern."""
    options = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    return f"curl -fsS -T {shlex.quote(filename)} -g {options} {shlex.quote(url)}"
