"""Endpoints from the event to the receiver, and what their owners can see and do."""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count, pairwise
from typing import Any

import pytest
import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from core import events
from core.webhooks.transport import client
from tests.simulated_cloud.cloud import Cloud, Killed
from tests.simulated_cloud.rest_api import Response
from tests.support.problems import assert_problem
from tests.support.receiver import Answer, Received, Receiver, response, verify
from tests.support.service import Service
from tests.support.webhooks import (
    HOOK,
    HOUR,
    WAITS,
    WHOLE,
    assert_no_leftovers,
    attempts,
    canceled,
    deliveries,
    delivery,
    endpoint,
    get_delivery,
    get_endpoint,
    health,
    list_deliveries,
    nth,
    statuses,
    stored_endpoint,
)

DAY = 24 * HOUR
OTHER = "https://other.example.org/hook"
Knob = Callable[..., None]


def event_names(receiver: Receiver, url: str = HOOK) -> list[str]:
    """The names of the events that a URL got, in order."""
    return [json.loads(received.body)["event"] for received in receiver.requests if received.url == url]


def at(receiver: Receiver, url: str) -> list[Received]:
    return [received for received in receiver.requests if received.url == url]


def answering(**by_host: Answer | Callable[[Received], Answer]) -> Callable[[Received], Answer]:
    """A reaction by the first label of the host; 200 for all others."""

    def react(received: Received) -> Answer:
        answer = by_host.get(received.url.removeprefix("https://").partition(".")[0], 200)
        return answer(received) if callable(answer) else answer

    return react


def patch(service: Service, webhook_id: str, **changes: Any) -> dict[str, Any]:
    answer = service.call("PATCH", f"/webhooks/{webhook_id}", json=changes)
    assert answer.status == 200, answer.text
    changed: dict[str, Any] = answer.json()
    return changed


def rotate(service: Service, webhook_id: str, **options: Any) -> str | None:
    answer = service.call("POST", f"/webhooks/{webhook_id}/rotate-secret", json=options)
    assert answer.status == 200, answer.text
    secret: str | None = answer.json().get("secret")
    return secret


class TestWhatIsWanted:
    @pytest.mark.parametrize(
        ("patterns", "expected"),
        [
            (["document.canceled"], ["document.canceled"]),
            (["document.*"], ["document.uploaded", "document.canceled"]),
            (["*.canceled", "*.failed"], ["document.canceled"]),
            (["*"], ["document.uploaded", "document.canceled"]),
            (["document.failed", "endpoint.*"], []),
        ],
    )
    def test_patterns_choose(
        self, service: Service, receiver: Receiver, patterns: list[str], expected: list[str]
    ) -> None:
        """An endpoint gets the events that its patterns cover, each once."""
        endpoint(service, events=patterns)
        canceled(service)
        service.cloud.settle()
        assert sorted(event_names(receiver)) == sorted(expected)
        assert len(deliveries(service.cloud)) == len(expected)

    def test_all_events_of_a_document(self, service: Service, receiver: Receiver) -> None:
        """All events of a document are sent with the bytes of the log."""
        endpoint(service, events=["*"])
        job_id = service.submit("¿ñ? 🎉")
        service.cloud.settle(within=60)
        log = service.events(job_id)
        assert len(log) == 5
        sent = sorted((json.loads(received.body) for received in receiver.requests), key=lambda e: e["sequence"])
        assert sent == log

    @pytest.mark.parametrize(
        ("wanted", "passes"),
        [
            ({"document_id": ["a-1"]}, True),
            ({"document_id": [{"prefix": "a-"}], "sequence": [{"numeric": [">", 1]}]}, True),
            ({"document_id": ["b"]}, False),
            ({"chunks": [{"exists": True}]}, False),
            ({"sequence": [{"numeric": [">=", 3]}]}, False),
        ],
    )
    def test_filters_choose(
        self, service: Service, receiver: Receiver, wanted: dict[str, Any], passes: bool
    ) -> None:
        """An event that does not match the filter creates no delivery."""
        endpoint(service, filter=wanted)
        canceled(service, document_id="a-1")
        service.cloud.settle()
        assert len(receiver.requests) == len(deliveries(service.cloud)) == passes

    def test_every_endpoint_gets_its_own(self, service: Service, receiver: Receiver) -> None:
        """Endpoints and the job's own URL have their own deliveries and secrets."""
        made = [endpoint(service, f"https://{name}.example.com/") for name in "abc"]
        canceled(service, webhook_url=HOOK)
        service.cloud.settle()
        assert len(receiver.requests) == 4
        assert len({received.event_id for received in receiver.requests}) == 1
        for one in made:
            (received,) = at(receiver, one["url"])
            verify(received, one["secret"])
            with pytest.raises(standardwebhooks.WebhookVerificationError):
                verify(at(receiver, HOOK)[0], one["secret"])

    def test_more_endpoints_than_a_transaction_has_actions(self, service: Service, receiver: Receiver) -> None:
        """All of 101 endpoints get one event."""
        endpoint(service)
        table = service.cloud.table("Jobs")
        (row,) = [item for item in table.scan()["Items"] if item["sk"].startswith("ENDPOINT#")]
        with table.batch_writer() as batch:
            for number in range(100):
                identifier = f"wh_{number:026}"
                batch.put_item(Item=row | {"sk": f"ENDPOINT#{identifier}", "endpoint_id": identifier})
        service.cloud.fail("kms", "Decrypt", "AccessDeniedException", function="sender", times=None)
        service.cloud.pause("sender")
        canceled(service)
        service.cloud.settle()
        assert len(service.cloud.queue("Webhooks/Queue")) == len(deliveries(service.cloud)) == 101

    def test_an_edit_holds_from_the_next_attempt(self, service: Service, receiver: Receiver) -> None:
        """A new URL and headers apply to the next attempt; the body stays the same."""
        receiver.answers = [500]
        webhook_id = endpoint(service)["webhook_id"]
        canceled(service)
        service.cloud.settle()
        patch(service, webhook_id, url=OTHER, headers={"X-Key": "2"}, format="thin")
        service.cloud.settle(within=60)
        first, second = receiver.requests
        assert (first.url, second.url) == (HOOK, OTHER)
        assert first.body == second.body
        assert second.headers["X-Key"] == "2"

    def test_no_events_of_other_owners(self, service: Service, receiver: Receiver) -> None:
        """An endpoint gets no events of other owners."""
        bob = Service(service.cloud, "bob")
        endpoint(service, events=["*"])
        endpoint(bob, OTHER, events=["*"])
        mine = canceled(service)
        service.cloud.settle()
        assert {json.loads(received.body)["job_id"] for received in at(receiver, HOOK)} == {mine}
        assert at(receiver, OTHER) == []


class TestFormats:
    def receive(self, service: Service, receiver: Receiver, format: str) -> tuple[dict[str, Any], Received]:
        secret = endpoint(service, format=format)["secret"]
        job_id = canceled(service, document_id="día <&> 🎉")
        service.cloud.settle()
        (received,) = receiver.requests
        verify(received, secret)
        event = service.events(job_id)[-1]
        assert received.event_id == event["event_id"]
        assert delivery(service.cloud).body.encode() == received.body
        return event, received

    def test_recado(self, service: Service, receiver: Receiver) -> None:
        """The format `recado` is the logged event, byte for byte."""
        event, received = self.receive(service, receiver, "recado")
        assert json.loads(received.body) == event
        assert service.row(f"JOB#{event['job_id']}", "EVENT#000002")["body"].encode() == received.body
        assert received.headers["Content-Type"] == "application/json"

    def test_cloudevents(self, service: Service, receiver: Receiver) -> None:
        """The format `cloudevents` is CloudEvents 1.0 in structured mode."""
        event, received = self.receive(service, receiver, "cloudevents")
        sent = json.loads(received.body)
        assert received.headers["Content-Type"] == "application/cloudevents+json"
        assert (sent["specversion"], sent["id"], sent["data"]) == ("1.0", event["event_id"], event)
        assert (sent["type"], sent["subject"]) == ("recado.document.canceled", event["job_id"])

    def test_slack(self, service: Service, receiver: Receiver) -> None:
        """The format `slack` is one line without markup of the caller."""
        _, received = self.receive(service, receiver, "slack")
        assert json.loads(received.body)["text"] == "document.canceled · día &lt;&amp;&gt; 🎉"

    def test_thin(self, service: Service, receiver: Receiver) -> None:
        """The format `thin` has only ids."""
        event, received = self.receive(service, receiver, "thin")
        names = ("event", "event_id", "job_id", "sequence", "timestamp")
        assert json.loads(received.body) == {name: event[name] for name in names}

    @pytest.mark.parametrize("format", ["recado", "cloudevents", "slack", "thin"])
    def test_the_same_bytes_each_time(self, service: Service, receiver: Receiver, format: str) -> None:
        """Retries send the stored bytes after a change of the format."""
        receiver.answers = [500, 500]
        made = endpoint(service, format=format)
        canceled(service)
        service.cloud.settle()
        patch(service, made["webhook_id"], format="slack" if format == "thin" else "thin")
        service.cloud.settle(within=600)
        assert len(receiver.requests) == 3
        assert len({(received.body, received.event_id) for received in receiver.requests}) == 1
        assert len({received.headers["Content-Type"] for received in receiver.requests}) == 1


class TestHeaders:
    def test_own_headers_are_sent_and_never_shown(self, service: Service, receiver: Receiver) -> None:
        """The values of custom headers are sent, and are in no view, attempt or table."""
        made = endpoint(service, headers={"Authorization": "Bearer hush-1", "X-Team": "hush-2"})
        canceled(service)
        service.cloud.settle()
        (received,) = receiver.requests
        assert received.headers["Authorization"] == "Bearer hush-1"
        assert received.headers["X-Team"] == "hush-2"
        (attempt,) = get_delivery(service, delivery(service.cloud).delivery_id)["attempts"]
        assert attempt["request_headers"]["authorization"] == "…"
        assert attempt["request_headers"]["webhook-signature"] == received.headers["webhook-signature"]
        seen = json.dumps([made, get_endpoint(service, made["webhook_id"]), attempt])
        stored = str(service.cloud.table("Jobs").scan()) + str(service.cloud.table("Deliveries").scan())
        assert "hush" not in seen
        assert "hush" not in stored

    def test_they_never_replace_ours(self, service: Service, receiver: Receiver) -> None:
        """A header that looks like part of the signature is refused."""
        for name in ("webhook-signature", "Webhook_Id", "X-Signature", "Content-Type", "Host"):
            body = {"url": HOOK, "events": ["*"], "headers": {name: "x"}}
            assert_problem(service.call("POST", "/webhooks", json=body), 422, "invalid_request")


class TestRotation:
    def test_both_sign_during_the_grace(self, service: Service, receiver: Receiver) -> None:
        """During the grace period both secrets verify, and the new one signs first."""
        made = endpoint(service)
        old, webhook_id = made["secret"], made["webhook_id"]
        service.cloud.clock.advance_to(int(service.cloud.clock.time) + 1)
        new = rotate(service, webhook_id, grace_seconds=3600)
        assert new
        assert len(get_endpoint(service, webhook_id)["old_secrets"]) == 1
        (expiry,) = [key.expires_at for key in stored_endpoint(service.cloud, "ana", webhook_id).keys[1:]]
        assert expiry
        canceled(service)
        service.cloud.settle()
        (received,) = receiver.requests
        verify(received, new)
        standardwebhooks.Webhook(old).verify(received.body, dict(received.headers))
        assert len(received.headers["webhook-signature"].split()) == 2
        assert verifies_plainly(received, old, "X-Signature-Previous")
        assert received.headers["webhook-signature"].split()[0] in signed_by(new, received)

    def test_the_expiry_is_exact(self, service: Service, receiver: Receiver) -> None:
        """Just before the expiry there are two signatures, at it one."""
        webhook_id = endpoint(service)["webhook_id"]
        rotate(service, webhook_id, grace_seconds=100)
        (expiry,) = [key.expires_at for key in stored_endpoint(service.cloud, "ana", webhook_id).keys[1:]]
        assert expiry
        service.cloud.pause("sender")
        for _ in range(2):
            canceled(service)
        service.cloud.settle()
        first, second = service.cloud.queue("Webhooks/Queue").bodies
        for moment, body in ((expiry - 0.1, first), (expiry, second)):
            service.cloud.clock.advance_to(moment)
            service.cloud.invoke("sender", {"Records": [record(body)]})
        counts = [len(received.headers["webhook-signature"].split()) for received in receiver.requests]
        assert counts == [2, 1]
        assert ["X-Signature-Previous" in received.headers for received in receiver.requests] == [True, False]
        assert get_endpoint(service, webhook_id)["old_secrets"] == []

    def test_without_grace_the_old_one_is_gone(self, service: Service, receiver: Receiver) -> None:
        """With `grace_seconds: 0` also retries are signed only with the new secret."""
        receiver.answers = [500]
        made = endpoint(service)
        canceled(service)
        service.cloud.settle()
        new = rotate(service, made["webhook_id"], grace_seconds=0)
        assert new
        service.cloud.settle(within=60)
        verify(receiver.requests[1], new)
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(made["secret"]).verify(
                receiver.requests[1].body, dict(receiver.requests[1].headers)
            )

    def test_own_secrets_sign(self, service: Service, receiver: Receiver) -> None:
        """The owner's own secret signs, at creation and after a rotation."""
        first, second = (f"whsec_{b64encode(bytes([byte]) * 24).decode()}" for byte in (1, 2))
        made = endpoint(service, secret=first)
        assert made["secret"] == first
        assert rotate(service, made["webhook_id"], secret=second, grace_seconds=0) == second
        canceled(service)
        service.cloud.settle()
        verify(receiver.requests[0], second)

    def test_the_default_secret_is_rotated_like_any_other(self, service: Service, receiver: Receiver) -> None:
        """A job's own URL gets both signatures during a rotation."""
        old = rotate(service, "default")
        new = rotate(service, "default")
        assert old
        assert new
        canceled(service, webhook_url=HOOK)
        service.cloud.settle()
        verify(receiver.requests[0], new)
        assert verifies_plainly(receiver.requests[0], old, "X-Signature-Previous")

    def test_a_key_is_decrypted_once(self, service: Service, receiver: Receiver) -> None:
        """A warm sender asks KMS once for each secret and header value."""
        made = endpoint(service, headers={"X-Team": "a"})
        for _ in range(3):
            canceled(service)
            service.cloud.settle()
        rotate(service, made["webhook_id"])
        for _ in range(3):
            canceled(service)
            service.cloud.settle()
        decrypted = [call for call in service.cloud.calls.of("sender") if call.operation == "Decrypt"]
        assert len(decrypted) == 3
        contexts = [call.params["EncryptionContext"] for call in decrypted]
        assert contexts == [{"owner": "ana", "endpoint": made["webhook_id"]}] * 3
        assert len(receiver.requests) == 6

    def test_only_the_sender_can_read_it(self, service: Service, receiver: Receiver) -> None:
        """Only the sender decrypts secrets."""
        made = endpoint(service, headers={"X-Team": "a"})
        get_endpoint(service, made["webhook_id"])
        rotate(service, made["webhook_id"])
        patch(service, made["webhook_id"], headers={"X-Team": "b"})
        canceled(service)
        service.cloud.settle()
        asked = {call.function for call in service.cloud.calls.log if call.operation == "Decrypt"}
        assert asked == {"sender"}


def record(body: str, receives: int = 1) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(receives)}
    return {"messageId": "m", "body": body, "attributes": attributes, "messageAttributes": {}}


def verifies_plainly(received: Received, secret: str, header: str) -> bool:
    expected = hmac.new(secret.encode(), received.body, "sha256").hexdigest()
    return bool(received.headers[header] == f"sha256={expected}")


def signed_by(secret: str, received: Received) -> list[str]:
    moment = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
    return [standardwebhooks.Webhook(secret).sign(received.event_id, moment, received.body.decode())]


class TestEd25519:
    def keys(self, service: Service, webhook_id: str) -> list[Ed25519PublicKey]:
        answer = service.call("GET", f"/webhooks/{webhook_id}/public-key").json()
        raw = [b64decode(key["public_key"].removeprefix("whpk_")) for key in answer["keys"]]
        return [Ed25519PublicKey.from_public_bytes(key) for key in raw]

    def signatures(self, received: Received) -> list[bytes]:
        entries = [entry.split(",") for entry in received.headers["webhook-signature"].split()]
        assert {version for version, _ in entries} == {"v1a"}
        return [b64decode(signature) for _, signature in entries]

    def content(self, received: Received) -> bytes:
        return f"{received.event_id}.{received.headers['webhook-timestamp']}.".encode() + received.body

    def test_the_public_key_verifies(self, service: Service, receiver: Receiver) -> None:
        """The public key verifies the exact bytes, and the private key is not shown."""
        made = endpoint(service, signing="ed25519")
        assert "secret" not in made
        canceled(service)
        service.cloud.settle()
        (received,) = receiver.requests
        (key,), (signature,) = self.keys(service, made["webhook_id"]), self.signatures(received)
        key.verify(signature, self.content(received))
        with pytest.raises(InvalidSignature):
            key.verify(signature, self.content(received) + b" ")
        assert "X-Signature" not in received.headers

    def test_a_rotation_signs_with_both(self, service: Service, receiver: Receiver) -> None:
        """During the grace period there are two signatures and two public keys, in the same order."""
        webhook_id = endpoint(service, signing="ed25519")["webhook_id"]
        assert rotate(service, webhook_id) is None
        canceled(service)
        service.cloud.settle()
        (received,) = receiver.requests
        keys, signatures = self.keys(service, webhook_id), self.signatures(received)
        assert len(keys) == len(signatures) == 2
        for key, signature in zip(keys, signatures, strict=True):
            key.verify(signature, self.content(received))
        with pytest.raises(InvalidSignature):
            keys[0].verify(signatures[1], self.content(received))


class TestRateLimit:
    @pytest.mark.parametrize("rate", [0.5, 4.0])
    def test_requests_keep_their_distance(
        self, service: Service, receiver: Receiver, rate: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Requests are sent at the rate, not faster, and without failed attempts."""
        one_at_a_time(monkeypatch)
        endpoint(service, rate_limit=rate)
        for _ in range(25):
            canceled(service)
        service.let_pass(600)
        times = [received.at for received in receiver.requests]
        assert len(times) == 25
        assert min(late - early for early, late in pairwise(times)) >= 1 / rate - 0.05
        assert times[-1] - times[0] <= 24 / rate + 3
        assert {found.attempts for found in deliveries(service.cloud)} == {1}

    def test_delayed_sender_makes_no_burst(
        self, service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Messages that missed their slots together get new ones."""
        one_at_a_time(monkeypatch)
        endpoint(service, rate_limit=1)
        service.cloud.pause("sender")
        for _ in range(15):
            canceled(service)
        service.cloud.settle()
        for _ in range(2):
            service.cloud.poll("sender")
        service.cloud.clock.advance(120)
        service.cloud.resume()
        service.let_pass(600)
        times = [received.at for received in receiver.requests]
        assert len(times) == 15
        assert min(late - early for early, late in pairwise(times)) >= 1 - 0.3

    def test_more_than_a_queue_can_delay(
        self, service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Deliveries without a slot within 15 minutes are sent later, at the rate."""
        one_at_a_time(monkeypatch)
        endpoint(service, events=["document.*"], rate_limit=0.1)
        for _ in range(60):
            canceled(service)
        service.let_pass(2 * HOUR)
        times = [received.at for received in receiver.requests]
        assert len(times) == 120
        assert min(late - early for early, late in pairwise(times)) >= 10 - 0.3
        assert times[-1] - times[0] <= 1190 + 120
        assert_no_leftovers(service.cloud)

    def test_others_are_not_slowed(self, service: Service, receiver: Receiver) -> None:
        """A rate limit does not delay other endpoints."""
        endpoint(service, rate_limit=0.1)
        endpoint(service, OTHER)
        start = service.cloud.clock.time
        for _ in range(8):
            canceled(service)
        service.let_pass(200)
        assert max(received.at for received in at(receiver, OTHER)) - start < 5
        assert len(at(receiver, HOOK)) == 8


def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thread only. Concurrent sleeps would add up on the virtual clock."""
    monkeypatch.setattr("webhooks.sender.batch.BATCH", 1000)
    monkeypatch.setattr("webhooks.sender.polling.ThreadPoolExecutor", lambda workers: ThreadPoolExecutor(1))


class TestCircuit:
    def break_down(self, service: Service, receiver: Receiver, *, jobs: int = 12) -> str:
        """An endpoint whose receiver has failed until its circuit opened."""
        receiver.always = 500
        webhook_id: str = endpoint(service)["webhook_id"]
        for _ in range(jobs):
            canceled(service)
            service.cloud.settle()
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "open"
        return webhook_id

    def test_it_opens_after_ten_consecutive_failures(self, service: Service, receiver: Receiver) -> None:
        """After ten failures the next deliveries wait without an attempt."""
        webhook_id = self.break_down(service, receiver)
        assert len(receiver.requests) == 10
        counters = get_endpoint(service, webhook_id)["counters"]
        assert (counters["attempts"], counters["consecutive_failures"]) == (10, 10)
        assert [found.attempts for found in deliveries(service.cloud)] == [1] * 10 + [0] * 2

    def test_a_success_between_keeps_it_closed(self, service: Service, receiver: Receiver) -> None:
        """Nine failures and a success, repeated, do not open it."""
        receiver.react = lambda received: 200 if len(receiver.requests) % 10 == 0 else 500
        webhook_id = endpoint(service)["webhook_id"]
        for _ in range(30):
            canceled(service)
            service.cloud.settle()
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "closed"
        assert len(receiver.requests) == 30

    def test_probes_grow_rarer(self, service: Service, receiver: Receiver) -> None:
        """While it fails, only probes are sent, at intervals that double up to one hour."""
        self.break_down(service, receiver)
        service.let_pass(8 * HOUR)
        probes = [received.at for received in receiver.requests[10:]]
        pauses = [late - early for early, late in pairwise(probes)]
        assert len(probes) < 20
        for pause, expected in zip(pauses, [120, 240, 480, 960, 1920, 3600, 3600], strict=False):
            assert 0.8 * expected - 1 <= pause <= 1.2 * expected + 62, (pauses, expected)
        triggers = [each.trigger for found in deliveries(service.cloud) for each in attempts(service.cloud, found)]
        assert triggers.count("probe") == len(probes)
        assert triggers.count("automatic") == 10

    def test_what_was_held_is_sent_after_recovery(self, service: Service, receiver: Receiver) -> None:
        """After a successful probe all held deliveries are sent, each once."""
        webhook_id = self.break_down(service, receiver, jobs=40)
        receiver.always = 200
        sent = len(receiver.requests)
        service.let_pass(1000)
        assert statuses(deliveries(service.cloud)) <= {"delivered", "pending"}
        service.let_pass(2 * HOUR)
        assert statuses(deliveries(service.cloud)) == {"delivered"}
        arrived = [received.event_id for received in receiver.requests[sent:]]
        assert len(arrived) == len(set(arrived)) == 40
        seen = get_endpoint(service, webhook_id)
        assert (seen["circuit"]["state"], seen["failing_since"]) == ("closed", None)
        assert seen["counters"]["delivered"] == 40
        assert_no_leftovers(service.cloud)

    def test_nothing_is_held_for_ever(self, service: Service, receiver: Receiver) -> None:
        """A delivery that is held after the retry scheduler found none is still sent."""
        cloud = service.cloud
        webhook_id = self.break_down(service, receiver, jobs=10)
        receiver.always = 200
        cloud.pause("sender")
        canceled(service)
        cloud.settle()
        next_check_at = health(cloud, webhook_id).next_check_at
        assert next_check_at
        cloud.clock.advance_to(datetime.fromisoformat(next_check_at).timestamp())

        def run_retry_scheduler(call: Any) -> None:
            cloud.invoke("retry_scheduler", {})
            assert get_endpoint(service, webhook_id)["circuit"]["state"] == "draining"

        cloud.on("dynamodb", "UpdateItem", run_retry_scheduler, function="sender")
        cloud.invoke("sender", {"Records": [record(cloud.queue("Webhooks/Queue").bodies[-1])]})
        assert deliveries(cloud)[-1].attempts == 0
        cloud.resume()
        service.let_pass(HOUR)
        assert statuses(deliveries(cloud)) == {"delivered"}
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "closed"

    def test_half_open(self, service: Service, receiver: Receiver) -> None:
        """If no delivery was held for a probe, the next failure opens the circuit again."""
        receiver.always = 500
        webhook_id = endpoint(service)["webhook_id"]
        for _ in range(2):
            canceled(service)
        service.let_pass(1.9 * HOUR)
        for _ in range(300):
            if len(receiver.requests) < 10:
                service.let_pass(20)
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "open"
        service.let_pass(140)
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "draining"
        service.let_pass(400)
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "closed"
        canceled(service)
        service.cloud.settle()
        assert len(receiver.requests) == 11
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "open"

    def test_it_is_of_one_endpoint(self, service: Service, receiver: Receiver) -> None:
        """Other endpoints and URLs of jobs are not affected."""
        receiver.react = answering(hooks=500)
        webhook_id = endpoint(service)["webhook_id"]
        endpoint(service, OTHER)
        for _ in range(12):
            canceled(service, webhook_url="https://job.example.com/")
        service.cloud.settle()
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "open"
        assert len(at(receiver, OTHER)) == len(at(receiver, "https://job.example.com/")) == 12

    def test_what_is_held_too_long_fails(self, service: Service, receiver: Receiver, knob: Knob) -> None:
        """Deliveries that are held for longer than twice the schedule fail with a reason."""
        for function in ("Sender", "RetryScheduler"):
            knob(function, WEBHOOK_SCHEDULE_SECONDS=[0, 60, 600, 3600])
        webhook_id = self.break_down(service, receiver, jobs=20)
        service.let_pass(2 * (60 + 600 + 3600) - 60)
        assert "circuit_open" not in {found.reason for found in deliveries(service.cloud)}
        service.let_pass(3 * HOUR)
        ended = deliveries(service.cloud)
        assert statuses(ended) == {"failed"}
        assert [found.reason for found in ended].count("circuit_open") >= 10
        assert {found.attempts for found in ended if found.reason is None} == {4}
        assert get_endpoint(service, webhook_id)["enabled"]
        assert_no_leftovers(service.cloud)

    def test_a_new_url_drains_it(self, service: Service, receiver: Receiver) -> None:
        """After a change of the URL held deliveries do not wait for the next probe."""
        webhook_id = self.break_down(service, receiver, jobs=20)
        service.let_pass(2 * HOUR)
        receiver.react = answering(hooks=503)
        patch(service, webhook_id, url=OTHER)
        service.let_pass(130)
        assert len(at(receiver, OTHER)) >= 10


class TestDisabling:
    def test_410_disables_at_once(self, service: Service, receiver: Receiver) -> None:
        """After a 410 the delivery has failed, open ones are discarded, and nothing more is sent."""
        gone, waiting = endpoint(service)["webhook_id"], 3
        receiver.always = 500
        for _ in range(waiting):
            canceled(service)
            service.cloud.settle()
        receiver.always = 410
        canceled(service)
        service.cloud.settle()
        seen = get_endpoint(service, gone)
        assert (seen["enabled"], seen["disabled_reason"]) == (False, "gone")
        sent = len(receiver.requests)
        canceled(service)
        service.let_pass(WHOLE)
        assert len(receiver.requests) == sent == waiting + 1
        found = deliveries(service.cloud)
        assert [each.status for each in found] == ["discarded"] * 3 + ["failed", "discarded"]
        assert {each.reason for each in found if each.status == "discarded"} == {"disabled"}

    def test_endpoint_disabled_is_sent_once(self, service: Service, receiver: Receiver) -> None:
        """`endpoint.disabled` goes to the owner's other endpoints and error-alerts once."""
        receiver.react = answering(hooks=410)
        service.cloud.pause("sender")
        gone = endpoint(service, events=["*"])["webhook_id"]
        endpoint(service, OTHER, events=["endpoint.disabled"])
        endpoint(Service(service.cloud, "bob"), "https://bob.example.com/", events=["*"])
        for _ in range(10):
            canceled(service)
        service.cloud.settle()
        service.cloud.resume()
        service.cloud.settle(within=HOUR)
        (received,) = at(receiver, OTHER)
        event = json.loads(received.body)
        assert (event["event"], event["endpoint_id"], event["reason"]) == ("endpoint.disabled", gone, "gone")
        assert received.event_id == event["event_id"]
        assert at(receiver, "https://bob.example.com/") == []
        alerts = service.published("ErrorAlertsTopic")
        assert [alert["event"] for alert in alerts] == ["endpoint.disabled"]
        log = service.call("GET", "/webhooks/events").json()["events"]
        assert log == [event]

    def test_five_days_without_success_disable(self, service: Service, receiver: Receiver) -> None:
        """An endpoint is disabled when a delivery fails for good after five days without a success."""
        receiver.react = answering(hooks=500)
        webhook_id = endpoint(service)["webhook_id"]
        endpoint(service, OTHER, events=["endpoint.disabled"])
        start = service.cloud.clock.time
        for _ in range(4):
            canceled(service)
            service.let_pass(2 * DAY)
        assert get_endpoint(service, webhook_id)["enabled"] == (service.cloud.clock.time - start < 5 * DAY)
        service.let_pass(4 * DAY)
        seen = get_endpoint(service, webhook_id)
        assert (seen["enabled"], seen["disabled_reason"]) == (False, "failing")
        assert seen["disabled_at"] >= events.timestamp(start + 5 * DAY)
        assert seen["failing_since"] is None or seen["failing_since"] >= events.timestamp(start)
        assert event_names(receiver, OTHER) == ["endpoint.disabled"]

    def test_a_success_between_starts_the_five_days_anew(self, service: Service, receiver: Receiver) -> None:
        """An endpoint with occasional successes stays enabled."""
        receiver.react = lambda received: 200 if received.event_id in lucky else 500
        lucky: set[str] = set()
        webhook_id = endpoint(service)["webhook_id"]
        for number in range(4):
            job_id = canceled(service)
            if number % 2:
                lucky.add(service.events(job_id)[-1]["event_id"])
            service.let_pass(2 * DAY)
        found = deliveries(service.cloud)
        assert [each.status for each in found] == ["failed", "delivered", "failed", "delivered"]
        assert get_endpoint(service, webhook_id)["enabled"]

    def test_what_is_discarded_is_kept_and_recovered(self, service: Service, receiver: Receiver) -> None:
        """Discarded deliveries can be recovered after the endpoint is enabled."""
        webhook_id = endpoint(service)["webhook_id"]
        since = events.timestamp(service.cloud.clock.time)
        patch(service, webhook_id, enabled=False)
        jobs = [canceled(service) for _ in range(3)]
        service.cloud.settle()
        discarded = list_deliveries(service, webhook_id, status="discarded")
        assert [each["status"] for each in discarded] == ["discarded"] * 3
        assert_problem(recover(service, webhook_id, since=since), 409, "conflict")
        patch(service, webhook_id, enabled=True)
        service.let_pass(HOUR)
        assert receiver.requests == []
        job = finished(service, recover(service, webhook_id, since=since))
        assert job["result"] == {"sent": 3}
        assert {json.loads(received.body)["job_id"] for received in receiver.requests} == set(jobs)
        assert statuses(deliveries(service.cloud)) == {"delivered"}

    def test_what_waits_for_a_deleted_endpoint_is_canceled(self, service: Service, receiver: Receiver) -> None:
        """Open and held deliveries of a deleted endpoint are canceled."""
        receiver.always = 500
        for _ in range(2):
            endpoint(service, events=["document.*"])
        for _ in range(6):
            canceled(service)
            service.cloud.settle()
        found = service.call("GET", "/webhooks").json()["webhooks"]
        assert [each["circuit"]["state"] for each in found] == ["open", "open"]
        for each in found:
            assert service.call("DELETE", f"/webhooks/{each['webhook_id']}").status == 204
        sent = len(receiver.requests)
        service.let_pass(WHOLE)
        assert len(receiver.requests) == sent
        assert statuses(deliveries(service.cloud)) == {"canceled"}
        assert {each.reason for each in deliveries(service.cloud)} == {"deleted"}
        assert_no_leftovers(service.cloud)

    def test_deleted_default_endpoint(self, service: Service, receiver: Receiver) -> None:
        """Held deliveries of all URLs of jobs are canceled with the default endpoint."""
        receiver.always = 500
        for url in (HOOK, OTHER):
            for _ in range(14):
                canceled(service, webhook_url=url)
                service.cloud.settle()
        assert service.call("DELETE", "/webhooks/default").status == 204
        sent = len(receiver.requests)
        service.let_pass(HOUR)
        held = [found for found in deliveries(service.cloud) if found.attempts == 0]
        assert len(held) == 8
        assert statuses(held) == {"canceled"}
        assert len(receiver.requests) == sent


def recover(service: Service, webhook_id: str, **body: Any) -> Response:
    return service.call("POST", f"/webhooks/{webhook_id}/recover", json=body)


def replay(service: Service, webhook_id: str, **body: Any) -> Response:
    return service.call("POST", f"/webhooks/{webhook_id}/replay", json=body)


def finished(service: Service, accepted: Response) -> dict[str, Any]:
    """The accepted job after its completion."""
    assert accepted.status == 202, accepted.text
    service.cloud.settle(within=60)
    job = service.job(accepted.json()["job_id"])
    assert job["status"] == "completed", job
    return job


class TestOrder:
    @pytest.mark.parametrize("seed", range(3))
    def test_a_jobs_events_come_in_order(self, service: Service, receiver: Receiver, seed: int) -> None:
        """The events of a job arrive in order, despite repeated messages and failures."""
        receiver.react = lambda received: 500 if len(receiver.requests) % 3 == 0 else 200
        service.cloud.unreliable(seed)
        endpoint(service, events=["*"], ordered=True)
        jobs = [service.submit(str(number)) for number in range(3)]
        service.cloud.settle(within=60)
        service.let_pass(3 * HOUR)
        for job_id in jobs:
            got = [received for received in receiver.requests if json.loads(received.body)["job_id"] == job_id]
            order = [json.loads(received.body)["sequence"] for received in got]
            assert order == sorted(order)
            assert set(order) == {1, 2, 3, 4, 5}
        assert statuses(deliveries(service.cloud)) == {"delivered"}
        assert_no_leftovers(service.cloud)

    def test_a_delivery_waits_for_its_predecessor(self, service: Service, receiver: Receiver) -> None:
        """A delivery waits for hours until its predecessor has failed for good."""
        first: list[str] = []

        def react(received: Received) -> int:
            first.append(received.event_id)
            return 500 if received.event_id == first[0] else 200

        receiver.react = react
        endpoint(service, events=["*"], ordered=True)
        canceled(service)
        service.let_pass(58 * HOUR)  # the schedule takes 75 h, and 60 if all its waits are the shortest
        assert set(event_names(receiver)) == {"document.uploaded"}
        service.let_pass(36 * HOUR)
        assert event_names(receiver) == ["document.uploaded"] * 10 + ["document.canceled"]

    def test_other_jobs_do_not_wait(self, service: Service, receiver: Receiver) -> None:
        """The order is within one job."""
        receiver.answers = [500]
        endpoint(service, events=["*"], ordered=True)
        canceled(service)
        service.cloud.settle()
        canceled(service)
        service.cloud.settle()
        assert event_names(receiver) == ["document.uploaded", "document.uploaded", "document.canceled"]

    def test_failed_manual_attempt_keeps_the_order(self, service: Service, receiver: Receiver) -> None:
        """After a failed manual attempt, automatic ones still wait for the predecessor."""
        receiver.always = 500
        endpoint(service, events=["*"], ordered=True)
        canceled(service)
        service.cloud.settle()
        second = next(found for found in deliveries(service.cloud) if found.event == "document.canceled")
        assert service.call("POST", f"/deliveries/{second.delivery_id}/redeliver").status == 202
        service.cloud.settle()
        service.let_pass(2 * HOUR)
        triggers = [each.trigger for each in attempts(service.cloud, second)]
        assert triggers == ["manual"]

    def test_a_replay_keeps_order(self, service: Service, receiver: Receiver) -> None:
        """A replay keeps the order."""
        webhook_id = endpoint(service, events=["*"], ordered=True)["webhook_id"]
        since = events.timestamp(service.cloud.clock.time)
        job_id = service.submit()
        service.cloud.settle(within=60)
        receiver.requests.clear()
        receiver.answers = [500, 200, 500]
        service.cloud.unreliable(7)
        job = finished(service, replay(service, webhook_id, since=since, events=["document.*"]))
        service.let_pass(HOUR)
        sent = [json.loads(received.body) for received in receiver.requests]
        order = [event["sequence"] for event in sent if event["job_id"] == job_id]
        assert order == sorted(order)
        assert set(order) == {1, 2, 3, 4, 5}
        assert job["result"] == {"sent": 5}


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("status", "asked", "low", "high"),
        [
            (429, "400", 400, 403),
            (503, "599", 599, 602),
            (502, "100000", 600, 603),
            (504, "1", 240, 362),
            (503, "Mon, 30 Nov 2026 09:08:00 GMT", 470, 482),
            (500, "599", 240, 362),
            (503, "soon", 240, 362),
            (503, "-5", 240, 362),
            (503, "9" * 5000, 600, 603),
        ],
    )
    def test_it_is_honoured_within_bounds(
        self, service: Service, receiver: Receiver, status: int, asked: str, low: float, high: float
    ) -> None:
        """Retry-After extends the wait up to twice its length, with four statuses, if it is valid."""
        slow = client.Response(status=status, headers={"retry-after": asked}, body=b"", truncated=False)
        receiver.answers = [500, slow, 200]
        endpoint(service)
        canceled(service)
        service.let_pass(700)
        _, second, third = receiver.requests
        assert low <= third.at - second.at <= high


class TestByHand:
    def redeliver(self, service: Service, delivery_id: str) -> Response:
        return service.call("POST", f"/deliveries/{delivery_id}/redeliver")

    def test_the_original_bytes_are_sent_again(self, service: Service, receiver: Receiver) -> None:
        """A redelivery has the same id and bytes, a new signature and the current URL."""
        made = endpoint(service, format="cloudevents")
        canceled(service)
        service.cloud.settle()
        patch(service, made["webhook_id"], url=OTHER, format="slack")
        service.let_pass(2 * DAY)
        answer = self.redeliver(service, delivery(service.cloud).delivery_id)
        assert (answer.status, answer.json()["status"]) == (202, "delivered")
        service.cloud.settle()
        first, second = receiver.requests
        assert (second.url, second.body, second.event_id) == (OTHER, first.body, first.event_id)
        assert second.headers["webhook-timestamp"] != first.headers["webhook-timestamp"]
        verify(second, made["secret"])

    def test_a_success_cancels_the_pending_retry(self, service: Service, receiver: Receiver) -> None:
        """After a successful redelivery nothing more is sent."""
        receiver.answers = [500, 500]
        endpoint(service)
        canceled(service)
        service.let_pass(60)
        found = delivery(service.cloud)
        assert (found.status, found.attempts) == ("pending", 2)
        self.redeliver(service, found.delivery_id)
        service.cloud.settle()
        seen = get_delivery(service, found.delivery_id)
        assert (seen["status"], seen["next_attempt_at"]) == ("delivered", None)
        assert [each["trigger"] for each in seen["attempts"]] == ["automatic", "automatic", "manual"]
        service.let_pass(WHOLE)
        assert len(receiver.requests) == 3
        assert_no_leftovers(service.cloud)

    def test_a_failure_leaves_the_schedule_as_it_was(self, service: Service, receiver: Receiver) -> None:
        """A failed redelivery does not change the time of the next automatic attempt."""
        receiver.always = 500
        endpoint(service)
        canceled(service)
        service.let_pass(60)
        before = delivery(service.cloud)
        self.redeliver(service, before.delivery_id)
        service.cloud.settle()
        between = delivery(service.cloud)
        assert (between.attempts, between.tries, between.due) == (3, 2, before.due)
        service.let_pass(WHOLE)
        automatic = [each for each in attempts(service.cloud, before) if each.trigger == "automatic"]
        assert len(automatic) == 1 + len(WAITS)
        assert 0 <= receiver.requests[3].at - before.due <= 2

    def test_what_failed_or_was_discarded_can_be_sent(self, service: Service, receiver: Receiver) -> None:
        """A redelivery to a disabled endpoint is made; if it fails, the status stays."""
        webhook_id = endpoint(service)["webhook_id"]
        patch(service, webhook_id, enabled=False)
        canceled(service)
        service.cloud.settle()
        found = delivery(service.cloud)
        receiver.answers = [500]
        for status in ("discarded", "delivered"):
            self.redeliver(service, found.delivery_id)
            service.cloud.settle()
            assert get_delivery(service, found.delivery_id)["status"] == status
        assert list_deliveries(service, webhook_id, status="discarded") == []
        assert get_endpoint(service, webhook_id)["enabled"] is False

    def test_it_passes_an_open_circuit(self, service: Service, receiver: Receiver) -> None:
        """A redelivery is made although the circuit is open, and a success closes it."""
        receiver.always = 500
        webhook_id = endpoint(service)["webhook_id"]
        for _ in range(12):
            canceled(service)
            service.cloud.settle()
        receiver.always = 200
        self.redeliver(service, deliveries(service.cloud)[0].delivery_id)
        service.cloud.settle()
        assert len(receiver.requests) == 11
        assert get_endpoint(service, webhook_id)["circuit"]["state"] == "draining"
        service.let_pass(2 * HOUR)
        assert statuses(deliveries(service.cloud)) == {"delivered"}


class TestRecover:
    def test_what_failed_is_sent_again(self, service: Service, receiver: Receiver) -> None:
        """Failed deliveries in the window get their whole schedule again; others are not changed."""
        webhook_id = endpoint(service)["webhook_id"]
        receiver.always = 410
        canceled(service)
        service.let_pass(60)
        patch(service, webhook_id, enabled=True)
        receiver.always = 200
        since = events.timestamp(service.cloud.clock.time)
        canceled(service)
        service.cloud.settle()
        receiver.always = 410
        canceled(service)
        service.cloud.settle()
        patch(service, webhook_id, enabled=True)
        receiver.requests.clear()
        receiver.always, receiver.answers = 200, [500]
        job = finished(service, recover(service, webhook_id, since=since, status=["failed"]))
        assert job["result"] == {"sent": 1}
        service.let_pass(60)
        assert [found.status for found in deliveries(service.cloud)] == ["failed", "delivered", "delivered"]
        assert [found.tries for found in deliveries(service.cloud)] == [1, 1, 2]
        assert len(receiver.requests) == 2

    def test_progress_is_shown(
        self, service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The job shows the progress after each slice."""
        cloud = service.cloud
        monkeypatch.setattr("webhooks.dispatch.replay.SLICE", 10)
        webhook_id = endpoint(service, events=["document.*"])["webhook_id"]
        since = events.timestamp(cloud.clock.time)
        patch(service, webhook_id, enabled=False)
        for _ in range(7):
            canceled(service)
        cloud.settle()
        patch(service, webhook_id, enabled=True)
        cloud.pause("sender", "dispatch")
        accepted = recover(service, webhook_id, since=since)
        assert accepted.status == 202
        job_id = accepted.json()["job_id"]
        cloud.poll("publisher")
        cloud.poll("dispatch")
        assert service.job(job_id)["progress"] == {"done": 10, "total": 14}
        assert service.job(job_id)["status"] == "running"
        cloud.resume()
        cloud.settle(within=60)
        job = service.job(job_id)
        assert (job["status"], job["progress"]) == ("completed", {"done": 14, "total": 14})
        assert job["result"] == {"sent": 14}
        assert len(receiver.requests) == 14
        assert statuses(deliveries(cloud)) == {"delivered"}
        assert [event["event"] for event in service.events(job_id)] == [
            "replay.requested",
            "replay.started",
            "replay.completed",
        ]

    def test_it_can_be_canceled(self, service: Service, receiver: Receiver) -> None:
        """A canceled replay sends nothing more."""
        cloud = service.cloud
        webhook_id = endpoint(service)["webhook_id"]
        since = events.timestamp(cloud.clock.time)
        patch(service, webhook_id, enabled=False)
        canceled(service)
        cloud.settle()
        patch(service, webhook_id, enabled=True)
        cloud.pause("dispatch")
        job_id = recover(service, webhook_id, since=since).json()["job_id"]
        service.cancel(job_id)
        cloud.resume()
        cloud.settle(within=60)
        assert service.job(job_id)["status"] == "canceled"
        assert receiver.requests == []
        assert statuses(deliveries(cloud)) == {"discarded"}


class TestReplay:
    def test_events_from_before_the_endpoint(self, service: Service, receiver: Receiver) -> None:
        """A new endpoint gets earlier events in its own format."""
        since = events.timestamp(service.cloud.clock.time)
        jobs = [canceled(service) for _ in range(3)]
        service.cloud.settle()
        service.let_pass(HOUR)
        made = endpoint(service, format="cloudevents")
        job = finished(service, replay(service, made["webhook_id"], since=since))
        assert job["result"] == {"sent": 3}
        data = [json.loads(received.body)["data"] for received in receiver.requests]
        assert sorted(event["job_id"] for event in data) == sorted(jobs)
        for event, received in zip(data, receiver.requests, strict=True):
            assert event == service.events(event["job_id"])[-1]
            verify(received, made["secret"])

    def test_what_was_sent_keeps_its_bytes(self, service: Service, receiver: Receiver) -> None:
        """An existing delivery is sent with its bytes after a change of the format."""
        webhook_id = endpoint(service)["webhook_id"]
        since = events.timestamp(service.cloud.clock.time)
        canceled(service)
        service.cloud.settle()
        patch(service, webhook_id, format="slack")
        finished(service, replay(service, webhook_id, since=since))
        first, second = receiver.requests
        assert (first.body, first.event_id) == (second.body, second.event_id)
        assert len(deliveries(service.cloud)) == 1
        assert delivery(service.cloud).attempts == 2

    def test_only_what_is_asked_for(self, service: Service, receiver: Receiver) -> None:
        """Only events in the window that match the request's patterns and the endpoint's filter are sent."""
        webhook_id = endpoint(
            service, OTHER, events=["document.canceled"], filter={"document_id": [{"prefix": "a"}]}
        )["webhook_id"]
        canceled(service, document_id="a-early")
        service.cloud.clock.advance(10)
        since = events.timestamp(service.cloud.clock.time)
        canceled(service, document_id="a-1")
        canceled(service, document_id="b")
        service.cloud.clock.advance(10)
        until = events.timestamp(service.cloud.clock.time)
        service.cloud.clock.advance(10)
        canceled(service, document_id="a-late")
        service.cloud.settle()
        receiver.requests.clear()
        job = finished(service, replay(service, webhook_id, since=since, until=until, events=["*"]))
        assert job["result"] == {"sent": 2}
        sent = sorted(json.loads(received.body)["event"] for received in receiver.requests)
        assert sent == ["document.canceled", "document.uploaded"]
        assert {json.loads(received.body)["document_id"] for received in receiver.requests} == {"a-1"}

    def test_a_replay_of_an_endpoint_that_is_deleted_fails(self, service: Service, receiver: Receiver) -> None:
        """A replay fails if its endpoint is deleted, and sends nothing."""
        webhook_id = endpoint(service)["webhook_id"]
        since = events.timestamp(service.cloud.clock.time)
        canceled(service)
        service.cloud.settle()
        receiver.requests.clear()
        service.cloud.pause("dispatch")
        job_id = replay(service, webhook_id, since=since).json()["job_id"]
        service.call("DELETE", f"/webhooks/{webhook_id}")
        service.cloud.resume()
        service.cloud.settle(within=60)
        assert service.job(job_id)["error"]["code"] == "not_found"
        assert receiver.requests == []

    @pytest.mark.parametrize(("mode", "ordered"), [("recover", False), ("replay", True)])
    def test_killed_after_any_call(self, service: Service, receiver: Receiver, mode: str, ordered: bool) -> None:
        """After a kill at any (every fourth) call the replay completes, and each delivery is made once."""
        survived = next(
            k for k in count(step=4) if not self.run_replay(service, receiver, mode, ordered=ordered, after=k)
        )
        assert survived > 10

    def run_replay(self, service: Service, receiver: Receiver, mode: str, *, ordered: bool, after: int) -> bool:
        """Run a replay whose dispatcher is killed after this successful call. Returns whether it was killed."""
        cloud = service.cloud
        cloud.reset()
        owner = Service(cloud)
        webhook_id = endpoint(owner, events=["document.*"], ordered=ordered)["webhook_id"]
        since = events.timestamp(cloud.clock.time)
        if mode == "recover":
            patch(owner, webhook_id, enabled=False)
        canceled(owner)
        cloud.settle()
        if mode == "recover":
            patch(owner, webhook_id, enabled=True)
        receiver.requests.clear()
        accepted = (recover if mode == "recover" else replay)(owner, webhook_id, since=since)
        died = cloud.fail("*", "*", Killed, function="dispatch", when=nth(after), after=after > 0)
        owner.let_pass(HOUR)
        assert owner.job(accepted.json()["job_id"])["status"] == "completed", after
        assert len(receiver.requests) == 2, after
        assert len({received.event_id for received in receiver.requests}) == 2
        if ordered:
            assert event_names(receiver) == ["document.uploaded", "document.canceled"], after
        assert statuses(deliveries(cloud)) == {"delivered"}
        return bool(died.hits)


class TestPing:
    @pytest.fixture(autouse=True)
    def virtual(self, monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
        """Use the virtual clock for `time.monotonic`."""
        monkeypatch.setattr(time, "monotonic", lambda: cloud.clock.time)

    def ping(self, service: Service, webhook_id: str, *, after: float = 1) -> Response:
        """The response to a test. The other functions run after so many seconds."""
        service.cloud.clock.call_later(after, service.cloud.settle)
        return service.call("POST", f"/webhooks/{webhook_id}/test")

    def test_it_goes_the_way_of_every_event(self, service: Service, receiver: Receiver) -> None:
        """A ping is signed, logged and sent only to its endpoint, and the response is returned."""
        receiver.always = response(202, b"pong")
        made = endpoint(service, events=["document.failed"])
        endpoint(service, OTHER, events=["*"])
        answer = self.ping(service, made["webhook_id"])
        assert answer.status == 200, answer.text
        seen = answer.json()
        assert (seen["status"], seen["event"]) == ("delivered", "ping")
        (attempt,) = seen["attempts"]
        assert (attempt["status"], attempt["body"], attempt["error"]) == (202, "pong", None)
        (received,) = receiver.requests
        verify(received, made["secret"])
        body = json.loads(received.body)
        assert (body["event"], body["endpoint_id"]) == ("ping", made["webhook_id"])
        assert service.call("GET", "/webhooks/events").json()["events"] == [body]

    def test_a_failure_is_returned(self, service: Service, receiver: Receiver) -> None:
        """A failed ping is returned, and not retried."""
        receiver.always = 500
        webhook_id = endpoint(service)["webhook_id"]
        seen = self.ping(service, webhook_id).json()
        assert (seen["status"], seen["attempts"][0]["error"]) == ("failed", "http_5xx")
        service.let_pass(WHOLE)
        assert len(receiver.requests) == 1

    def test_it_tests_a_disabled_endpoint_too(self, service: Service, receiver: Receiver) -> None:
        """A ping is sent to a disabled endpoint."""
        webhook_id = endpoint(service)["webhook_id"]
        patch(service, webhook_id, enabled=False)
        assert self.ping(service, webhook_id).json()["status"] == "delivered"
        assert get_endpoint(service, webhook_id)["enabled"] is False

    def test_a_slow_ping_returns_202(self, service: Service, receiver: Receiver) -> None:
        """A ping that takes too long returns 202 with the id of its delivery."""
        webhook_id = endpoint(service)["webhook_id"]
        answer = self.ping(service, webhook_id, after=100)
        assert answer.status == 202
        service.cloud.settle()
        seen = get_delivery(service, answer.json()["delivery_id"])
        assert (seen["status"], seen["event"]) == ("delivered", "ping")

    def test_a_ping_that_was_never_queued_is_still_one(self, service: Service, receiver: Receiver) -> None:
        """A ping that was not queued is sent later by the retry scheduler, once."""
        webhook_id = endpoint(service)["webhook_id"]
        patch(service, webhook_id, enabled=False)
        service.cloud.fail("sqs", "SendMessageBatch", Killed, function="dispatch", times=None)
        answer = self.ping(service, webhook_id)
        assert answer.status == 202
        service.let_pass(3 * HOUR)
        assert get_delivery(service, answer.json()["delivery_id"])["status"] == "delivered"
        assert len(receiver.requests) == 1


class TestOwners:
    def test_nobody_sees_or_touches_anothers(self, service: Service, receiver: Receiver) -> None:
        """All routes answer another owner's endpoints and deliveries with 404."""
        bob = Service(service.cloud, "bob")
        webhook_id = endpoint(service)["webhook_id"]
        canceled(service)
        service.cloud.settle()
        delivery_id = delivery(service.cloud).delivery_id
        since = events.timestamp(service.cloud.clock.time - 60)
        asked: list[tuple[str, str, Any]] = [
            ("GET", f"/webhooks/{webhook_id}", None),
            ("PATCH", f"/webhooks/{webhook_id}", {"enabled": False}),
            ("DELETE", f"/webhooks/{webhook_id}", None),
            ("GET", f"/webhooks/{webhook_id}/deliveries", None),
            ("GET", f"/webhooks/{webhook_id}/public-key", None),
            ("POST", f"/webhooks/{webhook_id}/rotate-secret", {}),
            ("POST", f"/webhooks/{webhook_id}/test", None),
            ("POST", f"/webhooks/{webhook_id}/recover", {"since": since}),
            ("POST", f"/webhooks/{webhook_id}/replay", {"since": since}),
            ("GET", f"/deliveries/{delivery_id}", None),
            ("POST", f"/deliveries/{delivery_id}/redeliver", None),
        ]
        for method, target, body in asked:
            assert_problem(bob.call(method, target, json=body), 404, "not_found")
        assert bob.call("GET", "/webhooks").json() == {"webhooks": []}
        assert bob.call("GET", "/webhooks/events").json()["events"] == []
        service.cloud.settle(within=60)
        assert len(receiver.requests) == 1
        assert get_endpoint(service, webhook_id)["enabled"]

    def test_deliveries_are_listed_for_their_owner(self, service: Service, receiver: Receiver) -> None:
        """Deliveries are listed newest first, by status, event and time, page by page."""
        receiver.react = lambda received: 500 if json.loads(received.body)["event"] == "document.uploaded" else 200
        webhook_id = endpoint(service, events=["document.*"])["webhook_id"]
        for _ in range(3):
            canceled(service)
            service.cloud.settle()
            service.cloud.clock.advance(2)
        everything = list_deliveries(service, webhook_id)
        assert len(everything) == 6
        assert [each["created_at"] for each in everything] == sorted(
            (each["created_at"] for each in everything), reverse=True
        )
        assert {each["status"] for each in list_deliveries(service, webhook_id, event="document.canceled")} == {
            "delivered"
        }
        assert {each["event"] for each in list_deliveries(service, webhook_id, status="pending")} == {
            "document.uploaded"
        }
        half = everything[3]["created_at"]
        assert list_deliveries(service, webhook_id, since=half) == everything[:4]
        page = service.call("GET", f"/webhooks/{webhook_id}/deliveries", params={"limit": "4"}).json()
        rest = {"limit": "4", "cursor": page["cursor"]}
        following = service.call("GET", f"/webhooks/{webhook_id}/deliveries", params=rest).json()
        assert page["deliveries"] + following["deliveries"] == everything
