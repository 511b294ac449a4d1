"""One attempt of one delivery: claim it, sign it, send it, write down what came of it, and plan the next."""

from __future__ import annotations

import base64
import codecs
import functools
import json
import os
import random
import time
from dataclasses import dataclass
from typing import Any

from core import clients, events, settings
from core.batch import BatchResponse, Record, process, receives
from core.errors import DeliveryError, Refused
from core.jobs import JobStore
from core.log import logger
from core.webhooks import client, signing
from core.webhooks.deliveries import Attempt, Delivery, DeliveryStore, fairness_group, for_job
from core.webhooks.endpoints import Endpoint, Endpoints, Vault
from core.webhooks.guard import Policy

WORKERS = 10  # the batch size: a slow receiver holds up nobody else's attempt
JITTER = 0.2
SHOWN_CHARACTERS = 1000
MAX_DELAY_SECONDS = 900  # SQS


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    webhooks_queue_url: str
    webhook_schedule_seconds: tuple[int, ...]
    webhook_timeout_seconds: int
    webhook_allow_http: bool
    allow_private_cidrs: tuple[str, ...]
    secrets_key: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    deliveries: DeliveryStore
    endpoints: Endpoints
    sqs: Any
    policy: Policy
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        DeliveryStore(dynamodb, config.deliveries_table),
        Endpoints(dynamodb, config.jobs_table, Vault(clients.client("kms"), config.secrets_key)),
        clients.client("sqs"),
        Policy.of(
            allow_http=config.webhook_allow_http,
            allow_private_cidrs=config.allow_private_cidrs,
            runtime_api=os.environ.get("AWS_LAMBDA_RUNTIME_API", ""),
        ),
        config,
    )


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    dependencies()  # before the threads: the environment is read once
    return process(event, handle, workers=WORKERS)


def handle(record: Record) -> None:
    message = json.loads(record["body"])
    delivery = dependencies().deliveries.get(message["delivery_id"])
    if delivery is None:
        return
    if delivery.status in ("delivered", "failed") or delivery.attempts != message["attempt"]:
        # A sender that died after it wrote an attempt down left this message and what was still to do behind.
        if receives(record) > 1:
            follow_up(delivery)
        return
    if delivery.due > time.time():
        plan(delivery)
        return
    if delivery.status == "sending" and delivery.lease_until > time.time():
        raise DeliveryInHand(delivery.delivery_id)
    claimed = dependencies().deliveries.claim(delivery)
    if claimed:
        attempt_and_record(claimed)


class DeliveryInHand(Exception):
    """Another sender is at it. The message comes again, in case that one dies."""


def attempt_and_record(delivery: Delivery) -> None:
    attempt = make_attempt(delivery)
    recorded = dependencies().deliveries.record(delivery, attempt, wait=next_wait(delivery.attempts + 1))
    logger.info(
        "webhook attempt",
        delivery_id=recorded.delivery_id,
        attempt=recorded.attempts,
        status=attempt.status,
        error_class=attempt.error,
        duration_ms=attempt.duration_ms,
    )
    follow_up(recorded)


def follow_up(delivery: Delivery) -> None:
    """What an attempt that was written down leads to: the next one, and what the job's owner sees."""
    if delivery.status == "pending":
        plan(delivery)
    last = delivery.last_attempt
    if last:
        dependencies().jobs.record_webhook(
            delivery.job_id, for_job(delivery, last), at=last.at, expires_at=delivery.job_expires_at
        )


def make_attempt(delivery: Delivery) -> Attempt:
    """Send the stored bytes, signed afresh: the id stays the same over all attempts, the timestamp does not."""
    started, at = time.monotonic(), events.timestamp(time.time())
    outcome: dict[str, Any]
    try:
        outcome = _post(delivery)
    except DeliveryError as error:
        outcome = {"error": error.error_class, "message": str(error)}
    except Refused as error:
        outcome = {"error": "blocked", "message": str(error)}
    except ValueError:  # a stored secret or id that cannot sign: no retry of the message would mend it
        outcome = {"error": "signing", "message": "The endpoint's secret is damaged. Rotate it."}
    return Attempt(at=at, duration_ms=round(1000 * (time.monotonic() - started)), **outcome)


def _post(delivery: Delivery) -> dict[str, Any]:
    endpoint = dependencies().endpoints.find(delivery.owner, delivery.endpoint_id)
    if endpoint is None:
        raise Refused("The endpoint has no secret any more, so nothing can be signed for it.")
    body = delivery.body.encode()
    headers = signing.sign(opened(endpoint), event_id=delivery.event_id, timestamp=int(time.time()), body=body)
    answer = client.post(
        delivery.url,
        body=body,
        headers={"content-type": "application/json", "user-agent": "Recado-Webhooks/1", **headers},
        policy=dependencies().policy,
        deadline_seconds=dependencies().config.webhook_timeout_seconds,
    )
    succeeded = 200 <= answer.status < 300
    return {
        "status": answer.status,
        "error": None if succeeded else f"http_{answer.status // 100}xx",
        "body": shown(answer.body),
    }


@functools.lru_cache(maxsize=1000)
def opened(endpoint: Endpoint) -> str:
    """Decrypted once per secret and warm function."""
    return dependencies().endpoints.secret(endpoint)


def shown(body: bytes) -> str:
    """The start of an answer as text, though it was cut inside a character; what is not UTF-8 as base64."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body)[:SHOWN_CHARACTERS]
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body[:SHOWN_CHARACTERS]).decode()


def next_wait(attempts: int) -> int | None:
    """Seconds until the next attempt, spread by ±20 %, or None after the last."""
    schedule = dependencies().config.webhook_schedule_seconds
    if attempts >= len(schedule):
        return None
    return round(schedule[attempts] * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 spreads load


def plan(delivery: Delivery) -> None:
    """Queue the next attempt for when it is due."""
    delay = min(MAX_DELAY_SECONDS, max(0, delivery.due - int(time.time())))
    dependencies().sqs.send_message(
        QueueUrl=dependencies().config.webhooks_queue_url,
        MessageBody=json.dumps({"delivery_id": delivery.delivery_id, "attempt": delivery.attempts}),
        MessageGroupId=fairness_group(delivery),
        DelaySeconds=delay,
    )
