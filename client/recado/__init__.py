"""The Python client of Recado, which runs slow work as jobs and reports their end.

    from recado import Recado

    client = Recado("https://host/v1", "rk_…")
    job = client.wait(client.submit("report.pdf"))

Receivers of webhooks:

    event = recado.verify(request.headers, request.get_data(), "whsec_…")  # refuses what is older than 5 minutes
    print(event.id, event.json())

Subscribers of SNS topics: `from recado.sns import verify_sns` (`pip install "recado[sns]"`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from recado.errors import (
    ApiError,
    BadAnswer,
    BadSecret,
    BodyNotBytes,
    CertificateUnavailable,
    ClientUnusable,
    ConfirmationFailed,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    InsecureUrl,
    InvalidRequest,
    MalformedHeader,
    MalformedMessage,
    MalformedTimestamp,
    MissingDependency,
    MissingExtra,
    MissingHeader,
    NoMatchingSignature,
    NotConfigured,
    NotFound,
    PayloadTooLarge,
    RecadoError,
    ServerError,
    TimeUp,
    TooManyRequests,
    TooNew,
    TooOld,
    Unauthorized,
    UntrustedCertificate,
    VerificationError,
    WaitTimeout,
    WrongTopic,
)
from recado.webhooks import Event, verify

if TYPE_CHECKING:
    from recado.aio import AsyncRecado
    from recado.client import Recado
    from recado.cost import advise, polling_cost
    from recado.models import JobCanceled, JobEnded, JobFailed
    from recado.polling import poll_with_backoff

_LAZY = {
    "AsyncRecado": "recado.aio",
    "Recado": "recado.client",
    "JobCanceled": "recado.models",
    "JobEnded": "recado.models",
    "JobFailed": "recado.models",
    "advise": "recado.cost",
    "poll_with_backoff": "recado.polling",
    "polling_cost": "recado.cost",
}
"""Imported at their first use: receivers of webhooks start faster and need no HTTP client."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'recado' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


__all__ = [
    "ApiError",
    "AsyncRecado",
    "BadAnswer",
    "BadSecret",
    "BodyNotBytes",
    "CertificateUnavailable",
    "ClientUnusable",
    "ConfirmationFailed",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "Forbidden",
    "Gone",
    "InsecureUrl",
    "InvalidRequest",
    "JobCanceled",
    "JobEnded",
    "JobFailed",
    "MalformedHeader",
    "MalformedMessage",
    "MalformedTimestamp",
    "MissingDependency",
    "MissingExtra",
    "MissingHeader",
    "NoMatchingSignature",
    "NotConfigured",
    "NotFound",
    "PayloadTooLarge",
    "Recado",
    "RecadoError",
    "ServerError",
    "TimeUp",
    "TooManyRequests",
    "TooNew",
    "TooOld",
    "Unauthorized",
    "UntrustedCertificate",
    "VerificationError",
    "WaitTimeout",
    "WrongTopic",
    "advise",
    "poll_with_backoff",
    "polling_cost",
    "verify",
]
