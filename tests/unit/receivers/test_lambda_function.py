"""The receiver lambda_function, with the events of API Gateway."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

BODY = '{"event":"document.indexed"}'
BODIES = [BODY, '{"a":"é"}', '{"a":"😊\u2028"}', "{}"]


def rest(body: str | None, headers: dict[str, str], *, base64: bool = False) -> dict[str, Any]:
    """The event of a REST API: header names as they were sent, and each value again in a list."""
    sent = {name.title(): value for name, value in headers.items()}
    return {
        "resource": "/webhooks",
        "path": "/webhooks",
        "httpMethod": "POST",
        "headers": sent,
        "multiValueHeaders": {name: [value] for name, value in sent.items()},
        "body": body,
        "isBase64Encoded": base64,
    }


def http(body: str | None, headers: dict[str, str], *, base64: bool = False) -> dict[str, Any]:
    """The event of an HTTP API or a function URL: header names in lower case, and no body if it is empty."""
    event = {
        "version": "2.0",
        "routeKey": "POST /webhooks",
        "rawPath": "/webhooks",
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {"http": {"method": "POST", "path": "/webhooks"}},
        "isBase64Encoded": base64,
    }
    return event if body is None else event | {"body": body}


FORMS = pytest.mark.parametrize("form", [rest, http])


@FORMS
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("base64", [False, True])
def test_deliveries_are_accepted(form: Any, body: str, base64: bool, load: Any, sign: Any) -> None:
    """The signed bytes are restored from text and from base64, for both kinds of API."""
    shown = b64encode(body.encode()).decode() if base64 else body
    event = form(shown, sign(body.encode()), base64=base64)
    assert load("lambda_function").handler(event, None) == {"statusCode": 204}


@FORMS
def test_the_event_is_processed(form: Any, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id and the payload are passed on."""
    module, done = load("lambda_function"), list[Any]()
    monkeypatch.setattr(module, "process", lambda *event: done.append(event))
    module.handler(form(BODY, sign(BODY.encode())))
    assert done == [("evt_1", {"event": "document.indexed"})]


@FORMS
@pytest.mark.parametrize("body", [None, "", BODY + " ", b64encode(BODY.encode()).decode()])
def test_changed_bodies_are_refused(form: Any, body: str | None, load: Any, sign: Any) -> None:
    """They are a 403. Base64 without its flag is text."""
    assert load("lambda_function").handler(form(body, sign(BODY.encode())), None) == {"statusCode": 403}


@FORMS
def test_plain_signature_is_not_enough(form: Any, load: Any, sign: Any) -> None:
    """A replay without the signed timestamp is refused."""
    headers = {name: value for name, value in sign(BODY.encode()).items() if name.startswith("x-")}
    assert load("lambda_function").handler(form(BODY, headers), None) == {"statusCode": 403}


@pytest.mark.parametrize("headers", [None, {}])
def test_an_event_without_headers_is_refused(headers: Any, load: Any) -> None:
    """Test events of the console have no headers. They are a 403."""
    event = rest(BODY, {}) | {"headers": headers}
    assert load("lambda_function").handler(event, None) == {"statusCode": 403}
    assert load("lambda_function").handler({"body": BODY}, None) == {"statusCode": 403}


def test_an_error_while_processing_is_raised(load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """API Gateway returns a 502 then, and the sender retries."""
    module = load("lambda_function")
    monkeypatch.setattr(module, "process", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        module.handler(http(BODY, sign(BODY.encode())), None)
