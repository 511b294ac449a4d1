"""Webhooks of jobs, from the event to the receiver: content, attempts, allowed addresses, failures."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
import standardwebhooks

from core.errors import DeliveryError
from tests.simulated_cloud.calls import Call
from tests.simulated_cloud.cloud import Killed
from tests.support.receiver import Received, Receiver, response, verify
from tests.support.service import Service
from tests.support.webhooks import (
    HOOK,
    HOUR,
    WAITS,
    WHOLE,
    attempts,
    deliveries,
    delivery,
    message,
    nth,
    secret_of,
)
from tests.support.webhooks import canceled as canceled_job


def canceled(service: Service, **fields: Any) -> str:
    """A job with a webhook and one final event."""
    return canceled_job(service, **{"webhook_url": HOOK} | fields)


def final_event(service: Service, job_id: str) -> str:
    return str(service.events(job_id)[-1]["event_id"])


def webhook(service: Service, job_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = service.job(job_id)["webhook"]
    return shown


def names(receiver: Receiver) -> list[str]:
    return [json.loads(received.body)["event"] for received in receiver.requests]


class TestWhatIsSent:
    def test_final_events_are_sent(self, service: Service, receiver: Receiver) -> None:
        """By default a webhook gets the final event of a job, and no others."""
        for text in ("good", " "):
            service.submit(text, webhook_url=HOOK)
            service.cloud.settle(within=60)
        canceled(service)
        service.cloud.settle()
        assert names(receiver) == ["document.indexed", "document.failed", "document.canceled"]

    def test_named_events_are_sent_instead(self, service: Service, receiver: Receiver) -> None:
        """`webhook_events` replaces the final ones."""
        service.submit(
            webhook_url=HOOK, webhook_events=["document.embedded", "document.chunked", "document.failed"]
        )
        service.cloud.settle(within=60)
        assert sorted(names(receiver)) == ["document.chunked", "document.embedded"]

    def test_no_delivery_without_a_webhook(self, service: Service, receiver: Receiver) -> None:
        """A job without a webhook has no delivery."""
        service.submit()
        service.cloud.settle(within=60)
        assert receiver.requests == []
        assert service.cloud.table("Deliveries").scan()["Items"] == []

    def test_the_stored_bytes_are_sent_and_signed(self, service: Service, receiver: Receiver) -> None:
        """The body is the stored event, and three methods verify its signature."""
        secret = secret_of(service)
        receiver.react = lambda received: verify(received, secret) or 204  # type: ignore[func-returns-value]
        job_id = service.submit("¿ñ? 🎉", document_id="día 🎉", webhook_url=HOOK)
        service.cloud.settle(within=60)
        (received,) = receiver.requests
        item = service.cloud.table("Jobs").get_item(Key={"pk": f"JOB#{job_id}", "sk": "EVENT#000005"})["Item"]
        assert received.body == item["body"].encode()
        assert (received.url, received.event_id) == (HOOK, item["event_id"])
        assert received.headers["Content-Type"] == "application/json"
        assert webhook(service, job_id)["status"] == "delivered"

    def test_no_other_secret_verifies(self, service: Service, receiver: Receiver) -> None:
        """Each owner's webhooks are signed with its own secret."""
        other = Service(service.cloud, "bob")
        secrets = {owner.owner: secret_of(owner) for owner in (service, other)}
        canceled(service)
        service.cloud.settle()
        verify(receiver.requests[-1], secrets["ana"])
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            verify(receiver.requests[-1], secrets["bob"])

    def test_a_secret_is_decrypted_once(self, service: Service, receiver: Receiver) -> None:
        """A warm sender asks KMS once per owner."""
        receiver.answers = [500, 200]
        for owner in (service, Service(service.cloud, "bob")):
            for _ in range(3):
                canceled(owner)
                service.cloud.settle(within=60)
        decrypted = [call for call in service.cloud.calls.of("sender") if call.operation == "Decrypt"]
        assert [call.params["EncryptionContext"]["owner"] for call in decrypted] == ["ana", "bob"]
        assert len(receiver.requests) == 7

    def test_a_retried_job_keeps_its_webhook(self, service: Service, receiver: Receiver) -> None:
        """A retried job keeps its webhook."""
        job_id = canceled(service)
        again = service.call("POST", f"/jobs/{job_id}/retry").json()
        assert again["webhook_secret"] == "whsec_…"
        service.cloud.settle(within=60)
        job_ids = {json.loads(received.body)["job_id"] for received in receiver.requests}
        assert job_ids == {job_id, again["job_id"]}


FAILED: dict[str, Any] = {
    "http_3xx": response(301),
    "http_4xx": response(404, b"no such hook"),
    "http_5xx": response(503, b"later"),
    "http_1xx": response(101),
    **{
        kind: DeliveryError(kind, "it broke")
        for kind in ("dns", "connect", "tls", "timeout", "blocked", "protocol")
    },
}


class TestAttempts:
    def test_they_follow_the_schedule(self, service: Service, receiver: Receiver) -> None:
        """Ten attempts are made in 75 hours, each wait within 20 % of the schedule, and then no more."""
        receiver.always = 500
        urls = ("https://a.example.com/", "https://b.example.com/")
        jobs = [canceled(service, webhook_url=url) for url in urls]
        service.let_pass(WHOLE)
        times = [[received.at for received in receiver.requests if received.url == url] for url in urls]
        for series in times:
            waits = [late - early for early, late in pairwise(series)]
            assert len(waits) == len(WAITS)
            for wait, scheduled in zip(waits, WAITS, strict=True):
                # waits and delays are whole seconds, and the retry scheduler runs once a minute
                slack = 2 if scheduled <= 900 else 62
                assert 0.8 * scheduled - 1 <= wait <= 1.2 * scheduled + slack, (wait, scheduled)
        assert max(abs(one - other) for one, other in zip(*times, strict=True)) >= 60  # they spread
        for job_id in jobs:
            shown = webhook(service, job_id)
            assert (shown["status"], shown["attempts"], shown["next_attempt_at"]) == ("failed", 10, None)
        for found in deliveries(service.cloud):
            service.cloud.queue("Webhooks/Queue").send(message(found))
        service.let_pass(WHOLE)
        assert len(receiver.requests) == 20
        assert len(service.cloud.queue("Webhooks/Queue")) == 0

    def test_every_attempt_is_kept(self, service: Service, receiver: Receiver) -> None:
        """The delivery has all ten attempts, in order, each with its time and response."""
        receiver.react = lambda received: response(500 + len(receiver.requests), b"%d" % len(receiver.requests))
        canceled(service)
        service.let_pass(WHOLE)
        kept = attempts(service.cloud, delivery(service.cloud))
        assert [attempt.number for attempt in kept] == list(range(1, 11))
        assert [attempt.status for attempt in kept] == list(range(501, 511))
        assert [attempt.body for attempt in kept] == [str(number) for number in range(1, 11)]
        for attempt, received in zip(kept, receiver.requests, strict=True):
            assert abs(datetime.fromisoformat(attempt.at).timestamp() - received.at) < 1
            assert attempt.request_headers["webhook-signature"] == received.headers["webhook-signature"]

    def test_each_is_signed_anew(self, service: Service, receiver: Receiver) -> None:
        """All attempts have the same id and body, and a time and signature of their own that verifies."""
        secret = secret_of(service)

        def check(received: Received) -> int:
            verify(received, secret)
            assert int(received.headers["webhook-timestamp"]) == int(received.at)
            return 500

        receiver.react = check
        canceled(service)
        service.let_pass(24 * HOUR)
        assert len(receiver.requests) > 6
        assert len({(received.event_id, received.body) for received in receiver.requests}) == 1
        signatures = {received.headers["webhook-signature"] for received in receiver.requests}
        assert len(signatures) == len(receiver.requests)
        assert not service.cloud.functions.errors

    def test_message_groups(self, service: Service, receiver: Receiver) -> None:
        """Every message, also for a retry, has the group of its owner."""
        receiver.react = lambda received: 500 if len(receiver.requests) < 9 else 200
        for url in (HOOK, HOOK, "https://other.example.com/"):
            canceled(service, webhook_url=url)
        canceled(Service(service.cloud, "bob"))
        service.cloud.settle(within=600)
        owners = {found.delivery_id: found.owner for found in deliveries(service.cloud)}
        groups: dict[str, set[str]] = {}
        for call in service.cloud.calls.log:
            sent = [call.params] if call.operation == "SendMessage" else call.params.get("Entries", ())
            for entry in sent:
                owner = owners[json.loads(entry["MessageBody"])["delivery_id"]]
                groups.setdefault(owner, set()).add(entry["MessageGroupId"])
        assert groups == {"ana": {"ana"}, "bob": {"bob"}}

    @pytest.mark.parametrize("status", [200, 201, 204, 299])
    def test_a_2xx_ends_it(self, service: Service, receiver: Receiver, status: int) -> None:
        """Any 2xx is final, and shown."""
        receiver.always = status
        job_id = canceled(service)
        service.cloud.settle(within=600)
        assert len(receiver.requests) == 1
        shown = webhook(service, job_id)
        assert (shown["status"], shown["attempts"], shown["next_attempt_at"]) == ("delivered", 1, None)
        assert (shown["last_attempt"]["status"], shown["last_attempt"]["error"]) == (status, None)
        assert shown["event_id"] == final_event(service, job_id)

    @pytest.mark.parametrize("kind", FAILED)
    def test_anything_else_is_tried_again(self, service: Service, receiver: Receiver, kind: str) -> None:
        """The job shows the error class and the time of the next attempt, and then its success."""
        receiver.answers = [FAILED[kind]]
        job_id = canceled(service)
        service.cloud.settle()
        shown = webhook(service, job_id)
        assert (shown["status"], shown["attempts"], shown["last_attempt"]["error"]) == ("pending", 1, kind)
        assert "2026-11-30T09:00:04" <= shown["next_attempt_at"] <= "2026-11-30T09:00:08"
        service.cloud.settle(within=60)
        assert len(receiver.requests) == 2
        shown = webhook(service, job_id)
        assert (shown["status"], shown["attempts"], shown["last_attempt"]["error"]) == ("delivered", 2, None)

    @pytest.mark.parametrize(
        ("body", "shown", "is_base64"),
        [
            (b"x" * 1001, "x" * 1000, False),
            ("ñ🎉".encode(), "ñ🎉", False),
            (b"\xff\x00", "/wA=", True),
            (b"\x00\n", "\x00\n", False),
            (b"\xff" * 900, "/" * 1000, True),
        ],
    )
    def test_the_response_is_shown(
        self, service: Service, receiver: Receiver, body: bytes, shown: str, is_base64: bool
    ) -> None:
        """The job shows the first 1,000 characters of the response, or of its base64 if it is not text."""
        receiver.always = response(200, body)
        job_id = canceled(service)
        service.cloud.settle()
        last = webhook(service, job_id)["last_attempt"]
        assert (last["body"], last["body_is_base64"]) == (shown, is_base64)

    def test_before_the_first_attempt(self, service: Service, receiver: Receiver) -> None:
        """Before the first attempt a job shows its URL, without a webhook null."""
        job_id = service.submit(webhook_url=HOOK)
        assert webhook(service, job_id) == {"url": HOOK, "status": None, "attempts": 0}
        assert service.job(service.submit())["webhook"] is None


class TestWhereItMayGo:
    @pytest.mark.parametrize(
        "address", ["10.0.0.7", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "100.64.0.1"]
    )
    def test_name_with_a_private_address(
        self, service: Service, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        """An attempt is blocked if the name has got a private address since its creation."""

        def inside(*_: object, **__: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

        monkeypatch.setattr(socket, "getaddrinfo", inside)
        job_id = canceled(service)
        service.cloud.settle(within=30)
        shown = webhook(service, job_id)
        assert (shown["status"], shown["last_attempt"]["error"]) == ("pending", "blocked")
        assert shown["attempts"] >= 2
        assert "hooks.example.com" in shown["last_attempt"]["message"]
        assert "token" not in shown["last_attempt"]["message"]

    def test_name_that_does_not_resolve(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name that does not resolve is a failed attempt."""

        def nowhere(*_: object, **__: object) -> list[Any]:
            raise socket.gaierror("no such name")

        monkeypatch.setattr(socket, "getaddrinfo", nowhere)
        job_id = canceled(service)
        service.cloud.settle()
        assert webhook(service, job_id)["last_attempt"]["error"] == "dns"

    def test_without_a_secret_nothing_is_sent(self, service: Service, receiver: Receiver) -> None:
        """A delivery without its default endpoint is canceled without an attempt."""
        job_id = canceled(service)
        service.cloud.table("Jobs").delete_item(Key={"pk": "OWNER#ana", "sk": "ENDPOINT#default"})
        service.let_pass(WHOLE)
        assert receiver.requests == []
        shown = webhook(service, job_id)
        assert (shown["status"], shown["attempts"], shown["reason"]) == ("canceled", 0, "deleted")
        assert not service.cloud.functions.errors
        assert len(service.cloud.queue("Webhooks/Queue")) == len(service.cloud.queue("Webhooks/DeadLetters")) == 0

    def test_expired_job(self, service: Service, receiver: Receiver) -> None:
        """An event of an expired job is ignored."""
        service.cloud.pause("dispatch")
        canceled(service)
        service.cloud.settle()
        for item in service.cloud.table("Jobs").scan()["Items"]:
            service.cloud.table("Jobs").delete_item(Key={"pk": item["pk"], "sk": item["sk"]})
        service.cloud.resume()
        service.cloud.settle()
        assert len(service.cloud.queue("Notify/Queue")) == 0
        assert not service.cloud.functions.errors


def during_the_first_request(service: Service, receiver: Receiver, meanwhile: Callable[[], object]) -> None:
    """Call `meanwhile` while a sender waits for the response to its first request."""

    def react(received: Received) -> int:
        if len(receiver.requests) == 1:
            meanwhile()
        return 200

    receiver.react = react
    service.cloud.settle()


class TestTogether:
    def test_requests_are_concurrent(self, service: Service, receiver: Receiver) -> None:
        """All requests of a batch are sent before the first one gets its response."""
        cloud, last_came = service.cloud, threading.Event()
        cloud.pause("sender")
        for number in range(10):
            canceled(service, webhook_url=f"https://hooks{number}.example.com/")
        cloud.settle()
        waited: list[bool] = []

        def react(received: Received) -> int:
            if len(receiver.requests) == 10:
                last_came.set()
            waited.append(last_came.wait(10))
            return 200

        receiver.react = react
        assert cloud.poll("sender") == 10
        assert waited == [True] * 10

    def test_failures_are_independent(self, service: Service, receiver: Receiver) -> None:
        """A failing receiver and a malformed message do not affect the rest of the batch."""
        cloud = service.cloud
        cloud.pause("sender")
        cloud.queue("Webhooks/Queue").send("no json")
        good, bad = canceled(service), canceled(service, webhook_url="https://bad.example.com/")
        cloud.settle()
        receiver.react = lambda received: DeliveryError("timeout", "slow") if "bad" in received.url else 200
        cloud.poll("sender")
        assert webhook(service, good)["status"] == "delivered"
        assert webhook(service, bad)["status"] == "pending"
        assert cloud.queue("Webhooks/Queue").bodies.count("no json") == 1

    def test_message_of_a_claimed_delivery(self, service: Service, receiver: Receiver) -> None:
        """A second sender leaves the message of a claimed delivery in the queue."""
        cloud, job_id = service.cloud, canceled(service)

        def second() -> None:
            cloud.queue("Webhooks/Queue").send(message(delivery(cloud)))
            assert cloud.poll("sender") == 1

        during_the_first_request(service, receiver, second)
        assert len(cloud.queue("Webhooks/Queue")) == 1
        cloud.settle(within=600)
        assert len(receiver.requests) == 1
        assert len(cloud.queue("Webhooks/Queue")) == 0
        assert webhook(service, job_id)["status"] == "delivered"

    def test_the_last_attempt_of_a_job_is_shown(self, service: Service, receiver: Receiver) -> None:
        """The job shows the latest attempt of its events, even if an earlier one is written later."""
        cloud = service.cloud
        first = cloud.fail("dynamodb", "PutItem", Killed, function="sender", when=is_view)
        job_id = service.submit(webhook_url=HOOK, webhook_events=["document.uploaded", "document.canceled"])
        cloud.poll("publisher"), cloud.poll("dispatch"), cloud.poll("sender")
        assert (first.hits, webhook(service, job_id)["status"]) == (1, None)
        service.cancel(job_id)
        cloud.settle()
        assert webhook(service, job_id)["event"] == "document.canceled"
        late = cloud.on("dynamodb", "PutItem", lambda call: None, function="sender", when=is_view)
        cloud.settle(within=600)
        assert late.hits == 1
        assert webhook(service, job_id)["event"] == "document.canceled"


def is_view(call: Call) -> bool:
    return bool(call.params["Item"].get("sk") == "WEBHOOK")


def events_of(service: Service) -> set[str]:
    """The ids of all final events."""
    items = service.cloud.table("Jobs").scan()["Items"]
    return {item["event_id"] for item in items if item.get("name") == "document.canceled"}


@pytest.mark.usefixtures("without_reaper")
class TestFaults:
    @pytest.mark.parametrize("seed", range(4))
    def test_duplicates_are_sent_once(self, service: Service, receiver: Receiver, seed: int) -> None:
        """With repeated messages in any order, each event is sent once."""
        service.cloud.unreliable(seed, duplicates=0.6)
        jobs = [canceled(service) for _ in range(4)]
        service.cloud.settle(within=3600)
        assert sorted(received.event_id for received in receiver.requests) == sorted(events_of(service))
        assert {webhook(service, job_id)["status"] for job_id in jobs} == {"delivered"}
        assert len(service.cloud.queue("Webhooks/Queue")) == 0

    @pytest.mark.parametrize("seed", range(2))
    def test_duplicates_do_not_multiply_attempts(self, service: Service, receiver: Receiver, seed: int) -> None:
        """With repeated messages, a failing receiver still gets ten attempts."""
        receiver.always = 500
        service.cloud.unreliable(seed)
        job_id = canceled(service)
        service.let_pass(WHOLE)
        assert len(receiver.requests) == 10
        assert webhook(service, job_id)["status"] == "failed"
        assert len(service.cloud.queue("Webhooks/Queue")) == 0

    @pytest.mark.parametrize(("function", "first_answer"), [("dispatch", 200), ("sender", 500)])
    def test_killed_after_any_call(
        self, service: Service, receiver: Receiver, function: str, first_answer: int
    ) -> None:
        """After a kill at any AWS call the event is sent, at most once more than usual."""
        receiver.answers = [first_answer]
        canceled(service)
        service.cloud.settle(within=3600)
        usual, calls = len(receiver.requests), len(service.cloud.calls.of(function))
        for k in range(calls + 1):
            service.cloud.reset()
            owner, receiver.requests[:], receiver.answers = Service(service.cloud), [], [first_answer]
            deaths = service.cloud.fail("*", "*", Killed, function=function, when=nth(k), after=k > 0)
            job_id = canceled(owner)
            service.cloud.settle(within=3600)
            assert deaths.hits == 1
            assert usual <= len(receiver.requests) <= usual + 1, k
            assert {received.event_id for received in receiver.requests} == events_of(owner)
            shown = webhook(owner, job_id)
            assert (shown["status"], shown["last_attempt"]["status"]) == ("delivered", 200), k
            assert delivery(service.cloud).status == "delivered"
            assert len(service.cloud.queue("Webhooks/Queue")) == 0

    def test_killed_during_the_request(self, service: Service, receiver: Receiver) -> None:
        """An attempt whose sender is killed during the request is repeated with the same id and body."""
        receiver.answers = [Killed(), Killed(), 200]
        job_id = canceled(service)
        service.cloud.settle(within=3600)
        assert len(receiver.requests) == 3
        assert len({(received.event_id, received.body) for received in receiver.requests}) == 1
        assert webhook(service, job_id)["status"] == "delivered"

    @pytest.mark.parametrize(
        ("service_name", "operation"),
        [("dynamodb", "GetItem"), ("dynamodb", "PutItem"), ("kms", "Decrypt"), ("sqs", "SendMessage")],
    )
    @pytest.mark.parametrize("function", ["dispatch", "sender"])
    def test_throttling(
        self, service: Service, receiver: Receiver, function: str, service_name: str, operation: str
    ) -> None:
        """Throttling of any service only delays the delivery."""
        receiver.answers = [500]
        service.cloud.fail(service_name, operation, "ThrottlingException", function=function, times=2)
        job_id = canceled(service)
        service.cloud.settle(within=3600)
        assert 2 <= len(receiver.requests) <= 4
        assert webhook(service, job_id)["status"] == "delivered"
        assert (
            len(service.cloud.queue("Webhooks/DeadLetters")) == len(service.cloud.queue("Notify/DeadLetters")) == 0
        )

    def test_lost_response_to_a_claim(self, service: Service, receiver: Receiver) -> None:
        """A claim whose response was lost delays the delivery by its lease."""
        service.cloud.fail("dynamodb", "PutItem", "InternalServerError", function="sender", after=True)
        job_id = canceled(service)
        service.cloud.settle(within=900)
        assert len(receiver.requests) == 1
        assert webhook(service, job_id)["status"] == "delivered"
