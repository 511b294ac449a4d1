"""examples.receivers.flask_plain, flask_app and fastapi_app, each by its framework's own test client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.webhooks.transport import signing

BODY = b'{"event":"document.indexed"}'
BODIES = ['{"a":"é"}', '{"a":"😊\u2028"}', "{}", '{"b":1,"a":[1.0,1e30],"z":"\\u00e9\\/"}', '  {"a" : 1}\n']
SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "B" * 32
FLASK_PLAIN, FLASK, FASTAPI = "flask_plain", "flask_app", "fastapi_app"
ALL = pytest.mark.parametrize("name", [FLASK_PLAIN, FLASK, FASTAPI])
VERIFYING = pytest.mark.parametrize("name", [FLASK, FASTAPI])

Post = Callable[[bytes, dict[str, str]], int]


def poster(app: Any) -> Post:
    """POST to an app's `/webhooks`; the status that it answers."""
    if hasattr(app, "test_client"):
        client = app.test_client()
        return lambda body, headers: int(client.post("/webhooks", data=body, headers=headers).status_code)
    client = TestClient(app, raise_server_exceptions=False)
    return lambda body, headers: int(client.post("/webhooks", content=body, headers=headers).status_code)


@ALL
@pytest.mark.parametrize("body", BODIES)
def test_deliveries_are_taken(name: str, body: str, load: Any, sign: Any) -> None:
    """Bytes in any spelling of JSON, non-ASCII and emoji among them, are verified as they came."""
    assert poster(load(name).app)(body.encode(), sign(body.encode())) == 204


@ALL
def test_the_event_is_processed(name: str, load: Any, sign: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What was sent reaches the work."""
    caplog.set_level("INFO")
    poster(load(name).app)(BODY, sign(BODY))
    assert any("document.indexed" in record.getMessage() for record in caplog.records)


@ALL
@pytest.mark.parametrize(
    "change",
    [
        {"x-signature": "", "webhook-signature": ""},
        {"x-signature": "sha256=é", "webhook-signature": "v1,é"},
        {"x-signature": "sha256=" + "0" * 64, "webhook-signature": "v1," + "A" * 43 + "="},
        *({"webhook-timestamp": text} for text in ("", "x", "1e9", "-1", "9" * 5000, "1795999699", "1796000301")),
    ],
)
def test_others_are_refused(name: str, change: dict[str, str], load: Any, sign: Any) -> None:
    """403 for a wrong signature, and for a time that is malformed, too old or too new."""
    headers = {key: value.encode() for key, value in (sign(BODY) | change).items()}
    text = {key: value.decode("latin-1") for key, value in headers.items()}
    assert poster(load(name).app)(BODY, headers if name == FASTAPI else text) == 403  # type: ignore[arg-type]


@ALL
@pytest.mark.parametrize("header", ["webhook-timestamp", "signature"])
def test_missing_headers(name: str, header: str, load: Any, sign: Any) -> None:
    """403 without a time, and without a signature."""
    headers = {key: value for key, value in sign(BODY).items() if not key.endswith(header)}
    assert poster(load(name).app)(BODY, headers) == 403


@ALL
def test_changed_bodies(name: str, load: Any, sign: Any) -> None:
    """One byte more, one less, or the same JSON in another spelling: 403."""
    post, headers = poster(load(name).app), sign(BODY)
    assert {
        post(body, headers) for body in (BODY + b" ", BODY[:-1], b"", json.dumps(json.loads(BODY)).encode())
    } == {403}


@ALL
def test_no_get(name: str, load: Any) -> None:
    """There is nothing to be read."""
    app = load(name).app
    client = app.test_client() if hasattr(app, "test_client") else TestClient(app)
    assert client.get("/webhooks").status_code == 405


@ALL
def test_form_content_type(name: str, load: Any, sign: Any) -> None:
    """Frameworks that parse forms do not take the bytes away."""
    headers = sign(b"{}") | {"content-type": "application/x-www-form-urlencoded"}
    assert poster(load(name).app)(b"{}", headers) == 204


@ALL
def test_no_secret_no_start(name: str, load: Any) -> None:
    """A receiver that could verify nothing does not come up."""
    with pytest.raises(KeyError, match="RECADO_WEBHOOK_SECRET"):
        load(name, None)


@ALL
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(value=st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_json(name: str, value: Any, load: Any, sign: Any) -> None:
    """Whatever JSON the service sends is taken."""
    body = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    assert poster(load(name).app)(body, sign(body)) == 204


# Those that verify with `recado`


@VERIFYING
def test_plain_signature_is_not_enough(name: str, load: Any, sign: Any) -> None:
    """A replay from which the signed time was taken off is refused."""
    headers = {key: value for key, value in sign(BODY).items() if not key.startswith("webhook-")}
    assert poster(load(name).app)(BODY, headers) == 403


@VERIFYING
def test_rotation(name: str, load: Any, sign: Any) -> None:
    """With two secrets in the environment, either is good; with one, what two have signed."""
    both = poster(load(name, f"{OTHER} {SECRET}").app)
    assert both(BODY, sign(BODY, keys=OTHER)) == both(BODY, sign(BODY, keys=SECRET)) == 204
    assert poster(load(name).app)(BODY, sign(BODY, keys=[OTHER, SECRET])) == 204
    assert poster(load(name).app)(BODY, sign(BODY, keys=OTHER)) == 403


@VERIFYING
def test_public_key(name: str, load: Any, sign: Any) -> None:
    """A public key in the secret's place verifies ed25519."""
    private, public = signing.make_key_pair()
    assert poster(load(name, public).app)(BODY, sign(BODY, keys=private)) == 204


@VERIFYING
def test_each_event_once(name: str, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same id is answered 204 and not worked on again; another is."""
    module, done = load(name), list[Any]()
    monkeypatch.setattr(module, "process", done.append)
    post = poster(module.app)
    assert {post(BODY, sign(BODY, event_id=event_id)) for event_id in ("evt_1", "evt_1", "evt_2", "evt_1")} == {
        204
    }
    assert len(done) == 2


@VERIFYING
def test_failed_work_is_done_again(name: str, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event whose work failed is no copy when it comes again: 500, then 204."""
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
def test_memory_of_ids(
    name: str, load: Any, sign: Any, monkeypatch: pytest.MonkeyPatch, clock: time_machine.Coordinates
) -> None:
    """An id is remembered for as long as a copy would be accepted, 600 s, and then forgotten."""
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


def test_flask_bounds_bodies(load: Any, sign: Any) -> None:
    """More than a mebibyte is not read."""
    body = b" " * (1024 * 1024 + 1)
    assert poster(load(FLASK).app)(body, sign(body)) == 413
