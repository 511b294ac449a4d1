"""HTTP requests, responses and errors (core.http)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Body
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, model_validator

from core import errors, http
from core.http import caller, json_response, resolver, root_url
from tests.unit.http_calls import Answer, call, problem

router = Router()
raised: list[Exception] = []


class Letter(BaseModel):
    to: str
    pages: int = 1
    lines: list[dict[str, int]] = []


@router.post("/letters")
def write(letter: Letter) -> Response[Letter]:
    caller(router, "jobs:write")
    return json_response(letter.model_dump(), status=201, headers={"Location": root_url(router)})


@router.get("/failure")
def failure() -> dict[str, str]:
    raise raised.pop()


@router.get("/whoami")
def whoami() -> dict[str, str]:
    return {"owner": caller(router, "jobs:read"), "root": root_url(router)}


APP = resolver("", router)


def request(method: str, path: str, body: Any = None, **options: Any) -> Answer:
    return call(APP.resolve, method, path, body, **options)


def failing(error: Exception) -> Answer:
    raised.append(error)
    return request("GET", "/failure")


def test_json_response() -> None:
    """A response is JSON of the route's model, and is not cached."""
    made = request("POST", "/letters", {"to": "año 👩‍🚀"})
    assert (made.status, made.json) == (201, {"to": "año 👩‍🚀", "pages": 1, "lines": []})
    assert made.headers["content-type"] == "application/json"
    assert made.headers["cache-control"] == "no-store"
    assert made.headers["location"] == "https://api.example.com/v1"


# ── a body of one of several models ──────────────────────────────────────────────────────────────────────────


class Card(BaseModel):
    """Some fields have the names of models."""

    form: Literal["card"]
    card: int = 0
    picture: dict[str, int] = {}


class Parcel(BaseModel):
    form: Literal["parcel"]
    grams: int

    @model_validator(mode="after")
    def _not_too_heavy(self) -> Parcel:
        if self.grams > 9:
            raise ValueError("it is too heavy")
        return self


posted = Router()


@posted.post("/post")
def post(thing: Annotated[Card | Parcel, Body(discriminator="form")]) -> Response[dict[str, str]]:
    return json_response({"form": thing.form}, status=201)


@posted.post("/cards")
def send_card(card: Card) -> Response[dict[str, str]]:
    return json_response({"form": card.form}, status=201)


POST = resolver("", posted, tags={"/post": ("card", "parcel")})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"form": "card", "card": "x"}, "card"),
        ({"form": "card", "picture": {"card": "x"}}, "picture.card"),
        ({"form": "parcel"}, "grams"),
        ({"form": "parcel", "grams": 10}, "body"),
        ({}, "form"),
        ({"form": "letter"}, "form"),
        ({"form": None}, "form"),
        ({"form": ["card"]}, "form"),
        ([], "body"),
        ("{", "body"),
        ("", "body"),
    ],
    ids=repr,
)
def test_field_of_a_union(body: Any, field: str) -> None:
    """The error names the field as the caller wrote it, without the model."""
    refused = problem(call(POST.resolve, "POST", "/post", body), 422, "invalid_request")
    assert refused["field"] == field
    assert refused["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize("form", [{}, {"form": "letter"}, {"form": 1}], ids=repr)
def test_unknown_discriminator(form: dict[str, Any]) -> None:
    """The error lists the values of the discriminator."""
    refused = problem(call(POST.resolve, "POST", "/post", form), 422, "invalid_request")
    assert refused["detail"] == "form: choose from card, parcel"


def test_field_with_a_models_name() -> None:
    """On other paths, fields with names of models are named in full."""
    for body, field in (({"form": "card", "card": "x"}, "card"), ({"form": "parcel"}, "form")):
        refused = problem(call(POST.resolve, "POST", "/cards", body), 422, "invalid_request")
        assert refused["field"] == field


# ── errors of the caller ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidRequest, 422),
        (errors.PayloadTooLarge, 413),
        (errors.Forbidden, 403),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
    ],
)
def test_request_errors(error: type[errors.RequestError], status: int) -> None:
    """A RequestError has its status, type, message and field in the response."""
    document = problem(failing(error("Do this instead.", field="input.text")), status, error.code)
    assert (document["detail"], document["field"]) == ("Do this instead.", "input.text")
    assert "field" not in problem(failing(error("Do this.")), status, error.code)


@pytest.mark.parametrize("error", [errors.Throttled, errors.Contended, errors.Unavailable])
def test_retryable(error: type[errors.Retryable]) -> None:
    """A Retryable error is a 503 with Retry-After."""
    busy = failing(error("The model is busy."))
    assert problem(busy, 503, error.code)["detail"].startswith("The model is busy.")
    assert busy.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("", "body"),
        (None, "body"),
        ("null", "body"),
        ("[]", "body"),
        ("3", "body"),
        ('"text"', "body"),
        ("{", "body"),
        ("nonsense", "body"),
        ('{"to": "x"} trailing', "body"),
        ('{"to": "x", "pages": ' + "1" * 5000 + "}", "body"),
        ('{"to": ' + "[" * 100_000, "body"),
        ('{"a":' * 50_000, "body"),
        ("{}", "to"),
        ({"to": 1}, "to"),
        ({"to": "x", "pages": "many"}, "pages"),
        ({"to": "x", "lines": [{"n": 1}, {"n": "x"}]}, "lines.1.n"),
        ('{"to": "x", "pages": NaN}', "pages"),
        ('{"to": "x", "pages": 1e999}', "pages"),
    ],
)
def test_invalid_bodies(body: Any, field: str) -> None:
    """The error for an invalid body names what is wrong, and is never a 5xx."""
    assert problem(request("POST", "/letters", body), 422, "invalid_request")["field"] == field


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_body(body: str) -> None:
    """No text as a body causes a 5xx."""
    assert request("POST", "/letters", body).status in (201, 422)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(st.characters(exclude_categories=()), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["to", "pages", "lines", "x"]), inner)
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_json(value: Any) -> None:
    """No JSON value as a body causes a 5xx."""
    assert request("POST", "/letters", value if not isinstance(value, str) else json.dumps(value)).status in (
        201,
        422,
    )


def test_deep_nesting() -> None:
    """A body that is just not too deep for Python is refused as any other."""
    for depth in (100, 500, 900, 990):
        body = '{"to": "x", "lines": ' + "[" * depth + "]" * depth + "}"
        assert problem(request("POST", "/letters", body), 422, "invalid_request")["field"]


@pytest.mark.parametrize("text", ["my secret text", "\ud800"])
def test_values_are_not_repeated(text: str) -> None:
    """The error names the field and does not contain its value."""
    refused = request("POST", "/letters", {"to": "x", "pages": text})
    assert problem(refused, 422, "invalid_request")["field"] == "pages"
    assert "secret" not in refused.body


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "x"])
def test_other_media_types(media_type: str) -> None:
    """A body that is not JSON, as curl's default, is a 415 that says what to send."""
    refused = request("POST", "/letters", {"to": "x"}, headers={"Content-Type": media_type})
    document = problem(refused, 415, "unsupported_media_type")
    assert "Content-Type: application/json" in document["detail"]


@pytest.mark.parametrize(
    "media_type", ["application/json", "application/json; charset=utf-8", "application/json;x=y"]
)
def test_json_media_types(media_type: str) -> None:
    """JSON is accepted with parameters, and without a Content-Type."""
    assert request("POST", "/letters", {"to": "x"}, headers={"content-type": media_type}).status == 201
    assert request("POST", "/letters", {"to": "x"}).status == 201


def test_no_route() -> None:
    """An unknown path or method is a problem document."""
    problem(request("GET", "/nothing"), 404, "not_found")
    problem(request("DELETE", "/letters"), 404, "not_found")


# ── errors of ours ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        KeyError("secret"),
        ClientError({"Error": {"Code": "AccessDenied", "Message": "secret"}}, "GetItem"),
        errors.JobClosed("secret"),
        errors.InvalidDocument("secret"),
        NotImplementedError("secret"),
        AssertionError("secret"),
    ],
)
def test_internal_error(error: Exception, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """An unexpected error is a 500 without its message, and is logged with its class."""
    failed = failing(error)
    document = problem(failed, 500, "internal")
    assert document["detail"] == "An internal error occurred. Try again."
    assert not any(word in failed.body for word in ("secret", "Traceback", type(error).__name__, ".py"))
    assert [line["error_type"] for line in logged() if line["level"] == "ERROR"] == [type(error).__name__]


# ── who and where ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scopes", ["", "search", "jobs:write search", "jobs:reader", "jobs:read,search"])
def test_missing_scope(scopes: str) -> None:
    """A key without the scope is refused, and the message says whom to request."""
    document = problem(request("GET", "/whoami", scopes=scopes), 403, "forbidden")
    assert "jobs:read" in document["detail"]


def test_caller() -> None:
    """The owner is the authorizer's; without an authorizer every request is refused."""
    assert request("GET", "/whoami", owner="ben").json["owner"] == "ben"
    problem(request("GET", "/whoami", owner=None), 403, "forbidden")


@pytest.mark.parametrize(
    ("headers", "root"),
    [
        ({}, "https://api.example.com/v1"),
        ({"Host": "jobs.example.org"}, "https://jobs.example.org/v1"),
        ({"Host": "127.0.0.1:4566", "X-Forwarded-Proto": "http"}, "http://127.0.0.1:4566/v1"),
    ],
)
def test_root_url(headers: dict[str, str], root: str) -> None:
    """The root is the caller's scheme and host, with the stage."""
    assert request("GET", "/whoami", headers=headers).json["root"] == root


def test_root_without_host() -> None:
    """Without a Host header the root has the domain of API Gateway."""
    made: dict[str, Any] = {}

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        event["headers"] = event["multiValueHeaders"] = None
        made.update(APP.resolve(event, context))
        return made

    assert call(handler, "GET", "/whoami").json["root"] == "https://gateway.example.com/v1"


# ── other origins ────────────────────────────────────────────────────────────────────────────────────────────


def test_no_origins() -> None:
    """Without configured origins, pages of other origins are not allowed."""
    headers = request("POST", "/letters", {"to": "x"}, headers={"Origin": "https://evil.example.com"}).headers
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/whoami", "/nothing", "/failure"])
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [("https://a.example.com", True), ("https://b.example.com", True), ("https://evil.example.com", False)],
)
def test_configured_origins(path: str, origin: str, *, allowed: bool) -> None:
    """Pages of configured origins can read responses and errors; others cannot."""
    app = http.resolver("https://a.example.com,https://b.example.com", router)
    raised.append(ValueError("x"))
    headers = call(app.resolve, "GET", path, headers={"Origin": origin}).headers
    raised.clear()
    assert (headers.get("access-control-allow-origin") == origin) is allowed
    if allowed:
        assert "Retry-After" in headers["access-control-expose-headers"]
