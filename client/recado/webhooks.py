"""Verify that a webhook was sent by Recado, is complete, and is recent.

Needs the standard library only, and `cryptography` for ed25519 keys.

Two schemes are supported. `webhook-signature` is Standard Webhooks 1.0.0 (https://www.standardwebhooks.com):
`v1` with the secret `whsec_…`, `v1a` with the public key `whpk_…`; it covers id, time and body. `X-Signature`
covers the body only, so it accepts a request of any age: whoever has seen one can send it again at any time. It is
used only with `allow_plain=True`, and never for a request that has a `webhook-signature`.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recado._webhook_headers import (
    ID,
    PLAIN_SIGNATURES,
    SIGNATURE,
    TIMESTAMP,
    Headers,
    required,
    signature_headers,
)
from recado._webhook_keys import Key, parse_keys
from recado.errors import (
    BodyNotBytes,
    MalformedHeader,
    MalformedTimestamp,
    MissingHeader,
    NoMatchingSignature,
    TooNew,
    TooOld,
)

__all__ = ["Event", "Headers", "verify"]

# With a dot in the id two messages could share a signature: `id.timestamp.body` is signed.
_ID_FORM = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TIMESTAMP_FORM = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Event:
    """A verified request.

    `id` and `timestamp` (Unix seconds) are signed. Both are None if `scheme` is `plain`: that signature covers the
    body only. When a delivery is retried, it has the same `id`.
    """

    body: bytes
    scheme: Literal["v1", "v1a", "plain"]
    id: str | None = None
    timestamp: int | None = None

    def json(self) -> Any:
        """The parsed body. Raises ValueError if it is not JSON in UTF-8."""
        return json.loads(self.body.decode())


def verify(
    headers: Headers,
    body: bytes,
    secret: str | Sequence[str],
    tolerance: float = 300,
    *,
    now: float | None = None,
    allow_plain: bool = False,
) -> Event:
    """The verified event. Raises a VerificationError that says what is wrong, and no other error for any input.

    `body`: the raw bytes of the request, before any parsing. `secret`: the endpoint's `whsec_…`, its public key
    `whpk_…` (needs `recado[ed25519]`), or several of them during a rotation. `tolerance`: how many seconds the
    sender's clock may differ from `now` (Unix seconds, by default the current time).

    `allow_plain=True` also accepts a request that has no `webhook-signature`, by its `X-Signature`. That signature
    contains neither id nor time: anyone who has seen a request can send it again at any time, with any
    `webhook-timestamp`. Use it only if something before this receiver removes the headers `webhook-…`.
    """
    keys = parse_keys(secret)
    if not isinstance(body, (bytes, bytearray)):
        raise BodyNotBytes("The body must be the raw bytes of the request, before any parsing.")
    found = signature_headers(headers)
    window = _Window(time.time() if now is None else now, tolerance)
    if SIGNATURE in found:
        return _verify_standard(found, bytes(body), keys, window)
    if not any(name in found for name in PLAIN_SIGNATURES):
        raise MissingHeader(f"{SIGNATURE} is missing.")
    if not allow_plain:
        raise MissingHeader(
            f"{SIGNATURE} is missing, and X-Signature alone is not accepted: it contains no time, so the request "
            f"may be an old one. Pass on {ID}, {TIMESTAMP} and {SIGNATURE}, or accept that with allow_plain=True."
        )
    return _verify_plain(found, bytes(body), keys, window)


def _verify_standard(headers: Mapping[str, str], body: bytes, keys: Sequence[Key], window: _Window) -> Event:
    event_id = required(headers, ID)
    if not _ID_FORM.fullmatch(event_id):
        raise MalformedHeader(f"{ID} must be 1 to 128 characters of A-Z a-z 0-9 _ -.")
    timestamp = window.check(required(headers, TIMESTAMP))
    content = f"{event_id}.{headers[TIMESTAMP]}.".encode() + body
    signatures = list(_parse_signatures(headers[SIGNATURE]))
    for key in keys:
        if any(version == key.version and key.matches(content, signature) for version, signature in signatures):
            return Event(body, key.version, event_id, timestamp)
    raise NoMatchingSignature(f"No signature in {SIGNATURE} matches. Check the secret, and verify the raw body.")


def _verify_plain(headers: Mapping[str, str], body: bytes, keys: Sequence[Key], window: _Window) -> Event:
    secrets = [key for key in keys if key.version == "v1"]
    if not secrets:
        raise MissingHeader(f"{SIGNATURE} is missing. A public key cannot verify X-Signature.")
    if TIMESTAMP in headers:
        window.check(headers[TIMESTAMP])
    received = [_bytes(headers[name]) for name in PLAIN_SIGNATURES if name in headers]
    expected = [b"sha256=" + hmac.digest(key.text.encode(), body, "sha256").hex().encode() for key in secrets]
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in received):
        raise NoMatchingSignature("X-Signature does not match. Check the secret, and verify the raw body.")
    return Event(body, "plain")


@dataclass(frozen=True, slots=True)
class _Window:
    now: float
    tolerance: float

    def check(self, timestamp: str) -> int:
        """The timestamp, if it is within the tolerance (inclusive)."""
        if not _TIMESTAMP_FORM.fullmatch(timestamp):
            raise MalformedTimestamp(f"{TIMESTAMP} must be a whole number of Unix seconds.")
        age = self.now - int(timestamp)
        if age < -self.tolerance:
            raise TooNew(
                f"{TIMESTAMP} is {-age:.0f} s in the future, more than {self.tolerance:g} s. Check the clock."
            )
        if not age <= self.tolerance:  # also refuses a tolerance that is not a number
            raise TooOld(f"{TIMESTAMP} is {age:.0f} s old, more than {self.tolerance:g} s.")
        return int(timestamp)


def _parse_signatures(header: str) -> Iterator[tuple[str, bytes]]:
    """Version and signature of each entry. Malformed entries match nothing."""
    for entry in header.split():
        version, _, signature = entry.partition(",")
        yield version, _bytes(signature)


def _bytes(text: str) -> bytes:
    """For compare_digest, which accepts no text with non-ASCII characters."""
    return text.encode(errors="replace")
