"""Errors of AWS, classified by their codes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
)

from core.errors import Unavailable

P = ParamSpec("P")
R = TypeVar("R")

# https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
THROTTLES = {
    "ThrottlingException",
    "Throttling",
    "ThrottledException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "ProvisionedThroughputExceededException",
    "RequestThrottled",
    "SlowDown",
    "LimitExceededException",
    "ModelNotReadyException",
    "TransactionInProgressException",
}
TRANSIENT = {
    "InternalServerError",
    "InternalServerException",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ModelTimeoutException",
}


def code(error: Exception) -> str:
    """The AWS error code, or '' for other exceptions."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def reason(error: Exception) -> str:
    """What to log of an error: its AWS code, or else its class name."""
    return code(error) or type(error).__name__


def is_transient(error: Exception) -> bool:
    """Whether the same call may succeed later: throttling, errors of the service, broken connections."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code(error) in THROTTLES | TRANSIENT or status >= 500
    return isinstance(error, (ConnectionError, HTTPClientError, IncompleteReadError))


def cancellation_codes(error: ClientError) -> list[str]:
    """The reason codes of a TransactionCanceledException, one per operation, in order."""
    reasons = error.response.get("CancellationReasons", [])
    return [str(reason.get("Code", "None")) for reason in reasons]


def raises_unavailable(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: raise transient AWS errors as Unavailable, which state machines retry."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (BotoCoreError, ClientError) as error:
            if is_transient(error):
                raise Unavailable(f"an AWS service is unavailable: {type(error).__name__}") from error
            raise

    return wrapper
