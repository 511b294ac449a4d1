"""core.webhooks.transport.signing"""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import standardwebhooks
import svix
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidSignature
from core.webhooks.transport import signing
from core.webhooks.transport.signing import decode, make_key_pair, make_secret, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + b64encode(b"other key of 24 bytes ok").decode()
THIRD = "whsec_" + b64encode(b"and one more of 24 bytes").decode()
LAMBDAS = Path(signing.__file__).parents[3]
EVENT_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
PUBLISHED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
# The example key and signature in svix's own tests, for the same id, time and body.
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_" + b64encode(b64decode(PRIVATE.removeprefix("whsk_"))[32:]).decode()
PUBLISHED_V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

bodies = st.binary(max_size=2000)
timestamps = st.integers(0, 10**12 - 1)
event_ids = st.text("ABCXYZabcxyz0189_-", min_size=1, max_size=128)
hmac_keys = st.builds(
    lambda key, pad: "whsec_" + (key if pad else key.rstrip("=")),
    st.binary(min_size=24, max_size=64).map(lambda key: b64encode(key).decode()),
    st.booleans(),
)
texts = st.text().map(lambda text: text.encode(errors="replace"))


def signed(body: bytes = BODY, secrets: str | list[str] = SECRET, at: int = AT) -> dict[str, str]:
    return sign(secrets, event_id=EVENT_ID, timestamp=at, body=body)


def offering(signature: str, **changes: str) -> dict[str, str]:
    return {**signed(), "webhook-signature": signature} | changes


def test_published_vector() -> None:
    """It makes the signature that Standard Webhooks publishes for its example."""
    assert signed()["webhook-signature"] == PUBLISHED


def test_unicode_vector() -> None:
    """Non-ASCII bodies are signed over their UTF-8 bytes, with emoji and U+2028."""
    body = '{"a":"é😊\u2028"}'.encode()
    assert signed(body)["webhook-signature"] == "v1,Rj8TUiT+ulvOKGNAHBwPY04p/kNxc7msXYXJfUF+jAY="


def test_header_names_and_id() -> None:
    """There are four headers: the id and time as given, and two signatures."""
    headers = signed()
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature", "x-signature"]
    assert headers["webhook-id"] == EVENT_ID
    assert headers["webhook-timestamp"] == str(AT)


@given(body=bodies)
def test_plain_signature(body: bytes) -> None:
    """x-signature is the output of `openssl dgst -sha256 -hmac <secret>` for the body."""
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert signed(body)["x-signature"] == f"sha256={expected}"


def test_plain_signature_uses_the_current_secret() -> None:
    """During a rotation x-signature is made with the current secret."""
    assert signed(secrets=[OTHER, SECRET])["x-signature"] == signed(secrets=OTHER)["x-signature"]


@pytest.mark.parametrize("library", [standardwebhooks.Webhook, svix.Webhook])
@pytest.mark.parametrize("value", [{"b": 1, "a": "é", "c": [1, 2]}, "😱", "\u2028", 1.0, 10**30, "a/b", "\ud800"])
def test_independent_verifiers_accept(library: type, value: object) -> None:
    """Two independent libraries verify our signature."""
    body = json.dumps(value, allow_nan=False).encode()
    secret = make_secret()
    with time_machine.travel(datetime.fromtimestamp(AT, UTC), tick=False):
        library(secret).verify(body, signed(body, secret))


@given(body=st.text().map(lambda text: json.dumps(text, ensure_ascii=False).encode(errors="replace")))
def test_reference_library_signs_alike(body: bytes) -> None:
    """The reference library makes the same signature for any text body."""
    at = datetime.fromtimestamp(AT, UTC)
    theirs = standardwebhooks.Webhook(SECRET).sign(EVENT_ID, at, body.decode())
    assert signed(body)["webhook-signature"] == theirs


@given(body=bodies, at=timestamps, key=st.binary(min_size=24, max_size=64), pad=st.booleans())
def test_round_trip(body: bytes, at: int, key: bytes, pad: bool) -> None:
    """A signature verifies for any bytes, time and key, padded or not."""
    text = b64encode(key).decode()
    secret = "whsec_" + (text if pad else text.rstrip("="))
    verify(secret, signed(body, secret, at), body, now=at)
    assert decode(secret) == key


@given(body=bodies, other=bodies)
def test_other_body_is_refused(body: bytes, other: bytes) -> None:
    """A signature is not valid for another body."""
    if body != other:
        with pytest.raises(InvalidSignature, match="raw body"):
            verify(SECRET, signed(body), other, now=AT)


def test_made_secrets() -> None:
    """A generated secret is 32 new random bytes in padded base64."""
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
    """A secret with another prefix, alphabet, padding or size is refused, without the secret in the message."""
    with pytest.raises(ValueError, match="a webhook secret") as refusal:
        decode(secret)
    body = secret.removeprefix("whsec_").strip()
    assert len(body) < 5 or body not in str(refusal.value)


@given(secret=st.text() | st.text().map("whsec_".__add__))
def test_any_secret_decodes_or_is_a_value_error(secret: str) -> None:
    """Any text makes `decode` return 24 to 64 bytes or raise ValueError."""
    size = 24
    with suppress(ValueError):
        size = len(decode(secret))
    assert 24 <= size <= 64


@pytest.mark.parametrize("event_id", ["", "a.1", "a b", "é", "a\n", "a" * 129])
def test_bad_ids(event_id: str) -> None:
    """An id with a dot, which could move into the time (`a.1` + `2`), or that is no header value, is refused."""
    with pytest.raises(ValueError, match="event id"):
        sign(SECRET, event_id=event_id, timestamp=AT, body=BODY)


@pytest.mark.parametrize("timestamp", [-1, 10**12, 1.5, True, float("nan"), datetime(2026, 1, 1, tzinfo=UTC)])
def test_bad_timestamps(timestamp: int) -> None:
    """Only whole Unix seconds are signed."""
    with pytest.raises(ValueError, match="Unix seconds"):
        sign(SECRET, event_id=EVENT_ID, timestamp=timestamp, body=BODY)


@pytest.mark.parametrize("secrets", ["", [], ()])
def test_no_secret(secrets: str | list[str]) -> None:
    """Without a secret nothing is signed or verified."""
    with pytest.raises(ValueError, match="at least one"):
        sign(secrets, event_id=EVENT_ID, timestamp=AT, body=BODY)
    with pytest.raises(ValueError, match="at least one"):
        verify(secrets, signed(), BODY, now=AT)


def test_rotation() -> None:
    """During a rotation both secrets sign, the current one first, and each of them verifies."""
    headers = signed(secrets=[OTHER, SECRET])
    ours, old = headers["webhook-signature"].split(" ")
    assert old == PUBLISHED
    assert ours == signed(secrets=OTHER)["webhook-signature"]
    verify(SECRET, headers, BODY, now=AT)
    verify(OTHER, headers, BODY, now=AT)


def test_receiver_with_two_secrets() -> None:
    """A receiver with the old and the new secret accepts signatures of both."""
    verify([OTHER, SECRET], signed(), BODY, now=AT)


def test_retry_is_signed_anew() -> None:
    """A retry has the same id and another signature, and verifies at its time."""
    first, later = signed(), signed(at=AT + 360)
    assert first["webhook-id"] == later["webhook-id"]
    assert first["webhook-signature"] != later["webhook-signature"]
    verify(SECRET, later, BODY, now=AT + 361)
    with pytest.raises(InvalidSignature, match="too far"):
        verify(SECRET, first, BODY, now=AT + 361)


@pytest.mark.parametrize(("seconds", "good"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_window(seconds: int, good: bool) -> None:
    """The time window is 300 seconds before and after, both ends included."""
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
    """A timestamp is 1 to 12 ASCII digits; other forms that `int` or `float` parse are refused."""
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
    """A signature that is cut, malformed, of another version or not ASCII raises InvalidSignature."""
    with pytest.raises(InvalidSignature, match="no signature matches"):
        verify(SECRET, offering(signature), BODY, now=AT)


WRONG = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="


@pytest.mark.parametrize("other", [WRONG, "v1", "v1,", "v1,a,b", "v1,é=", "v1a,xxx", "v2,xxx", "", "\udc80"])
@pytest.mark.parametrize("layout", ["{good} {other}", "{other} {good}", "{other} {good} {other}"])
def test_good_signature_among_others(other: str, layout: str) -> None:
    """The matching entry is found at any position, and malformed entries are skipped."""
    verify(SECRET, offering(layout.format(good=PUBLISHED, other=other)), BODY, now=AT)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_missing_header(name: str) -> None:
    """If one of the three headers is missing, nothing verifies."""
    headers = signed()
    del headers[name]
    with pytest.raises(InvalidSignature):
        verify(SECRET, headers, BODY, now=AT)


def test_header_case() -> None:
    """Header names can be in any case."""
    verify(SECRET, {name.title(): value for name, value in signed().items()}, BODY, now=AT)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"\x00", b"not json"])
def test_any_body_verifies(body: bytes) -> None:
    """A body can be any bytes, and empty."""
    verify(SECRET, signed(body), body, now=AT)


def test_dots_cannot_move_between_id_and_time() -> None:
    """A message with a dot in its id never verifies, because it could be replayed as another one."""
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
    """Any headers that we did not make raise InvalidSignature and no other exception."""
    with pytest.raises(InvalidSignature):
        verify(SECRET, headers, body, now=AT)


# ed25519


def test_published_ed25519_vector() -> None:
    """It makes the ed25519 signature in svix's tests, and its public key verifies it."""
    headers = signed(secrets=PRIVATE)
    assert headers["webhook-signature"] == PUBLISHED_V1A
    verify(PUBLIC, headers, BODY, now=AT)


def test_ed25519_makes_no_plain_signature() -> None:
    """An ed25519 key makes no x-signature."""
    assert list(signed(secrets=PRIVATE)) == ["webhook-id", "webhook-timestamp", "webhook-signature"]


@given(body=bodies, at=timestamps, event_id=event_ids)
def test_ed25519_round_trip(body: bytes, at: int, event_id: str) -> None:
    """Any body, id and time is signed and verified."""
    verify(PUBLIC, sign(PRIVATE, event_id=event_id, timestamp=at, body=body), body, now=at)


def test_made_key_pairs() -> None:
    """A generated pair is a 32-byte seed with its public key, and that public key; each is new."""
    private, public = make_key_pair()
    raw = b64decode(private.removeprefix("whsk_"))
    assert (private[:5], public[:5], len(raw)) == ("whsk_", "whpk_", 64)
    assert raw[32:] == b64decode(public.removeprefix("whpk_"))
    verify(public, signed(secrets=private), BODY, now=AT)
    assert make_key_pair() != (private, public)


def test_another_public_key() -> None:
    """A signature does not verify with another public key."""
    with pytest.raises(InvalidSignature, match="no signature matches"):
        verify(make_key_pair()[1], signed(secrets=PRIVATE), BODY, now=AT)


@pytest.mark.parametrize(
    "signature",
    [
        *("v1a,", "v1a", "v1a,AAAA", "v1a,é", "v1a,=", PUBLISHED_V1A[:-2], PUBLISHED_V1A[:-1]),
        *(
            "v1," + PUBLISHED_V1A[4:],
            "v1a," + PUBLISHED[3:],
            PUBLISHED_V1A + "=",
            PUBLISHED_V1A.replace("Ag=", "Ah="),
        ),
    ],
)
def test_wrong_ed25519_signatures(signature: str) -> None:
    """Signatures that are cut, of another version or in another base64 encoding are refused with one error."""
    assert signature != PUBLISHED_V1A
    with pytest.raises(InvalidSignature, match="no signature matches"):
        verify([PUBLIC, SECRET], offering(signature), BODY, now=AT)


def test_a_public_key_is_no_hmac_secret() -> None:
    """A public key makes no valid `v1` signature, neither with its bytes nor with its text."""
    content = f"{EVENT_ID}.{AT}.".encode() + BODY
    for key in (b64decode(PUBLIC.removeprefix("whpk_")), PUBLIC.encode()):
        forged = b64encode(hmac.digest(key, content, "sha256")).decode()
        with pytest.raises(InvalidSignature, match="no signature matches"):
            verify(PUBLIC, offering(f"v1,{forged} v1a,{forged}"), BODY, now=AT)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (PRIVATE[:-4], "has 64 bytes, this one has 63"),
        ("whsk_", "has 64 bytes, this one has 0"),
        (PRIVATE + "\n", "no white space"),
        ("whsk_" + PRIVATE, "two prefixes"),
        ("whsk_" + b64encode(bytes(64)).decode(), "public key of its seed"),
    ],
)
def test_bad_private_keys(key: str, problem: str) -> None:
    """A malformed private key signs nothing, and the message does not contain the key."""
    with pytest.raises(ValueError, match=f"a signing key .*{problem}") as refusal:
        signed(secrets=key)
    assert len(key) < 10 or key[5:15] not in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (PUBLIC[:-4], "a public key has 32 bytes, this one has 30"),
        (PUBLIC + " ", "a public key has no white space"),
        (PRIVATE, "'whsk_' marks an ed25519 private key"),
    ],
)
def test_bad_public_keys(key: str, problem: str) -> None:
    """A malformed public key, or a private key in its place, is named as such."""
    with pytest.raises(ValueError, match=problem):
        verify(key, signed(), BODY, now=AT)


def test_nobody_signs_with_a_public_key() -> None:
    """The message names the kind of the key that was given."""
    with pytest.raises(ValueError, match="'whpk_' marks an ed25519 public key"):
        signed(secrets=PUBLIC)


def test_cryptography_is_imported_late() -> None:
    """Functions that use only HMAC secrets do not import `cryptography`."""
    code = (
        "import sys; from core.webhooks.transport.signing import sign, verify; s = 'whsec_' + 'A' * 32;"
        "verify(s, sign(s, event_id='e', timestamp=1, body=b''), b'', now=1);"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(LAMBDAS)}, check=True)


# Rotation, and the plain header


@pytest.mark.parametrize(
    ("keys", "current", "previous"),
    [
        ([SECRET], SECRET, None),
        ([OTHER, SECRET], OTHER, SECRET),
        ([THIRD, OTHER, SECRET], THIRD, OTHER),
        ([PRIVATE, SECRET], SECRET, None),
        ([SECRET, PRIVATE], SECRET, None),
        ([OTHER, PRIVATE, SECRET], OTHER, SECRET),
    ],
)
def test_plain_headers_of_a_rotation(keys: list[str], current: str, previous: str | None) -> None:
    """The newest secret makes x-signature, and the one before it x-signature-previous."""
    headers = signed(secrets=keys)
    assert headers["x-signature"] == plain(current)
    assert headers.get("x-signature-previous") == (previous and plain(previous))
    assert len(headers["webhook-signature"].split(" ")) == len(keys)


def plain(secret: str, body: bytes = BODY) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def test_rotation_from_one_kind_to_the_other() -> None:
    """During a change from a secret to ed25519, both verify."""
    headers = signed(secrets=[PRIVATE, SECRET])
    assert headers["webhook-signature"] == f"{PUBLISHED_V1A} {PUBLISHED}"
    verify(SECRET, headers, BODY, now=AT)
    verify(PUBLIC, headers, BODY, now=AT)


@pytest.mark.parametrize("keys", [SECRET, [OTHER, SECRET], [PRIVATE, SECRET], [SECRET, PRIVATE, OTHER]])
@given(body=texts, event_id=event_ids)
def test_other_verifiers_accept(keys: str | list[str], body: bytes, event_id: str) -> None:
    """Standard Webhooks' and svix's libraries, and the rules of OpenAI and Stripe, accept our signatures."""
    headers = sign(keys, event_id=event_id, timestamp=AT, body=body)
    with time_machine.travel(datetime.fromtimestamp(AT, UTC), tick=False):
        standardwebhooks.Webhook(SECRET).verify(body, headers, json_parse=False)
        svix.Webhook(SECRET).verify(body, headers)
    assert as_openai_does(headers, body, SECRET, now=AT)
    assert as_stripe_does(headers, body, SECRET, now=AT)


@given(secret=hmac_keys, body=bodies)
def test_any_secret_and_bytes_by_the_rules_of_others(secret: str, body: bytes) -> None:
    """They verify secrets of any length over any bytes."""
    padded = "whsec_" + b64encode(decode(secret)).decode()
    headers = signed(body, padded)
    assert as_openai_does(headers, body, padded, now=AT)
    assert as_stripe_does(headers, body, padded, now=AT)
    assert headers["webhook-signature"] == signed(body, secret)["webhook-signature"]


def as_openai_does(headers: Mapping[str, str], body: bytes, secret: str, *, now: int) -> bool:
    """Strict base64, `int` of the time, entries with or without `v1,`, ASCII text only."""
    if abs(now - int(headers["webhook-timestamp"])) > 300:
        return False
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = b64decode(secret.removeprefix("whsec_"), validate=True)
    expected = b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    entries = (entry.removeprefix("v1,") for entry in headers["webhook-signature"].split())
    return any(hmac.compare_digest(expected, entry) for entry in entries)


def as_stripe_does(headers: Mapping[str, str], body: bytes, secret: str, *, now: int) -> bool:
    """The secret's text as the key, hex, a window only into the past. Our header signs only the body."""
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    found = [headers[name].partition("=") for name in ("x-signature", "x-signature-previous") if name in headers]
    recent = int(headers["webhook-timestamp"]) >= now - 300
    return recent and any(hmac.compare_digest(expected, signature) for _, _, signature in found)


@pytest.mark.parametrize(("private", "key"), [(SECRET, SECRET), (PRIVATE, PUBLIC)])
@given(data=st.data(), body=st.binary(min_size=1, max_size=200))
def test_one_flipped_bit_is_detected(private: str, key: str, data: st.DataObject, body: bytes) -> None:
    """One flipped bit in the body or in one of the three headers invalidates the signature."""
    headers = signed(body, private)
    where = data.draw(st.sampled_from(["body", "webhook-id", "webhook-timestamp", "webhook-signature"]))
    changed = bytearray(body if where == "body" else headers[where].encode())
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    if where == "body":
        body = bytes(changed)
    else:
        headers[where] = changed.decode("latin-1")
    with pytest.raises(InvalidSignature):
        verify(key, headers, body, now=AT)


# What is said of a caller's own secret


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        ("", "is not empty"),
        ("whsec_", "has 24 to 64 bytes, this one has 0"),
        ("whsec_" + b64encode(bytes(23)).decode(), "has 24 to 64 bytes, this one has 23"),
        ("whsec_" + b64encode(bytes(65)).decode(), "has 24 to 64 bytes, this one has 65"),
        ("hunter2-hunter2-hunter2-hunter2", "starts with 'whsec_'$"),
        (SECRET.upper(), "starts with 'whsec_', in small letters"),
        (PRIVATE, "starts with 'whsec_'; 'whsk_' marks an ed25519 private key"),
        (PUBLIC, "starts with 'whsec_'; 'whpk_' marks an ed25519 public key"),
        ("whsec_" + SECRET, "starts with 'whsec_' once, this one has two prefixes"),
        ("whsec_" + PRIVATE, "starts with 'whsec_' once, this one has two prefixes"),
        *(
            (text, "has no white space")
            for text in (SECRET + "\n", " " + SECRET, "whsec_ " + SECRET[6:], "\u00a0")
        ),
        (SECRET.replace("T", "-"), "URL-safe"),
        (SECRET.replace("T", "_"), "URL-safe"),
        (SECRET.replace("T", "é"), "another character"),
        (SECRET.replace("T", "\u200b"), "another character"),
        (SECRET.replace("T", "="), "another character"),
        (SECRET[:-3], "has a character too few or too many"),
        (SECRET + "=", "ends with the padding"),
        ("whsec_" + "A" * 43 + "==", "ends with the padding"),
        ("whsec_" + "A" * 42 + "=", "ends with the padding"),
        ("whsec_" + "A" * 42 + "B", "surplus bits"),
    ],
)
def test_messages_of_bad_secrets(secret: str, problem: str) -> None:
    """Each problem has its own message, without any part of the secret."""
    with pytest.raises(ValueError, match=f"^a webhook secret .*{problem}") as refusal:
        decode(secret)
    assert secret[8:16] == "" or secret[8:16] not in str(refusal.value)


@given(
    key=st.binary(min_size=24, max_size=64), last=st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh0123456789+/")
)
def test_a_key_has_two_spellings(key: bytes, last: str) -> None:
    """With padding and without; with another last character it is another key, or none."""
    padded = b64encode(key).decode()
    bare = padded.rstrip("=")
    assert decode(f"whsec_{padded}") == decode(f"whsec_{bare}") == key
    found = None
    with suppress(ValueError):
        found = decode(f"whsec_{bare[:-1]}{last}")
    assert (found == key) is (last == bare[-1])
