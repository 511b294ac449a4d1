"""Every error this project raises on purpose.

    RecadoError
    ├── RequestError                 an HTTP answer: status and what to do
    │   ├── InvalidRequest           422, names the field
    │   ├── PayloadTooLarge          413
    │   ├── Forbidden                403
    │   ├── NotFound                 404
    │   └── Conflict                 409
    ├── JobFailure                   ends the job; `code` is shown to its owner
    │   ├── InvalidDocument
    │   │   ├── UnsupportedType      unsupported_type
    │   │   ├── DocumentTooLarge     too_large
    │   │   ├── EmptyDocument        empty
    │   │   ├── NoText               no_text
    │   │   ├── EncryptedDocument    encrypted
    │   │   ├── TruncatedDocument    truncated
    │   │   ├── ParseTimeout         timeout
    │   │   ├── TooComplex           too_complex
    │   │   └── SourceNotFound       not_found
    │   ├── CountMismatch            count_mismatch
    │   ├── Superseded               superseded
    │   └── DeadlineExceeded         deadline_exceeded
    ├── JobClosed                    the job has ended or is not ours: stop quietly
    ├── NotDue                       the job is not to be begun yet: come again later
    ├── ConditionFailed              a write's condition was broken, and nothing was written
    ├── Retryable                    worth another try, later
    │   ├── Throttled
    │   ├── Contended
    │   └── Unavailable
    ├── InvalidSignature             a webhook that does not prove who sent it
    └── Refused                      the webhook guard said no
        └── DeliveryError            an attempt that got no answer; `error_class` says where it broke

A step of a state machine reports its error by class name, so `by_name` is the way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

ErrorClass = Literal["dns", "connect", "tls", "timeout", "blocked", "protocol"]


class RecadoError(Exception):
    """Root. `code` is stable and machine-readable; the message says what happened and what to do."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class RequestError(RecadoError):
    """Answered over HTTP as an RFC 9457 problem."""

    code = "bad_request"
    status: ClassVar[int] = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidRequest(RequestError):
    code, status = "invalid_request", 422


class PayloadTooLarge(RequestError):
    code, status = "payload_too_large", 413


class Forbidden(RequestError):
    code, status = "forbidden", 403


class NotFound(RequestError):
    code, status = "not_found", 404


class Conflict(RequestError):
    code, status = "conflict", 409


class JobFailure(RecadoError):
    """Ends the job. The message is shown to the job's owner, so it carries nothing internal."""

    code = "failed"


class InvalidDocument(JobFailure):
    code = "invalid_document"


class UnsupportedType(InvalidDocument):
    code = "unsupported_type"


class DocumentTooLarge(InvalidDocument):
    code = "too_large"


class EmptyDocument(InvalidDocument):
    code = "empty"


class NoText(InvalidDocument):
    code = "no_text"


class EncryptedDocument(InvalidDocument):
    code = "encrypted"


class TruncatedDocument(InvalidDocument):
    code = "truncated"


class ParseTimeout(InvalidDocument):
    code = "timeout"


class TooComplex(InvalidDocument):
    code = "too_complex"


class SourceNotFound(InvalidDocument):
    code = "not_found"


class CountMismatch(JobFailure):
    code = "count_mismatch"


class Superseded(JobFailure):
    code = "superseded"


class DeadlineExceeded(JobFailure):
    code = "deadline_exceeded"


class JobClosed(RecadoError):
    """The job has ended, or another execution holds it. Nothing is left to do."""

    code = "job_closed"


class NotDue(RecadoError):
    """The job waits, or another worker is at it. `until` is when to come again: RFC 3339 UTC."""

    code = "not_due"

    def __init__(self, until: str) -> None:
        super().__init__(f"not to be begun before {until}")
        self.until = until


class ConditionFailed(RecadoError):
    """A write that was to go with others found its condition broken, and nothing was written."""


class Retryable(RecadoError):
    """Raised under the name that a state machine's `Retry` lists."""

    retryable = True


class Throttled(Retryable):
    code = "throttled"


class Contended(Retryable):
    code = "contended"


class Unavailable(Retryable):
    code = "unavailable"


class InvalidSignature(RecadoError):
    """The headers do not sign this body with any of the secrets, or not at this time."""

    code = "invalid_signature"


class Refused(RecadoError):
    """A URL or address that webhooks may not reach. The message says what to change."""

    code = "blocked"
    error_class: ErrorClass = "blocked"


class DeliveryError(Refused):
    """An attempt that ended without an HTTP answer. `error_class` is what the attempt log records."""

    code = "delivery_failed"

    def __init__(self, error_class: ErrorClass, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


def _tree(root: type[RecadoError]) -> Iterator[type[RecadoError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


def by_name(name: str) -> type[RecadoError] | None:
    """The class that a Lambda `errorType` or a Step Functions `Error` names, if it is one of ours."""
    return next((cls for cls in _tree(RecadoError) if cls.__name__ == name), None)
