"""The OpenAPI document of the whole API, made from its routes and models."""

from __future__ import annotations

import functools
import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib import resources
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver
from aws_lambda_powertools.event_handler.openapi import swagger_ui
from pydantic import BaseModel

from core.http import Problem
from core.jobs import Kind
from core.jobs.models import COMMON_EVENTS, JobEventView
from kinds.registry import KINDS
from rest.api import deliveries, jobs, live, uploads, webhooks
from rest.long_poll import jobs as long_poll
from rest.long_poll import webhook_ping

TITLE, VERSION = "Recado", "1.0.0"
EVENT = JobEventView.__name__
FOLLOWING = "/follow/"  # routes below it need no key, but a token in the path
PROBLEMS = {"422": "Invalid request", "429": "Too many requests, or a quota is used up; see `Retry-After`"}
KEY_PROBLEMS = {
    "401": "The key is missing or invalid",
    "403": "The key does not have the scope",
    **PROBLEMS,
}
JOB = "/jobs/{job_id}"
JOB_PROBLEMS = {"404": "There is no such job", "410": "The job was deleted"}
MORE_PROBLEMS = {
    ("/jobs", "post"): {"410": "The job of the `Idempotency-Key` was deleted"},
    (JOB, "delete"): {"409": "The job is open: cancel it first"},
}
LINK_PROBLEMS = {"403": "The link is invalid or has expired", **PROBLEMS}
DESCRIPTION = "Runs slow AI work as jobs, and notifies you when they are done."


@functools.cache
def document() -> dict[str, Any]:
    app = APIGatewayRestResolver(enable_validation=True)
    submission, _ = jobs.submission_router(KINDS)
    shared = (part.router for part in (jobs, live, uploads, webhooks, deliveries))
    of_kinds = (router for kind in KINDS.values() for router in (*kind.routes(), *kind.function_routes()))
    for router in (submission, *shared, *of_kinds, long_poll.router, webhook_ping.router):
        app.include_router(router)
    schema: dict[str, Any] = json.loads(
        app.get_openapi_json_schema(title=TITLE, version=VERSION, description=DESCRIPTION)
    )
    schema["servers"] = [{"url": "."}]  # relative to this document, for every stage and domain
    for kind in KINDS.values():
        _add_kind(schema, kind)
    return _with_problems(_with_keys(schema))


def _add_kind(schema: dict[str, Any], kind: Kind) -> None:
    """Add the kind's example, its result, and its events as webhooks."""
    models = schema["components"]["schemas"]
    if kind.submittable:
        content = schema["paths"]["/jobs"]["post"]["requestBody"]["content"]["application/json"]
        content.setdefault("examples", {})[kind.name] = {"value": {"kind": kind.name, "input": dict(kind.example)}}
    # Components are named after events, because models of different kinds may have the same name.
    own = {f"{kind.name}.{verb}": model for verb, model in {**COMMON_EVENTS, **kind.events}.items()}
    models |= {name: _schema_of(name, model) for name, model in own.items()}
    models[EVENT] = _schema_of(EVENT, JobEventView)
    for view in ("JobView", "JobAccepted"):
        result = models[view]["properties"]["result"]
        result["anyOf"] = [_reference(f"{kind.name}.{kind.completed_verb}"), *result["anyOf"]]
    for name in kind.event_names:
        parts = [_reference(part) for part in (EVENT, name) if part in models]
        schema.setdefault("webhooks", {})[name] = {"post": _webhook(name.partition(".")[2], parts)}


def _webhook(verb: str, parts: list[dict[str, str]]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"allOf": parts}}}
    return {
        "tags": ["events"],
        "summary": verb,
        "requestBody": {"content": content},
        "responses": {"2XX": {"description": "Received. After any other response the webhook is retried."}},
    }


def _schema_of(name: str, model: type[BaseModel]) -> dict[str, Any]:
    """The model's schema, with nested models inside it, so that their names cannot collide."""
    return model.model_json_schema(ref_template=f"#/components/schemas/{name}/$defs/{{model}}")


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _with_keys(schema: dict[str, Any]) -> dict[str, Any]:
    schema.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}]
    for path, operations in schema["paths"].items():
        if path.startswith(FOLLOWING):
            for operation in operations.values():
                operation["security"] = []
    return schema


def _with_problems(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe errors as problem documents, in place of Powertools' own 422."""
    schema["components"].setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    content = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in schema["paths"].items():
        problems = LINK_PROBLEMS if path.startswith(FOLLOWING) else KEY_PROBLEMS
        if path.startswith(JOB):
            problems = problems | JOB_PROBLEMS
        for method, operation in operations.items():
            for status, description in (problems | MORE_PROBLEMS.get((path, method), {})).items():
                operation["responses"][status] = {"description": description, **content}
    return schema


def content_security_policy(html: str) -> str:
    """The page's own scripts may run and may call this API, and nothing else may: https://www.w3.org/TR/CSP3/

    Swagger UI sets styles of elements, which no hash can allow.
    """
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def page() -> str:
    """Swagger UI in one page that loads nothing from other hosts."""
    assets = resources.files(swagger_ui)
    script, style = (
        (assets / name).read_text(encoding="utf-8") for name in ("swagger-ui-bundle.min.js", "swagger-ui.min.css")
    )
    return swagger_ui.generate_swagger_html(json.dumps(document()).replace("</", "<\\/"), script, style, "", None)
