"""Signatures by which a receiver knows that a webhook is ours, whole and recent.

Every attempt carries two, over the very bytes that are sent:

- `webhook-signature`, Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): proves id, time and body;
- `x-signature: sha256=<hex>`, HMAC-SHA256 of the body keyed with the secret's text: for receivers with no
  library. It proves no time, so it cannot tell a replay.
"""

from __future__ import annotations

import hmac
import re
import secrets as randomness
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence

from core.errors import InvalidSignature

PREFIX = "whsec_"
TOLERANCE_SECONDS = 300
_KEY_SIZES = range(24, 65)  # bytes, by the specification
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
# The signed text is `id.timestamp.body`: a dot in the id would let two messages share a signature.
_EVENT_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


def make_secret() -> str:
    """A new endpoint secret: `whsec_` and the base64 of 32 random bytes."""
    return PREFIX + b64encode(randomness.token_bytes(32)).decode()


def decode(secret: str) -> bytes:
    """The HMAC key in a secret, padded or not. ValueError says what is wrong without repeating the secret."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"a webhook secret starts with {PREFIX!r}")
    text = secret.removeprefix(PREFIX)
    bare = text.rstrip("=")
    padded = bare + "=" * (-len(bare) % 4)
    if not _BASE64.fullmatch(text) or len(bare) % 4 == 1 or text not in (bare, padded):
        raise ValueError(f"a webhook secret is {PREFIX!r} followed by standard base64 (A-Z a-z 0-9 + /)")
    key = b64decode(padded)
    if len(key) not in _KEY_SIZES:
        raise ValueError(f"a webhook secret holds 24 to 64 bytes, this one {len(key)}")
    return key


def sign(secrets: str | Sequence[str], *, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The signature headers of one attempt at `timestamp` (Unix seconds).

    Several secrets sign during a rotation, the current one first. An attempt made later needs a new
    timestamp and so a new signature; the id stays. ValueError for a bad secret, id or timestamp.
    """
    current, *older = _listed(secrets)
    if not _EVENT_ID.fullmatch(event_id):
        raise ValueError("an event id is 1 to 128 of A-Z a-z 0-9 _ -")
    if not _TIMESTAMP.fullmatch(str(timestamp)):
        raise ValueError("a timestamp is whole Unix seconds")
    signatures = (_signature(decode(s), event_id, str(timestamp), body) for s in (current, *older))
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
        "x-signature": "sha256=" + hmac.digest(current.encode(), body, "sha256").hex(),
    }


def verify(secrets: str | Sequence[str], headers: Mapping[str, str], body: bytes, *, now: float) -> None:
    """Raise InvalidSignature unless one secret signed exactly this body within 300 s of `now` (Unix seconds).

    Header names may be in any case. `body` is what came over the wire, before any parsing. A caller that
    must not do the work twice remembers `webhook-id` for 600 s, both sides of the window.
    """
    keys = [decode(secret) for secret in _listed(secrets)]
    fields = {name.lower(): value for name, value in headers.items()}
    event_id, timestamp = fields.get("webhook-id", ""), fields.get("webhook-timestamp", "")
    if not _EVENT_ID.fullmatch(event_id) or not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidSignature("webhook-id or webhook-timestamp is missing or malformed")
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise InvalidSignature("webhook-timestamp is too far from now")
    offered = list(_offered(fields.get("webhook-signature", "")))
    expected = [_signature(key, event_id, timestamp, body).encode() for key in keys]
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in offered):
        raise InvalidSignature("no signature matches: check the secret, and verify the raw body")


def _listed(secrets: str | Sequence[str]) -> Sequence[str]:
    if not secrets:
        raise ValueError("at least one secret is needed")
    return (secrets,) if isinstance(secrets, str) else secrets


def _signature(key: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    content = f"{event_id}.{timestamp}.".encode() + body
    return b64encode(hmac.digest(key, content, "sha256")).decode()


def _offered(header: str) -> Iterator[bytes]:
    """The `v1` entries, as bytes because compare_digest refuses non-ASCII text. Others are skipped."""
    for entry in header.split():
        version, _, signature = entry.partition(",")
        if version == "v1":
            yield signature.encode(errors="replace")
