"""POST /uploads: a place to put one file, described exactly enough that nothing else fits."""

from __future__ import annotations

import re
import shlex
import time

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from api.dependencies import dependencies
from core import events, ids
from core.errors import PayloadTooLarge
from core.http import answer, caller
from core.models import Upload, UploadRequest

router = Router()
EXPIRES_SECONDS = 3600


@router.post(
    "/uploads",
    tags=["documents"],
    summary="Get a URL to upload a file to",
    responses={201: {"description": "Created"}},
)
def create(request: UploadRequest) -> Response[Upload]:
    owner = caller(router, "jobs:write")
    limit = dependencies().config.max_upload_bytes
    if request.size > limit:
        message = f"The file has {request.size} bytes, and {limit} is the limit. Split it."
        raise PayloadTooLarge(message, field="size")
    key = f"uploads/{owner}/{ids.new('upl')}/{_safe(request.filename)}"
    url = dependencies().blobs.presign_put(
        key, content_type=request.content_type, size=request.size, seconds=EXPIRES_SECONDS
    )
    headers = {"Content-Type": request.content_type, "If-None-Match": "*"}
    return answer(
        {
            "s3_key": key,
            "url": url,
            "method": "PUT",
            "headers": headers,
            "expires_at": events.timestamp(time.time() + EXPIRES_SECONDS),
            "curl": _curl(url, headers, request.filename),
        },
        status=201,
    )


def _safe(filename: str) -> str:
    """The name is a help for people; what the document is called is its `document_id`.

    It does not begin with a dot: clients shorten a path that has `..` in it, and the signature breaks.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", filename)[-100:].lstrip(".") or "file"


def _curl(url: str, headers: dict[str, str], filename: str) -> str:
    """A line for a shell. `-g`: curl takes brackets in a file's name for a pattern."""
    options = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    return f"curl -fsS -T {shlex.quote(filename)} -g {options} {shlex.quote(url)}"
