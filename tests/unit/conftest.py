"""Tables, bucket and key as `stacks/storage.py` has them, in moto; each test gets them empty."""

from __future__ import annotations

import functools
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from moto.kms.utils import generate_private_key
from moto.s3.responses import S3Response

from core.aws import clients
from core.aws.blobs import Blobs
from core.log import logger
from tests.simulated_cloud import caching, dynamodb_validation
from tests.simulated_cloud.moto_fixes import keeping_uploads_apart
from tests.unit.gateway import Gateway

JOBS, DELIVERIES, KEYS, DATA = "jobs", "deliveries", "keys", "data"
LAMBDAS = str(Path(__file__).parents[2] / "lambdas")


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What the code has logged since the test began, as CloudWatch would get it."""
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def aws() -> Iterator[None]:
    with caching.installed(), mock_aws(config={"core": {"mock_credentials": False}}):
        yield


@pytest.fixture(scope="session")
def cached_clients() -> Callable[[str], Any]:
    """Clients as the functions make them. moto answers a client in every test, so each is made but once."""
    special: dict[str, Callable[[], Any]] = {"s3": clients.s3, "dynamodb": clients.dynamodb}
    for service in ("dynamodb", "sqs"):
        special[f"high_throughput {service}"] = functools.partial(clients.high_throughput, service)
    ordinary = clients.client
    return functools.cache(lambda service: special[service]() if service in special else ordinary(service))


@pytest.fixture
def dynamodb(aws: None, cached_clients: Callable[[str], Any]) -> Any:
    """The client of a resource, which takes and gives plain Python values."""
    client = cached_clients("dynamodb")
    dynamodb_validation.check_requests(client)
    return client


@pytest.fixture
def jobs_table(dynamodb: Any) -> str:
    return create_table(dynamodb, JOBS, indexes=("gsi1", "gsi2"))


@pytest.fixture
def deliveries_table(dynamodb: Any) -> str:
    return create_table(dynamodb, DELIVERIES, indexes=("gsi1", "gsi2"))


@pytest.fixture
def keys_table(dynamodb: Any) -> str:
    return create_table(dynamodb, KEYS, sort_key=False)


@pytest.fixture
def s3(aws: None, cached_clients: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(S3Response, "_key_response", keeping_uploads_apart(S3Response._key_response))
    return cached_clients("s3")


@pytest.fixture
def bucket(s3: Any) -> str:
    s3.create_bucket(Bucket=DATA, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    return DATA


@pytest.fixture
def blobs(s3: Any, bucket: str) -> Blobs:
    return Blobs(s3, bucket)


@pytest.fixture
def kms(aws: None, cached_clients: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("moto.kms.models.generate_private_key", _private_key)
    return cached_clients("kms")


# moto makes an RSA key even for a symmetric one, which costs more than all else that a test does.
_private_key = functools.cache(generate_private_key)


@pytest.fixture
def secrets_key(kms: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    arn: str = kms.create_key()["KeyMetadata"]["Arn"]
    monkeypatch.setenv("SECRETS_KEY", arn)
    return arn


@pytest.fixture
def queues(aws: None, cached_clients: Callable[[str], Any]) -> None:
    for name in QUEUES.values():
        cached_clients("sqs").create_queue(QueueName=name)


@pytest.fixture
def topics(aws: None, cached_clients: Callable[[str], Any]) -> None:
    for name in TOPICS.values():
        cached_clients("sns").create_topic(Name=name)


def create_table(client: Any, name: str, *, sort_key: bool = True, indexes: tuple[str, ...] = ()) -> str:
    schemas = [key_schema("", sort_key=sort_key), *(key_schema(index) for index in indexes)]
    attributes = [key["AttributeName"] for schema in schemas for key in schema]
    options: dict[str, Any] = {"GlobalSecondaryIndexes": [gsi(index) for index in indexes]} if indexes else {}
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=schemas[0],
        AttributeDefinitions=[{"AttributeName": attribute, "AttributeType": "S"} for attribute in attributes],
        **options,
    )
    return name


ENVIRONMENT = {
    "JOBS_TABLE": JOBS,
    "DELIVERIES_TABLE": DELIVERIES,
    "KEYS_TABLE": KEYS,
    "DATA_BUCKET": DATA,
    "JOB_RETENTION_DAYS": "90",
    "DELIVERY_RETENTION_DAYS": "30",
    "JOB_DEADLINE_MINUTES": "240",
    "IDEMPOTENCY_HOURS": "24",
    "MAX_INLINE_BYTES": "100",
    "MAX_UPLOAD_BYTES": "1000",
    "MAX_DOCUMENT_BYTES": "1000",
    "WEBHOOK_ALLOW_HTTP": "false",
    "ALLOW_PRIVATE_CIDRS": "[]",
    "OWN_HOSTS": "[]",
    "WEBHOOK_SCHEDULE_SECONDS": "[0, 5, 30, 120]",
    "WEBHOOK_TIMEOUT_SECONDS": "15",
    "WEBHOOK_CIRCUIT_FAILURES": "3",
    "WEBHOOK_DISABLE_AFTER_HOURS": "120",
    "MAX_WEBHOOKS": "3",
    "MAX_OPEN_JOBS": "100",
    "MAX_RUNNING_JOBS": "50",
    "MAX_MODEL_CALLS_PER_OWNER": "1",
    "MAX_UPLOADS_PER_DAY": "100",
    "MAX_TICKETS_PER_DAY": "100",
    "MAX_HOLDS_PER_JOB": "2",
    "MAX_HOLDS_PER_OWNER": "4",
    "CORS_ORIGINS": "",
    "WAIT_SECONDS_MAX": "25",
    "LINK_HOURS": "48",
    "EPOCH_CACHE_SECONDS": "60",
    "LIVE_URL": "wss://live.example.com/v1",
    "EMBEDDING": "bedrock",
    "EMBEDDING_MODEL": "model",
    "EMBEDDING_DIMENSIONS": "2",
    "EMBEDDING_PARALLEL_CALLS": "1",
    "CHUNK_SIZE": "40",
    "CHUNK_OVERLAP": "0",
    "CHUNKS_PER_BATCH": "2",
    "TEXTS_PER_BATCH": "3",
    "TOKENS_PER_BATCH": "100",
    "SUMMARY_PART_TOKENS": "200",
    "FINE_TUNE_MODELS": '["amazon.nova-micro-v1:0:128k"]',
    "FINE_TUNE_MIN_EXAMPLES": "2",
    "FINE_TUNE_ROLE": "arn:aws:iam::123456789012:role/bedrock",
}
ACCOUNT = "eu-west-1:123456789012"
QUEUES = {
    f"{name}_URL": name.lower()
    for name in ("INDEXING_QUEUE", "EMBEDDING_QUEUE", "NOTIFY_QUEUE", "WEBHOOKS_QUEUE", "WEBHOOKS_DLQ")
}
TOPICS = {"EVENTS_TOPIC": "events", "ALERTS_TOPIC": "alerts"}
ENVIRONMENT |= {key: f"https://sqs.eu-west-1.amazonaws.com/123456789012/{name}" for key, name in QUEUES.items()}
ENVIRONMENT |= {key: f"arn:aws:sns:{ACCOUNT}:{name}" for key, name in TOPICS.items()}
ENVIRONMENT["STATE_MACHINES"] = json.dumps({"document": f"arn:aws:states:{ACCOUNT}:stateMachine:document"})


@pytest.fixture
def gateway() -> Gateway:
    """What the connections of the WebSocket API receive."""
    return Gateway()


@pytest.fixture
def environment(
    aws: None, monkeypatch: pytest.MonkeyPatch, cached_clients: Callable[[str], Any], gateway: Gateway
) -> dict[str, str]:
    """What functions find in their environment, and warm functions that have read none of it yet.

    The tables, queues and topics that it names are made by the fixtures that a test asks for.
    """
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(clients, "client", cached_clients)
    monkeypatch.setattr(clients, "high_throughput", lambda service: cached_clients(f"high_throughput {service}"))
    monkeypatch.setattr(clients, "dynamodb", lambda: cached_clients("dynamodb"))
    monkeypatch.setattr(clients, "s3", lambda: cached_clients("s3"))
    monkeypatch.setattr(clients, "management", {ENVIRONMENT["LIVE_URL"]: gateway}.__getitem__)
    forget()
    return ENVIRONMENT


def forget() -> None:
    """Clear what functions keep while they are warm."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if str(names.get("__file__")).startswith(LAMBDAS):
            for name in KEPT & names.keys():
                if clear := getattr(names[name], "cache_clear", None):
                    clear()


KEPT = {
    "dependencies",
    "document_dependencies",
    "embedding_dependencies",
    "fine_tune_dependencies",
    "summary_dependencies",
    "app",
    "histories",
    "worker",
}


@pytest.fixture
def messages(queues: None, cached_clients: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """The bodies of the messages that wait in a queue, named after its variable."""

    def read(queue: str) -> list[Any]:
        options = {"QueueUrl": ENVIRONMENT[queue], "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
        found = cached_clients("sqs").receive_message(**options).get("Messages", [])
        return [json.loads(message["Body"]) for message in found]

    return read


KEY_TYPES = {"pk": "HASH", "sk": "RANGE"}


def key_schema(prefix: str, *, sort_key: bool = True) -> list[dict[str, str]]:
    schema = [{"AttributeName": f"{prefix}{key}", "KeyType": kind} for key, kind in KEY_TYPES.items()]
    return schema if sort_key else schema[:1]


def gsi(name: str) -> dict[str, Any]:
    return {"IndexName": name, "KeySchema": key_schema(name), "Projection": {"ProjectionType": "KEYS_ONLY"}}
