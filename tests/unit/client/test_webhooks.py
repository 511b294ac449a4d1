"""Verification of webhooks that `core.webhooks.transport.signing` signs."""

from __future__ import annotations

import ast
import hashlib
import hmac
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
import time_machine
from hypothesis import given
from hypothesis import strategies as st

import recado
from core.webhooks.transport import signing
from recado import errors
from recado.webhooks import verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + b64encode(b"other key of 24 bytes ok").decode()
THIRD = "whsec_" + b64encode(b"and one more of 24 bytes").decode()
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_" + b64encode(b64decode(PRIVATE.removeprefix("whsk_"))[32:]).decode()
EVENT_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
PUBLISHED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
PUBLISHED_V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

bodies = st.binary(max_size=500)


def signed(body: bytes = BODY, keys: str | list[str] = SECRET, at: int = AT) -> dict[str, str]:
    return signing.sign(keys, event_id=EVENT_ID, timestamp=at, body=body)


def plain(body: bytes = BODY, keys: str | list[str] = SECRET) -> dict[str, str]:
    """The headers without those of Standard Webhooks."""
    return {name: value for name, value in signed(body, keys).items() if name.startswith("x-")}


def without(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


# Accepted requests


def test_published_vectors() -> None:
    """The examples of Standard Webhooks and of Svix verify, with the secret and with the public key."""
    headers = {"webhook-id": EVENT_ID, "webhook-timestamp": str(AT), "webhook-signature": PUBLISHED}
    assert verify(headers, BODY, SECRET, now=AT) == recado.Event(BODY, "v1", EVENT_ID, AT)
    headers["webhook-signature"] = PUBLISHED_V1A
    assert verify(headers, BODY, PUBLIC, now=AT) == recado.Event(BODY, "v1a", EVENT_ID, AT)


@pytest.mark.parametrize(("key", "known"), [(SECRET, SECRET), (PRIVATE, PUBLIC)])
@given(body=bodies, at=st.integers(0, 10**12 - 1))
def test_signed_bodies_verify(key: str, known: str, body: bytes, at: int) -> None:
    """Any bytes that the service signs are accepted."""
    assert verify(signed(body, key, at), body, known, now=at).body == body


@given(body=bodies)
def test_plain_signature_verifies(body: bytes) -> None:
    """`X-Signature` verifies the body; the event has no id and no timestamp."""
    assert verify(plain(body), body, SECRET, now=AT, allow_plain=True) == recado.Event(body, "plain", None, None)


@given(text=st.text())
def test_requests_of_the_reference_library_verify(text: str) -> None:
    """A request that the library of Standard Webhooks signs is accepted."""
    body = text.encode(errors="replace")
    signature = standardwebhooks.Webhook(SECRET).sign(EVENT_ID, datetime.fromtimestamp(AT, UTC), body.decode())
    headers = {"webhook-id": EVENT_ID, "webhook-timestamp": str(AT), "webhook-signature": signature}
    assert verify(headers, body, SECRET, now=AT).id == EVENT_ID


@pytest.mark.parametrize("known", [SECRET, OTHER, [THIRD, OTHER], [THIRD, SECRET], (PUBLIC, OTHER)])
def test_rotation(known: str | list[str]) -> None:
    """The old secret, the new one, and a list with one of them verify, also the plain headers."""
    headers = signed(keys=[OTHER, SECRET])
    assert verify(headers, BODY, known, now=AT).scheme == "v1"
    assert verify(plain(keys=[OTHER, SECRET]), BODY, known, now=AT, allow_plain=True).scheme == "plain"


def test_rotation_from_secret_to_public_key() -> None:
    """A request that both keys sign verifies with each of them."""
    headers = signed(keys=[PRIVATE, SECRET])
    assert verify(headers, BODY, SECRET, now=AT).scheme == "v1"
    assert verify(headers, BODY, PUBLIC, now=AT).scheme == "v1a"
    assert verify(headers, BODY, [PUBLIC, SECRET], now=AT).scheme == "v1"


class Multi:
    """Headers as in werkzeug: not a mapping, but with items, and a name may appear twice."""

    def items(self) -> list[tuple[str, str]]:
        return [*signed().items(), ("accept", "a"), ("accept", "b"), ("webhook-id", EVENT_ID)]


@pytest.mark.parametrize(
    "form",
    [
        lambda headers: {name.title(): value for name, value in headers.items()},
        lambda headers: {name.upper(): value for name, value in headers.items()},
        lambda headers: list(headers.items()),
        lambda headers: iter(headers.items()),
        lambda headers: [[name, value] for name, value in headers.items()],
        lambda headers: {name.encode(): value.encode() for name, value in headers.items()},
        lambda headers: [(name.encode(), value.encode()) for name, value in headers.items()],
        lambda headers: [*headers.items(), ("cookie", None), ("x",), None, 7, (7, 7), ("a", "b", "c")],
        lambda headers: headers | {"X-Other": object()},
        lambda _: Multi(),
    ],
)
@pytest.mark.parametrize("headers", [signed(), plain()])
def test_forms_of_headers(form: Callable[[dict[str, str]], Any], headers: dict[str, str]) -> None:
    """Names in any case, mappings and pairs, text and bytes are accepted. Other headers are ignored."""
    verify(form(headers), BODY, SECRET, now=AT, allow_plain=True)


def test_bytearray_body() -> None:
    """A bytearray is accepted, and becomes bytes."""
    assert verify(signed(), bytearray(BODY), SECRET, now=AT).body == BODY


def test_now_is_the_default() -> None:
    """Without `now` the current time is used."""
    with time_machine.travel(AT + 299, tick=False):
        verify(signed(), BODY, SECRET)
    with time_machine.travel(AT + 301, tick=False), pytest.raises(recado.TooOld):
        verify(signed(), BODY, SECRET)


@pytest.mark.parametrize(
    "other", ["v1", "v1,", "v1,a,b", "v1,é=", "v1a,xxx", "v2,xxx", ",", "\udc80", PUBLISHED_V1A]
)
@pytest.mark.parametrize("layout", ["{valid} {other}", "{other} {valid}", "{other}  {valid}\t{other}"])
@pytest.mark.parametrize("known", [SECRET, [PUBLIC, SECRET]])
def test_valid_signature_among_others(other: str, layout: str, known: str | list[str]) -> None:
    """A valid entry is found at any position, and malformed entries are skipped."""
    headers = signed() | {"webhook-signature": layout.format(valid=PUBLISHED, other=other)}
    assert verify(headers, BODY, known, now=AT).scheme == "v1"


# The event


def test_json_of_an_event() -> None:
    """`json` parses the body as UTF-8."""
    body = '{"a":"é😊\u2028"}'.encode()
    assert verify(signed(body), body, SECRET, now=AT).json() == {"a": "é😊\u2028"}


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", "{}".encode("utf-16"), b"{"])
def test_bodies_that_are_not_json(body: bytes) -> None:
    """They verify, and only `json` raises an error."""
    event = verify(signed(body), body, SECRET, now=AT)
    with pytest.raises(ValueError, match=r".+"):
        event.json()


# Refused requests, and their errors


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_missing_parts(name: str) -> None:
    """The error names the missing header."""
    with pytest.raises(recado.MissingHeader, match=f"^{name} is missing"):
        verify(without(signed(), name), BODY, SECRET, now=AT)


@pytest.mark.parametrize("headers", [{}, [], {"webhook-id": "a"}, {"webhook-signature": None}])
def test_no_signature(headers: Any) -> None:
    """A request without a signature has another error than one with a wrong signature."""
    with pytest.raises(recado.MissingHeader, match="webhook-signature is missing"):
        verify(headers, BODY, SECRET, now=AT)


@pytest.mark.parametrize(
    "timestamp",
    [
        "",
        " ",
        f" {AT}",
        f"{AT} ",
        f"+{AT}",
        f"-{AT}",
        f"{AT}.0",
        "1_614",
        "1e9",
        "٣" * 10,
        "9" * 13,
        "9" * 5000,
        "nan",
    ],
)
@pytest.mark.parametrize("headers", [signed(), plain()])
def test_malformed_timestamps(headers: dict[str, str], timestamp: str) -> None:
    """A timestamp is a whole number of Unix seconds in ASCII digits, in both schemes."""
    with pytest.raises(recado.MalformedTimestamp):
        verify(headers | {"webhook-timestamp": timestamp}, BODY, SECRET, now=AT, allow_plain=True)


@pytest.mark.parametrize("headers", [signed(), plain() | {"webhook-timestamp": str(AT)}])
@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (-301, recado.TooNew),
        (-300, None),
        (0, None),
        (300, None),
        (300.5, recado.TooOld),
        (float("nan"), recado.TooOld),
    ],
)
def test_window(headers: dict[str, str], seconds: float, error: type[Exception] | None) -> None:
    """Too old and too new are different errors. The limits are inclusive."""
    if error:
        with pytest.raises(error):
            verify(headers, BODY, SECRET, now=AT + seconds, allow_plain=True)
    else:
        verify(headers, BODY, SECRET, now=AT + seconds, allow_plain=True)


def test_tolerance() -> None:
    """The caller sets the tolerance."""
    verify(signed(), BODY, SECRET, 3600, now=AT + 3600)
    verify(signed(), BODY, SECRET, 0, now=AT)
    verify(signed(), BODY, SECRET, float("inf"), now=0)
    for tolerance in (0, -1, float("nan")):
        with pytest.raises(recado.TooOld):
            verify(signed(), BODY, SECRET, tolerance, now=AT + 1)


@pytest.mark.parametrize("event_id", ["", "a.1", "a b", "é", "a" * 129, "a\n"])
def test_malformed_ids(event_id: str) -> None:
    """With a dot in the id, two messages could share a signature."""
    content = f"{event_id}.{AT}.".encode() + BODY
    signature = b64encode(hmac.digest(signing.decode(SECRET), content, "sha256")).decode()
    headers = signed() | {"webhook-id": event_id, "webhook-signature": f"v1,{signature}"}
    with pytest.raises(recado.MalformedHeader, match="webhook-id"):
        verify(headers, BODY, SECRET, now=AT)


@pytest.mark.parametrize(
    "signature",
    [
        *("", " ", "v1", "v1,", PUBLISHED[:11], PUBLISHED[:-1], PUBLISHED + "=", PUBLISHED[3:], "\udc80", "v1,é"),
        *("v1a," + PUBLISHED[3:], "v1," + PUBLISHED_V1A[4:], PUBLISHED.replace(",", ", "), PUBLISHED.lower()),
        *("v1a,", "v1a,é", "v1a,AAAA", PUBLISHED_V1A[:-2], PUBLISHED_V1A.replace("Ag=", "Ah="), "v1, " * 1000),
    ],
)
def test_wrong_signatures(signature: str) -> None:
    """Signatures that are truncated, of another version, or not ASCII have the same error."""
    with pytest.raises(recado.NoMatchingSignature, match="No signature in webhook-signature matches"):
        verify(signed() | {"webhook-signature": signature}, BODY, [SECRET, PUBLIC], now=AT)


@pytest.mark.parametrize(
    "change",
    [
        *(str.upper, lambda text: text[7:], lambda text: text[:-1], lambda text: text + "0", lambda text: ""),
        *(lambda text: text.replace("sha256=", "sha1="), lambda text: text + " ", lambda text: "sha256=é"),
        lambda text: text[:-1] + "\udc80",
    ],
)
def test_wrong_plain_signatures(change: Callable[[str], str]) -> None:
    """Only the exact header is accepted."""
    with pytest.raises(recado.NoMatchingSignature, match="X-Signature does not match"):
        verify({"X-Signature": change(plain()["x-signature"])}, BODY, SECRET, now=AT, allow_plain=True)


@pytest.mark.parametrize("body", ["{}", None, {}, 7, [1], memoryview(b"{}")])
def test_bodies_that_are_not_bytes(body: Any) -> None:
    """A parsed body is refused before the signature is compared."""
    with pytest.raises(recado.BodyNotBytes):
        verify(signed(), body, SECRET, now=AT)


@pytest.mark.parametrize("headers", [None, 7, object(), dict])
def test_values_that_are_not_headers(headers: Any) -> None:
    """A value without headers raises MalformedHeader."""
    with pytest.raises(recado.MalformedHeader):
        verify(headers, BODY, SECRET, now=AT)


@pytest.mark.parametrize("name", signed())
def test_headers_that_appear_twice(name: str) -> None:
    """Two values are refused, because an earlier check may have used the other one."""
    with pytest.raises(recado.MalformedHeader, match=f"{name} appears twice"):
        verify([*signed().items(), (name.upper(), "other")], BODY, SECRET, now=AT)


def test_header_values_that_are_not_text() -> None:
    """A signature header must be text or bytes."""
    with pytest.raises(recado.MalformedHeader, match="webhook-signature must be text"):
        verify(plain() | {"webhook-signature": 7}, BODY, SECRET, now=AT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        *((value, "text") for value in (None, 7, b"whsec_", bytearray(1), {SECRET}, {SECRET: 1}, [None], [b"x"])),
        *((value, "At least one") for value in ([], ())),
        *((value, "starts with whsec_") for value in ("", "plain", " " + SECRET, SECRET.upper())),
        (PRIVATE, "private key"),
        (SECRET + "\n", "white space"),
        ("whsec_" + SECRET, "standard base64"),
        ("whsec_" + "-_" * 22, "standard base64"),
        ("whsec_" + "é" * 44, "standard base64"),
        ("whsec_" + "A" * 45, "standard base64"),
        ("whsec_" + "A" * 43 + "==", "standard base64"),
        ("whsec_", "has 24 to 64 bytes, this one has 0"),
        ("whsec_abcdef", "has 24 to 64 bytes, this one has 4"),
        ("whsec_" + b64encode(bytes(65)).decode(), "has 24 to 64 bytes, this one has 65"),
        (PUBLIC[:-4], "has 32 bytes, this one has 30"),
        ([SECRET, "x"], "starts with whsec_"),
    ],
)
def test_bad_secrets(secret: Any, problem: str) -> None:
    """A malformed secret has its own error for any request, and the message does not contain the secret."""
    with pytest.raises(recado.BadSecret, match=problem) as refusal:
        verify({}, BODY, secret, now=AT)
    assert SECRET[6:20] not in str(refusal.value)


# No downgrade to the weaker scheme


@pytest.mark.parametrize("signature", ["", "v1,", "v2,abc", PUBLISHED[:-4], "v1a,AAAA"])
def test_no_downgrade(signature: str) -> None:
    """A valid X-Signature does not make up for an invalid webhook-signature."""
    with pytest.raises(recado.NoMatchingSignature):
        verify(signed() | {"webhook-signature": signature}, BODY, SECRET, now=AT, allow_plain=True)


@pytest.mark.parametrize("change", [{"webhook-timestamp": str(AT + 1)}, {"webhook-id": "msg_other"}])
def test_no_downgrade_by_other_headers(change: dict[str, str]) -> None:
    """A valid X-Signature does not make up for a changed time or id."""
    with pytest.raises(recado.NoMatchingSignature):
        verify(signed() | change, BODY, SECRET, now=AT, allow_plain=True)


def test_a_public_key_is_not_an_hmac_secret() -> None:
    """A public key verifies neither `v1` signatures nor X-Signature."""
    raw, content = b64decode(PUBLIC.removeprefix("whpk_")), f"{EVENT_ID}.{AT}.".encode() + BODY
    for key in (raw, PUBLIC.encode()):
        forged = b64encode(hmac.digest(key, content, "sha256")).decode()
        with pytest.raises(recado.NoMatchingSignature):
            verify(signed() | {"webhook-signature": f"v1,{forged} v1a,{forged}"}, BODY, PUBLIC, now=AT)
        by_text = "sha256=" + hmac.new(key, BODY, hashlib.sha256).hexdigest()
        with pytest.raises(recado.MissingHeader, match="public key cannot verify X-Signature"):
            verify({"X-Signature": by_text}, BODY, PUBLIC, now=AT, allow_plain=True)
        with pytest.raises(recado.NoMatchingSignature):
            verify({"X-Signature": by_text}, BODY, [SECRET, PUBLIC], now=AT, allow_plain=True)


@pytest.mark.parametrize(
    ("headers", "known"),
    [(signed(), SECRET), (signed(keys=PRIVATE), PUBLIC), (plain(), SECRET)],
    ids=["v1", "v1a", "x"],
)
@given(data=st.data())
def test_one_flipped_bit_is_detected(headers: dict[str, str], known: str, data: st.DataObject) -> None:
    """A flipped bit is detected in the body and in each header, at any position."""
    where = data.draw(
        st.sampled_from(["body", *(name for name in headers if name != "x-signature" or len(headers) == 1)])
    )
    changed = bytearray(BODY if where == "body" else headers[where].encode())
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    body = bytes(changed) if where == "body" else BODY
    sent = headers if where == "body" else headers | {where: changed.decode("latin-1")}
    with pytest.raises(recado.VerificationError):
        verify(sent, body, known, now=AT, allow_plain=True)


# No other error for any input

scraps = st.none() | st.integers() | st.binary() | st.text() | st.floats()
names = st.sampled_from(list(signed())).flatmap(lambda n: st.sampled_from([n, n.title(), n.encode()])) | st.text()
values = scraps | st.sampled_from([*signed().values(), PUBLISHED_V1A, str(AT), f"v1 v1, , {PUBLISHED[:-1]}"])
anything = st.recursive(
    scraps, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
)
some_headers = st.dictionaries(names, values) | st.lists(st.tuples(names, values) | scraps) | anything
some_secrets = st.sampled_from([SECRET, PUBLIC, (PUBLIC, SECRET)]) | anything | st.text().map("whsec_".__add__)


@given(headers=some_headers, body=st.just(BODY) | anything, secret=some_secrets)
def test_any_input_ends_in_an_event_or_one_error(headers: Any, body: Any, secret: Any) -> None:
    """For any input, only VerificationError is raised, and only signed bodies are accepted."""
    event = recado.Event(BODY, "v1")
    with suppress(recado.VerificationError):
        event = verify(headers, body, secret, now=AT, allow_plain=True)
    assert event.body == BODY


def test_errors_have_codes_of_their_own() -> None:
    """Each class is a VerificationError and ValueError, has its own code, and is exported."""
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, ValueError)]
    assert all(issubclass(cls, recado.VerificationError) for cls in classes)
    assert len({cls.code for cls in classes}) == len(classes) == 15
    assert {cls.__name__ for cls in classes} < set(recado.__all__)


# Dependencies


def test_ed25519_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install. A secret needs no `cryptography`."""
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(recado.MissingDependency, match=r"recado\[ed25519\]"):
        verify(signed(keys=PRIVATE), BODY, PUBLIC, now=AT)
    verify(signed(keys=[PRIVATE, SECRET]), BODY, [PUBLIC, SECRET], now=AT)
    with pytest.raises(recado.NoMatchingSignature):
        verify(signed(), BODY, PUBLIC, now=AT)


@pytest.mark.parametrize(
    "module",
    [
        *(
            "__init__",
            "errors",
            "webhooks",
            "_webhook_headers",
            "_webhook_keys",
            "sns",
            "cost",
            "polling",
            "_retry",
        ),
        "_urls",
    ],
)
def test_imports(module: str) -> None:
    """These modules import the standard library and the package only."""
    tree = ast.parse((Path(recado.__file__).parent / f"{module}.py").read_text())
    found = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in found} <= sys.stdlib_module_names | {"recado"}
