"""Common parts of HTTP functions: the resolver, the caller, and errors as RFC 9457 problem documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, CORSConfig, Response
from aws_lambda_powertools.event_handler.api_gateway import BaseRouter, ResponseBuilder, Router
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.openapi.exceptions import (
    RequestUnsupportedContentType,
    RequestValidationError,
)
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEvent
from pydantic import BaseModel

from core.errors import Forbidden, LoopDetected, QuotaExceeded, RequestError, Retryable
from core.events import DELIVERY_HEADER
from core.log import logger

PROBLEM_JSON = "application/problem+json"
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every response, since a browser may show it.

https://cheatsheetseries.owasp.org/cheatsheets/REST_Security_Cheat_Sheet.html#security-headers
"""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # https://www.rfc-editor.org/rfc/rfc9110#name-safe-methods
MAX_AGE_SECONDS = 3600

Tags = Mapping[str, Collection[str]]
"""Path -> the values of the discriminator of its body, if the body is a union of models."""


class _Resolver(APIGatewayRestResolver):
    """Refuses webhooks before it reads a request, and adds security headers to every response.

    A middleware could do neither: it runs after the validation, and not for the answers to errors.
    """

    def resolve(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        response = self._refuse(event) if is_mutating_webhook(event) else super().resolve(event, context)
        headers = response["multiValueHeaders"]
        response["multiValueHeaders"] = {name: [value] for name, value in SECURITY_HEADERS.items()} | headers
        return response

    def _refuse(self, event: Mapping[str, Any]) -> dict[str, Any]:
        error = LoopDetected(
            f"This request is a webhook: it has the header {DELIVERY_HEADER}. Webhooks can only read here. "
            "To start a job from a webhook, have your receiver make a request of its own."
        )
        refusal = ResponseBuilder[APIGatewayProxyEvent](_request_error(error))
        return refusal.build(APIGatewayProxyEvent(dict(event)), self._cors)


def is_mutating_webhook(event: Mapping[str, Any]) -> bool:
    """Whether a webhook of any deployment calls something that can change something.

    It would cause the next webhook, without an end. The header counts whatever its value is.
    """
    names = {name.lower() for name in event.get("headers") or ()}
    return DELIVERY_HEADER.lower() in names and event["httpMethod"] not in SAFE_METHODS


def resolver(cors_origins: str, *routers: Router, tags: Tags = MappingProxyType({})) -> APIGatewayRestResolver:
    """A resolver of these routes that validates requests and returns every error as a problem document.

    `cors_origins`: origins that may call the API from a browser, separated by commas; none if empty.
    """
    app = _Resolver(enable_validation=True, cors=_cors(cors_origins), json_body_deserializer=_read_json)
    app.exception_handler(RequestError)(_request_error)
    app.exception_handler(RequestValidationError)(lambda error: _invalid(error, app, tags))
    app.exception_handler(RequestUnsupportedContentType)(_not_json)
    app.exception_handler(RecursionError)(_too_deep)
    app.exception_handler(Retryable)(_busy)
    app.exception_handler(Exception)(_unexpected)
    app.not_found(_no_route)
    for router in routers:
        app.include_router(router)
    return app


def caller(router: BaseRouter, scope: str) -> str:
    """The owner of the key of this request. Raises Forbidden if the key does not have `scope`."""
    context: Mapping[str, Any] = router.current_event["requestContext"].get("authorizer") or {}
    if scope not in str(context.get("scopes", "")).split():
        raise Forbidden(f"This key does not have the scope {scope}. Ask the operator for a key with it.")
    return str(context["owner"])


def key_id(router: BaseRouter) -> str:
    """The id of the key of this request; empty without a key."""
    context: Mapping[str, Any] = router.current_event["requestContext"].get("authorizer") or {}
    return str(context.get("key_id", ""))


def root_url(router: BaseRouter) -> str:
    """The URL of this API as the caller used it, without a slash at the end."""
    event = router.current_event
    context = event["requestContext"]
    headers = {key.lower(): value for key, value in (event.get("headers") or {}).items()}
    host = headers.get("host") or context["domainName"]
    scheme = headers.get("x-forwarded-proto", "https")
    return f"{scheme}://{host}{context['path'].removesuffix(event['path'])}"


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    """A JSON response that no cache stores, since it belongs to one owner. The route's model validates it."""
    return Response(
        status_code=status,
        content_type="application/json",
        body=body,
        headers={"Cache-Control": "no-store"} | dict(headers or {}),
    )


def matches(known: str, etag: str) -> bool:
    """Whether an If-None-Match has this ETag: https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match

    The comparison is weak.
    """
    offered = [part.strip().removeprefix("W/") for part in known.split(",")]
    return "*" in offered or etag in offered


def no_content() -> Response[Any]:
    """204 (https://www.rfc-editor.org/rfc/rfc9110#name-204-no-content)."""
    return Response(status_code=204, content_type="application/json", body="")


class Problem(BaseModel):
    """An error: https://www.rfc-editor.org/rfc/rfc9457"""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    job_id: str | None = None


def problem(
    status: int,
    kind: str,
    detail: str,
    *,
    field: str | None = None,
    job_id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    """A response with a problem document. `type` is stable, `detail` says what to do."""
    body = {
        "type": f"urn:recado:problem:{kind}",
        "title": kind.replace("_", " "),
        "status": status,
        "detail": detail,
    }
    return Response(
        status_code=status,
        content_type=PROBLEM_JSON,
        body=json.dumps(body | ({"field": field} if field else {}) | ({"job_id": job_id} if job_id else {})),
        headers=dict(headers or {}),
    )


def _cors(origins: str) -> CORSConfig | None:
    if not origins:
        return None
    first, *others = origins.split(",")
    return CORSConfig(
        allow_origin=first,
        extra_origins=others,
        allow_headers=[
            "Authorization",
            "Content-Type",
            "Idempotency-Key",
            "If-None-Match",
            "Last-Event-ID",
            "Prefer",
        ],
        expose_headers=["ETag", "Idempotent-Replayed", "Location", "Preference-Applied", "Retry-After"],
        max_age=MAX_AGE_SECONDS,
    )


def _request_error(error: RequestError) -> Response[str]:
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, QuotaExceeded) else {}
    return problem(error.status, error.code, str(error), field=error.field, job_id=error.job_id, headers=headers)


def _read_json(text: str) -> Any:
    """Raises JSONDecodeError for every invalid body: Python raises ValueError for numbers of over 4,300 digits."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise json.JSONDecodeError("a number is too long", "", 0) from error


def _media_type(app: APIGatewayRestResolver) -> str:
    return str(app.current_event.headers.get("content-type") or "application/json")


def _invalid(error: RequestValidationError, app: APIGatewayRestResolver, tags: Tags) -> Response[str]:
    """Name the first invalid field, without its value, which may be private."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    if location[0] == "body" and not _media_type(app).startswith("application/json"):
        return _not_json(error)  # curl sends JSON as a form by default
    names = tags.get(app.current_event.path.rstrip("/"), ())
    if first["type"].startswith("union_tag"):
        field = str(first["ctx"]["discriminator"]).strip("'")
        return problem(422, "invalid_request", f"{field}: choose from {', '.join(names)}", field=field)
    inside = location[1:] if first["type"] != "json_invalid" else []
    if inside and inside[0] in names:  # in a union, the location begins with the discriminator
        inside = inside[1:]
    field = ".".join(inside or location[:1])
    return problem(422, "invalid_request", f"{field}: {first['msg']}", field=field)


def _not_json(error: Exception) -> Response[str]:
    detail = "The body must be JSON, sent with the header 'Content-Type: application/json'."
    return problem(415, "unsupported_media_type", detail, field="Content-Type")


def _too_deep(error: RecursionError) -> Response[str]:
    return problem(422, "invalid_request", "body: nested too deeply", field="body")


def _busy(error: Retryable) -> Response[str]:
    return problem(503, error.code, f"{error} Try again in a moment.", headers={"Retry-After": "1"})


def _unexpected(error: Exception) -> Response[str]:
    logger.exception("request failed", error_type=type(error).__name__)
    return problem(500, "internal", "An internal error occurred. Try again.")


def _no_route(error: NotFoundError) -> Response[str]:
    return problem(404, "not_found", "There is no such path; see /openapi.json.")
