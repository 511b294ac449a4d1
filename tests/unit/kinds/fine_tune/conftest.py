"""What the functions of a fine-tune work with."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.jobs import Job, JobStore
from kinds.fine_tune.dependencies import fine_tune_dependencies
from kinds.fine_tune.kind import FINE_TUNE
from local.model.customization import EXCEPTIONS, Customizations
from local.model.events import ProviderError
from tests.unit.examples import job

MODEL = "amazon.nova-micro-v1:0:128k"
UPLOAD = "uploads/ana/upl_1/a.jsonl"
EXECUTION = "arn:execution"


class Bedrock:
    """Amazon Bedrock with a clock of its own. `errors`: codes that the next calls raise."""

    def __init__(self) -> None:
        self.now, self.errors, self.created = time.time(), list[str](), list[dict[str, Any]]()
        self.jobs = Customizations(lambda: self.now, "eu-west-1:123456789012")

    def create_model_customization_job(self, **request: Any) -> dict[str, Any]:
        self.created.append(request)
        return self._call(self.jobs.create, request)

    def get_model_customization_job(self, **request: Any) -> dict[str, Any]:
        return self._call(self.jobs.get, request)

    def stop_model_customization_job(self, **request: Any) -> dict[str, Any]:
        return self._call(self.jobs.stop, request)

    def _call(self, operation: Any, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if self.errors and operation != self.jobs.get:
                code = self.errors.pop(0)
                message = "The role arn:aws:iam::123456789012:role/x cannot read s3://data/a."
                raise ClientError({"Error": {"Code": code, "Message": message}}, "Operation")
            answer: dict[str, Any] = operation(request)
        except ProviderError as failure:
            error = {"Code": EXCEPTIONS[failure.status], "Message": str(failure)}
            raise ClientError({"Error": error}, "Operation") from None
        return answer


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str, queues: None) -> JobStore:
    return dependencies.jobs


@pytest.fixture
def bedrock(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> Bedrock:
    bedrock = Bedrock()
    monkeypatch.setattr(time, "time", lambda: bedrock.now)
    vars(fine_tune_dependencies)["bedrock"] = bedrock
    return bedrock


def submitted(store: JobStore, blobs: Blobs, data: bytes = b"", **given: Any) -> Job:
    """A job about an upload with this content."""
    etag = blobs.put(UPLOAD, data)
    stored = {"base_model": MODEL, "epochs": 2, "hyperparameters": {"epochCount": "2"}, **given}
    source = {"source_key": UPLOAD, "etag": etag, "bytes": len(data)}
    return store.submit(FINE_TUNE, job(kind="fine_tune", at=time.time(), input=stored | source)).job
