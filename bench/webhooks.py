"""Webhooks per second to a receiver on this machine, compared with `requests`; what a slow receiver costs others;
the cost of single calls.

    .venv/bin/python bench/webhooks.py [--events 2000] [--quick]

All senders are measured in one run, against one receiver in another process, which records the time of each
request. The `requests` loops sign nothing, check no address and record nothing. The sender does all of it, with
queue and tables in a simulated AWS in a third process. "To arrival" starts when an event is started, which for the
sender is when its message is received. All processes share the cores of the machine.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import queue
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

Item = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas")]
os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-west-1"}

import boto3  # noqa: E402
import requests  # noqa: E402
import servers  # noqa: E402
from boto3.dynamodb.types import TypeSerializer  # noqa: E402
from botocore.config import Config  # noqa: E402

from core import events, ids  # noqa: E402
from core.aws import clients  # noqa: E402
from core.dependencies import dependencies  # noqa: E402
from core.log import logger  # noqa: E402
from core.webhooks.deliveries.bulk import typed  # noqa: E402
from core.webhooks.deliveries.model import Delivery, draft  # noqa: E402
from core.webhooks.deliveries.queue import Message, WebhooksQueue  # noqa: E402
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS, delivery_item  # noqa: E402
from core.webhooks.endpoints import model as endpoints  # noqa: E402
from core.webhooks.endpoints.rows import endpoint_item  # noqa: E402
from core.webhooks.transport import client, signing  # noqa: E402
from core.webhooks.transport.connection_pool import ConnectionPool  # noqa: E402
from core.webhooks.transport.guard import Policy  # noqa: E402
from webhooks.retry_scheduler import handler as retry_scheduler  # noqa: E402
from webhooks.sender import handler as sender_handler  # noqa: E402

THREADS = 32
LATENCIES = (0.0, 0.05)
SENDER = {
    "JOBS_TABLE": "jobs",
    "DELIVERIES_TABLE": "deliveries",
    "WEBHOOKS_QUEUE_URL": "http://127.0.0.1/webhooks",
    "WEBHOOKS_DLQ_URL": "http://127.0.0.1/dead",
    "WEBHOOK_SCHEDULE_SECONDS": "[0, 5, 300]",
    "WEBHOOK_TIMEOUT_SECONDS": "15",
    "WEBHOOK_CIRCUIT_FAILURES": "10",
    "WEBHOOK_DISABLE_AFTER_HOURS": "120",
    "WEBHOOK_ALLOW_HTTP": "true",
    "ALLOW_PRIVATE_CIDRS": '["127.0.0.0/8"]',
    "OWN_HOSTS": "[]",
    "SECRETS_KEY": "key",
    "JOB_RETENTION_DAYS": "90",
    "DELIVERY_RETENTION_DAYS": "30",
    "POWERTOOLS_SERVICE_NAME": "webhooks/sender",
}
BODY = b'{"event":"document.indexed","event_id":"evt_1","data":{"text":"%b"}}' % (b"words " * 80)
LOOPBACK = Policy(allow_http=True, allow_private_cidrs=(ip_network("127.0.0.0/8"),))
# Sends the events, and records in `started` when it started with each.
Send = Callable[[str, list[str], dict[str, float]], None]


@dataclass(frozen=True)
class Way:
    """A way to send events. `prepare` is called before the measurement."""

    name: str
    send: Send
    prepare: Callable[[str, list[str]], object] = lambda url, event_ids: None


@dataclass(frozen=True)
class Measurement:
    seconds: float
    cpu: float
    sent: int
    lost: int
    twice: int
    to_arrival: list[float]

    @property
    def rate(self) -> float:
        return self.sent / self.seconds


def headers(event_id: str) -> dict[str, str]:
    return {"content-type": "application/json", "user-agent": "bench", "webhook-id": event_id}


def sequentially(url: str, event_ids: list[str], started: dict[str, float]) -> None:
    """(a) One loop with one session."""
    with requests.Session() as session:
        for event_id in event_ids:
            started[event_id] = time.monotonic()
            session.post(url, data=BODY, headers=headers(event_id), timeout=15)


def in_a_pool(url: str, event_ids: list[str], started: dict[str, float]) -> None:
    """(b) Threads with a session each."""
    own = threading.local()

    def send(event_id: str) -> None:
        if not hasattr(own, "session"):
            own.session = requests.Session()
        own.session.post(url, data=BODY, headers=headers(event_id), timeout=15)

    threaded(send, event_ids, started)


def guarded(url: str, event_ids: list[str], started: dict[str, float]) -> None:
    """The client and the signatures of the sender, without reads and writes."""
    connections, secret = ConnectionPool(), signing.make_secret()

    def send(event_id: str) -> None:
        signed = signing.sign(secret, event_id=event_id, timestamp=int(time.time()), body=BODY)
        client.post(
            url,
            body=BODY,
            headers=headers(event_id) | signed,
            policy=LOOPBACK,
            deadline_seconds=15,
            connections=connections,
            reuse_key="bench",
        )

    threaded(send, event_ids, started)
    connections.close()


def threaded(send: Callable[[str], None], event_ids: list[str], started: dict[str, float]) -> None:
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for event_id in [*event_ids, *[None] * THREADS]:
        waiting.put(event_id)

    def work() -> None:
        while event_id := waiting.get():
            started[event_id] = time.monotonic()
            send(event_id)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Sender:
    """The function `sender`, warm, with a simulated AWS. Its log is written to /dev/null."""

    def __init__(self, aws: servers.Running) -> None:
        self._aws = aws
        os.environ |= SENDER | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{aws.port}"}
        logger.registered_handler.stream = open(os.devnull, "w")  # noqa: SIM115
        self._queue = dependencies.webhooks_queue
        self._receive, self._started = self._queue.receive, dict[str, float]()
        self._queue.receive = self._receive_and_record  # type: ignore[method-assign]

    def prepare(self, url: str, event_ids: list[str]) -> None:
        """One delivery is sent before, to open the connections of a warm function."""
        endpoint = Endpoint(ids.new("wh"), url)
        self._aws.ask("load", "jobs", [endpoint.item])
        for batch in [ids.new("evt")], event_ids:
            rows = [endpoint.delivery(event_id) for event_id in batch]
            self._aws.ask("load", "deliveries", [stored(row) for row in rows])
            self._queue.send_all(map(Message.of, rows))
            if batch is not event_ids:
                sender_handler.handler({"Records": self._receive(10)}, None)
        self._aws.ask("calls")

    def send(self, url: str, event_ids: list[str], started: dict[str, float]) -> None:
        """Like Lambda: receive a batch, handle it, and delete the messages that did not fail."""
        self._started = started
        while records := self._queue.receive(10):
            answer = sender_handler.handler({"Records": records}, None)
            failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
            self._queue.delete([record for record in records if record["messageId"] not in failed])

    def _receive_and_record(self, count: int, *, wait_seconds: int = 0) -> list[dict[str, Any]]:
        """An event is started when its message is received."""
        records, now = self._receive(count, wait_seconds=wait_seconds), time.monotonic()
        for record in records:
            self._started["evt_" + Message.parse(record["body"]).delivery_id.split("_")[1]] = now
        return records


@dataclass(frozen=True)
class Endpoint:
    endpoint_id: str
    url: str
    owner: str = "bench"

    @property
    def item(self) -> Item:
        secret = endpoints.Key(encrypted=base64.b64encode(signing.make_secret().encode()))
        now = events.timestamp(time.time())
        row = endpoints.Endpoint(
            endpoint_id=self.endpoint_id,
            owner=self.owner,
            keys=(secret,),
            created_at=now,
            updated_at=now,
            url=self.url,
            events=("*",),
        )
        return {name: to_json(value) for name, value in endpoint_item(row).items()}

    def delivery(self, event_id: str) -> Delivery:
        return draft(
            event_id=event_id,
            endpoint_id=self.endpoint_id,
            now=time.time(),
            retention_seconds=86_400,
            event="document.indexed",
            owner=self.owner,
            format="recado",
            body=BODY.decode(),
            job_id="job_1",
            sequence=5,
        )


def to_json(value: Any) -> Any:
    """DynamoDB's JSON. Bytes are base64 already."""
    return json.loads(json.dumps(TypeSerializer().serialize(value), default=bytes.decode))


def stored(row: Delivery) -> Item:
    """The item of a delivery in DynamoDB's JSON."""
    return typed(delivery_item(row, now=time.time()))


def measure(way: Way, receiver: servers.Running, count: int, latency: float) -> Measurement:
    url, event_ids, started = (
        f"http://127.0.0.1:{receiver.port}/hook",
        [ids.new("evt") for _ in range(count)],
        dict[str, float](),
    )
    way.prepare(url, event_ids)
    receiver.ask("reset", latency)
    begin, cpu = time.monotonic(), time.process_time()
    way.send(url, event_ids, started)
    seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
    arrivals = receiver.ask("taken")
    times = Counter(event_id for event_id, _ in arrivals)
    first: dict[str, float] = {}
    for event_id, at in arrivals:
        first.setdefault(event_id, at)
    return Measurement(
        seconds=seconds,
        cpu=cpu,
        sent=count,
        lost=sum(event_id not in times for event_id in event_ids),
        twice=sum(times[event_id] > 1 for event_id in times),
        to_arrival=[1000 * (at - started[event_id]) for event_id, at in first.items() if event_id in started],
    )


def compare(ways: Sequence[Way], receiver: servers.Running, events: int) -> None:
    for latency in LATENCIES:
        print(f"\nreceiver responds after {1000 * latency:.0f} ms")
        print(
            f"{'':<34} {'per s':>7} {'of (a)':>7} {'CPU ms':>7} {'lost':>5} {'twice':>5}  ms to arrival: p50   p99"
        )
        first = None
        for way in ways:
            # One at a time takes the whole latency for each event, so fewer events are enough.
            count = events if not latency or way.send is not sequentially else max(20, events // 20)
            measured = measure(way, receiver, count, latency)
            first = first or measured
            p = statistics.quantiles(measured.to_arrival, n=100)
            print(
                f"{way.name:<34} {measured.rate:7.0f} {measured.rate / first.rate:6.1f}x "
                f"{1000 * measured.cpu / count:7.2f} {measured.lost:5} {measured.twice:5} "
                f"{p[49]:22.1f} {p[98]:5.1f}"
            )


# A fast receiver beside a slow one


SENDERS = 2  # as many as `webhooks_concurrency` allows by default


def slow_neighbour(aws: servers.Running, fast: servers.Running, slow: servers.Running, *, seconds: float) -> None:
    """The time from queue to receiver, for a fast receiver, alone and beside a slow one of another owner."""
    fast.ask("reset", 0.0)
    own = Endpoint(ids.new("wh"), f"http://127.0.0.1:{fast.port}/hook", "ana")
    other = Endpoint(ids.new("wh"), f"http://127.0.0.1:{slow.port}/hook", "ben")
    print(f"\n{'ms from queue to a fast receiver':<40} {'p50':>7} {'p95':>7} {'max':>7}")
    latency = min(14.0, seconds)
    slow.ask("reset", latency)
    alone = waits(aws, fast, [(own, 0.2)], seconds)
    beside = waits(aws, fast, [(own, 0.2), (other, 0.5)], 3 * seconds)
    p95 = []
    for name, found in (("alone", alone), (f"beside one that takes {latency:.0f} s", beside)):
        p = statistics.quantiles(found, n=20, method="inclusive")
        p95.append(p[18])
        print(f"{name:<40} {p[9]:7.0f} {p[18]:7.0f} {max(found):7.0f}")
    print(f"p95 of the second, compared with the first: {p95[1] / p95[0]:.1f}x")


def waits(
    aws: servers.Running, receiver: servers.Running, sources: Sequence[tuple[Endpoint, float]], seconds: float
) -> list[float]:
    """Milliseconds to the arrival of each event of the first source. Sources are endpoints and intervals."""
    webhooks_queue, over = (
        WebhooksQueue(clients.high_throughput("sqs"), SENDER["WEBHOOKS_QUEUE_URL"]),
        threading.Event(),
    )
    receiver.ask("reset", 0.0)
    queued: dict[str, float] = {}
    for endpoint, _ in sources:
        aws.ask("load", "jobs", [endpoint.item])

    def invoke_senders() -> None:
        while not over.is_set():
            if records := webhooks_queue.receive(10):
                sender_handler.handler({"Records": records}, None)
            else:
                time.sleep(0.005)

    senders = [threading.Thread(target=invoke_senders) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    end, due = time.monotonic() + seconds, [0.0] * len(sources)
    while time.monotonic() < end:
        for number, (endpoint, interval) in enumerate(sources):
            if time.monotonic() >= due[number]:
                due[number] = time.monotonic() + interval
                row = endpoint.delivery(ids.new("evt"))
                aws.ask("load", "deliveries", [stored(row)])
                if not number:
                    queued[row.event_id] = time.monotonic()
                webhooks_queue.send(Message.of(row))
        time.sleep(0.005)
    while len(taken := dict(receiver.ask("taken"))) < len(queued):
        time.sleep(0.1)
    over.set()
    for sender in senders:
        sender.join()
    return [1000 * (taken[event_id] - at) for event_id, at in queued.items()]


# The retry scheduler


def scheduling(aws: servers.Running, count: int) -> None:
    """One run of the retry scheduler, which finds due deliveries and queues them."""
    endpoint = Endpoint(ids.new("wh"), "http://127.0.0.1/hook")
    rows = [endpoint.delivery(ids.new("evt")) for _ in range(count)]
    long_ago = [replace(row, due=row.due - 2 * QUEUE_RETRY_SECONDS) for row in rows]
    retry_scheduler.handler({}, None)  # so that it is warm
    aws.ask("load", "deliveries", [stored(row) for row in long_ago])
    aws.ask("calls")
    begin, cpu = time.monotonic(), time.process_time()
    retry_scheduler.handler({}, None)
    seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
    calls = aws.ask("calls")
    print(
        f"\none retry scheduler: {count / seconds:.0f} deliveries queued per s, "
        f"{1000 * cpu / count:.2f} ms CPU each; {calls}"
    )


# Single calls


KEY = {"pk": {"S": "DELIVERY#1"}, "sk": {"S": "META"}}
CLAIM: dict[str, Any] = {
    "TableName": "deliveries",
    "UpdateExpression": "SET #status = :sending, lease_until = :lease, tries = if_not_exists(tries, :none) + :one",
    "ConditionExpression": "#status = :pending AND attempts = :attempts",
    "ExpressionAttributeNames": {"#status": "status"},
    "ReturnValues": "ALL_NEW",
}
VALUES = {
    ":sending": "sending",
    ":lease": 1_800_000_000,
    ":none": 0,
    ":one": 1,
    ":pending": "pending",
    ":attempts": 0,
}


def plain_client(**options: Any) -> Any:
    return boto3.client("dynamodb", config=Config(retries={"mode": "standard"}, **options))


def resource_update(dynamodb: Any) -> None:
    key = {name: value["S"] for name, value in KEY.items()}
    dynamodb.update_item(Key=key, ExpressionAttributeValues=VALUES, **CLAIM)


def plain_update(dynamodb: Any) -> None:
    values = typed(VALUES)
    dynamodb.update_item(Key=KEY, ExpressionAttributeValues=values, **CLAIM)


def transact(dynamodb: Any, deliveries: int = 1) -> None:
    """The new state of deliveries, and an attempt of each."""
    update = {name: value for name, value in CLAIM.items() if name != "ReturnValues"}
    update["ExpressionAttributeValues"] = typed(VALUES)
    actions = []
    for number in range(deliveries):
        key = {**KEY, "pk": {"S": f"DELIVERY#{number}"}}
        attempt = {**key, "sk": {"S": "ATTEMPT#0001"}, "body": {"S": "x" * 500}}
        actions += [
            {"Update": {**update, "Key": key}},
            {"Put": {"TableName": "deliveries", "Item": attempt}},
        ]
    dynamodb.transact_write_items(TransactItems=actions)


def batch_get(dynamodb: Any) -> None:
    keys = [{"pk": {"S": f"DELIVERY#{number}"}, "sk": {"S": "META"}} for number in range(10)]
    dynamodb.batch_get_item(RequestItems={"deliveries": {"Keys": keys, "ConsistentRead": True}})


def delivery(number: int) -> dict[str, Any]:
    item = {
        "owner": "bench",
        "url": "http://127.0.0.1/",
        "body": BODY.decode(),
        "status": "pending",
        "attempts": 0,
    }
    return {"pk": {"S": f"DELIVERY#{number}"}, "sk": {"S": "META"}} | typed(item)


def cost(call: Callable[[], Any], runs: int) -> tuple[float, float]:
    """Median wall time and mean CPU time of a call, in ms, in one thread."""
    for _ in range(min(runs, 20)):
        call()
    walls, cpu = [], time.process_time()
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        walls.append(time.perf_counter() - begin)
    return 1000 * statistics.median(walls), 1000 * (time.process_time() - cpu) / runs


def single_calls(receiver: servers.Running, aws: servers.Running, *, runs: int) -> None:
    aws.ask("load", "deliveries", [delivery(number) for number in range(10)])
    receiver.ask("reset", 0.0)
    url = f"http://127.0.0.1:{receiver.port}/hook"
    secret, connections, session = signing.make_secret(), ConnectionPool(), requests.Session()

    def post(**options: Any) -> None:
        client.post(url, body=BODY, headers=headers("evt_1"), policy=LOOPBACK, deadline_seconds=15, **options)

    resource, plain = clients.dynamodb(), plain_client()
    unchecked = plain_client(parameter_validation=False)
    calls: dict[str, Callable[[], Any]] = {
        "UpdateItem, client of a resource": lambda: resource_update(resource),
        "UpdateItem, plain client": lambda: plain_update(plain),
        "UpdateItem, not validated": lambda: plain_update(unchecked),
        "TransactWriteItems of 2, plain": lambda: transact(plain),
        "TransactWriteItems of 20, plain": lambda: transact(plain, 10),
        "TransactWriteItems of 2, not validated": lambda: transact(unchecked),
        "BatchGetItem of 10, plain": lambda: batch_get(plain),
        "signatures": lambda: signing.sign(secret, event_id="evt_1", timestamp=1_800_000_000, body=BODY),
        "POST, new connection": post,
        "POST, pooled connection": lambda: post(connections=connections, reuse_key="bench"),
        "requests.Session.post": lambda: session.post(url, data=BODY, headers=headers("evt_1"), timeout=15),
    }
    print(f"\n{'one call, in one thread':<40} {'ms':>6} {'CPU ms':>7}")
    for name, call in calls.items():
        wall, cpu = cost(call, runs)
        print(f"{name:<40} {wall:6.2f} {cpu:7.2f}")
    connections.close()
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="few events: to see that it runs")
    args = parser.parse_args()
    args.events = 100 if args.quick else args.events
    with (
        servers.running(servers.receiver) as receiver,
        servers.running(servers.receiver) as slow,
        servers.running(servers.aws) as aws,
    ):
        sender = Sender(aws)
        ways = (
            Way("(a) requests, one by one", sequentially),
            Way(f"(b) requests, {THREADS} threads", in_a_pool),
            Way(f"client alone, {THREADS} threads", guarded),
            Way("the sender", sender.send, sender.prepare),
        )
        compare(ways, receiver, args.events)
        slow_neighbour(aws, receiver, slow, seconds=3 if args.quick else 20)
        scheduling(aws, args.events)
        single_calls(receiver, aws, runs=20 if args.quick else 300)


if __name__ == "__main__":
    main()
