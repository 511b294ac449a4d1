"""The OpenAPI document of the whole API, from the routes and models that answer it."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver
from aws_lambda_powertools.event_handler.openapi import swagger_ui

from api import deliveries, documents, jobs, live, uploads, webhooks
from core.models import Problem
from search.handler import router as search
from wait.handler import router as wait

TITLE, VERSION = "Recado", "1.0.0"
FOLLOWING = "/follow/"  # below it a token in the path is all that is asked for
KEY_PROBLEMS = {"401": "No valid key", "403": "Scope missing", "422": "Invalid request"}
LINK_PROBLEMS = {"403": "The link does not hold, or no more", "422": "Invalid request"}
DESCRIPTION = "Runs slow AI work as jobs, and tells you when it is done."


@functools.cache
def document() -> dict[str, Any]:
    app = APIGatewayRestResolver(enable_validation=True)
    parts = (jobs, live, uploads, documents, webhooks, deliveries)
    routers = (*(part.router for part in parts), wait, search)
    for router in routers:
        app.include_router(router)
    schema: dict[str, Any] = json.loads(
        app.get_openapi_json_schema(title=TITLE, version=VERSION, description=DESCRIPTION)
    )
    schema["servers"] = [{"url": "."}]  # beside this document, whatever the stage or domain
    return _with_problems(_with_keys(schema))


def _with_keys(schema: dict[str, Any]) -> dict[str, Any]:
    schema.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}]
    for path, operations in schema["paths"].items():
        if path.startswith(FOLLOWING):
            for operation in operations.values():
                operation["security"] = []
    return schema


def _with_problems(schema: dict[str, Any]) -> dict[str, Any]:
    """Every error is a problem document; the resolver knows only of its own form of a 422."""
    schema["components"].setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    answer = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in schema["paths"].items():
        problems = LINK_PROBLEMS if path.startswith(FOLLOWING) else KEY_PROBLEMS
        for operation in operations.values():
            for status, words in problems.items():
                operation["responses"][status] = {"description": words, **answer}
    return schema


def page() -> str:
    """Swagger UI with everything in one page: it needs no other host, and tells none."""
    assets = resources.files(swagger_ui)
    script, style = (
        (assets / name).read_text(encoding="utf-8") for name in ("swagger-ui-bundle.min.js", "swagger-ui.min.css")
    )
    return swagger_ui.generate_swagger_html(json.dumps(document()).replace("</", "<\\/"), script, style, "", None)
