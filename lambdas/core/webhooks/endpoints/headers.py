"""The custom headers of an endpoint, such as an `Authorization` for the gateway in front of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

MASK = "…"
"""Replaces the value of a custom header wherever headers are shown."""

MAX_HEADERS = 20
MAX_VALUE_CHARACTERS = 1024
MAX_BYTES = 4000  # of JSON: KMS encrypts at most 4,096 bytes

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[!-~](?:[\t -~]*[!-~])?")
_SEPARATORS = re.compile(r"[^a-z0-9]")

_FRAMING = "it frames the message"
_OURS = "it is set by the sender"
_PROOF = "it looks like part of the signature"
_ROUTE = "it names the route of a request, and receivers can trust it"
_AWS = "AWS services give it a meaning"
_METADATA = "metadata services accept it as a permission"

_REASONS = {
    _FRAMING: "host content-length content-encoding content-range transfer-encoding trailer te "
    "connection keep-alive upgrade http2-settings expect",
    _OURS: "content-type user-agent accept-encoding",
    _PROOF: "signature signature-input digest content-digest repr-digest",
    _ROUTE: "forwarded via client-ip true-client-ip x-client-ip x-cluster-client-ip x-real-ip x-real-host "
    "x-host x-http-host-override x-http-method x-http-method-override x-method-override x-rewrite-url "
    "x-scheme x-url-scheme x-proxyuser-ip remote-addr remote-user",
    _METADATA: "metadata metadata-flavor",
    "it is the time of the message, which a fixed value is not; use webhook-timestamp": "date",
    # It can be allowed later; to forbid it later would break callers.
    "it is a session that the receiver renews by responses, which are not kept; use authorization": "cookie",
}
_REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
_REFUSED_PREFIXES = {
    "proxy-": "it is for proxies",
    "recado-": _OURS,
    "webhook-": _PROOF,
    "svix-": _PROOF,
    "x-signature": _PROOF,
    "cf-": _ROUTE,
    "fastly-": _ROUTE,
    "fly-": _ROUTE,
    "x-appengine-": _ROUTE,
    "x-apigw-": _ROUTE,
    "x-arr-": _ROUTE,
    "x-azure-": _ROUTE,
    "x-envoy-": _ROUTE,
    "x-forward": _ROUTE,
    "x-original-": _ROUTE,
    "x-remote-": _ROUTE,
    "x-vercel-": _ROUTE,
    "x-amz-": _AWS,
    "x-amzn-": _AWS,
    "x-aws-": _METADATA,
    "x-google-": _METADATA,
}


def check_headers(mapping: Mapping[str, str]) -> dict[str, str]:
    """The headers by lower-case name, in their order. ValueError gives the header and the reason, but no value.

    Limits: 20 headers, together 4,000 bytes as JSON. A value is 1 to 1,024 characters of visible ASCII, with
    spaces and tabs only inside.
    """
    if len(mapping) > MAX_HEADERS:
        raise ValueError(f"{len(mapping)} headers are too many; the limit is {MAX_HEADERS}")
    names: dict[str, str] = {}
    for name, value in mapping.items():
        _check_name(name)
        _check_value(name, value)
        twin = names.setdefault(_canonical(name), name)
        if twin != name:
            raise ValueError(f"header {name}: receivers cannot distinguish it from {twin}; use one of them")
    headers = {name.lower(): value for name, value in mapping.items()}
    size = len(json.dumps(headers))
    if size > MAX_BYTES:
        raise ValueError(f"the headers are {size} bytes as JSON; the limit is {MAX_BYTES}")
    return headers


def _canonical(name: str) -> str:
    """CGI and WSGI pass `webhook_id` and `webhook-id` to the receiver under one name (RFC 3875, 4.1.18)."""
    return _SEPARATORS.sub("-", name.lower())


def _check_name(name: str) -> None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(
            f"header {name[:80]!a}: a name is one or more of A-Z a-z 0-9 ! # $ % & ' * + - . ^ _ ` | ~"
        )
    canonical = _canonical(name)
    prefix = next((prefix for prefix in _REFUSED_PREFIXES if canonical.startswith(prefix)), "")
    reason = _REFUSED.get(canonical) or _REFUSED_PREFIXES.get(prefix)
    if reason:
        raise ValueError(f"header {name}: {reason}")


def _check_value(name: str, value: str) -> None:
    if not 0 < len(value) <= MAX_VALUE_CHARACTERS:
        raise ValueError(f"header {name}: a value has 1 to {MAX_VALUE_CHARACTERS} characters, not {len(value)}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"header {name}: a value is visible ASCII, with spaces and tabs only inside")
