"""The HTTP API, except for long polls (`rest.long_poll`) and routes that load a model (`search`)."""

from __future__ import annotations

import functools
import json
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from core.dependencies import dependencies
from core.http import resolver
from kinds.registry import KINDS
from rest.api import deliveries, jobs, live, uploads, webhooks

router = Router()


@router.get("/health", include_in_schema=False)
def health() -> Response[str]:
    return Response(status_code=200, content_type="application/json", body='{"status":"ok"}')


@router.get("/openapi.json", include_in_schema=False)
def openapi() -> Response[str]:
    from rest.api.openapi import document  # imports the routes of other functions

    return Response(status_code=200, content_type="application/json", body=json.dumps(document()))


@router.get("/docs", include_in_schema=False)
def docs() -> Response[str]:
    from rest.api.openapi import page

    return Response(status_code=200, content_type="text/html; charset=utf-8", body=page())


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
