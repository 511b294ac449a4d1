"""What API Gateway hands to a function, and what it takes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
SCOPES = "jobs:read jobs:write search webhooks:read webhooks:write"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    handler: Handler,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
    owner: str | None = "ana",
    scopes: str = SCOPES,
) -> Answer:
    """Call a function as the gateway does: `body` is sent as it is if it is a text, else as JSON."""
    sent = {"Host": "api.example.com", "X-Forwarded-Proto": "https"} | (headers or {})
    answer = handler(event(method, path, body, sent, query, owner, scopes), None)
    several = answer.get("multiValueHeaders") or {}
    return Answer(
        status=answer["statusCode"],
        headers={name.lower(): ", ".join(values) for name, values in several.items()},
        body=answer["body"] or "",
    )


def event(
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    query: dict[str, str] | None,
    owner: str | None,
    scopes: str,
) -> dict[str, Any]:
    authorizer = {"authorizer": {"owner": owner, "scopes": scopes, "key_id": "k"}} if owner else {}
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": query,
        "multiValueQueryStringParameters": query and {name: [value] for name, value in query.items()},
        "pathParameters": None,
        "requestContext": {"path": f"/v1{path}", "stage": "v1", "domainName": "gateway.example.com", **authorizer},
        "body": body if body is None or isinstance(body, str) else json.dumps(body),
        "isBase64Encoded": False,
    }


def problem(answer: Answer, status: int, kind: str) -> dict[str, Any]:
    """The answer is a problem document of this status and type (RFC 9457). Returns it."""
    document: dict[str, Any] = answer.json
    assert (answer.status, document["type"]) == (status, f"urn:recado:problem:{kind}"), answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    assert document["title"] == kind.replace("_", " ")
    assert document["detail"]
    assert set(document) <= {"type", "title", "status", "detail", "field"}
    return document
