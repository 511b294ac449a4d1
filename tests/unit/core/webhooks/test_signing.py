"""core.webhooks.signing"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import standardwebhooks
import svix
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidSignature
from core.webhooks.signing import decode, make_secret, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + b64encode(b"other key of 24 bytes ok").decode()
EVENT_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
PUBLISHED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

bodies = st.binary(max_size=2000)
timestamps = st.integers(0, 10**12 - 1)


def signed(body: bytes = BODY, secrets: str | list[str] = SECRET, at: int = AT) -> dict[str, str]:
    return sign(secrets, event_id=EVENT_ID, timestamp=at, body=body)


def offering(signature: str, **changes: str) -> dict[str, str]:
    return {**signed(), "webhook-signature": signature} | changes


def test_published_vector() -> None:
    """The signature that Standard Webhooks publishes for its example key, id, time and body is ours too."""
    assert signed()["webhook-signature"] == PUBLISHED


def test_unicode_vector() -> None:
    """Non-ASCII bodies are signed over their UTF-8 bytes, emoji and U+2028 included."""
    body = '{"a":"é😊\u2028"}'.encode()
    assert signed(body)["webhook-signature"] == "v1,Rj8TUiT+ulvOKGNAHBwPY04p/kNxc7msXYXJfUF+jAY="


def test_header_names_and_id() -> None:
    """Four headers go out: the id and time as given, and two signatures."""
    headers = signed()
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature", "x-signature"]
    assert headers["webhook-id"] == EVENT_ID
    assert headers["webhook-timestamp"] == str(AT)


@given(body=bodies)
def test_plain_signature(body: bytes) -> None:
    """x-signature is what `openssl dgst -sha256 -hmac <secret>` prints for the body."""
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert signed(body)["x-signature"] == f"sha256={expected}"


def test_plain_signature_uses_the_current_secret() -> None:
    """During a rotation x-signature is made with the current secret alone."""
    assert signed(secrets=[OTHER, SECRET])["x-signature"] == signed(secrets=OTHER)["x-signature"]


@pytest.mark.parametrize("library", [standardwebhooks.Webhook, svix.Webhook])
@pytest.mark.parametrize("value", [{"b": 1, "a": "é", "c": [1, 2]}, "😱", "\u2028", 1.0, 10**30, "a/b", "\ud800"])
def test_independent_verifiers_accept(library: type, value: object) -> None:
    """Two libraries of other authors verify our signature over JSON they then parse."""
    body = json.dumps(value, allow_nan=False).encode()
    secret = make_secret()
    with time_machine.travel(datetime.fromtimestamp(AT, UTC), tick=False):
        library(secret).verify(body, signed(body, secret))


@given(body=st.text().map(lambda text: json.dumps(text, ensure_ascii=False).encode(errors="replace")))
def test_reference_library_signs_alike(body: bytes) -> None:
    """The reference library computes the same signature for any body that is text."""
    at = datetime.fromtimestamp(AT, UTC)
    theirs = standardwebhooks.Webhook(SECRET).sign(EVENT_ID, at, body.decode())
    assert signed(body)["webhook-signature"] == theirs


@given(body=bodies, at=timestamps, key=st.binary(min_size=24, max_size=64), pad=st.booleans())
def test_round_trip(body: bytes, at: int, key: bytes, pad: bool) -> None:
    """Whatever was signed verifies, for any bytes, time and key, padded or not."""
    text = b64encode(key).decode()
    secret = "whsec_" + (text if pad else text.rstrip("="))
    verify(secret, signed(body, secret, at), body, now=at)
    assert decode(secret) == key


@given(body=bodies, other=bodies)
def test_other_body_is_refused(body: bytes, other: bytes) -> None:
    """A signature is good for its own body only."""
    if body != other:
        with pytest.raises(InvalidSignature, match="raw body"):
            verify(SECRET, signed(body), other, now=AT)


def test_made_secrets() -> None:
    """A made secret is 32 random bytes in padded base64, and each is new."""
    made = {make_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(len(decode(secret)) == 32 for secret in made)
    assert all(len(secret.removeprefix("whsec_")) % 4 == 0 for secret in made)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_====",
        "plain-secret-of-many-many-characters",
        "whsk_" + "A" * 88,
        "whsec_whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        SECRET + "\n",
        " " + SECRET,
        SECRET.upper(),
        "whsec_" + "A" * 45,
        "whsec_" + "A" * 40 + "=",
        "whsec_" + "A" * 43 + "==",
        "whsec_" + "-_" * 22,
        "whsec_" + "é" * 44,
        "whsec_abcdef",
        "whsec_" + b64encode(bytes(23)).decode(),
        "whsec_" + b64encode(bytes(65)).decode(),
    ],
)
def test_bad_secrets(secret: str) -> None:
    """A secret with another prefix, alphabet, padding or size is refused, and not repeated in the message."""
    with pytest.raises(ValueError, match="a webhook secret") as refusal:
        decode(secret)
    body = secret.removeprefix("whsec_").strip()
    assert len(body) < 5 or body not in str(refusal.value)


@given(secret=st.text() | st.text().map("whsec_".__add__))
def test_any_secret_decodes_or_is_a_value_error(secret: str) -> None:
    """No text makes `decode` raise anything but ValueError, and a decoded key is 24 to 64 bytes."""
    size = 24
    with suppress(ValueError):
        size = len(decode(secret))
    assert 24 <= size <= 64


@pytest.mark.parametrize("event_id", ["", "a.1", "a b", "é", "a\n", "a" * 129])
def test_bad_ids(event_id: str) -> None:
    """An id that could blur into the time (`a.1` + `2` is `a` + `1.2`), or is no header value, is refused."""
    with pytest.raises(ValueError, match="event id"):
        sign(SECRET, event_id=event_id, timestamp=AT, body=BODY)


@pytest.mark.parametrize("timestamp", [-1, 10**12, 1.5, True, float("nan"), datetime(2026, 1, 1, tzinfo=UTC)])
def test_bad_timestamps(timestamp: int) -> None:
    """Only whole Unix seconds are signed, so no time zone can be misread."""
    with pytest.raises(ValueError, match="Unix seconds"):
        sign(SECRET, event_id=EVENT_ID, timestamp=timestamp, body=BODY)


@pytest.mark.parametrize("secrets", ["", [], ()])
def test_no_secret(secrets: str | list[str]) -> None:
    """Nothing is signed or verified without a secret."""
    with pytest.raises(ValueError, match="at least one"):
        sign(secrets, event_id=EVENT_ID, timestamp=AT, body=BODY)
    with pytest.raises(ValueError, match="at least one"):
        verify(secrets, signed(), BODY, now=AT)


def test_rotation() -> None:
    """During a rotation both secrets sign, the current one first, and a holder of either can verify."""
    headers = signed(secrets=[OTHER, SECRET])
    ours, old = headers["webhook-signature"].split(" ")
    assert old == PUBLISHED
    assert ours == signed(secrets=OTHER)["webhook-signature"]
    verify(SECRET, headers, BODY, now=AT)
    verify(OTHER, headers, BODY, now=AT)


def test_receiver_with_two_secrets() -> None:
    """A receiver that knows the old and the new secret accepts a signature by either."""
    verify([OTHER, SECRET], signed(), BODY, now=AT)


def test_retry_is_signed_anew() -> None:
    """An attempt six minutes later keeps the id, has another signature, and verifies when it arrives."""
    first, later = signed(), signed(at=AT + 360)
    assert first["webhook-id"] == later["webhook-id"]
    assert first["webhook-signature"] != later["webhook-signature"]
    verify(SECRET, later, BODY, now=AT + 361)
    with pytest.raises(InvalidSignature, match="too far"):
        verify(SECRET, first, BODY, now=AT + 361)


@pytest.mark.parametrize(("seconds", "good"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_window(seconds: int, good: bool) -> None:
    """The window is 300 seconds to either side, its ends included."""
    if good:
        verify(SECRET, signed(), BODY, now=AT + seconds)
    else:
        with pytest.raises(InvalidSignature, match="too far"):
            verify(SECRET, signed(), BODY, now=AT + seconds)


@pytest.mark.parametrize(
    "timestamp",
    [
        "",
        f"{AT}.9",
        f" {AT}",
        f"{AT}\n",
        "1_614_265_330",
        f"+{AT}",
        f"{AT}e0",
        "１６１４２６５３３０",
        "9" * 13,
        "x",
    ],
)
def test_timestamp_forms(timestamp: str) -> None:
    """A timestamp is 1 to 12 ASCII digits; nothing else that `int` or `float` would read is."""
    with pytest.raises(InvalidSignature, match="malformed"):
        verify(SECRET, offering(PUBLISHED, **{"webhook-timestamp": timestamp}), BODY, now=AT)


@pytest.mark.parametrize(
    "signature",
    [
        *("", " ", "v1", "v1,", "v1,A", PUBLISHED[:8], PUBLISHED[:-1], PUBLISHED + "=", PUBLISHED[3:]),
        *("v1,é", "v1,a,b", "v1,é=", "\udc80", "v1,\udc80", "v2," + PUBLISHED[3:], "v1a," + PUBLISHED[3:]),
        *(PUBLISHED.replace(",", ", "), PUBLISHED.lower(), "v1," * 1000),
    ],
)
def test_wrong_signatures(signature: str) -> None:
    """A signature that is cut, malformed, of another version or not ASCII ends in InvalidSignature alone."""
    with pytest.raises(InvalidSignature, match="no signature matches"):
        verify(SECRET, offering(signature), BODY, now=AT)


WRONG = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="


@pytest.mark.parametrize("other", [WRONG, "v1", "v1,", "v1,a,b", "v1,é=", "v1a,xxx", "v2,xxx", "", "\udc80"])
@pytest.mark.parametrize("layout", ["{good} {other}", "{other} {good}", "{other} {good} {other}"])
def test_good_signature_among_others(other: str, layout: str) -> None:
    """The good entry is found wherever it stands; entries that make no sense are skipped."""
    verify(SECRET, offering(layout.format(good=PUBLISHED, other=other)), BODY, now=AT)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_missing_header(name: str) -> None:
    """Without any one of the three headers nothing verifies."""
    headers = signed()
    del headers[name]
    with pytest.raises(InvalidSignature):
        verify(SECRET, headers, BODY, now=AT)


def test_header_case() -> None:
    """Receivers may hand over header names in any case."""
    verify(SECRET, {name.title(): value for name, value in signed().items()}, BODY, now=AT)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"\x00", b"not json"])
def test_any_body_verifies(body: bytes) -> None:
    """A body need not be JSON nor text, and may be empty."""
    verify(SECRET, signed(body), body, now=AT)


def test_dots_cannot_move_between_id_and_time() -> None:
    """A sender that signed a dotted id could be replayed as another message; such an id never verifies."""
    content = b"a.1.2.x"
    forged = b64encode(hmac.digest(decode(SECRET), content, "sha256")).decode()
    headers = {"webhook-id": "a.1", "webhook-timestamp": "2", "webhook-signature": f"v1,{forged}"}
    with pytest.raises(InvalidSignature, match="malformed"):
        verify(SECRET, headers, b"x", now=2)


@given(
    headers=st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x"]), st.text()
    ),
    body=bodies,
)
def test_any_headers_end_in_one_error(headers: Mapping[str, str], body: bytes) -> None:
    """Headers that we did not make raise InvalidSignature, never anything else."""
    with pytest.raises(InvalidSignature):
        verify(SECRET, headers, body, now=AT)
