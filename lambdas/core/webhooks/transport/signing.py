"""Signs and verifies webhooks, so that receivers can check their origin, content and time.

Each attempt has these headers, over the exact bytes of the body:

- `webhook-signature`, Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): signs id, time and body, with
  HMAC-SHA256 (`v1`) or ed25519 (`v1a`);
- `x-signature: sha256=<hex>`, HMAC-SHA256 of the body with the secret's text as the key, for receivers without a
  library. It signs no time, so it does not detect replays. Only HMAC secrets make it.

Keys are text with a prefix and base64: `whsec_` HMAC secret, `whsk_` ed25519 private key (32 bytes of the seed and
32 of the public key), `whpk_` ed25519 public key.
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
    """A new ed25519 pair: the private key `whsk_…`, and the public key `whpk_…` for receivers."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    seed, public = private.private_bytes_raw(), private.public_key().public_bytes_raw()
    return PRIVATE_PREFIX + b64encode(seed + public).decode(), PUBLIC_PREFIX + b64encode(public).decode()


def decode(secret: str) -> bytes:
    """The HMAC key in a secret, padded or not. ValueError gives the problem without the secret."""
    key = _unwrap(secret, PREFIX, "a webhook secret")
    if len(key) not in _KEY_SIZES:
        raise ValueError(f"a webhook secret has 24 to 64 bytes, this one has {len(key)}")
    return key


def sign(keys: str | Sequence[str], *, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The signature headers of one attempt at `timestamp` (Unix seconds).

    During a rotation several keys (`whsec_`, `whsk_`) sign, the current one first. `x-signature` has only the
    signature of the newest secret, and `x-signature-previous` that of the secret before. Each attempt needs a new
    timestamp and signature; the id stays the same. ValueError for a malformed key, id or timestamp.
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
    """Raise InvalidSignature if no key signed exactly this body within 300 s of `now` (Unix seconds).

    `keys` are HMAC secrets and ed25519 public keys; ValueError for others. Header names can be in any case. `body`
    is the raw body. To detect repeated messages, store each `webhook-id` for 600 s, the whole time window.
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
        raise InvalidSignature("no signature matches; check the secret, and verify the raw body")


def _listed(keys: str | Sequence[str]) -> Sequence[str]:
    if not keys:
        raise ValueError("at least one secret is needed")
    return (keys,) if isinstance(keys, str) else keys


def _is_secret(key: str) -> bool:
    return key.startswith(PREFIX)


def _content(event_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{event_id}.{timestamp}.".encode() + body


def _entry(key: str, content: bytes) -> str:
    """The entry of one key in `webhook-signature`."""
    if key.startswith(PRIVATE_PREFIX):
        return "v1a," + b64encode(_private_key(key).sign(content)).decode()
    return "v1," + _hmac(decode(key), content).decode()


def _hmac(key: bytes, content: bytes) -> bytes:
    return b64encode(hmac.digest(key, content, "sha256"))


def _offered(header: str) -> Iterator[tuple[str, bytes]]:
    """Version and signature of each entry. Signatures are bytes, as compare_digest refuses non-ASCII text."""
    for entry in header.split():
        version, _, signature = entry.partition(",")
        yield version, signature.encode(errors="replace")


def _signs(key: bytes | Ed25519PublicKey, version: str, signature: bytes, content: bytes) -> bool:
    if isinstance(key, bytes):
        return version == "v1" and hmac.compare_digest(_hmac(key, content), signature)
    return version == "v1a" and _ed25519_signs(key, signature, content)


# ── ed25519: `cryptography` is imported when such a key is used ──────────────────────────────────────────


def _ed25519_signs(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature as Mismatch

    try:
        raw = b64decode(signature, validate=True)
        key.verify(raw, content)
    except (Mismatch, ValueError):
        return False
    return b64encode(raw) == signature  # base64 can encode the same bytes in several ways


def _private_key(key: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _unwrap(key, PRIVATE_PREFIX, "a signing key", size=64)
    private = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if private.public_key().public_bytes_raw() != raw[32:]:
        raise ValueError("a signing key ends with the public key of its seed, this one has another")
    return private


def _load(key: str) -> bytes | Ed25519PublicKey:
    if not key.startswith(PUBLIC_PREFIX):
        return decode(key)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(_unwrap(key, PUBLIC_PREFIX, "a public key", size=32))


# ── keys as text ─────────────────────────────────────────────────────────────────────────────────────────


def _unwrap(text: str, prefix: str, noun: str, *, size: int | None = None) -> bytes:
    """The bytes in a key, which must be `size` many. ValueError starts with `noun`."""
    problem = next(_problems(text, prefix), None) or next(_base64_problems(text.removeprefix(prefix)), None)
    if problem:
        raise ValueError(f"{noun} {problem}")
    raw = _from_base64(text.removeprefix(prefix))
    if size not in (None, len(raw)):
        raise ValueError(f"{noun} has {size} bytes, this one has {len(raw)}")
    return raw


def _problems(text: str, prefix: str) -> Iterator[str]:
    """The problems with a key up to its prefix, the most helpful first, without the key itself."""
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
    """The problems with the part after the prefix."""
    bare = text.rstrip("=")
    if "-" in bare or "_" in bare:
        yield "is in standard base64 (with + and /), this one in the URL-safe kind (with - and _)"
    if not re.fullmatch(r"[A-Za-z0-9+/]*", bare):
        yield "is in standard base64 (A-Z a-z 0-9 + /), this one has another character"
    if len(bare) % 4 == 1:
        yield "is complete base64, this one has a character too few or too many"
    if text not in (bare, _padded(bare)):
        yield "ends with the padding (=) for its length, or with none"
    if b64encode(_from_base64(bare)).decode() != _padded(bare):
        yield "is canonical base64, the last character of this one has surplus bits"


def _padded(bare: str) -> str:
    return bare + "=" * (-len(bare) % 4)


def _from_base64(text: str) -> bytes:
    return b64decode(_padded(text.rstrip("=")))
