"""The command line with tables and a bucket in moto, and a stub of SNS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest

from core.auth import KeyStore
from core.aws import clients
from core.aws.blobs import Blobs
from core.jobs import JobStore
from ops import stack
from ops.__main__ import main


@dataclass(frozen=True)
class Result:
    """Exit status, standard output and standard error."""

    status: int
    out: str
    err: str


Ops = Callable[..., Result]


@pytest.fixture
def ops(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ops:
    """Runs `python -m ops` with these arguments."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # `--profile` changes it

    def run(*arguments: str) -> Result:
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def keys(dynamodb: Any, keys_table: str, monkeypatch: pytest.MonkeyPatch) -> KeyStore:
    """The keys of the deployed stack."""
    monkeypatch.setattr(stack, "outputs", lambda name: {"KeysTable": keys_table})
    monkeypatch.setattr(clients, "dynamodb", lambda: dynamodb)
    return KeyStore(dynamodb, keys_table)


@dataclass
class Topics:
    """A stub of SNS. `published`: (topic, body, attributes). `refused`: the errors for some bodies."""

    published: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refused: dict[str, Exception] = field(default_factory=dict)

    def publish(self, *, TopicArn: str, Message: str, MessageAttributes: Any, MessageGroupId: str) -> None:
        if Message in self.refused:
            raise self.refused[Message]
        attributes = {key: value["StringValue"] for key, value in MessageAttributes.items()}
        assert MessageGroupId == attributes["owner"]
        self.published.append((TopicArn, Message, attributes))


@dataclass(frozen=True)
class Deployment:
    jobs: JobStore
    blobs: Blobs
    topics: Topics


@pytest.fixture
def deployed(dynamodb: Any, jobs_table: str, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """The table and the bucket that `republish` reads, and the topics that it publishes to."""
    topics = Topics()
    parts = {
        "JobsTable": jobs_table,
        "DataBucket": bucket,
        "PublisherFunction": "publisher",
        "DocEventsTopic": "doc-events",
        "ErrorAlertsTopic": "error-alerts",
    }
    monkeypatch.setattr(stack, "outputs", lambda name: parts)
    monkeypatch.setattr(clients, "dynamodb", lambda: dynamodb)
    monkeypatch.setattr(clients, "s3", lambda: s3)
    monkeypatch.setattr(clients, "client", {"sns": topics}.__getitem__)
    return Deployment(JobStore(dynamodb, jobs_table), Blobs(s3, bucket), topics)
