"""Deliveries that are due later than a queue can delay, were not queued, or have dead messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulated_cloud.cloud import Cloud, Killed
from tests.support.receiver import Received, Receiver
from tests.support.service import Service
from tests.support.webhooks import (
    HOUR,
    assert_no_leftovers,
    attempts,
    canceled,
    deliveries,
    delivery,
    endpoint,
    get_delivery,
    health,
    message,
    statuses,
)

Knob = Callable[..., None]


def run_retry_scheduler(cloud: Cloud) -> None:
    assert cloud.invoke("retry_scheduler", {}).error is None


class TestDue:
    def test_delivery_that_was_not_queued(self, service: Service, receiver: Receiver) -> None:
        """A delivery without a message is sent after about 15 minutes."""
        endpoint(service)
        service.cloud.fail("sqs", "SendMessageBatch", Killed, function="dispatch", times=None)
        canceled(service)
        started = service.cloud.clock.time
        service.let_pass(3 * HOUR)
        assert len(receiver.requests) == 1
        assert 900 <= receiver.requests[0].at - started <= 1020
        assert delivery(service.cloud).status == "delivered"

    def test_a_long_wait_holds_no_message(self, service: Service, receiver: Receiver) -> None:
        """An attempt that is hours ahead has no message in the queue."""
        receiver.always = 500
        endpoint(service)
        canceled(service)
        service.let_pass(400)
        found = delivery(service.cloud)
        assert (found.attempts, found.status) == (3, "pending")
        assert len(service.cloud.queue("Webhooks/Queue")) == 0
        service.let_pass(found.due - service.cloud.clock.time - 5)
        assert len(receiver.requests) == 3
        service.let_pass(90)
        assert len(receiver.requests) == 4

    def test_slow_queue(self, service: Service, receiver: Receiver) -> None:
        """While the sender is behind, each run queues a delivery again after twice the time of the one before."""
        endpoint(service)
        service.cloud.pause("sender")
        for _ in range(3):
            canceled(service)
        service.let_pass(24 * HOUR)
        assert len(service.cloud.queue("Webhooks/Queue")) == 3 * (1 + 7)  # after 1/4, 1/2, 1, 2, 4, 8, 16 hours …
        service.cloud.resume()
        service.let_pass(600)
        assert len(receiver.requests) == 3
        assert len(service.cloud.queue("Webhooks/Queue")) == 0

    def test_a_shard_that_cannot_be_read_stops_no_other(self, service: Service, receiver: Receiver) -> None:
        """Queries that fail in one run succeed in the next."""
        receiver.answers = [500] * 9
        endpoint(service)
        for _ in range(3):
            canceled(service)
        service.cloud.settle(within=400)
        assert [found.attempts for found in deliveries(service.cloud)] == [3] * 3
        broken = service.cloud.fail(
            "dynamodb", "Query", "InternalServerError", function="retry_scheduler", every=5
        )
        broken.times = 6
        service.let_pass(2 * HOUR)
        assert broken.hits == 6
        assert statuses(deliveries(service.cloud)) == {"delivered"}
        assert health(service.cloud, deliveries(service.cloud)[0].destination).state == "closed"


class TestDeadLetters:
    def test_sender_killed_each_time(self, service: Service, receiver: Receiver) -> None:
        """Five killed senders count as one failed attempt, and the schedule continues."""
        receiver.react = lambda received: Killed() if len(receiver.requests) <= 5 else 200
        job_id = canceled(service, webhook_url="https://hooks.example.com/")
        service.let_pass(2 * HOUR)
        assert len(receiver.requests) == 6
        kept = attempts(service.cloud, delivery(service.cloud))
        assert [(each.number, each.status, each.error) for each in kept] == [(1, None, "internal"), (2, 200, None)]
        assert service.job(job_id)["webhook"]["status"] == "delivered"
        assert_no_leftovers(service.cloud)

    def test_sender_always_killed(self, service: Service, receiver: Receiver, knob: Knob) -> None:
        """If all attempts are lost like this, the delivery has failed, and the job shows it."""
        knob("RetryScheduler", WEBHOOK_SCHEDULE_SECONDS=[0, 5, 300])
        receiver.always = Killed()
        job_id = canceled(service, webhook_url="https://hooks.example.com/")
        service.let_pass(12 * HOUR)
        # a message that is in the queue for 15 minutes is queued again
        assert 3 * 5 <= len(receiver.requests) <= 3 * 10
        webhook = service.job(job_id)["webhook"]
        assert (webhook["status"], webhook["attempts"], webhook["next_attempt_at"]) == ("failed", 3, None)
        assert (webhook["last_attempt"]["error"], webhook["last_attempt"]["status"]) == ("internal", None)
        assert_no_leftovers(service.cloud)

    def test_dead_message_of_a_claimed_delivery(self, service: Service, receiver: Receiver) -> None:
        """A dead message of a claimed delivery stays until its attempt is recorded."""
        cloud = service.cloud

        def react(received: Received) -> int:
            cloud.queue("Webhooks/DeadLetters").send(message(delivery(cloud)))
            run_retry_scheduler(cloud)
            return 200

        receiver.react = react
        endpoint(service)
        canceled(service)
        cloud.settle()
        assert len(cloud.queue("Webhooks/DeadLetters")) == 1
        service.let_pass(400)
        assert len(cloud.queue("Webhooks/DeadLetters")) == 0
        assert [each.error for each in attempts(cloud, delivery(cloud))] == [None]

    def test_dead_message_of_an_ended_delivery(self, service: Service, receiver: Receiver) -> None:
        """A dead message of an ended or unknown delivery is deleted."""
        endpoint(service)
        canceled(service)
        service.cloud.settle()
        ended = delivery(service.cloud)
        gone = message(ended).replace(ended.delivery_id, ended.delivery_id[:-1] + "0")
        for body in (message(ended), gone):
            service.cloud.queue("Webhooks/DeadLetters").send(body)
        run_retry_scheduler(service.cloud)
        assert len(service.cloud.queue("Webhooks/DeadLetters")) == 0
        assert delivery(service.cloud) == ended

    def test_one_bad_message_stops_no_other(self, service: Service, receiver: Receiver) -> None:
        """Malformed dead messages stay; 35 others are handled in one run, and due deliveries are sent."""
        receiver.always = 500
        endpoint(service)
        canceled(service)
        service.cloud.settle(within=400)
        waiting = delivery(service.cloud)
        service.cloud.clock.advance(waiting.due - service.cloud.clock.time + 1)
        dead = service.cloud.queue("Webhooks/DeadLetters")
        for number in range(35):
            dead.send(message(waiting).replace(waiting.delivery_id[-2:], f"{number:02}"))
            if number % 10 == 0:
                dead.send(["no json", "[]", "{}", '{"delivery_id": 1}'][number // 10])
        run_retry_scheduler(service.cloud)
        assert sorted(dead.bodies) == ["[]", "no json", '{"delivery_id": 1}', "{}"]
        service.cloud.settle()
        assert get_delivery(service, waiting.delivery_id)["attempt_count"] == waiting.attempts + 1


def test_it_is_deployed_to_run_every_minute(service: Service, receiver: Receiver) -> None:
    """With the schedules of the deployment, a retry after 30 minutes is made in time."""
    receiver.answers = [500, 500, 500]
    endpoint(service)
    canceled(service)
    service.cloud.advance(0.6 * HOUR + 500)
    assert len(receiver.requests) == 4
    runs: list[Any] = [run for run in service.cloud.functions.invocations if run.name == "retry_scheduler"]
    assert len(runs) >= 40
