"""Everything that this package raises on purpose.

    RecadoError
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
