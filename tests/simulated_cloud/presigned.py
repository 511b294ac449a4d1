"""Checks a presigned S3 URL as S3 does: signature, signed headers and expiry. moto accepts any URL."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from requests.structures import CaseInsensitiveDict

SECRET = "testing"


class Forbidden(Exception):
    """S3's error code, such as `SignatureDoesNotMatch`."""


def check(method: str, url: str, headers: Mapping[str, str], now: datetime) -> None:
    """Raise `Forbidden` if the request differs from the signed one or the URL has expired."""
    query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    signed_at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if now > signed_at + timedelta(seconds=int(query["X-Amz-Expires"])):
        raise Forbidden("AccessDenied: Request has expired")
    if not hmac.compare_digest(signature(method, url, headers, query), query["X-Amz-Signature"]):
        raise Forbidden("SignatureDoesNotMatch")


def signature(method: str, url: str, headers: Mapping[str, str], query: dict[str, str]) -> str:
    """The Signature Version 4 of the request.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
    """
    canonical = canonical_request(method, url, headers, query)
    scope = query["X-Amz-Credential"].partition("/")[2]
    text = "\n".join(
        ["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def canonical_request(method: str, url: str, headers: Mapping[str, str], query: dict[str, str]) -> str:
    parts = urlsplit(url)
    given = CaseInsensitiveDict({"host": parts.netloc, **headers})
    names = query["X-Amz-SignedHeaders"].split(";")
    pairs = sorted(
        (quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query.items() if k != "X-Amz-Signature"
    )
    lines = [f"{name}:{' '.join(str(given.get(name, '')).split())}\n" for name in names]
    return "\n".join(
        [
            method,
            parts.path or "/",
            "&".join(f"{key}={value}" for key, value in pairs),
            "".join(lines),
            query["X-Amz-SignedHeaders"],
            "UNSIGNED-PAYLOAD",
        ]
    )
