"""Everything that this package raises on purpose.

    RecadoError
    ├── ApiError                     the service said no: status, type, title, detail, field, retry_after
    │   ├── Unauthorized             401
    │   ├── Forbidden                403
    │   ├── NotFound                 404
    │   ├── Conflict                 409
    │   ├── PayloadTooLarge          413
    │   ├── InvalidRequest           422, `field` names what is wrong
    │   ├── TooManyRequests          429
    │   └── ServerError              5xx
    ├── ConnectionFailed             no answer came, or it broke off
    ├── BadAnswer                    an answer came that this client cannot read
    ├── JobEnded                     the job did not complete: `job` (these three are in recado.models)
    │   ├── JobFailed                `code`, `message`, `stage`
    │   └── JobCanceled
    ├── TimeUp (TimeoutError)        the job goes on, the waiting has ended
    ├── NotConfigured                no URL or no key was given
    ├── MissingExtra (ImportError)   `websockets` is not installed
    └── VerificationError (ValueError)
        ├── MissingHeader            missing_header
        ├── MalformedHeader          malformed_header
        │   └── MalformedTimestamp   malformed_timestamp
        ├── TooOld                   too_old
        ├── TooNew                   too_new
        ├── NoMatchingSignature      no_matching_signature
        ├── BodyNotBytes             body_not_bytes           the receiver's mistake
        ├── BadSecret                bad_secret               the receiver's mistake
        ├── MissingDependency        missing_dependency       the receiver's mistake
        ├── MalformedMessage         malformed_message        SNS
        ├── WrongTopic               wrong_topic              SNS
        ├── UntrustedCertificate     untrusted_certificate    SNS
        ├── CertificateUnavailable   certificate_unavailable  SNS: answer 503 and it is sent again
        └── ConfirmationFailed       confirmation_failed      SNS: answer 503 and it is sent again

Messages name headers and rules, never a secret.
"""

from __future__ import annotations

from typing import ClassVar


class RecadoError(Exception):
    """The root."""


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────


class ApiError(RecadoError):
    """A problem document (RFC 9457) in reply. `type` is stable, `detail` says what to do.

    `retry_after` is in seconds, None where the answer names no time.
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
    """There is no valid key."""


class Forbidden(ApiError):
    """The key lacks a scope, or a link has expired."""


class NotFound(ApiError):
    """There is no such thing, or it is somebody else's."""


class Conflict(ApiError):
    """What is asked for does not go with what is."""


class PayloadTooLarge(ApiError):
    """More than the limit."""


class InvalidRequest(ApiError):
    """`field` names what is wrong."""


class TooManyRequests(ApiError):
    """Come back after `retry_after`."""


class ServerError(ApiError):
    """Something failed over there."""


class ConnectionFailed(RecadoError):
    """No answer came, or it broke off. `sent` is False where the request surely never left."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class BadAnswer(RecadoError):
    """An answer that is none of this API: a proxy's page, a URL that is not the service's."""


class NotConfigured(RecadoError):
    """No URL or no key was given."""


class MissingExtra(RecadoError, ImportError):
    """What an optional dependency is needed for; the message says how to install it."""


class TimeUp(RecadoError, TimeoutError):
    """The job goes on, the waiting has ended."""


# ── what was received ────────────────────────────────────────────────────────────────────────────────────


class VerificationError(RecadoError, ValueError):
    """Nothing proves that this was sent by whom it should be. `code` is stable and machine-readable."""

    code: ClassVar[str] = "unverified"


class MissingHeader(VerificationError):
    code = "missing_header"


class MalformedHeader(VerificationError):
    code = "malformed_header"


class MalformedTimestamp(MalformedHeader):
    code = "malformed_timestamp"


class TooOld(VerificationError):
    """Signed longer ago than the tolerance: a replay, or a clock that is wrong."""

    code = "too_old"


class TooNew(VerificationError):
    """Signed in the future, by more than the tolerance: a clock is wrong."""

    code = "too_new"


class NoMatchingSignature(VerificationError):
    code = "no_matching_signature"


class BodyNotBytes(VerificationError):
    """A framework's parsed body was given. Only the bytes that came over the wire are signed."""

    code = "body_not_bytes"


class BadSecret(VerificationError):
    code = "bad_secret"


class MissingDependency(VerificationError):
    """`cryptography` is needed and not installed."""

    code = "missing_dependency"


class MalformedMessage(VerificationError):
    code = "malformed_message"


class WrongTopic(VerificationError):
    code = "wrong_topic"


class UntrustedCertificate(VerificationError):
    code = "untrusted_certificate"


class CertificateUnavailable(VerificationError):
    """The certificate could not be fetched: temporary, so the message deserves another try."""

    code = "certificate_unavailable"


class ConfirmationFailed(VerificationError):
    code = "confirmation_failed"
