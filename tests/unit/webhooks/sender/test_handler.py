from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import LEASE_SECONDS
from tests.simulated_cloud.calls import Killed
from tests.support.webhooks import nth
from tests.unit.webhooks.sender.conftest import URL, Bench, answered, message

# ── one attempt and what follows ─────────────────────────────────────────────────────────────────────────────


def test_retry_after(bench: Bench) -> None:
    """Retry-After extends the wait to at most twice the scheduled one."""
    bench.receiver.answer = answered(503, retry_after="3600")
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    assert bench.now(delivery).due - bench.clock.time == pytest.approx(10, abs=1)


# ── repeated messages and killed senders ─────────────────────────────────────────────────────────────────────


def test_repeated_message(bench: Bench) -> None:
    """An attempt is made once, however often its message is received."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    for receives in (1, 1, 2):
        assert bench.send(delivery, receives=receives) == []
    assert len(bench.receiver.requests) == 1


def test_repeated_message_in_a_batch(bench: Bench) -> None:
    """Of two messages for one attempt in a batch, one is sent."""
    delivery = bench.delivery(bench.endpoint())
    assert len(bench.send(delivery, delivery)) <= 1
    assert len(bench.receiver.requests) == 1


def test_two_senders_at_once(bench: Bench) -> None:
    """While one sender makes an attempt, another one's message for it fails, without a request."""
    delivery = bench.delivery(bench.endpoint())
    failures: list[list[int]] = []
    bench.receiver.meanwhile = lambda: failures.append(bench.send(delivery))
    assert bench.send(delivery) == []
    assert failures == [[0]]
    assert len(bench.receiver.requests) == 1
    assert bench.now(delivery).status == "delivered"


def test_sender_killed_during_the_attempt(bench: Bench) -> None:
    """The attempt of a killed sender is made after its lease, and not before."""
    delivery = bench.delivery(bench.endpoint())
    assert bench.of.deliveries.claim(delivery.delivery_id, attempts=0)
    assert bench.send(delivery, receives=2) == [0]
    bench.clock.advance(LEASE_SECONDS + 1)
    assert bench.send(delivery, receives=3) == []
    assert len(bench.receiver.requests) == 1


def test_sender_killed_before_the_follow_up(bench: Bench) -> None:
    """A recorded attempt without a follow-up is followed up when its message is received again."""
    bench.receiver.answer = answered(500)
    subject, delivery = bench.of_job()
    bench.queued()
    bench.calls.fail("sqs", "SendMessage", "InternalError")
    assert bench.send(delivery) == [0]
    bench.queued()
    assert bench.send(delivery, receives=2) == []
    assert len(bench.receiver.requests) == 1
    assert [queued.attempts for queued, _ in bench.queued()] == [1]
    seen = bench.of.after_attempt._jobs.snapshot(subject.job_id, owner="ana").webhook
    assert seen is not None
    assert seen["attempts"] == 1


def test_sender_killed_before_disabling(bench: Bench) -> None:
    """A 410 disables the endpoint when its message is received again, unless the endpoint has changed since."""
    bench.receiver.answer = answered(410)
    edited, endpoint = bench.endpoint(), bench.endpoint()
    bench.clock.advance(5)
    for each, changes in ((endpoint, False), (edited, True)):
        delivery = bench.delivery(each)
        bench.calls.fail("dynamodb", "TransactWriteItems", "InternalServerError")
        assert bench.send(delivery) == [0]
        bench.clock.advance(5)
        if changes:
            bench.edit(each, url=URL + "2")
        assert bench.send(delivery, receives=2) == []
    assert bench.again(endpoint).disabled_reason == "gone"
    assert bench.again(edited).enabled
    assert len(bench.receiver.requests) == 2


def test_lost_claim(bench: Bench) -> None:
    """A sender whose lease is over records nothing, and its message is deleted."""
    delivery = bench.delivery(bench.endpoint())

    def overtaken() -> None:
        bench.clock.advance(LEASE_SECONDS + 1)
        bench.send(delivery)

    bench.receiver.meanwhile = overtaken
    bench.receiver.answer = [answered(200), answered(500)]
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.attempts) == ("delivered", 1)
    assert [attempt.status for attempt in bench.attempts(delivery)] == [200]
    assert bench.health(delivery).attempts == 1


def test_lost_response(bench: Bench) -> None:
    """An attempt is recorded once, even if the response to the write is lost and the message is received again."""
    delivery = bench.delivery(bench.endpoint())
    written = bench.calls.fail(
        "dynamodb",
        "UpdateItem",
        "InternalServerError",
        after=True,
        when=lambda call: "last_attempt" in call.params["UpdateExpression"],
    )
    assert bench.send(delivery) == [0]
    assert written.hits == 1
    assert bench.send(delivery, receives=2) == []
    assert (bench.now(delivery).status, len(bench.receiver.requests)) == ("delivered", 1)


def test_killed_at_any_call(bench: Bench) -> None:
    """After a kill at any call, the message leads to at most one more request, and to the follow-up."""
    bench.receiver.answer = answered(500)
    bench.send(bench.delivery(bench.endpoint()))
    for number in range(1, len(bench.calls.log) + 1):
        delivery = bench.delivery(bench.endpoint())
        bench.receiver.requests.clear()
        bench.queued()
        with bench.calls.fail("*", "*", Killed("cut off"), when=nth(number)), suppress(Killed):
            bench.send(delivery)
        bench.clock.advance(LEASE_SECONDS + 1)
        assert bench.send(delivery, receives=2) == []
        assert 1 <= len(bench.receiver.requests) <= 2
        found = bench.now(delivery)
        assert (found.status, found.attempts, found.lease_until) == ("pending", 1, 0)
        assert 1 in [queued.attempts for queued, _ in bench.queued()]


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_unexpected_exception(bench: Bench) -> None:
    """An unexpected exception in one attempt fails only its message."""
    bench.receiver.answers["broken.example.com"] = RuntimeError("a bug")
    broken = bench.delivery(bench.endpoint(url="https://broken.example.com/"))
    fine = bench.delivery(bench.endpoint())
    assert bench.send(broken, fine) == [0]
    assert bench.now(fine).status == "delivered"


@pytest.mark.parametrize("body", ["", "{}", "[]", '"text"', '{"later": 1}', "null"])
def test_malformed_message(bench: Bench, body: str) -> None:
    """A malformed message fails alone."""
    fine = bench.delivery(bench.endpoint())
    assert bench.send(body, fine) == [0]
    assert bench.now(fine).status == "delivered"


def test_messages_are_parsed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of a batch is parsed once."""
    deliveries = [bench.delivery(bench.endpoint()) for _ in range(3)]
    parse, parsed = Message.parse, []

    def counted(body: str) -> Message:
        parsed.append(body)
        return parse(body)

    monkeypatch.setattr(Message, "parse", counted)
    assert bench.send(*deliveries) == []
    assert len(parsed) == 3


def test_secret_that_cannot_be_decrypted(bench: Bench) -> None:
    """If a secret cannot be decrypted, only the messages of its endpoint fail."""
    broken = bench.delivery(bench.endpoint())
    fine = bench.delivery(bench.endpoint())
    key = broken.endpoint_id
    bench.calls.fail(
        "kms", "Decrypt", "KMSInternalException", when=lambda c: c.params["EncryptionContext"]["endpoint"] == key
    )
    assert bench.send(broken, fine) == [0]
    assert (bench.now(broken).attempts, bench.now(fine).status) == (0, "delivered")
    bench.clock.advance(LEASE_SECONDS + 1)
    assert bench.send(broken, receives=2) == []
    assert bench.now(broken).status == "delivered"


def test_reads_of_a_batch(bench: Bench) -> None:
    """A batch reads its endpoints and their health in one request, its hosts in another; each secret once."""
    endpoint = bench.endpoint()
    deliveries = [bench.delivery(endpoint) for _ in range(4)]
    deliveries += [bench.of_job(url=f"{URL}&n={number}")[1] for number in range(3)]
    bench.calls.log.clear()
    assert bench.send(*deliveries) == []
    operations = [call.operation for call in bench.calls.log]
    assert operations.count("BatchGetItem") == 2
    assert operations.count("Decrypt") == 2
    bench.send(bench.delivery(endpoint))
    assert [call.operation for call in bench.calls.log].count("Decrypt") == 2


def test_no_such_delivery(bench: Bench) -> None:
    """A message without a delivery is deleted."""
    delivery = bench.delivery(bench.endpoint())
    gone = replace(message(delivery), delivery_id="dlv_gone")
    assert bench.send(gone) == []
    assert bench.receiver.requests == []


# ── health of destinations ───────────────────────────────────────────────────────────────────────────────────


def test_health(bench: Bench) -> None:
    """The outcomes of a batch are written once, at its end."""
    endpoint = bench.endpoint()
    bench.receiver.answer = [answered(200), answered(200), answered(500)]
    bench.calls.log.clear()
    deliveries = [bench.delivery(endpoint) for _ in range(3)]
    bench.send(*deliveries)
    health = bench.health(deliveries[0])
    assert (health.attempts, health.delivered) == (3, 2)
    writes = [call for call in bench.calls.log if call.params.get("Key", {}).get("sk") == "HEALTH"]
    assert [call.operation for call in writes if call.operation != "GetItem"] == ["UpdateItem"]


@pytest.mark.parametrize("default", [False, True])
def test_health_expires(bench: Bench, default: bool) -> None:
    """The health of a job's URL expires; that of an endpoint does not."""
    delivery = bench.of_job()[1] if default else bench.delivery(bench.endpoint())
    bench.send(delivery)
    key = {"pk": f"HEALTH#ana#{delivery.destination}", "sk": "HEALTH"}
    item = bench.of.dynamodb.get_item(TableName="deliveries", Key=key)["Item"]
    assert ("expires_at" in item) == default


def test_health_that_cannot_be_written(bench: Bench) -> None:
    """If the health cannot be written, no message fails."""
    delivery = bench.delivery(bench.endpoint())
    failed = bench.calls.fail(
        "dynamodb", "UpdateItem", "InternalServerError", when=lambda c: c.params["Key"]["sk"] == "HEALTH"
    )
    assert bench.send(delivery) == []
    assert failed.hits == 1
    assert bench.now(delivery).status == "delivered"
