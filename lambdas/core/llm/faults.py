"""Errors of providers, classified by HTTP status, by code and, where these do not say it, by the message."""

from __future__ import annotations

import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

from core.aws.errors import THROTTLES, TRANSIENT
from core.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelFault,
    ModelQuotaExceeded,
    ModelRejected,
    ModelThrottled,
    ModelUnavailable,
)

MAX_MESSAGE = 500
"""Characters of a provider's message that an owner sees."""
MAX_READ = 20_000
"""Characters of it that are read."""

_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "ServiceQuotaExceededException"}
_THROTTLED = THROTTLES | {"rate_limit_exceeded", "rate_limit_error"}
_OVERFLOW = {"context_length_exceeded", "exceed_context_size_error"}
_FILTERED = {"content_filter", "content_policy_violation"}
_REJECTED = {"ValidationException", "AccessDeniedException", "ResourceNotFoundException", "invalid_request_error"}
_UNAVAILABLE = TRANSIENT | {
    *("ModelErrorException", "ModelStreamErrorException"),
    *("ExpiredTokenException", "ExpiredToken"),  # of credentials that are being replaced
}
_PAYMENT_REQUIRED, _TOO_MANY_REQUESTS = 402, 429
_UNAUTHORIZED = (401, 403)
_TRANSIENT_STATUS = {408, 409, 424}
"""409 is a lock that another call holds, 424 a failure of the model behind the service."""


def classify(
    message: str,
    *,
    status: int | None,
    codes: tuple[str, ...] = (),
    retry_after: float | None = None,
    billed: bool = False,
) -> ModelFault | ModelRejected:
    """The error of the port for an error of a provider.

    `status`: None for an error inside an answer, which may succeed later if nothing says otherwise. `codes`: the
    provider's code and type. `billed`: whether the model has begun to answer.
    """
    found = {code[:1].upper() + code[1:] if code.endswith("Exception") else code for code in codes}
    message = message[:MAX_READ]
    text = public(message)
    if found & _QUOTA or status == _PAYMENT_REQUIRED:
        return ModelQuotaExceeded(f"the account's budget at the provider is used up: {text}")
    if found & _THROTTLED or status == _TOO_MANY_REQUESTS or (_is_5xx(status) and "throttl" in message.lower()):
        return ModelThrottled(f"the provider limits the rate: {text}", retry_after=retry_after, billed=billed)
    if found & _UNAVAILABLE or status in _TRANSIENT_STATUS or _is_5xx(status):
        return ModelUnavailable(f"the provider failed: {text}", billed=billed)
    if found & _OVERFLOW or is_overflow(message):
        return ContextOverflow(f"the input is too long for the model: {text}")
    if found & _FILTERED:
        return ContentFiltered(f"the provider's content filter refuses the input: {text}")
    if "AccessDeniedException" in found or status in _UNAUTHORIZED:
        return ModelRejected(f"the provider refuses access; check its key, permissions and model access: {text}")
    if status is None and not found & _REJECTED:
        return ModelUnavailable(f"the provider failed while it answered: {text}", billed=billed)
    return ModelRejected(text)


def _is_5xx(status: int | None) -> bool:
    return status is not None and status >= 500


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────

_SECRETS = (
    (re.compile(r"arn:aws[\w-]*:[^\s\"'`,;)\]]+"), "[arn]"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "[account]"),
    (re.compile(r"\b(?:sk|pk|rk|gsk|hf|xai)[-_][\w*.-]{6,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "[key]"),
    (re.compile(r"\bBearer\s+[^\s\"',]+", re.IGNORECASE), "[key]"),
)
_MARKUP = re.compile(r"</?[A-Za-z!][^<>]{0,500}>|[\x00-\x1f\x7f-\x9f]")
"""Tags of an error page, and control characters."""


def public(message: str) -> str:
    """The message without what belongs to the operator: ARNs, account ids, and keys, which some errors repeat.

    It is one line without markup, so that no page and no terminal obeys it.
    """
    message = _MARKUP.sub(" ", message[:MAX_READ])
    for pattern, replacement in _SECRETS:
        message = pattern.sub(replacement, message)
    return message.strip()[:MAX_MESSAGE] or "the provider gave no reason"


_SUM = re.compile(r"\b(input|prompt)\w*\W+tokens?\W*\+", re.IGNORECASE)
"""Input and answer together are too long."""
_LIMIT = r"max(imum)?[ _]?(completion_|new_|output_)?tokens\W+"
_OUTPUT = re.compile(rf"{_LIMIT}(or\W+{_LIMIT})?(must|should|can ?not|value)", re.IGNORECASE)
"""Only the answer that was asked for is too long."""
_INPUT = re.compile(
    r"\b(input|prompt|request)\b[^.]{0,40}\btoo (long|large)\b"
    r"|\btoo many (input |prompt )?tokens\b"
    r"|\b(maximum|available|model's) (context|prompt|input) (length|size|window)\b"
    r"|\bexceeds?\b[^.]{0,40}\b(context|prompt) (length|size|window|limit)\b"
    r"|\binput tokens?( count)?\b[^.]{0,20}\bexceed"
    r"|\binputs?\W+must have less than \d+ tokens",
    re.IGNORECASE,
)


def is_overflow(message: str) -> bool:
    """Whether a message says that the input, or input and answer together, are longer than the model's context.

    A `max_tokens` that is larger than the model allows for any answer is not that: a shorter input does not help.
    """
    if _SUM.search(message):
        return True
    return _INPUT.search(message) is not None and not _OUTPUT.search(message)


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────


def retry_after(text: str | None) -> float | None:
    """Seconds from a Retry-After (RFC 9110, section 10.2.3): a number or a date. None for anything else.

    Dates in the past are ignored, too: the clocks of the two sides differ.
    """
    try:
        seconds = float(text or "")
    except ValueError:
        seconds = _seconds_until(text or "")
    return seconds if 0 <= seconds < float("inf") else None


def _seconds_until(date: str) -> float:
    """Seconds until an HTTP-date, -1 if it is none."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return -1
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time.time()
