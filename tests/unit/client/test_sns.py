"""Verification of SNS messages, which are signed with a certificate of this module."""

from __future__ import annotations

import functools
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.error import HTTPError

import pytest
import time_machine
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

import recado
from recado import sns
from recado.sns import confirm_sns, verify_sns

TOPIC = "arn:aws:sns:eu-west-1:123456789012:doc-events"
HOST = "https://sns.eu-west-1.amazonaws.com"
CERTIFICATE_URL = f"{HOST}/SimpleNotificationService-9c6465fa7f48f5cacd23014631ec1136.pem"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOKEN = "2336412f37fb687f5d51e6e2425c464de257ebe6c0b9a3d6f5b6b3d8ae0f1a2b"
SUBSCRIBE_URL = f"{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token={TOKEN}"
SUBSCRIPTION = f"{TOPIC}:2bcfbf39-05c3-41de-beaa-fcfcc21c8f55"
CONFIRMED = (
    '<ConfirmSubscriptionResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><ConfirmSubscriptionResult>'
    f"<SubscriptionArn>{SUBSCRIPTION}</SubscriptionArn></ConfirmSubscriptionResult></ConfirmSubscriptionResponse>"
)

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def certificate(key: Key, *, days: tuple[int, int] = (-1, 1)) -> bytes:
    """PEM. `days`: the validity relative to NOW."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW + timedelta(days=days[0]))
        .not_valid_after(NOW + timedelta(days=days[1]))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


class StubWeb:
    """A `fetch` that has these pages. `requested`: the URLs of its calls."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.pages, self.requested = dict(pages), list[str]()

    def __call__(self, url: str) -> bytes:
        self.requested.append(url)
        if url not in self.pages:
            raise TimeoutError("timed out")
        return self.pages[url]


@pytest.fixture
def web() -> StubWeb:
    return StubWeb({CERTIFICATE_URL: certificate(rsa_key()), SUBSCRIBE_URL: CONFIRMED.encode()})


@pytest.fixture(autouse=True)
def at_now() -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


# The order of the SNS documentation, not copied from the code.
NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


def message(
    kind: str = "Notification", *, version: str = "1", key: Key | None = None, **changes: Any
) -> dict[str, Any]:
    """A message that is signed like one of SNS. `changes` are signed; None removes a field."""
    fields: dict[str, Any] = {
        "Type": kind,
        "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
        "TopicArn": TOPIC,
        "Message": '{"event":"document.indexed","text":"é😊\u2028"}\n',
        "Timestamp": "2026-06-01T00:00:00.000Z",
    }
    if kind != "Notification":
        fields |= {"Token": TOKEN, "SubscribeURL": SUBSCRIBE_URL}
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    parts = NOTIFICATION if kind == "Notification" else CONFIRMATION
    text = "".join(f"{name}\n{fields[name]}\n" for name in parts if name in fields)
    algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()
    signer = key or rsa_key()
    assert isinstance(signer, rsa.RSAPrivateKey)
    signature = b64encode(signer.sign(text.encode(), PKCS1v15(), algorithm)).decode()
    return fields | {"SignatureVersion": version, "Signature": signature, "SigningCertURL": CERTIFICATE_URL}


KINDS = ("Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation")


# Accepted messages


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_the_topic(kind: str, version: str, web: StubWeb) -> None:
    """The signed fields of all three types are returned, for SHA-1 and SHA-256."""
    sent = message(kind, version=version)
    unsigned = {"Signature", "SignatureVersion", "SigningCertURL"}
    assert verify_sns(sent, TOPIC, fetch=web) == {n: v for n, v in sent.items() if n not in unsigned}
    assert web.requested == [CERTIFICATE_URL]


@pytest.mark.parametrize("form", [json.dumps, lambda m: json.dumps(m, ensure_ascii=False).encode(), dict])
@pytest.mark.parametrize("subject", [None, "About a document"])
def test_forms_of_messages(form: Callable[[Any], Any], subject: str | None, web: StubWeb) -> None:
    """Text, bytes and objects are accepted, with a subject and without."""
    assert verify_sns(form(message(Subject=subject)), TOPIC, fetch=web).get("Subject") == subject


def test_null_subject(web: StubWeb) -> None:
    """A subject of null counts as missing."""
    assert "Subject" not in verify_sns(message() | {"Subject": None}, TOPIC, fetch=web)


def test_only_signed_fields_are_returned(web: StubWeb) -> None:
    """Attributes are not signed, so anyone can change them."""
    sent = message() | {"MessageAttributes": {"owner": {"Type": "String", "Value": "eve"}}, "UnsubscribeURL": "x"}
    assert set(verify_sns(sent, TOPIC, fetch=web)) == {"Type", "MessageId", "TopicArn", "Message", "Timestamp"}


@pytest.mark.parametrize(
    ("topic", "host"),
    [
        ("arn:aws:sns:us-east-1:123456789012:a.fifo", "sns.us-east-1.amazonaws.com"),
        ("arn:aws-us-gov:sns:us-gov-west-1:123456789012:a", "sns.us-gov-west-1.amazonaws.com"),
        ("arn:aws-cn:sns:cn-north-1:123456789012:a", "sns.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_regions_and_partitions(topic: str, host: str) -> None:
    """The certificate is downloaded from the SNS host of the topic's region."""
    url = f"https://{host}/SimpleNotificationService-1.pem"
    web = StubWeb({url: certificate(rsa_key())})
    verify_sns(message(TopicArn=topic) | {"SigningCertURL": url}, topic, fetch=web)
    assert web.requested == [url]


def test_certificates_are_cached(web: StubWeb) -> None:
    """A certificate is downloaded once."""
    for _ in range(3):
        verify_sns(message(), TOPIC, fetch=web)
    assert web.requested == [CERTIFICATE_URL]


# Refused messages


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        CERTIFICATE_URL.replace("https", "http"),
        CERTIFICATE_URL.replace("https", "HTTPS"),
        CERTIFICATE_URL.replace("eu-west-1", "us-east-1"),
        CERTIFICATE_URL.replace("amazonaws.com", "amazonaws.com.cn"),
        CERTIFICATE_URL.replace("amazonaws.com", "amazonaws.com.evil.example"),
        CERTIFICATE_URL.replace("amazonaws.com", "amazonaws.com:443"),
        CERTIFICATE_URL.replace("amazonaws.com", "amazonaws.com."),
        CERTIFICATE_URL.replace("sns.eu", "sns-eu"),
        CERTIFICATE_URL.replace("sns.eu-west-1", "sns.eu-west-1.s3"),
        CERTIFICATE_URL.replace("https://", "https://sns.eu-west-1.amazonaws.com@evil.example/"),
        CERTIFICATE_URL.replace("https://", "https://evil.example/"),
        CERTIFICATE_URL.replace("https://", "https://user@"),
        CERTIFICATE_URL.replace("sns.eu-west-1.amazonaws.com", "snsXeu-west-1XamazonawsXcom"),
        CERTIFICATE_URL + "?x=.pem",
        CERTIFICATE_URL + "#.pem",
        CERTIFICATE_URL + "\n",
        f"{HOST}/?Action=GetTopicAttributes&x=.pem",
        f"{HOST}/../evil.pem",
        f"{HOST}\\SimpleNotificationService-1.pem",
        f"{HOST}/SimpleNotificationService-1.PEM",
        "file:///etc/ssl/SimpleNotificationService-1.pem",
    ],
)
def test_certificates_from_elsewhere(url: Any, web: StubWeb) -> None:
    """Nothing is downloaded from any other host or path."""
    with pytest.raises(recado.UntrustedCertificate, match="SigningCertURL"):
        verify_sns(message() | {"SigningCertURL": url}, TOPIC, fetch=web)
    assert web.requested == []


@pytest.mark.parametrize(
    "topic",
    [
        TOPIC + "2",
        TOPIC.replace("123456789012", "210987654321"),
        TOPIC.replace("doc-events", "Doc-events"),
        TOPIC.replace("eu-west-1", "eu-west-2"),
    ],
)
def test_other_topics(topic: str, web: StubWeb) -> None:
    """A message of another topic is refused, and no certificate is downloaded."""
    with pytest.raises(recado.WrongTopic, match="another topic"):
        verify_sns(message(TopicArn=topic), TOPIC, fetch=web)
    assert web.requested == []


@pytest.mark.parametrize(
    "topic",
    ["", None, "doc-events", TOPIC + ":sub", TOPIC + "\n", TOPIC.replace("eu-west-1", "evil.example/"), [TOPIC]],
)
def test_invalid_topic_arns(topic: Any, web: StubWeb) -> None:
    """The receiver's `topic_arn` must be the ARN of a topic."""
    with pytest.raises(recado.WrongTopic, match="not the ARN"):
        verify_sns(message(TopicArn="x"), topic, fetch=web)


@pytest.mark.parametrize("kind", KINDS)
def test_every_signed_field_is_verified(kind: str, web: StubWeb) -> None:
    """A message with a changed, missing or added field does not verify."""
    sent = message(kind, Subject="a" if kind == "Notification" else None)
    for name in NOTIFICATION if kind == "Notification" else CONFIRMATION:
        with pytest.raises(recado.VerificationError):
            verify_sns(sent | {name: f"{sent[name]}x"}, TOPIC, fetch=web)
        with pytest.raises(recado.VerificationError):
            verify_sns({n: v for n, v in sent.items() if n != name}, TOPIC, fetch=web)
    if kind == "Notification":
        with pytest.raises(recado.NoMatchingSignature):
            verify_sns(message() | {"Subject": "a"}, TOPIC, fetch=web)


@pytest.mark.parametrize("version", ["1", "2"])
@given(data=st.data())
def test_one_flipped_bit_of_the_signature(version: str, data: st.DataObject) -> None:
    """A changed signature does not verify."""
    web, sent = StubWeb({CERTIFICATE_URL: certificate(rsa_key())}), message(version=version)
    changed = bytearray(sent["Signature"].encode())
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(sent | {"Signature": changed.decode("latin-1")}, TOPIC, fetch=web)


def test_other_spellings_of_the_signature(web: StubWeb) -> None:
    """Base64 that is not canonical is refused."""
    sent = message()
    bare = sent["Signature"].removesuffix("==")
    other = f"{bare[:-1]}{chr(ord(bare[-1]) + 1)}=="
    assert b64decode(other) == b64decode(sent["Signature"])
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(sent | {"Signature": other}, TOPIC, fetch=web)


def test_versions_are_not_mixed(web: StubWeb) -> None:
    """A SHA-1 signature does not verify as SHA-256, nor the other way round."""
    for made, claimed in (("1", "2"), ("2", "1")):
        with pytest.raises(recado.NoMatchingSignature):
            verify_sns(message(version=made) | {"SignatureVersion": claimed}, TOPIC, fetch=web)


@pytest.mark.parametrize("version", ["0", "3", "", None, 1, "1 "])
def test_unknown_versions(version: Any, web: StubWeb) -> None:
    """Only the versions 1 and 2 are accepted."""
    with pytest.raises(recado.MalformedMessage, match="SignatureVersion"):
        verify_sns(message() | {"SignatureVersion": version}, TOPIC, fetch=web)


def test_another_key(web: StubWeb) -> None:
    """A signature by another key does not verify."""
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(message(key=stranger), TOPIC, fetch=web)


@pytest.mark.parametrize("name", ["MessageId", "Timestamp", "Subject"])
def test_fields_have_no_line_breaks(name: str, web: StubWeb) -> None:
    """Line breaks separate the signed fields, so only the message may contain them."""
    with pytest.raises(recado.MalformedMessage, match=f"{name} contains a line break"):
        verify_sns(message(**{name: "a\nb"}), TOPIC, fetch=web)


def test_a_message_cannot_be_cut(web: StubWeb) -> None:
    """Lines of a message cannot become fields after it."""
    inner = "MessageId\nforged\nSubject\nx"
    sent = message(Message=f"pay 1\n{inner}\nMessageId\nold")
    forged = sent | {
        "Message": "pay 1",
        "MessageId": "forged",
        "Subject": f"x\nMessageId\nold\nMessageId\n{sent['MessageId']}",
    }
    with pytest.raises(recado.MalformedMessage, match="Subject contains a line break"):
        verify_sns(forged, TOPIC, fetch=web)


def test_lone_surrogates(web: StubWeb) -> None:
    """Lone surrogates are not replaced by a question mark before the signature is verified."""
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(json.dumps(message(Message="?") | {"Message": "\ud800"}), TOPIC, fetch=web)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", b"\xff", "[" * 100_000, "9" * 5000, None, 7, [], '{"Type": []}', "{}"]
)
def test_values_that_are_not_messages(text: Any, web: StubWeb) -> None:
    """Other values raise MalformedMessage, also raw message delivery, which has no signature."""
    with pytest.raises(recado.MalformedMessage):
        verify_sns(text, TOPIC, fetch=web)


scraps = st.none() | st.integers() | st.text() | st.lists(st.text())
some_fields = st.sampled_from([*message("SubscriptionConfirmation"), "Subject"])


@given(changes=st.dictionaries(some_fields, scraps), kind=st.sampled_from(KINDS))
def test_any_message_ends_in_one_error(changes: dict[str, Any], kind: str) -> None:
    """For any fields, only VerificationError is raised, and only signed messages are accepted."""
    web, sent = StubWeb({CERTIFICATE_URL: certificate(rsa_key())}), message(kind)
    passed = {"Message": sent["Message"]}
    with suppress(recado.VerificationError):
        passed = verify_sns(sent | changes, TOPIC, fetch=web)
    assert passed["Message"] == sent["Message"]


# Certificates


@pytest.mark.parametrize("days", [(-10, -1), (1, 10)])
def test_validity(days: tuple[int, int]) -> None:
    """A certificate that has expired or is not valid yet is refused."""
    web = StubWeb({CERTIFICATE_URL: certificate(rsa_key(), days=days)})
    with pytest.raises(recado.UntrustedCertificate, match="not valid at this time"):
        verify_sns(message(), TOPIC, fetch=web)


def test_a_cached_certificate_expires(web: StubWeb) -> None:
    """Its validity is checked for every message."""
    verify_sns(message(), TOPIC, fetch=web)
    with time_machine.travel(NOW + timedelta(days=2)), pytest.raises(recado.UntrustedCertificate):
        verify_sns(message(), TOPIC, fetch=web)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_content_that_is_not_a_certificate(content: bytes) -> None:
    """Other content at the URL is refused."""
    with pytest.raises(recado.UntrustedCertificate, match="does not return a certificate"):
        verify_sns(message(), TOPIC, fetch=StubWeb({CERTIFICATE_URL: content}))


@pytest.mark.parametrize("key", [rsa_key(1024), ec.generate_private_key(ec.SECP256R1())])
def test_weak_or_other_keys(key: Key) -> None:
    """Only RSA keys with at least 2048 bits are accepted."""
    with pytest.raises(recado.UntrustedCertificate, match="not RSA with at least 2048 bits"):
        verify_sns(message(), TOPIC, fetch=StubWeb({CERTIFICATE_URL: certificate(key)}))


def test_unreachable_certificate(web: StubWeb) -> None:
    """The error is temporary, and the certificate is downloaded again for the next message."""
    pem = web.pages.pop(CERTIFICATE_URL)
    with pytest.raises(recado.CertificateUnavailable, match="timed out"):
        verify_sns(message(), TOPIC, fetch=web)
    web.pages[CERTIFICATE_URL] = pem
    verify_sns(message(), TOPIC, fetch=web)


def test_without_cryptography(web: StubWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(recado.MissingDependency, match=r"recado\[sns\]"):
        verify_sns(message(), TOPIC, fetch=web)


# Confirmation


def test_confirm(web: StubWeb) -> None:
    """The signed URL is opened, and the ARN in the response is returned."""
    assert confirm_sns(message("SubscriptionConfirmation"), TOPIC, fetch=web) == SUBSCRIPTION
    assert web.requested == [CERTIFICATE_URL, SUBSCRIBE_URL]


@pytest.mark.parametrize("kind", ["Notification", "UnsubscribeConfirmation"])
def test_other_messages_are_not_confirmed(kind: str, web: StubWeb) -> None:
    """The SubscribeURL of an UnsubscribeConfirmation would renew the subscription."""
    with pytest.raises(recado.MalformedMessage, match="Only a SubscriptionConfirmation"):
        confirm_sns(message(kind), TOPIC, fetch=web)
    assert SUBSCRIBE_URL not in web.requested


def test_other_topics_are_not_confirmed(web: StubWeb) -> None:
    """Anyone can subscribe the endpoint to their own topic, and SNS signs that. It is not confirmed."""
    theirs = TOPIC.replace("123456789012", "210987654321")
    sent = message("SubscriptionConfirmation", TopicArn=theirs, SubscribeURL=SUBSCRIBE_URL.replace(TOPIC, theirs))
    with pytest.raises(recado.WrongTopic):
        confirm_sns(sent, TOPIC, fetch=web)
    assert web.requested == []


@pytest.mark.parametrize(
    "url",
    [
        SUBSCRIBE_URL.replace("https", "http"),
        SUBSCRIBE_URL.replace("eu-west-1.amazonaws", "us-east-1.amazonaws"),
        SUBSCRIBE_URL.replace("amazonaws.com", "amazonaws.com.evil.example"),
        SUBSCRIBE_URL.replace("https://", "https://user@"),
        SUBSCRIBE_URL.replace("doc-events", "others"),
        SUBSCRIBE_URL.replace("ConfirmSubscription", "Unsubscribe"),
        SUBSCRIBE_URL.replace(TOKEN, "other"),
        SUBSCRIBE_URL + "&Token=other",
        SUBSCRIBE_URL + "&TopicArn=other",
        SUBSCRIBE_URL + "&x= HTTP/1.1",
        SUBSCRIBE_URL + "&x=\r",
        SUBSCRIBE_URL.replace("/?", "/x?"),
        "",
    ],
)
def test_urls_that_are_not_opened(url: str, web: StubWeb) -> None:
    """A signed URL to another host or for another action is not opened."""
    with pytest.raises(recado.MalformedMessage, match="SubscribeURL"):
        confirm_sns(message("SubscriptionConfirmation", SubscribeURL=url), TOPIC, fetch=web)
    assert web.requested == [CERTIFICATE_URL]


def test_forged_confirmation(web: StubWeb) -> None:
    """The URL of an unsigned confirmation is not opened."""
    with pytest.raises(recado.NoMatchingSignature):
        confirm_sns(message("SubscriptionConfirmation") | {"Message": "x"}, TOPIC, fetch=web)
    assert web.requested == [CERTIFICATE_URL]


@pytest.mark.parametrize("response", ["", "<html>", CONFIRMED.replace(TOPIC, TOPIC + "2"), None])
def test_failed_confirmation(response: str | None, web: StubWeb) -> None:
    """Without a response that names a subscription to this topic, ConfirmationFailed is raised."""
    del web.pages[SUBSCRIBE_URL]
    if response is not None:
        web.pages[SUBSCRIBE_URL] = response.encode()
    with pytest.raises(recado.ConfirmationFailed):
        confirm_sns(message("SubscriptionConfirmation"), TOPIC, fetch=web)


# The default fetch


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    """A server on loopback: its address, and the paths of its requests."""
    requested: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            status = int(self.path.strip("/"))
            self.send_response(status)
            if status in range(300, 400):
                self.send_header("location", "/200")
            self.end_headers()
            self.wfile.write(b"x" * 100_000 if status == 200 else b"")

        def log_message(self, *_: object) -> None:
            """Not needed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requested
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.enable_socket
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 403, 500])
def test_redirects_are_errors(site: tuple[str, list[str]], status: int) -> None:
    """Redirects are not followed, and raise HTTPError like other errors."""
    address, requested = site
    with pytest.raises(HTTPError, match=str(status)):
        sns._download(f"{address}/{status}")
    assert requested == [f"/{status}"]


@pytest.mark.enable_socket
def test_the_size_of_responses_is_limited(site: tuple[str, list[str]]) -> None:
    """At most 64 KiB are read."""
    assert len(sns._download(f"{site[0]}/200")) == 65536


def test_download_is_the_default(web: StubWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `fetch` it downloads the certificate and opens the SubscribeURL."""
    monkeypatch.setattr(sns, "_download", web)
    confirm_sns(message("SubscriptionConfirmation"), TOPIC)
    assert web.requested == [CERTIFICATE_URL, SUBSCRIBE_URL]
