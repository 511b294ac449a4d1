"""Whether a webhook was sent by Recado, is whole, and is recent. Standard library only, but for ed25519 keys.

Two schemes are understood. `webhook-signature` is Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): `v1`
by the secret `whsec_…`, `v1a` by the public key `whpk_…`; it proves id, time and body. `X-Signature` proves the
body alone. A request that has the first is judged by the first only: nobody passes with the weaker one instead.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recado.errors import (
    BadSecret,
    BodyNotBytes,
    MalformedHeader,
    MalformedTimestamp,
    MissingDependency,
    MissingHeader,
    NoMatchingSignature,
    TooNew,
    TooOld,
)

Headers = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
"""As frameworks have them: names in any case, text or bytes, a mapping or pairs."""

_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_PLAIN = ("x-signature", "x-signature-previous")
_OURS = frozenset({_ID, _TIMESTAMP, _SIGNATURE, *_PLAIN})
_SECRET, _PUBLIC, _PRIVATE = "whsec_", "whpk_", "whsk_"
# A dot in the id would let two messages share a signature: what is signed is `id.timestamp.body`.
_ID_FORM = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TIMESTAMP_FORM = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Event:
    """A request that was verified.

    `id` and `timestamp` (Unix seconds) are what was signed, and None where `scheme` is `plain`: that signature
    covers the body alone. The same `id` comes again when a delivery is retried.
    """

    body: bytes
    scheme: Literal["v1", "v1a", "plain"]
    id: str | None = None
    timestamp: int | None = None

    def json(self) -> Any:
        """The body parsed. ValueError where it is not JSON in UTF-8."""
        return json.loads(self.body.decode())


def verify(
    headers: Headers,
    body: bytes,
    secret: str | Sequence[str],
    tolerance: float = 300,
    *,
    now: float | None = None,
    allow_plain: bool = True,
) -> Event:
    """The event in a request, or a VerificationError that says what is wrong. No input raises anything else.

    `body` is what came over the wire, before any parsing. `secret` is the endpoint's `whsec_…`, its public key
    `whpk_…` (which needs `recado[ed25519]`), or several of them while one takes the other's place. `tolerance` is
    how many seconds the sender's clock may differ from `now` (Unix seconds, by default the time).

    A request without `webhook-signature` may pass by `X-Signature`. Whoever has seen such a request can send it
    again at any time, because no time is signed; `allow_plain=False` accepts none.
    """
    keys = _keys(secret)
    if not isinstance(body, (bytes, bytearray)):
        raise BodyNotBytes("the body must be the raw bytes of the request, before any parsing")
    fields = _fields(headers)
    window = _Window(time.time() if now is None else now, tolerance)
    if _SIGNATURE in fields:
        return _standard(fields, bytes(body), keys, window)
    if allow_plain and any(name in fields for name in _PLAIN):
        return _plain(fields, bytes(body), keys, window)
    raise MissingHeader(f"{_SIGNATURE} is missing")


def _standard(fields: Mapping[str, str], body: bytes, keys: Sequence[_Key], window: _Window) -> Event:
    event_id = _required(fields, _ID)
    if not _ID_FORM.fullmatch(event_id):
        raise MalformedHeader(f"{_ID} is 1 to 128 of A-Z a-z 0-9 _ -")
    timestamp = window.checked(_required(fields, _TIMESTAMP))
    content = f"{event_id}.{fields[_TIMESTAMP]}.".encode() + body
    offered = list(_offered(fields[_SIGNATURE]))
    for key in keys:
        if any(version == key.version and key.signs(content, signature) for version, signature in offered):
            return Event(body, key.version, event_id, timestamp)
    raise NoMatchingSignature(f"nothing in {_SIGNATURE} matches: check the secret, and verify the raw body")


def _plain(fields: Mapping[str, str], body: bytes, keys: Sequence[_Key], window: _Window) -> Event:
    secrets = [key for key in keys if key.version == "v1"]
    if not secrets:
        raise MissingHeader(f"{_SIGNATURE} is missing, and a public key can verify nothing else")
    if _TIMESTAMP in fields:
        window.checked(fields[_TIMESTAMP])
    offered = [_bytes(fields[name]) for name in _PLAIN if name in fields]
    expected = [b"sha256=" + hmac.digest(key.text.encode(), body, "sha256").hex().encode() for key in secrets]
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in offered):
        raise NoMatchingSignature("X-Signature does not match: check the secret, and verify the raw body")
    return Event(body, "plain")


@dataclass(frozen=True, slots=True)
class _Window:
    now: float
    tolerance: float

    def checked(self, timestamp: str) -> int:
        """The time in a header, if it is within the tolerance, ends included."""
        if not _TIMESTAMP_FORM.fullmatch(timestamp):
            raise MalformedTimestamp(f"{_TIMESTAMP} is whole Unix seconds")
        age = self.now - int(timestamp)
        if age < -self.tolerance:
            raise TooNew(
                f"{_TIMESTAMP} is {-age:.0f} s in the future, more than {self.tolerance:g}: check the clock"
            )
        if not age <= self.tolerance:  # not a number is never in time
            raise TooOld(f"{_TIMESTAMP} is {age:.0f} s ago, more than {self.tolerance:g}")
        return int(timestamp)


# ── headers ──────────────────────────────────────────────────────────────────────────────────────────────


def _fields(headers: object) -> dict[str, str]:
    """Our headers by their names in small letters. Others are ignored, None is as good as absent."""
    found: dict[str, str] = {}
    for name, value in _pairs(headers):
        key = _text(name).lower()
        if key not in _OURS or value is None:
            continue
        if not isinstance(value, (str, bytes)):
            raise MalformedHeader(f"{key} must be text or bytes")
        if found.setdefault(key, _text(value)) != _text(value):
            raise MalformedHeader(f"{key} is there twice, with different values")
    return found


def _pairs(headers: Any) -> Iterator[tuple[object, object]]:
    try:
        entries = list(headers.items() if hasattr(headers, "items") else headers)
    except (TypeError, ValueError):
        raise MalformedHeader("headers must be a mapping or pairs of name and value") from None
    for entry in entries:
        if isinstance(entry, (tuple, list)) and len(entry) == 2:
            yield entry[0], entry[1]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else ""


def _bytes(text: str) -> bytes:
    """compare_digest refuses text that is not ASCII."""
    return text.encode(errors="replace")


def _required(fields: Mapping[str, str], name: str) -> str:
    if name not in fields:
        raise MissingHeader(f"{name} is missing")
    return fields[name]


def _offered(header: str) -> Iterator[tuple[str, bytes]]:
    """Version and signature of each entry; one that makes no sense has neither that matches."""
    for entry in header.split():
        version, _, signature = entry.partition(",")
        yield version, _bytes(signature)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Key:
    text: str
    raw: bytes
    version: Literal["v1", "v1a"]

    def signs(self, content: bytes, signature: bytes) -> bool:
        if self.version == "v1":
            return hmac.compare_digest(b64encode(hmac.digest(self.raw, content, "sha256")), signature)
        return _ed25519_signs(self.raw, content, signature)


def _ed25519_signs(public: bytes, content: bytes, signature: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise MissingDependency("a whpk_ key needs cryptography: pip install 'recado[ed25519]'") from None
    try:
        raw = b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(raw, content)
    except (InvalidSignature, ValueError):
        return False
    return b64encode(raw) == signature  # base64 has several spellings of the same bytes


def _keys(secret: object) -> list[_Key]:
    texts = [secret] if isinstance(secret, str) else secret
    if isinstance(texts, (bytes, bytearray)) or not isinstance(texts, Sequence):
        raise BadSecret("a secret is text, whsec_… or whpk_…, or a list of such")
    if not texts:
        raise BadSecret("at least one secret is needed")
    # Secrets first: they may settle it where `cryptography` is not installed.
    return sorted((_key(text) for text in texts), key=lambda key: key.version)


def _key(text: object) -> _Key:
    if not isinstance(text, str):
        raise BadSecret("a secret is text, whsec_… or whpk_…")
    if text.startswith(_PRIVATE):
        raise BadSecret("whsk_ marks the sender's private key; receivers verify with the public one, whpk_…")
    if text.startswith(_PUBLIC):
        raw = _from_base64(text.removeprefix(_PUBLIC))
        if len(raw) != 32:
            raise BadSecret(f"a public key holds 32 bytes, this one {len(raw)}")
        return _Key(text, raw, "v1a")
    if not text.startswith(_SECRET):
        raise BadSecret(
            "a secret starts with whsec_ (or whpk_, a public key): is it empty, or has it white space?"
        )
    raw = _from_base64(text.removeprefix(_SECRET))
    if not 24 <= len(raw) <= 64:
        raise BadSecret(f"a secret holds 24 to 64 bytes, this one {len(raw)}")
    return _Key(text, raw, "v1")


def _from_base64(text: str) -> bytes:
    bare = text.rstrip("=")
    padded = bare + "=" * (-len(bare) % 4)
    if text != text.strip():
        raise BadSecret("a secret has no white space, this one ends with some")
    if not re.fullmatch(r"[A-Za-z0-9+/]*", bare) or len(bare) % 4 == 1 or text not in (bare, padded):
        raise BadSecret("behind its prefix a secret is standard base64 (A-Z a-z 0-9 + /), padded or not")
    return b64decode(padded)
