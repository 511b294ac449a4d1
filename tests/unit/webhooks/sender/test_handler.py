from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from core.jobs import History, views
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import LEASE_SECONDS, SAFETY_SECONDS, Delivery
from tests.simulated_cloud.calls import Killed
from tests.unit.webhooks.sender.conftest import URL, Bench, answered, message
from webhooks.sender import handler as module
from webhooks.sender.handler import BATCH

# ── one attempt and what follows ─────────────────────────────────────────────────────────────────────────────


def test_success(bench: Bench) -> None:
    """A delivery that arrived is over: nothing is queued, and it stands in no index."""
    delivery = bench.delivery(bench.endpoint())
    assert bench.send(delivery) == []
    found = bench.now(delivery)
    assert (found.status, found.attempts, bench.place(delivery)) == ("delivered", 1, None)
    assert bench.queued() == []


def test_failure(bench: Bench) -> None:
    """After a failure the next attempt waits in the queue, for as long as the schedule says."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.queued()
    bench.send(delivery)
    ((queued, delay),) = bench.queued()
    assert (queued.delivery_id, queued.attempts, queued.destination) == (
        delivery.delivery_id,
        1,
        delivery.destination,
    )
    assert 4 <= delay <= 7


def test_the_whole_schedule(bench: Bench) -> None:
    """Attempts follow the schedule until the last one ends the delivery, each sent once."""
    bench.receiver.answer = answered(500)
    delivery, start = bench.delivery(bench.endpoint()), bench.clock.time
    while bench.now(delivery).is_open:
        bench.clock.advance(bench.now(delivery).due - bench.clock.time)
        bench.send(message(bench.now(delivery), probe=True))  # the circuit is not what this is about
    assert (bench.now(delivery).status, bench.now(delivery).attempts) == ("failed", 4)
    assert len(bench.receiver.requests) == 4
    assert 0.8 * 155 - 5 <= bench.clock.time - start <= 1.2 * 155 + 5
    assert [attempt.number for attempt in bench.attempts(delivery)] == [1, 2, 3, 4]
    assert bench.place(delivery) == f"UNSENT#ana#{delivery.endpoint_id}#failed"


def test_what_the_job_shows(bench: Bench) -> None:
    """The owner of a job sees what became of its webhook."""
    subject, delivery = bench.of_job()
    bench.send(delivery)
    snapshot = bench.of.after_attempt._jobs.snapshot(subject.job_id, owner="ana")
    seen = views.job_view(snapshot, views.LinkMaker("", "", 1, str), History())["webhook"]
    assert (seen["status"], seen["attempts"], seen["last_attempt"]["status"]) == ("delivered", 1, 204)


def test_retry_after(bench: Bench) -> None:
    """A receiver that asks for more time gets it, up to twice what was planned."""
    bench.receiver.answer = answered(503, retry_after="3600")
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    assert bench.now(delivery).due - bench.clock.time == pytest.approx(10, abs=1)


def test_by_hand(bench: Bench) -> None:
    """An attempt by hand that fails leaves the planned one where it was, under its new number."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    before = bench.now(delivery)
    bench.queued()
    bench.send(message(before, manual=True))
    after = bench.now(delivery)
    assert (after.status, after.due, after.tries, after.attempts) == ("pending", before.due, before.tries, 2)
    ((queued, delay),) = bench.queued()
    assert queued.attempts == 2
    assert abs(bench.clock.time + delay - before.due) <= 1.1


def test_by_hand_succeeds(bench: Bench) -> None:
    """An attempt by hand that succeeds cancels the one that was planned."""
    bench.receiver.answer = [answered(500), answered(200), answered(200)]
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    planned = bench.now(delivery)
    bench.send(message(planned, manual=True))
    bench.clock.advance(60)
    assert bench.send(planned) == []
    assert bench.now(delivery).status == "delivered"
    assert len(bench.receiver.requests) == 2


def test_by_hand_what_has_ended(bench: Bench) -> None:
    """What has failed for good can be sent by hand."""
    delivery = bench.delivery(bench.endpoint(), status="failed")
    bench.send(message(delivery, manual=True))
    assert bench.now(delivery).status == "delivered"


# ── messages that come twice, and senders that die ───────────────────────────────────────────────────────────


def test_a_message_that_comes_twice(bench: Bench) -> None:
    """One attempt is sent once, however often its message comes."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    for receives in (1, 1, 2):
        assert bench.send(delivery, receives=receives) == []
    assert len(bench.receiver.requests) == 1


def test_twice_in_a_batch(bench: Bench) -> None:
    """Of two messages for one attempt in one batch, one is sent; the other is done, or comes again."""
    delivery = bench.delivery(bench.endpoint())
    assert len(bench.send(delivery, delivery)) <= 1
    assert len(bench.receiver.requests) == 1


def test_two_senders_at_once(bench: Bench) -> None:
    """While one sender is at it, another one's message comes back later and sends nothing."""
    delivery = bench.delivery(bench.endpoint())
    failures: list[list[int]] = []
    bench.receiver.meanwhile = lambda: failures.append(bench.send(delivery))
    assert bench.send(delivery) == []
    assert failures == [[0]]
    assert len(bench.receiver.requests) == 1
    assert bench.now(delivery).status == "delivered"


def test_a_sender_that_died_while_sending(bench: Bench) -> None:
    """An attempt whose sender died is made again once its lease is over, and not before."""
    delivery = bench.delivery(bench.endpoint())
    assert bench.of.deliveries.claim(delivery.delivery_id, attempts=0)
    assert bench.send(delivery, receives=2) == [0]
    bench.clock.advance(LEASE_SECONDS + 1)
    assert bench.send(delivery, receives=3) == []
    assert len(bench.receiver.requests) == 1


def test_a_sender_that_died_after_writing(bench: Bench) -> None:
    """An attempt that was written down, but not followed up, is followed up when its message returns."""
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


def test_a_sender_that_died_before_judging(bench: Bench) -> None:
    """A receiver that was gone is judged by that when the message returns, unless it was edited since."""
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


def test_a_follow_up_that_failed_for_good(bench: Bench) -> None:
    """Were its message lost too, the index would wake it."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.calls.fail("sqs", "SendMessage", "InternalError")
    bench.send(delivery)
    assert bench.due(delivery) <= 7 + SAFETY_SECONDS


def test_a_claim_that_was_lost(bench: Bench) -> None:
    """A sender that took too long changes nothing any more, and its message is done."""
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


def test_a_lost_answer(bench: Bench) -> None:
    """Where the answer to writing an attempt down was lost, it is written once, though the message returns."""
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
    """Wherever a sender dies, its message is the cure: it is sent, at most once too often, and followed up."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    calls = len(bench.calls.log)
    for number in range(calls):
        delivery = bench.delivery(bench.endpoint())
        bench.receiver.requests.clear()
        bench.queued()
        seen = 0

        def nth(call: Any, number: int = number) -> bool:
            nonlocal seen
            seen += 1
            return seen == number + 1

        with bench.calls.fail("*", "*", Killed("cut off"), when=nth):
            with_failure(bench, delivery)
        bench.clock.advance(LEASE_SECONDS + 1)
        assert bench.send(delivery, receives=2) == []
        assert 1 <= len(bench.receiver.requests) <= 2
        found = bench.now(delivery)
        assert (found.status, found.attempts, found.lease_until) == ("pending", 1, 0)
        assert 1 in [queued.attempts for queued, _ in bench.queued()]


def with_failure(bench: Bench, delivery: Delivery) -> None:
    try:
        bench.send(delivery)
    except Killed:
        return


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_at_once(bench: Bench) -> None:
    """A batch is sent at once: a slow receiver holds up nobody else's attempt."""
    together = threading.Barrier(BATCH, timeout=20)

    class Slow(dict[str, Any]):
        def get(self, host: Any, default: Any = None) -> Any:
            together.wait()
            return default

    bench.receiver.answers = Slow()
    deliveries = [bench.delivery(bench.endpoint()) for _ in range(BATCH)]
    assert bench.send(*deliveries) == []
    assert {bench.now(delivery).status for delivery in deliveries} == {"delivered"}


def test_one_that_raises(bench: Bench) -> None:
    """One message whose attempt breaks in an unforeseen way comes again; the others are done."""
    bench.receiver.answers["broken.example.com"] = RuntimeError("a bug")
    broken = bench.delivery(bench.endpoint(url="https://broken.example.com/"))
    fine = bench.delivery(bench.endpoint())
    assert bench.send(broken, fine) == [0]
    assert bench.now(fine).status == "delivered"


@pytest.mark.parametrize("body", ["", "{}", "[]", '"text"', '{"later": 1}', "null"])
def test_no_message(bench: Bench, body: str) -> None:
    """What is no message fails by itself, and takes no other with it."""
    fine = bench.delivery(bench.endpoint())
    assert bench.send(body, fine) == [0]
    assert bench.now(fine).status == "delivered"


def test_a_secret_that_cannot_be_opened(bench: Bench) -> None:
    """One endpoint whose secret KMS does not open keeps the others going; its message comes again."""
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
    """A batch reads its endpoints and their health in one request, each once, and asks KMS once per secret."""
    endpoint = bench.endpoint()
    deliveries = [bench.delivery(endpoint) for _ in range(4)]
    deliveries += [bench.of_job(url=f"{URL}&n={number}")[1] for number in range(3)]
    bench.calls.log.clear()
    assert bench.send(*deliveries) == []
    operations = [call.operation for call in bench.calls.log]
    assert operations.count("BatchGetItem") == 1
    assert operations.count("Decrypt") == 2
    bench.send(bench.delivery(endpoint))
    assert [call.operation for call in bench.calls.log].count("Decrypt") == 2


def test_an_edit_counts_at_once(bench: Bench) -> None:
    """Each batch goes by what the endpoint is then, however warm the function."""
    endpoint = bench.endpoint()
    bench.send(bench.delivery(endpoint))
    bench.edit(endpoint, url="https://new.example.com/")
    bench.send(bench.delivery(endpoint))
    assert [request["url"] for request in bench.receiver.requests] == [URL, "https://new.example.com/"]


def test_what_the_table_leaves_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a throttled read leaves out is asked for again."""
    delivery = bench.delivery(bench.endpoint())
    real, asked = bench.of.dynamodb.batch_get_item, []

    def stingy(*, RequestItems: dict[str, Any]) -> Any:
        asked.append(set(RequestItems))
        (first, *rest) = RequestItems.items()
        return real(RequestItems=dict([first])) | {"UnprocessedKeys": dict(rest)}

    monkeypatch.setattr(bench.of.dynamodb, "batch_get_item", stingy)
    assert bench.send(delivery) == []
    assert asked == [{"jobs", "deliveries"}, {"deliveries"}]
    assert bench.now(delivery).status == "delivered"


def test_no_such_delivery(bench: Bench) -> None:
    """A message of a delivery that is forgotten is done."""
    delivery = bench.delivery(bench.endpoint())
    gone = replace(message(delivery), delivery_id="dlv_gone")
    assert bench.send(gone) == []
    assert bench.receiver.requests == []


def test_expired(bench: Bench) -> None:
    """What is to be forgotten is not sent any more."""
    delivery = bench.delivery(bench.endpoint())
    bench.clock.advance_to(delivery.expires_at + 1)
    assert bench.send(delivery) == []
    assert bench.receiver.requests == []


# ── how a destination is doing ──────────────────────────────────────────────────────────────────────────────────────


def test_health(bench: Bench) -> None:
    """What came of a batch is told once, at its end."""
    endpoint = bench.endpoint()
    bench.receiver.answer = [answered(200), answered(200), answered(500)]
    bench.calls.log.clear()
    deliveries = [bench.delivery(endpoint) for _ in range(3)]
    bench.send(*deliveries)
    health = bench.health(deliveries[0])
    assert (health.attempts, health.delivered) == (3, 2)
    told = [call for call in bench.calls.log if call.params.get("Key", {}).get("sk") == "HEALTH"]
    assert [call.operation for call in told if call.operation != "GetItem"] == ["UpdateItem"]


@pytest.mark.parametrize("default", [False, True])
def test_health_expires(bench: Bench, default: bool) -> None:
    """The health of a URL that only jobs name is forgotten some day; that of an endpoint stays."""
    delivery = bench.of_job()[1] if default else bench.delivery(bench.endpoint())
    bench.send(delivery)
    key = {"pk": f"HEALTH#ana#{delivery.destination}", "sk": "HEALTH"}
    item = bench.of.dynamodb.get_item(TableName="deliveries", Key=key)["Item"]
    assert ("expires_at" in item) == default


def test_health_that_cannot_be_written(bench: Bench) -> None:
    """Where health cannot be written no message fails: what was sent is sent."""
    delivery = bench.delivery(bench.endpoint())
    failed = bench.calls.fail(
        "dynamodb", "UpdateItem", "InternalServerError", when=lambda c: c.params["Key"]["sk"] == "HEALTH"
    )
    assert bench.send(delivery) == []
    assert failed.hits == 1
    assert bench.now(delivery).status == "delivered"


def test_the_circuit_opens(bench: Bench) -> None:
    """A batch of failures opens the circuit at its end, and the next batch holds what it gets."""
    bench.receiver.answer = answered(500)
    endpoint = bench.endpoint()
    deliveries = [bench.delivery(endpoint) for _ in range(5)]
    bench.send(*deliveries)
    assert len(bench.receiver.requests) == 5
    assert bench.health(deliveries[0]).is_open
    more = bench.delivery(endpoint)
    assert bench.send(more) == []
    assert len(bench.receiver.requests) == 5
    assert bench.place(more) == f"HELD#ana#{more.destination}"


def test_a_lane_for_each_url(bench: Bench) -> None:
    """A job's URL that fails holds up no other URL of the same owner."""
    bench.receiver.answers["bad.example.com"] = answered(500)
    bad = [bench.of_job(url="https://bad.example.com/")[1] for _ in range(3)]
    bench.send(*bad)
    assert bench.health(bad[0]).is_open
    _, good = bench.of_job()
    bench.send(good)
    assert bench.now(good).status == "delivered"


def test_message_round_trip(bench: Bench) -> None:
    """What the sender queues it can read."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    ((queued, _),) = bench.queued()
    bench.clock.advance(60)
    assert bench.send(Message.parse(queued.body)) == []
    assert bench.now(delivery).attempts == 2


# ── more than a batch ────────────────────────────────────────────────────────────────────────────────────────


def left(bench: Bench) -> int:
    """Messages in the queue, those in somebody's hands among them."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    url = bench.of.settings.webhooks_queue_url
    found = queue_client(bench).get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def queue_client(bench: Bench) -> Any:
    return bench.of.webhooks_queue._client


def test_a_full_batch(bench: Bench) -> None:
    """A full batch means that more is waiting: it is taken and sent too, each once, and then gone."""
    endpoint = bench.endpoint()
    waiting = [bench.delivery(endpoint) for _ in range(27)]
    bench.of.webhooks_queue.send_all(map(message, waiting))
    batch = [bench.delivery(endpoint) for _ in range(BATCH)]
    assert bench.send(*batch) == []
    assert {bench.now(delivery).status for delivery in [*waiting, *batch]} == {"delivered"}
    assert len(bench.receiver.requests) == 37
    assert left(bench) == 0
    assert bench.health(batch[0]).delivered == 37
    assert [call.operation for call in bench.calls.log].count("Decrypt") == 1


def test_no_full_batch(bench: Bench) -> None:
    """Less than a full batch takes nothing else."""
    endpoint = bench.endpoint()
    bench.of.webhooks_queue.send(message(bench.delivery(endpoint)))
    bench.send(*[bench.delivery(endpoint) for _ in range(BATCH - 1)])
    assert left(bench) == 1


def test_what_fails_beside_a_batch(bench: Bench) -> None:
    """A message beside the batch that fails stays in the queue, and fails no other and no batch."""
    endpoint = bench.endpoint()
    bench.receiver.answers["broken.example.com"] = RuntimeError("a bug")
    broken = bench.delivery(bench.endpoint(url="https://broken.example.com/"))
    fine = [bench.delivery(endpoint) for _ in range(5)]
    bench.of.webhooks_queue.send_all(map(message, [broken, *fine]))
    queue_client(bench).send_message(QueueUrl=bench.of.settings.webhooks_queue_url, MessageBody="none")
    assert bench.send(*[bench.delivery(endpoint) for _ in range(BATCH)]) == []
    assert {bench.now(delivery).status for delivery in fine} == {"delivered"}
    assert left(bench) == 2


def test_a_queue_that_fails(bench: Bench) -> None:
    """Where no more can be taken, the batch is sent all the same."""
    bench.calls.fail("sqs", "ReceiveMessage", "InternalError", times=None)
    endpoint = bench.endpoint()
    batch = [bench.delivery(endpoint) for _ in range(BATCH)]
    assert bench.send(*batch) == []
    assert {bench.now(delivery).status for delivery in batch} == {"delivered"}


def test_no_time_for_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is taken once the time is up."""
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0)
    endpoint = bench.endpoint()
    bench.of.webhooks_queue.send(message(bench.delivery(endpoint)))
    bench.send(*[bench.delivery(endpoint) for _ in range(BATCH)])
    assert left(bench) == 1
