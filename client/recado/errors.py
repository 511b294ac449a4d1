"""All errors that this package raises.

    RecadoError
    ├── ApiError                     the service refused: status, type, title, detail, field, retry_after
    │   ├── Unauthorized             401
    │   ├── Forbidden                403
    │   ├── NotFound                 404
    │   │   └── Gone                 410, the job was deleted
    │   ├── Conflict                 409
    │   ├── PayloadTooLarge          413
    │   ├── InvalidRequest           422, `field` names the invalid field
    │   ├── TooManyRequests          429
    │   └── ServerError              5xx
    ├── ConnectionFailed             no response was received, or only a part of it
    ├── BadAnswer                    the response is not one of this API
    ├── JobEnded                     the job did not complete: `job` (these three are in recado.models)
    │   ├── JobFailed                `code`, `message`, `stage`
    │   └── JobCanceled
    ├── WaitTimeout (TimeoutError)   the timeout passed; the job continues. `TimeUp` is another name of this class
    ├── NotConfigured                no URL or no key is set, or the URL is not usable
    ├── InsecureUrl                  a link is not encrypted and leads to another machine
    ├── ClientUnusable               the client is closed, or its own httpx2 client cannot be used here
    ├── MissingExtra (ImportError)   `websockets` is not installed
    └── VerificationError (ValueError)
        ├── MissingHeader            missing_header
        ├── MalformedHeader          malformed_header
        │   └── MalformedTimestamp   malformed_timestamp
        ├── TooOld                   too_old
        ├── TooNew                   too_new
        ├── NoMatchingSignature      no_matching_signature
        ├── BodyNotBytes             body_not_bytes           a mistake of the receiver
        ├── BadSecret                bad_secret               a mistake of the receiver
        ├── MissingDependency        missing_dependency       a mistake of the receiver
        ├── MalformedMessage         malformed_message        SNS
        ├── WrongTopic               wrong_topic              SNS
        ├── UntrustedCertificate     untrusted_certificate    SNS
        ├── CertificateUnavailable   certificate_unavailable  SNS: answer 503, and SNS sends the message again
        └── ConfirmationFailed       confirmation_failed      SNS: answer 503, and SNS sends the message again

Messages name headers and rules, never a secret.
"""

from __future__ import annotations

from typing import ClassVar


class RecadoError(Exception):
    """The base class of all errors of this package."""


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────


class ApiError(RecadoError):
    """The service answered with a problem document (RFC 9457). `type` is stable, `detail` says what to do.

    `retry_after` is in seconds, None if the response has no Retry-After.
    """

    def __init__(
        self,
        *,
        status: int,
        type: str = "about:blank",
        title: str = "",
        detail: str = "",
        field: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {title or type}: {detail}" if detail else f"{status} {title or type}")
        self.status = status
        self.type = type
        self.title = title
        self.detail = detail
        self.field = field
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """The key is missing or invalid."""


class Forbidden(ApiError):
    """The key lacks a scope, or a link has expired."""


class NotFound(ApiError):
    """The object does not exist, or it belongs to another owner."""


class Gone(NotFound):
    """The job was deleted."""


class Conflict(ApiError):
    """The request conflicts with the current state."""


class PayloadTooLarge(ApiError):
    """The request is larger than the limit."""


class InvalidRequest(ApiError):
    """The request is invalid. `field` names the invalid field."""


class TooManyRequests(ApiError):
    """The rate limit or a quota is reached. `detail` says which; retry after `retry_after` seconds."""


class ServerError(ApiError):
    """The service failed."""


class ConnectionFailed(RecadoError):
    """No response was received, or only a part of it. `sent` is False if the request was certainly not sent."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class BadAnswer(RecadoError):
    """The response is not one of this API: it comes from a proxy, or the URL is not the URL of the service."""


class NotConfigured(RecadoError):
    """No URL or no key is set, or the URL is not usable."""


class InsecureUrl(RecadoError):
    """The URL is not encrypted and does not lead to this machine. Nothing was sent."""


class ClientUnusable(RecadoError):
    """The client is closed, or its `http` is of another process or event loop. Create a new client."""


class MissingExtra(RecadoError, ImportError):
    """An optional dependency is not installed. The message says how to install it."""


class WaitTimeout(RecadoError, TimeoutError):
    """The timeout passed. The job continues."""


TimeUp = WaitTimeout
"""The first name of `WaitTimeout`. It stays for programs that use it."""


# ── signatures ───────────────────────────────────────────────────────────────────────────────────────────


class VerificationError(RecadoError, ValueError):
    """The sender cannot be verified. `code` is stable and machine-readable."""

    code: ClassVar[str] = "unverified"


class MissingHeader(VerificationError):
    """A required header is missing."""

    code = "missing_header"


class MalformedHeader(VerificationError):
    """A header has an invalid value."""

    code = "malformed_header"


class MalformedTimestamp(MalformedHeader):
    """The timestamp is not a number of Unix seconds."""

    code = "malformed_timestamp"


class TooOld(VerificationError):
    """The signature is older than the tolerance: the request is a replay, or a clock is wrong."""

    code = "too_old"


class TooNew(VerificationError):
    """The signature is from the future by more than the tolerance: a clock is wrong."""

    code = "too_new"


class NoMatchingSignature(VerificationError):
    """No signature matches the content and the keys."""

    code = "no_matching_signature"


class BodyNotBytes(VerificationError):
    """The body is already parsed. The signature covers the raw bytes."""

    code = "body_not_bytes"


class BadSecret(VerificationError):
    """The receiver's secret is malformed."""

    code = "bad_secret"


class MissingDependency(VerificationError):
    """`cryptography` is required and not installed."""

    code = "missing_dependency"


class MalformedMessage(VerificationError):
    """The message is not a signed SNS message."""

    code = "malformed_message"


class WrongTopic(VerificationError):
    """The message belongs to another topic."""

    code = "wrong_topic"


class UntrustedCertificate(VerificationError):
    """The certificate is not a valid certificate of SNS."""

    code = "untrusted_certificate"


class CertificateUnavailable(VerificationError):
    """The certificate could not be downloaded. The failure is temporary; the message can be verified again."""

    code = "certificate_unavailable"


class ConfirmationFailed(VerificationError):
    """SNS did not confirm the subscription."""

    code = "confirmation_failed"
