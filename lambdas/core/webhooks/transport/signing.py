"""Signatures by which a receiver knows that a webhook is ours, whole and recent.

Every attempt carries, over the very bytes that are sent:

- `webhook-signature`, Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): proves id, time and body, by
  HMAC-SHA256 (`v1`) or ed25519 (`v1a`);
- `x-signature: sha256=<hex>`, HMAC-SHA256 of the body keyed with the secret's text: for receivers with no
  library. It proves no time, so it cannot tell a replay. An ed25519 key is not shared, so it makes none.

Keys are text, told apart by their prefix: `whsec_` HMAC secret, `whsk_` ed25519 private key (the seed's 32 bytes
and the public key's 32), `whpk_` ed25519 public key. The rest is base64.
"""

from __future__ import annotations

import hmac
import re
import secrets as randomness
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from core.errors import InvalidSignature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX = "whsec_", "whsk_", "whpk_"
TOLERANCE_SECONDS = 300
_KINDS = {
    PREFIX: "an HMAC secret",
    PRIVATE_PREFIX: "an ed25519 private key",
    PUBLIC_PREFIX: "an ed25519 public key",
}
_KEY_SIZES = range(24, 65)  # bytes, by the specification
_PLAIN_HEADERS = ("x-signature", "x-signature-previous")
# The signed text is `id.timestamp.body`: a dot in the id would let two messages share a signature.
_EVENT_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


def make_secret() -> str:
    """A new endpoint secret: `whsec_` and the base64 of 32 random bytes."""
    return PREFIX + b64encode(randomness.token_bytes(32)).decode()


def make_key_pair() -> tuple[str, str]:
    """A new ed25519 pair: the private key `whsk_…`, and the public key `whpk_…` that receivers are given."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    seed, public = private.private_bytes_raw(), private.public_key().public_bytes_raw()
    return PRIVATE_PREFIX + b64encode(seed + public).decode(), PUBLIC_PREFIX + b64encode(public).decode()


def decode(secret: str) -> bytes:
    """The HMAC key in a secret, padded or not. ValueError says what is wrong without repeating the secret."""
    key = _unwrap(secret, PREFIX, "a webhook secret")
    if len(key) not in _KEY_SIZES:
        raise ValueError(f"a webhook secret holds 24 to 64 bytes, this one {len(key)}")
    return key


def sign(keys: str | Sequence[str], *, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The signature headers of one attempt at `timestamp` (Unix seconds).

    Several keys (`whsec_`, `whsk_`) sign during a rotation, the current one first. A plain header has room for
    one: the newest secret makes `x-signature`, the one before it `x-signature-previous`. An attempt made later
    needs a new timestamp and so a new signature; the id stays. ValueError for a bad key, id or timestamp.
    """
    listed = _listed(keys)
    if not _EVENT_ID.fullmatch(event_id):
        raise ValueError("an event id is 1 to 128 of A-Z a-z 0-9 _ -")
    if not _TIMESTAMP.fullmatch(str(timestamp)):
        raise ValueError("a timestamp is whole Unix seconds")
    content = _content(event_id, str(timestamp), body)
    signed = {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_entry(key, content) for key in listed),
    }
    plain = ("sha256=" + hmac.digest(key.encode(), body, "sha256").hex() for key in listed if _is_secret(key))
    return signed | dict(zip(_PLAIN_HEADERS, plain, strict=False))


def verify(keys: str | Sequence[str], headers: Mapping[str, str], body: bytes, *, now: float) -> None:
    """Raise InvalidSignature unless one key signed exactly this body within 300 s of `now` (Unix seconds).

    `keys` are HMAC secrets and ed25519 public keys; ValueError for any other. Header names may be in any case.
    `body` is what came over the wire, before any parsing. A caller that must not do the work twice remembers
    `webhook-id` for 600 s, both sides of the window.
    """
    loaded = [_load(key) for key in _listed(keys)]
    fields = {name.lower(): value for name, value in headers.items()}
    event_id, timestamp = fields.get("webhook-id", ""), fields.get("webhook-timestamp", "")
    if not _EVENT_ID.fullmatch(event_id) or not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidSignature("webhook-id or webhook-timestamp is missing or malformed")
    if not abs(now - int(timestamp)) <= TOLERANCE_SECONDS:
        raise InvalidSignature("webhook-timestamp is too far from now")
    offered = list(_offered(fields.get("webhook-signature", "")))
    content = _content(event_id, timestamp, body)
    if not any(_signs(key, version, signature, content) for key in loaded for version, signature in offered):
        raise InvalidSignature("no signature matches: check the secret, and verify the raw body")


def _listed(keys: str | Sequence[str]) -> Sequence[str]:
    if not keys:
        raise ValueError("at least one secret is needed")
    return (keys,) if isinstance(keys, str) else keys


def _is_secret(key: str) -> bool:
    return key.startswith(PREFIX)


def _content(event_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{event_id}.{timestamp}.".encode() + body


def _entry(key: str, content: bytes) -> str:
    """What one key adds to `webhook-signature`."""
    if key.startswith(PRIVATE_PREFIX):
        return "v1a," + b64encode(_private_key(key).sign(content)).decode()
    return "v1," + _hmac(decode(key), content).decode()


def _hmac(key: bytes, content: bytes) -> bytes:
    return b64encode(hmac.digest(key, content, "sha256"))


def _offered(header: str) -> Iterator[tuple[str, bytes]]:
    """Version and signature of each entry, as bytes because compare_digest refuses non-ASCII text."""
    for entry in header.split():
        version, _, signature = entry.partition(",")
        yield version, signature.encode(errors="replace")


def _signs(key: bytes | Ed25519PublicKey, version: str, signature: bytes, content: bytes) -> bool:
    if isinstance(key, bytes):
        return version == "v1" and hmac.compare_digest(_hmac(key, content), signature)
    return version == "v1a" and _ed25519_signs(key, signature, content)


# ── ed25519: `cryptography` is imported only where such a key is used ────────────────────────────────────


def _ed25519_signs(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature as Mismatch

    try:
        raw = b64decode(signature, validate=True)
        key.verify(raw, content)
    except (Mismatch, ValueError):
        return False
    return b64encode(raw) == signature  # base64 has several spellings of the same bytes


def _private_key(key: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _unwrap(key, PRIVATE_PREFIX, "a signing key", size=64)
    private = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if private.public_key().public_bytes_raw() != raw[32:]:
        raise ValueError("a signing key ends with the public key of its seed, this one with another")
    return private


def _load(key: str) -> bytes | Ed25519PublicKey:
    if not key.startswith(PUBLIC_PREFIX):
        return decode(key)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(_unwrap(key, PUBLIC_PREFIX, "a public key", size=32))


# ── keys as text ─────────────────────────────────────────────────────────────────────────────────────────


def _unwrap(text: str, prefix: str, noun: str, *, size: int | None = None) -> bytes:
    """The bytes in a key, of which there must be `size`. ValueError begins with `noun`."""
    problem = next(_problems(text, prefix), None) or next(_base64_problems(text.removeprefix(prefix)), None)
    if problem:
        raise ValueError(f"{noun} {problem}")
    raw = _from_base64(text.removeprefix(prefix))
    if size not in (None, len(raw)):
        raise ValueError(f"{noun} holds {size} bytes, this one {len(raw)}")
    return raw


def _problems(text: str, prefix: str) -> Iterator[str]:
    """What is wrong with a key up to its prefix, what tells most first. Nothing of the key itself is repeated."""
    if not text:
        yield "is not empty"
    if re.search(r"\s", text):
        yield "has no white space, this one has some (a line break at its end, or around its prefix?)"
    for other in _KINDS.keys() - {prefix}:
        if text.startswith(other):
            yield f"starts with {prefix!r}; {other!r} marks {_KINDS[other]}"
    if not text.startswith(prefix):
        in_capitals = text.lower().startswith(prefix)
        yield f"starts with {prefix!r}" + (", in small letters" if in_capitals else "")
    if text.removeprefix(prefix).startswith(tuple(_KINDS)):
        yield f"starts with {prefix!r} once, this one has two prefixes"


def _base64_problems(text: str) -> Iterator[str]:
    """What is wrong with the part behind the prefix."""
    bare = text.rstrip("=")
    if "-" in bare or "_" in bare:
        yield "is in standard base64 (with + and /), this one in the URL-safe kind (with - and _)"
    if not re.fullmatch(r"[A-Za-z0-9+/]*", bare):
        yield "is in standard base64 (A-Z a-z 0-9 + /), this one has another character"
    if len(bare) % 4 == 1:
        yield "is whole base64, this one has lost a character or gained one"
    if text not in (bare, _padded(bare)):
        yield "ends with the padding (=) that its length asks for, or with none"
    if b64encode(_from_base64(bare)).decode() != _padded(bare):
        yield "is base64 as encoders write it, the last character of this one has bits that belong to no byte"


def _padded(bare: str) -> str:
    return bare + "=" * (-len(bare) % 4)


def _from_base64(text: str) -> bytes:
    return b64decode(_padded(text.rstrip("=")))
