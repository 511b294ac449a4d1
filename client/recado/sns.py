"""Whether a message came from the SNS topic that it should, for whoever subscribed an HTTPS endpoint to it.

Signatures: https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html. A certificate is
trusted because SNS's own host, under its exact name, serves it over TLS. Needs `recado[sns]`.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import parse_qs

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
"""GETs a URL and follows no redirect. OSError where that fails."""

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
_MAX_ANSWER = 64 * 1024
_MIN_RSA_BITS = 2048


def verify_sns(
    message: Mapping[str, Any] | str | bytes, topic_arn: str, *, fetch: Fetch | None = None
) -> dict[str, str]:
    """What is signed in a message of this topic, or a VerificationError that says what is wrong.

    `message` is the request's body, or the object in it. The answer has the signed fields only: `Type`,
    `MessageId`, `Message`, `Subject` (if there is one), `Timestamp`, `TopicArn`, and for confirmations `Token` and
    `SubscribeURL`. `MessageAttributes` and `UnsubscribeURL` are not signed, so anyone can write what they like in
    them. No message is refused for its age, as SNS may retry for weeks: remember `MessageId` where that matters.

    `fetch` gets certificates, which are kept for as long as the process lives.
    """
    envelope = _parsed(message)
    host = _host(topic_arn)
    signed = _signed(envelope)
    if signed["TopicArn"] != topic_arn:
        raise WrongTopic("the message is of another topic")
    key = _signing_key(envelope.get("SigningCertURL"), host, fetch or _download)
    _check_signature(key, envelope, signed)
    return signed


def confirm_sns(message: Mapping[str, Any] | str | bytes, topic_arn: str, *, fetch: Fetch | None = None) -> str:
    """Confirm a subscription to this topic, for a verified `SubscriptionConfirmation` alone; its ARN.

    `SubscribeURL` is opened only if it asks the topic's own service host to confirm this topic. Raises what
    `verify_sns` raises, and ConfirmationFailed.
    """
    signed = verify_sns(message, topic_arn, fetch=fetch)
    if signed["Type"] != "SubscriptionConfirmation":
        raise MalformedMessage("only a SubscriptionConfirmation can be confirmed")
    _check_subscribe_url(signed, _host(topic_arn))
    try:
        answer = (fetch or _download)(signed["SubscribeURL"])
    except (OSError, HTTPException, ValueError) as error:
        raise ConfirmationFailed(f"SNS did not confirm the subscription: {error}") from error
    found = _SUBSCRIPTION.search(answer.decode(errors="replace"))
    if not found or not found[1].startswith(f"{topic_arn}:"):
        raise ConfirmationFailed("SNS's answer names no subscription to this topic")
    return found[1]


# ── the message ──────────────────────────────────────────────────────────────────────────────────────────


def _parsed(message: object) -> Mapping[str, Any]:
    if isinstance(message, (str, bytes, bytearray)):
        try:
            message = json.loads(message)
        except (ValueError, RecursionError):
            raise MalformedMessage("the message is not JSON") from None
    if not isinstance(message, Mapping):
        raise MalformedMessage("the message is not a JSON object")
    return message


def _signed(envelope: Mapping[str, Any]) -> dict[str, str]:
    """The fields that are signed, in the order in which they are."""
    kind = envelope.get("Type")
    if not isinstance(kind, str) or kind not in _SIGNED:
        raise MalformedMessage(
            "not an SNS message: Type is missing or unknown (raw delivery carries no signature)"
        )
    values = {name: envelope.get(name) for name in _SIGNED[kind]}
    if values.get("Subject", "") is None:
        del values["Subject"]
    for name, value in values.items():
        if not isinstance(value, str):
            raise MalformedMessage(f"{name} is missing or no text")
        # Lines are all that separates the fields: in any but the message they could move its borders.
        if "\n" in value and name != "Message":
            raise MalformedMessage(f"{name} has a line break")
    return {name: str(value) for name, value in values.items()}


def _canonical(signed: Mapping[str, str]) -> bytes:
    # SNS signs no lone surrogates: they must stay what they are, lest they pass for another character.
    return "".join(f"{name}\n{value}\n" for name, value in signed.items()).encode(errors="surrogatepass")


def _host(topic_arn: object) -> str:
    """The only host that serves this topic's certificates and confirms its subscriptions."""
    found = _TOPIC.fullmatch(topic_arn) if isinstance(topic_arn, str) else None
    if not found:
        raise WrongTopic("topic_arn is not the ARN of an SNS topic")
    suffix = ".cn" if found["partition"] == "aws-cn" else ""
    return f"sns.{found['region']}.amazonaws.com{suffix}"


def _check_subscribe_url(signed: Mapping[str, str], host: str) -> None:
    url = signed["SubscribeURL"]
    found = re.fullmatch(rf"https://{re.escape(host)}/\?([!-~]+)", url)
    asked = parse_qs(found[1]) if found else {}
    wanted = {"Action": "ConfirmSubscription", "TopicArn": signed["TopicArn"], "Token": signed["Token"]}
    if any(asked.get(name) != [value] for name, value in wanted.items()):
        raise MalformedMessage("SubscribeURL does not ask the service's own host to confirm this topic")


# ── the signature ────────────────────────────────────────────────────────────────────────────────────────


def _check_signature(key: RSAPublicKey, envelope: Mapping[str, Any], signed: Mapping[str, str]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    # SHA-1 is what topics sign with unless their SignatureVersion is set to 2.
    algorithms = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303
    version, signature = envelope.get("SignatureVersion"), envelope.get("Signature")
    if version not in ("1", "2"):
        raise MalformedMessage("SignatureVersion is neither 1 nor 2")
    if not isinstance(signature, str):
        raise MalformedMessage("Signature is missing or no text")
    try:
        key.verify(_from_base64(signature), _canonical(signed), PKCS1v15(), algorithms[version])
    except (InvalidSignature, ValueError):
        raise NoMatchingSignature("the signature does not match") from None


def _from_base64(text: str) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("another spelling of the same bytes")
    return raw


def _signing_key(url: object, host: str, fetch: Fetch) -> RSAPublicKey:
    if not isinstance(url, str) or not re.fullmatch(rf"https://{re.escape(host)}{_CERTIFICATE_PATH}", url):
        raise UntrustedCertificate(f"SigningCertURL is not a certificate of https://{host}")
    certificate = _certificate(url, fetch)
    if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
        raise UntrustedCertificate("the certificate is not valid at this time")
    return _rsa_key(certificate)


@functools.lru_cache(maxsize=32)
def _certificate(url: str, fetch: Fetch) -> Certificate:
    """Kept by URL: SNS serves another certificate under another name. A failure is not kept."""
    try:
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError:
        raise MissingDependency("SNS signatures need cryptography: pip install 'recado[sns]'") from None
    try:
        pem = fetch(url)
    except (OSError, HTTPException, ValueError) as error:
        raise CertificateUnavailable(f"the certificate could not be fetched: {error}") from error
    try:
        return load_pem_x509_certificate(pem)
    except ValueError:
        raise UntrustedCertificate("what SigningCertURL serves is no certificate") from None


def _rsa_key(certificate: Certificate) -> RSAPublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise UntrustedCertificate("the certificate's key cannot be read") from None
    if not isinstance(key, RSAPublicKey) or key.key_size < _MIN_RSA_BITS:
        raise UntrustedCertificate(f"the certificate's key is not RSA of {_MIN_RSA_BITS} bits or more")
    return key


# ── fetching ─────────────────────────────────────────────────────────────────────────────────────────────


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Has urllib treat a redirect as the error that it is here."""

    def redirect_request(self, *_: object) -> None:
        return None


def _download(url: str) -> bytes:
    """Only URLs that were checked come here."""
    try:
        with urllib.request.build_opener(_NoRedirect).open(url, timeout=_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read(_MAX_ANSWER)
            return content
    except HTTPError as error:
        error.close()
        raise
