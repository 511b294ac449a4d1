"""Which failed requests are sent again, and after which delay. Standard library only."""

from __future__ import annotations

import random

from recado.errors import ApiError, ConnectionFailed, RecadoError

RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
UNPROCESSED_STATUSES = frozenset({429})
"""The service has not processed the request, so it can be sent again even if it is not idempotent."""

BASE_SECONDS, CAP_SECONDS = 0.5, 30.0
MAX_RETRY_AFTER_SECONDS = 60.0


def may_retry(error: RecadoError, *, idempotent: bool) -> bool:
    """Whether the request may be sent again. One that is not idempotent only if it was certainly not processed."""
    if isinstance(error, ConnectionFailed):
        return idempotent or not error.sent
    statuses = RETRYABLE_STATUSES if idempotent else UNPROCESSED_STATUSES
    return isinstance(error, ApiError) and error.status in statuses and not _is_for_long(error)


def _is_for_long(error: ApiError) -> bool:
    """Whether a quota is used up for so long that the caller must know: a retry would come too early."""
    return error.status == 429 and (error.retry_after or 0.0) > MAX_RETRY_AFTER_SECONDS


def is_permanent(error: RecadoError | None) -> bool:
    """Whether the same request will fail again."""
    return isinstance(error, ApiError) and error.status not in RETRYABLE_STATUSES


def retry_delay(attempt: int, error: Exception | None = None) -> float:
    """Seconds: full jitter (a random part of base × 2^attempt, capped), plus the error's Retry-After, capped."""
    jitter = random.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2 ** min(attempt, 16)))  # noqa: S311 spreads load
    retry_after = getattr(error, "retry_after", None) or 0.0
    return jitter + min(retry_after, MAX_RETRY_AFTER_SECONDS)
