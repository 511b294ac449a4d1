"""What errors of AWS mean to us, told apart by their codes."""

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

# https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskSuccess.html
TOKEN_GONE = {"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"}
"""Nobody waits for this task's answer any more."""


def code(error: Exception) -> str:
    """The AWS error code, or '' for anything else."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def reason(error: Exception) -> str:
    """What to log of an error: its code, or else its class."""
    return code(error) or type(error).__name__


def is_throttle(error: Exception) -> bool:
    return code(error) in THROTTLES


def is_transient(error: Exception) -> bool:
    """Whether the same call may well succeed later: throttles, faults of the service, broken connections."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code(error) in THROTTLES | TRANSIENT or status >= 500
    return isinstance(error, (ConnectionError, HTTPClientError, IncompleteReadError))


def cancellation_codes(error: ClientError) -> list[str]:
    """The reason codes of a TransactionCanceledException, one per action, in order."""
    reasons = error.response.get("CancellationReasons", [])
    return [str(reason.get("Code", "None")) for reason in reasons]


def raises_unavailable(function: Callable[P, R]) -> Callable[P, R]:
    """Raise what may pass by itself under the one name that state machines retry."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (BotoCoreError, ClientError) as error:
            if is_transient(error):
                raise Unavailable(f"AWS could not answer: {type(error).__name__}") from error
            raise

    return wrapper
