"""The HTTP API, except for long polls (`rest.long_poll`) and routes that load a model (`search`)."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from core.dependencies import dependencies
from core.errors import NotAcceptable
from core.http import matches, resolver
from kinds.registry import KINDS
from rest.api import deliveries, jobs, live, uploads, webhooks

PUBLIC_SECONDS = 3600
router = Router()


@router.get("/health", include_in_schema=False)
def health() -> Response[str]:
    return Response(status_code=200, content_type="application/json", body='{"status":"ok"}')


@router.get("/openapi.json", include_in_schema=False)
def openapi() -> Response[str]:
    from rest.api.openapi import document  # imports the routes of other functions

    return public(json.dumps(document()), "application/json")


@router.get("/docs", include_in_schema=False)
def docs() -> Response[str]:
    from rest.api.openapi import content_security_policy, page

    if not accepts_gzip(router.current_event.headers.get("accept-encoding") or ""):
        raise NotAcceptable("The page is large. Send 'Accept-Encoding: gzip', as browsers do; curl: --compressed.")
    html = page()
    policy = {"Content-Security-Policy": content_security_policy(html)}
    return public(html, "text/html; charset=utf-8", headers=policy)


def public(body: str, content_type: str, *, headers: Mapping[str, str] = MappingProxyType({})) -> Response[str]:
    """A response that is the same for everybody until the next deployment, so anybody may cache it.

    API Gateway compresses it for clients that accept that.
    """
    etag = f'"{hashlib.sha256(body.encode()).hexdigest()[:24]}"'
    cached = {"Cache-Control": f"public, max-age={PUBLIC_SECONDS}", "ETag": etag}
    known = router.current_event.headers.get("if-none-match")
    if known and matches(known, etag):
        return Response(status_code=304, body="", headers=cached)
    return Response(status_code=200, content_type=content_type, body=body, headers=cached | dict(headers))


def accepts_gzip(header: str) -> bool:
    """https://www.rfc-editor.org/rfc/rfc9110#name-accept-encoding"""
    codings = [coding.strip().lower() for coding in header.split(",")]
    return any(re.fullmatch(r"gzip(\s*;\s*q=(1(\.0*)?|0?\.\d*[1-9]\d*))?", coding) for coding in codings)


@functools.cache
def app() -> APIGatewayRestResolver:
    submission, tags = jobs.submission_router(KINDS)
    shared = (part.router for part in (jobs, live, uploads, webhooks, deliveries))
    of_kinds = (router for kind in KINDS.values() for router in kind.routes())
    return resolver(
        dependencies.settings.cors_origins, router, submission, *shared, *of_kinds, tags={"/jobs": tags}
    )


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app().resolve(event, context)
