"""recado.webhooks, on what core.webhooks.transport.signing signs."""

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
    """What a request has once the headers of Standard Webhooks are taken off."""
    return {name: value for name, value in signed(body, keys).items() if name.startswith("x-")}


def without(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


# What is accepted


def test_published_vectors() -> None:
    """The examples of Standard Webhooks and of svix verify, by secret and by public key."""
    headers = {"webhook-id": EVENT_ID, "webhook-timestamp": str(AT), "webhook-signature": PUBLISHED}
    assert verify(headers, BODY, SECRET, now=AT) == recado.Event(BODY, "v1", EVENT_ID, AT)
    headers["webhook-signature"] = PUBLISHED_V1A
    assert verify(headers, BODY, PUBLIC, now=AT) == recado.Event(BODY, "v1a", EVENT_ID, AT)


@pytest.mark.parametrize(("key", "known"), [(SECRET, SECRET), (PRIVATE, PUBLIC)])
@given(body=bodies, at=st.integers(0, 10**12 - 1))
def test_whatever_is_sent_verifies(key: str, known: str, body: bytes, at: int) -> None:
    """Any bytes that the service signs are accepted as they are."""
    assert verify(signed(body, key, at), body, known, now=at).body == body


@given(body=bodies)
def test_plain_signature_verifies(body: bytes) -> None:
    """With `X-Signature` alone the body is proved, and nothing else is told."""
    assert verify(plain(body), body, SECRET, now=AT) == recado.Event(body, "plain", None, None)


@given(text=st.text())
def test_what_others_sign_verifies(text: str) -> None:
    """A request signed by Standard Webhooks' own library is accepted."""
    body = text.encode(errors="replace")
    signature = standardwebhooks.Webhook(SECRET).sign(EVENT_ID, datetime.fromtimestamp(AT, UTC), body.decode())
    headers = {"webhook-id": EVENT_ID, "webhook-timestamp": str(AT), "webhook-signature": signature}
    assert verify(headers, body, SECRET, now=AT).id == EVENT_ID


@pytest.mark.parametrize("known", [SECRET, OTHER, [THIRD, OTHER], [THIRD, SECRET], (PUBLIC, OTHER)])
def test_rotation(known: str | list[str]) -> None:
    """Whoever knows the old secret, the new one, or one of several, verifies; by the plain headers too."""
    headers = signed(keys=[OTHER, SECRET])
    assert verify(headers, BODY, known, now=AT).scheme == "v1"
    assert verify(plain(keys=[OTHER, SECRET]), BODY, known, now=AT).scheme == "plain"


def test_rotation_from_secret_to_public_key() -> None:
    """Either kind of key accepts what both signed."""
    headers = signed(keys=[PRIVATE, SECRET])
    assert verify(headers, BODY, SECRET, now=AT).scheme == "v1"
    assert verify(headers, BODY, PUBLIC, now=AT).scheme == "v1a"
    assert verify(headers, BODY, [PUBLIC, SECRET], now=AT).scheme == "v1"


class Multi:
    """Headers as werkzeug has them: no mapping, but with items, in which a name may come twice."""

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
    """Names in any case, mappings and pairs, text and bytes; what is not ours is not looked at."""
    verify(form(headers), BODY, SECRET, now=AT)


def test_bytearray_body() -> None:
    """A bytearray is bytes too, and what comes back cannot change any more."""
    assert verify(signed(), bytearray(BODY), SECRET, now=AT).body == BODY


def test_now_is_the_default() -> None:
    """Without `now` the machine's clock is asked."""
    with time_machine.travel(AT + 299, tick=False):
        verify(signed(), BODY, SECRET)
    with time_machine.travel(AT + 301, tick=False), pytest.raises(recado.TooOld):
        verify(signed(), BODY, SECRET)


@pytest.mark.parametrize(
    "other", ["v1", "v1,", "v1,a,b", "v1,é=", "v1a,xxx", "v2,xxx", ",", "\udc80", PUBLISHED_V1A]
)
@pytest.mark.parametrize("layout", ["{good} {other}", "{other} {good}", "{other}  {good}\t{other}"])
@pytest.mark.parametrize("known", [SECRET, [PUBLIC, SECRET]])
def test_good_signature_among_others(other: str, layout: str, known: str | list[str]) -> None:
    """The good entry is found wherever it stands; entries that make no sense are skipped."""
    headers = signed() | {"webhook-signature": layout.format(good=PUBLISHED, other=other)}
    assert verify(headers, BODY, known, now=AT).scheme == "v1"


# The event


def test_json_of_an_event() -> None:
    """The body is parsed when it is asked for, as UTF-8."""
    body = '{"a":"é😊\u2028"}'.encode()
    assert verify(signed(body), body, SECRET, now=AT).json() == {"a": "é😊\u2028"}


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", "{}".encode("utf-16"), b"{"])
def test_bodies_that_are_no_json(body: bytes) -> None:
    """They verify, and only `json()` objects."""
    event = verify(signed(body), body, SECRET, now=AT)
    with pytest.raises(ValueError, match=r".+"):
        event.json()


# What is refused, and by which name


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_missing_parts(name: str) -> None:
    """The header that is missing is named."""
    with pytest.raises(recado.MissingHeader, match=f"^{name} is missing"):
        verify(without(signed(), name), BODY, SECRET, now=AT)


@pytest.mark.parametrize("headers", [{}, [], {"webhook-id": "a"}, {"webhook-signature": None}])
def test_no_signature(headers: Any) -> None:
    """A request without any signature is told apart from one with a wrong one."""
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
    """Only whole Unix seconds in ASCII digits are a time, in either scheme."""
    with pytest.raises(recado.MalformedTimestamp):
        verify(headers | {"webhook-timestamp": timestamp}, BODY, SECRET, now=AT)


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
    """Too old and too new are told apart; the window's ends are within it."""
    if error:
        with pytest.raises(error):
            verify(headers, BODY, SECRET, now=AT + seconds)
    else:
        verify(headers, BODY, SECRET, now=AT + seconds)


def test_tolerance() -> None:
    """The window is as wide as the caller says."""
    verify(signed(), BODY, SECRET, 3600, now=AT + 3600)
    verify(signed(), BODY, SECRET, 0, now=AT)
    verify(signed(), BODY, SECRET, float("inf"), now=0)
    for tolerance in (0, -1, float("nan")):
        with pytest.raises(recado.TooOld):
            verify(signed(), BODY, SECRET, tolerance, now=AT + 1)


@pytest.mark.parametrize("event_id", ["", "a.1", "a b", "é", "a" * 129, "a\n"])
def test_malformed_ids(event_id: str) -> None:
    """A dot would let text move between id and time under one signature."""
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
    """Cut, of another version or not ASCII: all end in the same error."""
    with pytest.raises(recado.NoMatchingSignature, match="nothing in webhook-signature matches"):
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
    """The header has one spelling."""
    with pytest.raises(recado.NoMatchingSignature, match="X-Signature does not match"):
        verify({"X-Signature": change(plain()["x-signature"])}, BODY, SECRET, now=AT)


@pytest.mark.parametrize("body", ["{}", None, {}, 7, [1], memoryview(b"{}")])
def test_bodies_that_are_no_bytes(body: Any) -> None:
    """What a framework has parsed is refused before anything is compared."""
    with pytest.raises(recado.BodyNotBytes):
        verify(signed(), body, SECRET, now=AT)


@pytest.mark.parametrize("headers", [None, 7, object(), dict])
def test_headers_that_are_none(headers: Any) -> None:
    """What has no headers in it is refused."""
    with pytest.raises(recado.MalformedHeader):
        verify(headers, BODY, SECRET, now=AT)


@pytest.mark.parametrize("name", signed())
def test_headers_that_come_twice(name: str) -> None:
    """Of two values none is chosen: whoever checked before us may have chosen the other."""
    with pytest.raises(recado.MalformedHeader, match=f"{name} is there twice"):
        verify([*signed().items(), (name.upper(), "other")], BODY, SECRET, now=AT)


def test_values_that_are_no_text() -> None:
    """A header of ours must be text or bytes."""
    with pytest.raises(recado.MalformedHeader, match="webhook-signature must be text"):
        verify(plain() | {"webhook-signature": 7}, BODY, SECRET, now=AT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        *((value, "text") for value in (None, 7, b"whsec_", bytearray(1), {SECRET}, {SECRET: 1}, [None], [b"x"])),
        *((value, "at least one") for value in ([], ())),
        *((value, "starts with whsec_") for value in ("", "plain", " " + SECRET, SECRET.upper())),
        (PRIVATE, "private key"),
        (SECRET + "\n", "no white space"),
        ("whsec_" + SECRET, "standard base64"),
        ("whsec_" + "-_" * 22, "standard base64"),
        ("whsec_" + "é" * 44, "standard base64"),
        ("whsec_" + "A" * 45, "standard base64"),
        ("whsec_" + "A" * 43 + "==", "standard base64"),
        ("whsec_", "holds 24 to 64 bytes, this one 0"),
        ("whsec_abcdef", "holds 24 to 64 bytes, this one 4"),
        ("whsec_" + b64encode(bytes(65)).decode(), "holds 24 to 64 bytes, this one 65"),
        (PUBLIC[:-4], "holds 32 bytes, this one 30"),
        ([SECRET, "x"], "starts with whsec_"),
    ],
)
def test_bad_secrets(secret: Any, problem: str) -> None:
    """The receiver's own mistake has a name of its own, whatever was sent, and no secret in its message."""
    with pytest.raises(recado.BadSecret, match=problem) as refusal:
        verify({}, BODY, secret, now=AT)
    assert SECRET[6:20] not in str(refusal.value)


# Nobody passes by the weaker way


@pytest.mark.parametrize("signature", ["", "v1,", "v2,abc", PUBLISHED[:-4], "v1a,AAAA"])
def test_no_downgrade(signature: str) -> None:
    """A wrong webhook-signature is not made good by a right X-Signature."""
    with pytest.raises(recado.NoMatchingSignature):
        verify(signed() | {"webhook-signature": signature}, BODY, SECRET, now=AT)


@pytest.mark.parametrize("change", [{"webhook-timestamp": str(AT + 1)}, {"webhook-id": "msg_other"}])
def test_no_downgrade_by_other_headers(change: dict[str, str]) -> None:
    """Nor does X-Signature carry a changed time or id."""
    with pytest.raises(recado.NoMatchingSignature):
        verify(signed() | change, BODY, SECRET, now=AT)


def test_plain_can_be_switched_off() -> None:
    """A replay with its times taken off is refused by those who want time to be proved."""
    with pytest.raises(recado.MissingHeader, match="webhook-signature is missing"):
        verify(plain(), BODY, SECRET, now=AT, allow_plain=False)
    verify(signed(), BODY, SECRET, now=AT, allow_plain=False)


def test_a_public_key_is_no_hmac_secret() -> None:
    """What anyone may know signs nothing: no `v1`, no X-Signature."""
    raw, content = b64decode(PUBLIC.removeprefix("whpk_")), f"{EVENT_ID}.{AT}.".encode() + BODY
    for key in (raw, PUBLIC.encode()):
        forged = b64encode(hmac.digest(key, content, "sha256")).decode()
        with pytest.raises(recado.NoMatchingSignature):
            verify(signed() | {"webhook-signature": f"v1,{forged} v1a,{forged}"}, BODY, PUBLIC, now=AT)
        by_text = "sha256=" + hmac.new(key, BODY, hashlib.sha256).hexdigest()
        with pytest.raises(recado.MissingHeader, match="public key can verify nothing else"):
            verify({"X-Signature": by_text}, BODY, PUBLIC, now=AT)
        with pytest.raises(recado.NoMatchingSignature):
            verify({"X-Signature": by_text}, BODY, [SECRET, PUBLIC], now=AT)


@pytest.mark.parametrize(
    ("headers", "known"),
    [(signed(), SECRET), (signed(keys=PRIVATE), PUBLIC), (plain(), SECRET)],
    ids=["v1", "v1a", "x"],
)
@given(data=st.data())
def test_one_flipped_bit_is_seen(headers: dict[str, str], known: str, data: st.DataObject) -> None:
    """Wherever it is, in the body or in a header's value, the request is refused."""
    where = data.draw(
        st.sampled_from(["body", *(name for name in headers if name != "x-signature" or len(headers) == 1)])
    )
    changed = bytearray(BODY if where == "body" else headers[where].encode())
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    body = bytes(changed) if where == "body" else BODY
    sent = headers if where == "body" else headers | {where: changed.decode("latin-1")}
    with pytest.raises(recado.VerificationError):
        verify(sent, body, known, now=AT)


# No input raises anything else

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
    """Whatever comes, nothing but VerificationError is raised, and what is accepted was signed."""
    event = recado.Event(BODY, "v1")
    with suppress(recado.VerificationError):
        event = verify(headers, body, secret, now=AT)
    assert event.body == BODY


def test_errors_have_codes_of_their_own() -> None:
    """Each is one VerificationError and ValueError, told apart by class and code, and exported."""
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, ValueError)]
    assert all(issubclass(cls, recado.VerificationError) for cls in classes)
    assert len({cls.code for cls in classes}) == len(classes) == 15
    assert {cls.__name__ for cls in classes} < set(recado.__all__)


# What it stands on


def test_ed25519_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what to install; what a secret can settle needs nothing."""
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(recado.MissingDependency, match=r"recado\[ed25519\]"):
        verify(signed(keys=PRIVATE), BODY, PUBLIC, now=AT)
    verify(signed(keys=[PRIVATE, SECRET]), BODY, [PUBLIC, SECRET], now=AT)
    with pytest.raises(recado.NoMatchingSignature):
        verify(signed(), BODY, PUBLIC, now=AT)


@pytest.mark.parametrize("module", ["__init__", "errors", "webhooks", "sns"])
def test_imports(module: str) -> None:
    """At import the package asks for the standard library and itself only."""
    tree = ast.parse((Path(recado.__file__).parent / f"{module}.py").read_text())
    found = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in found} <= sys.stdlib_module_names | {"recado"}
