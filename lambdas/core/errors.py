"""The errors that this project raises.

    RecadoError
    ├── RequestError                 becomes an HTTP response with this status
    │   ├── InvalidRequest           422
    │   ├── PayloadTooLarge          413
    │   ├── Forbidden                403
    │   ├── NotFound                 404
    │   │   └── JobDeleted           410; also a JobClosed
    │   ├── NotAcceptable            406
    │   ├── Conflict                 409
    │   ├── QuotaExceeded            429
    │   └── LoopDetected             508
    ├── JobFailure                   fails the job; its owner sees `code` and the message
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
    │   ├── DeadlineExceeded         deadline_exceeded
    │   ├── CostLimitExceeded        max_cost_exceeded
    │   └── ModelRejected            model_rejected
    │       ├── ContextOverflow      context_overflow
    │       ├── ContentFiltered      content_filtered
    │       └── ModelQuotaExceeded   model_quota_exceeded
    ├── JobClosed                    the job has ended or another execution holds it
    │   └── JobDeleted               see above
    ├── NotDue                       the job may not start yet
    ├── Postponed                    the attempt ends and is not counted
    ├── ConditionFailed              the condition of a write failed, and nothing was written
    ├── Retryable                    may succeed later
    │   ├── Throttled
    │   ├── Contended
    │   ├── Unavailable
    │   └── ModelFault               a call of a model failed and may succeed in another attempt
    │       ├── ModelUnavailable     model_unavailable
    │       ├── ModelThrottled       model_throttled
    │       ├── StreamCut            stream_cut
    │       └── MalformedAnswer      malformed_answer
    ├── InvalidSignature             a webhook whose signature does not match
    └── Refused                      a URL or address that webhooks may not reach
        └── DeliveryError            an attempt without a response; `error_class` names the cause

A Task of a state machine reports its error by class name; `by_name` finds the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

INTERNAL_ERROR = "The job failed because of an internal error. Retry it."
"""What an owner sees of an error that is none of these: others may contain internal details."""

ErrorClass = Literal["dns", "connect", "tls", "timeout", "blocked", "protocol"]


class RecadoError(Exception):
    """`code` is stable and machine-readable. The message says what happened and what to do."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class RequestError(RecadoError):
    """Becomes an HTTP response with an RFC 9457 problem document."""

    code = "bad_request"
    status: ClassVar[int] = 400

    def __init__(self, message: str, *, field: str | None = None, job_id: str | None = None) -> None:
        super().__init__(message)
        self.field, self.job_id = field, job_id


class InvalidRequest(RequestError):
    code, status = "invalid_request", 422


class PayloadTooLarge(RequestError):
    code, status = "payload_too_large", 413


class Forbidden(RequestError):
    code, status = "forbidden", 403


class NotFound(RequestError):
    code, status = "not_found", 404


class NotAcceptable(RequestError):
    code, status = "not_acceptable", 406


class Conflict(RequestError):
    """`job_id`: the job that the request conflicts with, if any."""

    code, status = "conflict", 409


class QuotaExceeded(RequestError):
    """The owner has as many as allowed. `retry_after`: seconds until the request may succeed."""

    code, status = "quota_exceeded", 429

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LoopDetected(RequestError):
    """https://www.rfc-editor.org/rfc/rfc5842#section-7.2"""

    code, status = "loop_detected", 508


class JobFailure(RecadoError):
    """Fails the job. Its owner sees the message, so it contains no internal details."""

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


class CostLimitExceeded(JobFailure):
    """The job would cost more than its `max_cost_usd`."""

    code = "max_cost_exceeded"


class ModelRejected(JobFailure):
    """The provider refuses the request, and would refuse it again. The message is the provider's."""

    code = "model_rejected"


class ContextOverflow(ModelRejected):
    """Prompt and answer are larger than the model's context."""

    code = "context_overflow"


class ContentFiltered(ModelRejected):
    code = "content_filtered"


class ModelQuotaExceeded(ModelRejected):
    """The account's budget at the provider is used up: waiting does not help."""

    code = "model_quota_exceeded"


class JobClosed(RecadoError):
    """The job has ended, or another execution holds it, so there is nothing to do."""

    code = "job_closed"


class JobDeleted(NotFound, JobClosed):
    """The owner has deleted the job. What drops messages of missing and of ended jobs drops its messages, too."""

    code, status = "job_deleted", 410


class NotDue(RecadoError):
    """The job waits, or another worker holds it. `until`: when to try again (RFC 3339 UTC)."""

    code = "not_due"

    def __init__(self, until: str) -> None:
        super().__init__(f"the job may not start before {until}")
        self.until = until


class Postponed(RecadoError):
    """The attempt ends here and is not counted: a provider or a limit made it wait.

    `reason`: what the job waits for. `seconds`: until the next attempt. `cause`: the provider's error, which is
    logged as the reason of the retry.
    """

    code = "postponed"

    def __init__(self, reason: str, seconds: float, *, cause: RecadoError | None = None) -> None:
        super().__init__(str(cause) if cause else f"the job waits: {reason}")
        self.reason, self.seconds, self.cause = reason, seconds, cause


class ConditionFailed(RecadoError):
    """The condition of one write in a transaction failed, and nothing was written."""


class Retryable(RecadoError):
    """The `Retry` of state machines lists the names of the subclasses."""

    retryable = True


class Throttled(Retryable):
    code = "throttled"


class Contended(Retryable):
    code = "contended"


class Unavailable(Retryable):
    code = "unavailable"


class ModelFault(Retryable):
    """A call of a model failed and may succeed later.

    `billed`: whether the provider may have computed an answer, and bill it.
    """

    code = "model_fault"

    def __init__(self, message: str, *, billed: bool = False) -> None:
        super().__init__(message)
        self.billed = billed


class ModelUnavailable(ModelFault):
    """The provider cannot be reached, is overloaded or failed (5xx)."""

    code = "model_unavailable"


class ModelThrottled(ModelFault):
    """The provider limits the rate. `retry_after`: seconds, if the provider said so."""

    code = "model_throttled"

    def __init__(self, message: str, *, retry_after: float | None = None, billed: bool = False) -> None:
        super().__init__(message, billed=billed)
        self.retry_after = retry_after


class StreamCut(ModelFault):
    """The answer stopped without its end."""

    code = "stream_cut"


class MalformedAnswer(ModelFault):
    """The answer cannot be read, or does not have the form that was asked for."""

    code = "malformed_answer"


class InvalidSignature(RecadoError):
    """The signature does not match any of the secrets, or its timestamp is too old or too new."""

    code = "invalid_signature"


class Refused(RecadoError):
    """A URL or address that webhooks may not reach. The message says what to change."""

    code = "blocked"
    error_class: ErrorClass = "blocked"


class DeliveryError(Refused):
    """An attempt that ended without an HTTP response. The log of attempts contains `error_class`."""

    code = "delivery_failed"

    def __init__(self, error_class: ErrorClass, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


def _subclasses(root: type[RecadoError]) -> Iterator[type[RecadoError]]:
    yield root
    for child in root.__subclasses__():
        yield from _subclasses(child)


def by_name(name: str) -> type[RecadoError] | None:
    """The class of this module that a Lambda `errorType` or a Step Functions `Error` names, if any."""
    return next((cls for cls in _subclasses(RecadoError) if cls.__name__ == name), None)
