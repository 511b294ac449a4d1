"""recado.sns, on messages signed here as SNS signs, with a certificate made here."""

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
    """PEM, valid from so many days after NOW to so many."""
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


class Web:
    """A `fetch` that knows a few URLs and remembers what it was asked."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.pages, self.asked = dict(pages), list[str]()

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.pages:
            raise TimeoutError("timed out")
        return self.pages[url]


@pytest.fixture
def web() -> Web:
    return Web({CERTIFICATE_URL: certificate(rsa_key()), SUBSCRIBE_URL: CONFIRMED.encode()})


@pytest.fixture(autouse=True)
def at_now() -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


# The parts in the order in which SNS's documentation lists them, by hand: not the code's own table.
NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


def message(
    kind: str = "Notification", *, version: str = "1", key: Key | None = None, **changes: Any
) -> dict[str, Any]:
    """Signed as SNS does; `changes` are made before that, and a field of None is left out."""
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


# What is accepted


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_the_topic(kind: str, version: str, web: Web) -> None:
    """All three types, signed over SHA-1 and over SHA-256, give back what was signed."""
    sent = message(kind, version=version)
    unsigned = {"Signature", "SignatureVersion", "SigningCertURL"}
    assert verify_sns(sent, TOPIC, fetch=web) == {n: v for n, v in sent.items() if n not in unsigned}
    assert web.asked == [CERTIFICATE_URL]


@pytest.mark.parametrize("form", [json.dumps, lambda m: json.dumps(m, ensure_ascii=False).encode(), dict])
@pytest.mark.parametrize("subject", [None, "About a document"])
def test_forms_of_messages(form: Callable[[Any], Any], subject: str | None, web: Web) -> None:
    """Text, bytes and objects; with a subject and without."""
    assert verify_sns(form(message(Subject=subject)), TOPIC, fetch=web).get("Subject") == subject


def test_null_subject(web: Web) -> None:
    """A subject of null is none."""
    assert "Subject" not in verify_sns(message() | {"Subject": None}, TOPIC, fetch=web)


def test_only_what_is_signed_comes_back(web: Web) -> None:
    """Attributes are not signed: whoever holds a genuine message can write others into it."""
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
    """The certificate comes from the service's host in the topic's own region."""
    url = f"https://{host}/SimpleNotificationService-1.pem"
    web = Web({url: certificate(rsa_key())})
    verify_sns(message(TopicArn=topic) | {"SigningCertURL": url}, topic, fetch=web)
    assert web.asked == [url]


def test_certificates_are_kept(web: Web) -> None:
    """A certificate is fetched once."""
    for _ in range(3):
        verify_sns(message(), TOPIC, fetch=web)
    assert web.asked == [CERTIFICATE_URL]


# What is refused


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
def test_certificates_from_elsewhere(url: Any, web: Web) -> None:
    """Nothing is fetched from anywhere but the exact host and place."""
    with pytest.raises(recado.UntrustedCertificate, match="SigningCertURL"):
        verify_sns(message() | {"SigningCertURL": url}, TOPIC, fetch=web)
    assert web.asked == []


@pytest.mark.parametrize(
    "topic",
    [
        TOPIC + "2",
        TOPIC.replace("123456789012", "210987654321"),
        TOPIC.replace("doc-events", "Doc-events"),
        TOPIC.replace("eu-west-1", "eu-west-2"),
    ],
)
def test_other_topics(topic: str, web: Web) -> None:
    """A genuine message of any other topic is refused, and no certificate is fetched for it."""
    with pytest.raises(recado.WrongTopic, match="another topic"):
        verify_sns(message(TopicArn=topic), TOPIC, fetch=web)
    assert web.asked == []


@pytest.mark.parametrize(
    "topic",
    ["", None, "doc-events", TOPIC + ":sub", TOPIC + "\n", TOPIC.replace("eu-west-1", "evil.example/"), [TOPIC]],
)
def test_topic_arns_that_are_none(topic: Any, web: Web) -> None:
    """What the receiver gives must be a topic's ARN, whatever the message says."""
    with pytest.raises(recado.WrongTopic, match="not the ARN"):
        verify_sns(message(TopicArn="x"), topic, fetch=web)


@pytest.mark.parametrize("kind", KINDS)
def test_every_signed_field_counts(kind: str, web: Web) -> None:
    """Any one of them changed, none verifies; nor with one left out or one put in."""
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
    """No signature but the one that was made verifies."""
    web, sent = Web({CERTIFICATE_URL: certificate(rsa_key())}), message(version=version)
    changed = bytearray(sent["Signature"].encode())
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(sent | {"Signature": changed.decode("latin-1")}, TOPIC, fetch=web)


def test_other_spellings_of_the_signature(web: Web) -> None:
    """Base64 whose last bits belong to no byte means the same, and is not what was sent."""
    sent = message()
    bare = sent["Signature"].removesuffix("==")
    other = f"{bare[:-1]}{chr(ord(bare[-1]) + 1)}=="
    assert b64decode(other) == b64decode(sent["Signature"])
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(sent | {"Signature": other}, TOPIC, fetch=web)


def test_versions_are_not_mixed(web: Web) -> None:
    """A SHA-1 signature is not taken for one over SHA-256, nor the other way."""
    for made, claimed in (("1", "2"), ("2", "1")):
        with pytest.raises(recado.NoMatchingSignature):
            verify_sns(message(version=made) | {"SignatureVersion": claimed}, TOPIC, fetch=web)


@pytest.mark.parametrize("version", ["0", "3", "", None, 1, "1 "])
def test_unknown_versions(version: Any, web: Web) -> None:
    """Only the two versions that there are."""
    with pytest.raises(recado.MalformedMessage, match="SignatureVersion"):
        verify_sns(message() | {"SignatureVersion": version}, TOPIC, fetch=web)


def test_another_key(web: Web) -> None:
    """What another key signed does not verify."""
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(message(key=stranger), TOPIC, fetch=web)


@pytest.mark.parametrize("name", ["MessageId", "Timestamp", "Subject"])
def test_fields_cannot_be_moved(name: str, web: Web) -> None:
    """Lines alone separate what is signed, so no field but the message may have several."""
    with pytest.raises(recado.MalformedMessage, match=f"{name} has a line break"):
        verify_sns(message(**{name: "a\nb"}), TOPIC, fetch=web)


def test_a_message_cannot_end_earlier(web: Web) -> None:
    """Part of a genuine message that looks like the fields behind it is not taken for them."""
    inner = "MessageId\nforged\nSubject\nx"
    sent = message(Message=f"pay 1\n{inner}\nMessageId\nold")
    forged = sent | {
        "Message": "pay 1",
        "MessageId": "forged",
        "Subject": f"x\nMessageId\nold\nMessageId\n{sent['MessageId']}",
    }
    with pytest.raises(recado.MalformedMessage, match="Subject has a line break"):
        verify_sns(forged, TOPIC, fetch=web)


def test_lone_surrogates(web: Web) -> None:
    """They stand for no other character, not for the question mark that encoders put in their place."""
    with pytest.raises(recado.NoMatchingSignature):
        verify_sns(json.dumps(message(Message="?") | {"Message": "\ud800"}), TOPIC, fetch=web)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", b"\xff", "[" * 100_000, "9" * 5000, None, 7, [], '{"Type": []}', "{}"]
)
def test_what_is_no_message(text: Any, web: Web) -> None:
    """Refused as such; raw delivery, which has no signature, among it."""
    with pytest.raises(recado.MalformedMessage):
        verify_sns(text, TOPIC, fetch=web)


scraps = st.none() | st.integers() | st.text() | st.lists(st.text())
some_fields = st.sampled_from([*message("SubscriptionConfirmation"), "Subject"])


@given(changes=st.dictionaries(some_fields, scraps), kind=st.sampled_from(KINDS))
def test_any_message_ends_in_one_error(changes: dict[str, Any], kind: str) -> None:
    """Whatever stands in the fields, nothing but VerificationError is raised, and only what was signed passes."""
    web, sent = Web({CERTIFICATE_URL: certificate(rsa_key())}), message(kind)
    passed = {"Message": sent["Message"]}
    with suppress(recado.VerificationError):
        passed = verify_sns(sent | changes, TOPIC, fetch=web)
    assert passed["Message"] == sent["Message"]


# The certificate


@pytest.mark.parametrize("days", [(-10, -1), (1, 10)])
def test_validity(days: tuple[int, int]) -> None:
    """One that has expired, or does not hold yet, is refused."""
    web = Web({CERTIFICATE_URL: certificate(rsa_key(), days=days)})
    with pytest.raises(recado.UntrustedCertificate, match="not valid at this time"):
        verify_sns(message(), TOPIC, fetch=web)


def test_a_kept_certificate_expires(web: Web) -> None:
    """That it was valid once does not help."""
    verify_sns(message(), TOPIC, fetch=web)
    with time_machine.travel(NOW + timedelta(days=2)), pytest.raises(recado.UntrustedCertificate):
        verify_sns(message(), TOPIC, fetch=web)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate(content: bytes) -> None:
    """Whatever else is served there is refused."""
    with pytest.raises(recado.UntrustedCertificate, match="no certificate"):
        verify_sns(message(), TOPIC, fetch=Web({CERTIFICATE_URL: content}))


@pytest.mark.parametrize("key", [rsa_key(1024), ec.generate_private_key(ec.SECP256R1())])
def test_weak_or_other_keys(key: Key) -> None:
    """Only RSA of 2048 bits and more."""
    with pytest.raises(recado.UntrustedCertificate, match="not RSA of 2048 bits"):
        verify_sns(message(), TOPIC, fetch=Web({CERTIFICATE_URL: certificate(key)}))


def test_unreachable_certificate(web: Web) -> None:
    """It is told apart, being temporary, and is asked for again."""
    pem = web.pages.pop(CERTIFICATE_URL)
    with pytest.raises(recado.CertificateUnavailable, match="timed out"):
        verify_sns(message(), TOPIC, fetch=web)
    web.pages[CERTIFICATE_URL] = pem
    verify_sns(message(), TOPIC, fetch=web)


def test_without_cryptography(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what to install."""
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(recado.MissingDependency, match=r"recado\[sns\]"):
        verify_sns(message(), TOPIC, fetch=web)


# Confirming


def test_confirm(web: Web) -> None:
    """The signed URL is opened, and SNS's answer names the subscription."""
    assert confirm_sns(message("SubscriptionConfirmation"), TOPIC, fetch=web) == SUBSCRIPTION
    assert web.asked == [CERTIFICATE_URL, SUBSCRIBE_URL]


@pytest.mark.parametrize("kind", ["Notification", "UnsubscribeConfirmation"])
def test_nothing_else_is_confirmed(kind: str, web: Web) -> None:
    """Above all not the notice that a subscription has ended, whose URL would begin it again."""
    with pytest.raises(recado.MalformedMessage, match="only a SubscriptionConfirmation"):
        confirm_sns(message(kind), TOPIC, fetch=web)
    assert SUBSCRIBE_URL not in web.asked


def test_other_topics_are_not_confirmed(web: Web) -> None:
    """Anyone may subscribe our endpoint to their topic, and SNS signs that; it stays unconfirmed."""
    theirs = TOPIC.replace("123456789012", "210987654321")
    sent = message("SubscriptionConfirmation", TopicArn=theirs, SubscribeURL=SUBSCRIBE_URL.replace(TOPIC, theirs))
    with pytest.raises(recado.WrongTopic):
        confirm_sns(sent, TOPIC, fetch=web)
    assert web.asked == []


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
def test_urls_that_are_not_opened(url: str, web: Web) -> None:
    """Even signed, a URL that asks another host, or for anything else, is left alone."""
    with pytest.raises(recado.MalformedMessage, match="SubscribeURL"):
        confirm_sns(message("SubscriptionConfirmation", SubscribeURL=url), TOPIC, fetch=web)
    assert web.asked == [CERTIFICATE_URL]


def test_forged_confirmation(web: Web) -> None:
    """An unsigned one has nothing opened."""
    with pytest.raises(recado.NoMatchingSignature):
        confirm_sns(message("SubscriptionConfirmation") | {"Message": "x"}, TOPIC, fetch=web)
    assert web.asked == [CERTIFICATE_URL]


@pytest.mark.parametrize("answer", ["", "<html>", CONFIRMED.replace(TOPIC, TOPIC + "2"), None])
def test_failed_confirmation(answer: str | None, web: Web) -> None:
    """No answer, or one that names no subscription to this topic, is a failure."""
    del web.pages[SUBSCRIBE_URL]
    if answer is not None:
        web.pages[SUBSCRIBE_URL] = answer.encode()
    with pytest.raises(recado.ConfirmationFailed):
        confirm_sns(message("SubscriptionConfirmation"), TOPIC, fetch=web)


# The fetch that is used without another


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    """A server on loopback: its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status = int(self.path.strip("/"))
            self.send_response(status)
            if status in range(300, 400):
                self.send_header("location", "/200")
            self.end_headers()
            self.wfile.write(b"x" * 100_000 if status == 200 else b"")

        def log_message(self, *_: object) -> None:
            """The test looks at `asked`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.enable_socket
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 403, 500])
def test_redirects_are_errors(site: tuple[str, list[str]], status: int) -> None:
    """Nothing but the URL itself is asked, and what is not its content is an OSError."""
    address, asked = site
    with pytest.raises(HTTPError, match=str(status)):
        sns._download(f"{address}/{status}")
    assert asked == [f"/{status}"]


@pytest.mark.enable_socket
def test_answers_are_bounded(site: tuple[str, list[str]]) -> None:
    """However much is served, 64 KiB of it are read."""
    assert len(sns._download(f"{site[0]}/200")) == 65536


def test_download_is_the_default(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `fetch` it is used for both, certificate and confirmation."""
    monkeypatch.setattr(sns, "_download", web)
    confirm_sns(message("SubscriptionConfirmation"), TOPIC)
    assert web.asked == [CERTIFICATE_URL, SUBSCRIBE_URL]
