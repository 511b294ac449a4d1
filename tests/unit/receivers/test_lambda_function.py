"""examples.receivers.lambda_function, on events as API Gateway makes them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

BODY = '{"event":"document.indexed"}'
BODIES = [BODY, '{"a":"é"}', '{"a":"😊\u2028"}', "{}"]


def rest(body: str | None, headers: dict[str, str], *, base64: bool = False) -> dict[str, Any]:
    """A REST API's event: header names as they were sent, and each value again in a list."""
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
    """An HTTP API's or a function URL's event: names in small letters, no body at all for an empty one."""
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
def test_deliveries_are_taken(form: Any, body: str, base64: bool, load: Any, sign: Any) -> None:
    """Both kinds of API, text and base64: the bytes that were signed are found again."""
    shown = b64encode(body.encode()).decode() if base64 else body
    event = form(shown, sign(body.encode()), base64=base64)
    assert load("lambda_function").handler(event, None) == {"statusCode": 204}


@FORMS
def test_the_event_is_processed(form: Any, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its id."""
    module, done = load("lambda_function"), list[Any]()
    monkeypatch.setattr(module, "process", lambda *event: done.append(event))
    module.handler(form(BODY, sign(BODY.encode())))
    assert done == [("evt_1", {"event": "document.indexed"})]


@FORMS
@pytest.mark.parametrize("body", [None, "", BODY + " ", b64encode(BODY.encode()).decode()])
def test_other_bodies(form: Any, body: str | None, load: Any, sign: Any) -> None:
    """403; base64 without its flag is text like any other."""
    assert load("lambda_function").handler(form(body, sign(BODY.encode())), None) == {"statusCode": 403}


@FORMS
def test_plain_signature_is_not_enough(form: Any, load: Any, sign: Any) -> None:
    """A replay from which the signed time was taken off is refused."""
    headers = {name: value for name, value in sign(BODY.encode()).items() if name.startswith("x-")}
    assert load("lambda_function").handler(form(BODY, headers), None) == {"statusCode": 403}


@pytest.mark.parametrize("headers", [None, {}])
def test_no_headers(headers: Any, load: Any) -> None:
    """The console's test events have none: 403, not a crash."""
    event = rest(BODY, {}) | {"headers": headers}
    assert load("lambda_function").handler(event, None) == {"statusCode": 403}
    assert load("lambda_function").handler({"body": BODY}, None) == {"statusCode": 403}


def test_failed_work_is_an_error(load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is API Gateway's 502 then, and the sender tries again."""
    module = load("lambda_function")
    monkeypatch.setattr(module, "process", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        module.handler(http(BODY, sign(BODY.encode())), None)
