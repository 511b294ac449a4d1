"""For who receives what Recado sends.

    event = recado.verify(request.headers, request.get_data(), "whsec_…")
    print(event.id, event.json())

SNS subscribers: `from recado.sns import verify_sns` (`pip install "recado[sns]"`).
"""

from recado.errors import (
    BadSecret,
    BodyNotBytes,
    CertificateUnavailable,
    ConfirmationFailed,
    MalformedHeader,
    MalformedMessage,
    MalformedTimestamp,
    MissingDependency,
    MissingHeader,
    NoMatchingSignature,
    RecadoError,
    TooNew,
    TooOld,
    UntrustedCertificate,
    VerificationError,
    WrongTopic,
)
from recado.webhooks import Event, verify

__all__ = [
    "BadSecret",
    "BodyNotBytes",
    "CertificateUnavailable",
    "ConfirmationFailed",
    "Event",
    "MalformedHeader",
    "MalformedMessage",
    "MalformedTimestamp",
    "MissingDependency",
    "MissingHeader",
    "NoMatchingSignature",
    "RecadoError",
    "TooNew",
    "TooOld",
    "UntrustedCertificate",
    "VerificationError",
    "WrongTopic",
    "verify",
]
