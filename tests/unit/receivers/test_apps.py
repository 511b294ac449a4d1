"""The receivers flask_plain, flask_app and fastapi_app, with the test clients of their frameworks."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.events import encode
from core.webhooks.transport import signing
from kinds.fine_tune.kind import FINE_TUNE
from kinds.fine_tune.models import FineTune, Metrics
from tests.unit.receivers.conftest import AT

BODY = b'{"event":"document.indexed"}'
BODIES = ['{"a":"é"}', '{"a":"😊\u2028"}', "{}", '{"b":1,"a":[1.0,1e30],"z":"\\u00e9\\/"}', '  {"a" : 1}\n']
SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "B" * 32
FLASK_PLAIN, FLASK, FASTAPI = "flask_plain", "flask_app", "fastapi_app"
ALL = pytest.mark.parametrize("name", [FLASK_PLAIN, FLASK, FASTAPI])
VERIFYING = pytest.mark.parametrize("name", [FLASK, FASTAPI])

Post = Callable[[bytes, dict[str, str]], int]


def poster(app: Any) -> Post:
    """Sends a POST to `/webhooks` of the app and returns the status."""
    if hasattr(app, "test_client"):
        client = app.test_client()
        return lambda body, headers: int(client.post("/webhooks", data=body, headers=headers).status_code)
    client = TestClient(app, raise_server_exceptions=False)
    return lambda body, headers: int(client.post("/webhooks", content=body, headers=headers).status_code)


@ALL
@pytest.mark.parametrize("body", BODIES)
def test_deliveries_are_accepted(name: str, body: str, load: Any, sign: Any) -> None:
    """The raw bytes are verified, however the JSON is formatted."""
    assert poster(load(name).app)(body.encode(), sign(body.encode())) == 204


@ALL
def test_the_event_is_processed(name: str, load: Any, sign: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The event is logged."""
    caplog.set_level("INFO")
    poster(load(name).app)(BODY, sign(BODY))
    assert any("document.indexed" in record.getMessage() for record in caplog.records)


def test_completed_fine_tune(load: Any, sign: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The plainest receiver takes `fine_tune.completed`: X-Signature is the HMAC of the raw body, whose fields are
    at the top.
    """
    caplog.set_level("INFO")
    result = FineTune(
        model_id="arn:aws:bedrock:eu-west-1:123456789012:custom-model/amazon.nova-micro-v1:0:128k/0123456789ab",
        base_model="amazon.nova-micro-v1:0:128k",
        metrics=Metrics(training_loss=0.5, validation_loss=None),
        deployed=False,
        next_step="Deploy it.",
    )
    body = encode({"event": FINE_TUNE.final_events[0], **result.model_dump()}).encode()
    headers = sign(body)
    assert headers["x-signature"] == f"sha256={hmac.digest(SECRET.encode(), body, 'sha256').hex()}"
    assert poster(load(FLASK_PLAIN).app)(body, headers) == 204
    assert json.loads(body).keys() >= {"event", "model_id", "metrics"}
    assert any("fine_tune.completed" in record.getMessage() for record in caplog.records)


@ALL
@pytest.mark.parametrize(
    "change",
    [
        {"x-signature": "", "webhook-signature": ""},
        {"x-signature": None, "webhook-signature": None},
        {"webhook-timestamp": None},
        {"x-signature": "sha256=é", "webhook-signature": "v1,é"},
        {"x-signature": "sha256=" + "0" * 64, "webhook-signature": "v1," + "A" * 43 + "="},
        *({"webhook-timestamp": text} for text in ("", "x", "1e9", "-1", "9" * 5000, "1795999699", "1796000301")),
    ],
)
def test_invalid_requests_are_refused(name: str, change: dict[str, str | None], load: Any, sign: Any) -> None:
    """A missing or wrong signature, and a missing, malformed, too old or too new timestamp are a 403."""
    headers = {key: value.encode() for key, value in (sign(BODY) | change).items() if value is not None}
    text = {key: value.decode("latin-1") for key, value in headers.items()}
    assert poster(load(name).app)(BODY, headers if name == FASTAPI else text) == 403


@ALL
@pytest.mark.parametrize("header", ["webhook-timestamp", "signature"])
def test_missing_headers(name: str, header: str, load: Any, sign: Any) -> None:
    """403 without a time, and without a signature."""
    headers = {key: value for key, value in sign(BODY).items() if not key.endswith(header)}
    assert poster(load(name).app)(BODY, headers) == 403


@ALL
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"webhook-timestamp": str(AT)},
        {"webhook-id": "evt_2", "webhook-timestamp": str(AT)},
        {"webhook-id": "evt_2", "webhook-timestamp": str(AT), "webhook-signature": ""},
    ],
)
def test_plain_signature_is_not_enough(name: str, headers: dict[str, str], load: Any, sign: Any) -> None:
    """An old request whose signed id and time were taken off or replaced is refused."""
    assert poster(load(name).app)(BODY, {"x-signature": sign(BODY)["x-signature"], **headers}) == 403


@ALL
@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp"])
def test_repeated_headers(name: str, header: str, load: Any, sign: Any) -> None:
    """403 if the id or the time comes twice with different values, in either order."""
    app, signed, other = load(name).app, sign(BODY), (header, "1")
    for headers in ([*signed.items(), other], [other, *signed.items()]):
        if hasattr(app, "test_client"):
            status = app.test_client().post("/webhooks", data=BODY, headers=headers).status_code
        else:
            status = TestClient(app).post("/webhooks", content=BODY, headers=headers).status_code
        assert status == 403


@ALL
def test_changed_bodies_are_refused(name: str, load: Any, sign: Any) -> None:
    """A longer or shorter body, and the same JSON in another format are a 403."""
    post, headers = poster(load(name).app), sign(BODY)
    assert {
        post(body, headers) for body in (BODY + b" ", BODY[:-1], b"", json.dumps(json.loads(BODY)).encode())
    } == {403}


@ALL
def test_get_is_not_allowed(name: str, load: Any) -> None:
    """A GET is a 405."""
    app = load(name).app
    client = app.test_client() if hasattr(app, "test_client") else TestClient(app)
    assert client.get("/webhooks").status_code == 405


@ALL
def test_form_content_type(name: str, load: Any, sign: Any) -> None:
    """The raw body is read even if the framework would parse it as a form."""
    headers = sign(b"{}") | {"content-type": "application/x-www-form-urlencoded"}
    assert poster(load(name).app)(b"{}", headers) == 204


@pytest.mark.parametrize("name", [FLASK_PLAIN, FLASK, FASTAPI, "lambda_function"])
@pytest.mark.parametrize("secret", [None, "", " "])
def test_a_missing_secret_is_an_error_at_the_start(name: str, secret: str | None, load: Any) -> None:
    """Without a secret nothing could be verified, and with an empty one anybody could sign."""
    with pytest.raises((KeyError, ValueError), match=r"RECADO_WEBHOOK_SECRET|base64"):
        load(name, secret)


@ALL
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(value=st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_json(name: str, value: Any, load: Any, sign: Any) -> None:
    """Any JSON object, list, text or number is accepted."""
    body = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    assert poster(load(name).app)(body, sign(body)) == 204


# Receivers that verify with `recado`


@VERIFYING
def test_rotation(name: str, load: Any, sign: Any) -> None:
    """Each of two secrets is accepted, and so is a request that two secrets signed."""
    both = poster(load(name, f"{OTHER} {SECRET}").app)
    assert both(BODY, sign(BODY, keys=OTHER)) == both(BODY, sign(BODY, keys=SECRET)) == 204
    assert poster(load(name).app)(BODY, sign(BODY, keys=[OTHER, SECRET])) == 204
    assert poster(load(name).app)(BODY, sign(BODY, keys=OTHER)) == 403


@VERIFYING
def test_public_key(name: str, load: Any, sign: Any) -> None:
    """A public key in place of the secret verifies ed25519 signatures."""
    private, public = signing.make_key_pair()
    assert poster(load(name, public).app)(BODY, sign(BODY, keys=private)) == 204


@VERIFYING
def test_each_event_is_processed_once(name: str, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event id that was received before is a 204 and is not processed again."""
    module, done = load(name), list[Any]()
    monkeypatch.setattr(module, "process", done.append)
    post = poster(module.app)
    assert {post(BODY, sign(BODY, event_id=event_id)) for event_id in ("evt_1", "evt_1", "evt_2", "evt_1")} == {
        204
    }
    assert len(done) == 2


@VERIFYING
def test_a_failed_event_is_processed_again(
    name: str, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error, which is a 500, the retry of the event is processed."""
    module, tries = load(name), list[Any]()

    def process(event: Any) -> None:
        tries.append(event)
        if len(tries) == 1:
            raise RuntimeError("the database is down")

    monkeypatch.setattr(module, "process", process)
    post = poster(module.app)
    assert [post(BODY, sign(BODY)) for _ in range(3)] == [500, 204, 204]
    assert len(tries) == 2


@VERIFYING
def test_ids_are_remembered_for_ten_minutes(
    name: str, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch, clock: time_machine.Coordinates
) -> None:
    """An id is remembered for as long as its timestamp is accepted, and then forgotten."""
    module, done = load(name), list[Any]()
    monkeypatch.setattr(module, "process", done.append)
    post = poster(module.app)
    headers = sign(BODY)
    clock.shift(-300)  # the sender's clock is ahead by that much
    assert post(BODY, headers) == 204
    clock.shift(600)
    assert post(BODY, headers) == 204
    assert len(done) == 1
    clock.shift(1)
    assert post(BODY, headers) == 403
    assert post(b"{}", sign(b"{}", event_id="evt_2")) == 204
    assert list(module.seen) == ["evt_2"]


def test_flask_limits_bodies(load: Any, sign: Any) -> None:
    """A body over 1 MiB is a 413."""
    body = b" " * (1024 * 1024 + 1)
    assert poster(load(FLASK).app)(body, sign(body)) == 413
