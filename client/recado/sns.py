"""Verify messages of an SNS topic, for HTTPS endpoints that are subscribed to it. Needs `recado[sns]`.

Signatures: https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html. A certificate is
trusted because the SNS host of the region serves it over TLS.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import parse_qs

from recado._urls import opener
from recado.errors import (
    CertificateUnavailable,
    ConfirmationFailed,
    MalformedMessage,
    MissingDependency,
    NoMatchingSignature,
    UntrustedCertificate,
    WrongTopic,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import Certificate

Fetch = Callable[[str], bytes]
"""GETs a URL without following redirects. Raises OSError if that fails."""

_CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": _CONFIRMATION,
    "UnsubscribeConfirmation": _CONFIRMATION,
}
_TOPIC = re.compile(
    r"arn:(?P<partition>aws|aws-cn|aws-us-gov):sns:(?P<region>[a-z0-9-]{3,32}):[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?"
)
_CERTIFICATE_PATH = r"/SimpleNotificationService-[A-Za-z0-9]{1,128}\.pem"
_SUBSCRIPTION = re.compile(r"<SubscriptionArn>\s*([^<\s]+)\s*</SubscriptionArn>")
_TIMEOUT_SECONDS = 10
_MAX_RESPONSE_BYTES = 64 * 1024
_MIN_RSA_BITS = 2048


def verify_sns(
    message: Mapping[str, Any] | str | bytes, topic_arn: str, *, fetch: Fetch | None = None
) -> dict[str, str]:
    """The signed fields of a message of this topic. Raises a VerificationError that says what is wrong.

    `message` is the request's body, or the parsed object. The result has the signed fields only: `Type`,
    `MessageId`, `Message`, `Subject` (if present), `Timestamp`, `TopicArn`, and for confirmations `Token` and
    `SubscribeURL`. `MessageAttributes` and `UnsubscribeURL` are not signed, so anyone can change them. Old
    messages are accepted, because SNS may retry for weeks. Store `MessageId` if you must detect repetitions.

    `fetch` downloads certificates. They are cached for the lifetime of the process.
    """
    envelope = _parse(message)
    host = _host(topic_arn)
    signed = _signed_fields(envelope)
    if signed["TopicArn"] != topic_arn:
        raise WrongTopic("The message belongs to another topic.")
    key = _signing_key(envelope.get("SigningCertURL"), host, fetch or _download)
    _check_signature(key, envelope, signed)
    return signed


def confirm_sns(message: Mapping[str, Any] | str | bytes, topic_arn: str, *, fetch: Fetch | None = None) -> str:
    """Confirm a subscription to this topic after verifying its `SubscriptionConfirmation`. Returns its ARN.

    `SubscribeURL` is opened only if it points to the SNS host of the topic's region and confirms this topic.
    Raises the errors of `verify_sns`, and ConfirmationFailed.
    """
    signed = verify_sns(message, topic_arn, fetch=fetch)
    if signed["Type"] != "SubscriptionConfirmation":
        raise MalformedMessage("Only a SubscriptionConfirmation can be confirmed.")
    _check_subscribe_url(signed, _host(topic_arn))
    try:
        response = (fetch or _download)(signed["SubscribeURL"])
    except (OSError, HTTPException, ValueError) as error:
        raise ConfirmationFailed(f"SNS did not confirm the subscription: {error}") from error
    found = _SUBSCRIPTION.search(response.decode(errors="replace"))
    if not found or not found[1].startswith(f"{topic_arn}:"):
        raise ConfirmationFailed("The response of SNS names no subscription to this topic.")
    return found[1]


# ── the message ──────────────────────────────────────────────────────────────────────────────────────────


def _parse(message: object) -> Mapping[str, Any]:
    if isinstance(message, (str, bytes, bytearray)):
        try:
            message = json.loads(message)
        except (ValueError, RecursionError):
            raise MalformedMessage("The message is not JSON.") from None
    if not isinstance(message, Mapping):
        raise MalformedMessage("The message is not a JSON object.")
    return message


def _signed_fields(envelope: Mapping[str, Any]) -> dict[str, str]:
    """The signed fields, in the order of the signed text."""
    message_type = envelope.get("Type")
    if not isinstance(message_type, str) or message_type not in _SIGNED:
        raise MalformedMessage(
            "This is not an SNS message: Type is missing or unknown. Raw message delivery has no signature."
        )
    values = {name: envelope.get(name) for name in _SIGNED[message_type]}
    if values.get("Subject", "") is None:
        del values["Subject"]
    for name, value in values.items():
        if not isinstance(value, str):
            raise MalformedMessage(f"{name} is missing or not text.")
        # Fields are separated by line breaks only: in other fields they could change where the message ends.
        if "\n" in value and name != "Message":
            raise MalformedMessage(f"{name} contains a line break.")
    return {name: str(value) for name, value in values.items()}


def _canonical(signed: Mapping[str, str]) -> bytes:
    # SNS does not sign lone surrogates. They must not be replaced by another character.
    return "".join(f"{name}\n{value}\n" for name, value in signed.items()).encode(errors="surrogatepass")


def _host(topic_arn: object) -> str:
    """The SNS host of the topic's region. It serves certificates and confirms subscriptions."""
    found = _TOPIC.fullmatch(topic_arn) if isinstance(topic_arn, str) else None
    if not found:
        raise WrongTopic("topic_arn is not the ARN of an SNS topic.")
    suffix = ".cn" if found["partition"] == "aws-cn" else ""
    return f"sns.{found['region']}.amazonaws.com{suffix}"


def _check_subscribe_url(signed: Mapping[str, str], host: str) -> None:
    url = signed["SubscribeURL"]
    found = re.fullmatch(rf"https://{re.escape(host)}/\?([!-~]+)", url)
    query = parse_qs(found[1]) if found else {}
    expected = {"Action": "ConfirmSubscription", "TopicArn": signed["TopicArn"], "Token": signed["Token"]}
    if any(query.get(name) != [value] for name, value in expected.items()):
        raise MalformedMessage("SubscribeURL does not point to SNS, or does not confirm this topic.")


# ── the signature ────────────────────────────────────────────────────────────────────────────────────────


def _check_signature(key: RSAPublicKey, envelope: Mapping[str, Any], signed: Mapping[str, str]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    # Topics sign with SHA-1 unless their SignatureVersion is 2.
    algorithms = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303
    version, signature = envelope.get("SignatureVersion"), envelope.get("Signature")
    if version not in ("1", "2"):
        raise MalformedMessage("SignatureVersion is neither 1 nor 2.")
    if not isinstance(signature, str):
        raise MalformedMessage("Signature is missing or not text.")
    try:
        key.verify(_from_base64(signature), _canonical(signed), PKCS1v15(), algorithms[version])
    except (InvalidSignature, ValueError):
        raise NoMatchingSignature("The signature does not match.") from None


def _from_base64(text: str) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("not canonical base64")
    return raw


def _signing_key(url: object, host: str, fetch: Fetch) -> RSAPublicKey:
    if not isinstance(url, str) or not re.fullmatch(rf"https://{re.escape(host)}{_CERTIFICATE_PATH}", url):
        raise UntrustedCertificate(f"SigningCertURL is not a certificate of https://{host}.")
    certificate = _certificate(url, fetch)
    if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
        raise UntrustedCertificate("The certificate is not valid at this time.")
    return _rsa_key(certificate)


@functools.lru_cache(maxsize=32)
def _certificate(url: str, fetch: Fetch) -> Certificate:
    """Cached by URL: SNS serves another certificate at another URL. Failures are not cached."""
    try:
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError:
        raise MissingDependency("SNS signatures need cryptography. Run: pip install 'recado[sns]'") from None
    try:
        pem = fetch(url)
    except (OSError, HTTPException, ValueError) as error:
        raise CertificateUnavailable(f"The certificate could not be downloaded: {error}") from error
    try:
        return load_pem_x509_certificate(pem)
    except ValueError:
        raise UntrustedCertificate("SigningCertURL does not return a certificate.") from None


def _rsa_key(certificate: Certificate) -> RSAPublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise UntrustedCertificate("The key of the certificate cannot be read.") from None
    if not isinstance(key, RSAPublicKey) or key.key_size < _MIN_RSA_BITS:
        raise UntrustedCertificate(f"The key of the certificate is not RSA with at least {_MIN_RSA_BITS} bits.")
    return key


# ── fetching ─────────────────────────────────────────────────────────────────────────────────────────────


def _download(url: str) -> bytes:
    """Callers check the URL first."""
    try:
        with opener(url).open(url, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read(_MAX_RESPONSE_BYTES)
            return content
    except HTTPError as error:
        error.close()
        raise
