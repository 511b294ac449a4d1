"""Read the signature headers of a request, in the forms that web frameworks have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recado.errors import MalformedHeader, MissingHeader

Headers = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
"""A mapping or pairs; names in any case; text or bytes."""

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PLAIN_SIGNATURES = ("x-signature", "x-signature-previous")
_NAMES = frozenset({ID, TIMESTAMP, SIGNATURE, *PLAIN_SIGNATURES})


def signature_headers(headers: object) -> dict[str, str]:
    """The signature headers by their lower-case names. Others are ignored, and None counts as missing."""
    found: dict[str, str] = {}
    for name, value in _pairs(headers):
        key = _text(name).lower()
        if key not in _NAMES or value is None:
            continue
        if not isinstance(value, (str, bytes)):
            raise MalformedHeader(f"{key} must be text or bytes.")
        if found.setdefault(key, _text(value)) != _text(value):
            raise MalformedHeader(f"{key} appears twice with different values.")
    return found


def required(headers: Mapping[str, str], name: str) -> str:
    if name not in headers:
        raise MissingHeader(f"{name} is missing.")
    return headers[name]


def _pairs(headers: Any) -> Iterator[tuple[object, object]]:
    try:
        entries = list(headers.items() if hasattr(headers, "items") else headers)
    except (TypeError, ValueError):
        raise MalformedHeader("The headers must be a mapping or pairs of name and value.") from None
    for entry in entries:
        if isinstance(entry, (tuple, list)) and len(entry) == 2:
            yield entry[0], entry[1]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else ""
