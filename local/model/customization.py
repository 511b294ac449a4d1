"""Amazon Bedrock's model customization jobs, whose states move with time. Nothing is trained.

Requests are validated against botocore's model of the service.
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_CreateModelCustomizationJob.html
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import botocore.session
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from local.model.events import ProviderError, invalid

STOP_SECONDS = 5.0
"""From a request to stop until the job is stopped."""
SHARES = (("validationDetails", 0.1), ("dataProcessingDetails", 0.2), ("trainingDetails", 1.0))
"""The parts of a job, and the share of its time after which each is completed."""
LOSS = 0.5
EXCEPTIONS = {400: "ValidationException", 404: "ResourceNotFoundException", 409: "ConflictException"}
ENDED = ("Completed", "Failed", "Stopped")


@dataclass
class Job:
    """`request`: that created it. Times: seconds of the epoch. `failure`: why it fails at its end, if it does."""

    request: Mapping[str, Any]
    created: float
    seconds: float
    failure: str
    stopped: float | None = None

    def status(self, now: float) -> str:
        if self.stopped is not None:
            return "Stopped" if now >= self.stopped + STOP_SECONDS else "Stopping"
        if now < self.created + self.seconds:
            return "InProgress"
        return "Failed" if self.failure else "Completed"

    def end(self) -> float:
        """When it ends, or will end if it is not stopped."""
        return self.created + self.seconds if self.stopped is None else self.stopped + STOP_SECONDS


class Customizations:
    """`account` as `region:account`. `set` says how long the next jobs take, and how they end."""

    def __init__(self, clock: Callable[[], float] = time.time, account: str = "us-east-1:000000000000") -> None:
        self._clock, self._account = clock, account
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self.set({})

    def set(self, switches: Any) -> None:
        """`PUT /customization`: `seconds` until a job has ended (60), and `failure`, its message if it is to fail.

        Raises ValueError.
        """
        if not isinstance(switches, dict) or set(switches) - {"seconds", "failure"}:
            raise ValueError("expected an object with seconds, failure, or both")
        seconds, failure = switches.get("seconds", 60), switches.get("failure", "")
        if not isinstance(seconds, int | float) or not isinstance(failure, str):
            raise ValueError("seconds is a number, and failure a text")
        self._seconds, self._failure = float(seconds), failure

    def handle(self, method: str, path: list[str], query: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and body. `path`: below /model-customization-jobs. Raises ProviderError."""
        match method, path:
            case "POST", []:
                return 201, _sent(self.create(_read(body)))
            case "GET", []:
                return 200, _sent(self.list_jobs(_query(query)))
            case "GET", [*names] if names:
                return 200, _sent(self.get({"jobIdentifier": "/".join(names)}))
            case "POST", [*names, "stop"] if names:
                return 200, _sent(self.stop({"jobIdentifier": "/".join(names)}))
        raise ProviderError(404, {"message": "This operation does not exist here."})

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateModelCustomizationJob. The same `clientRequestToken` gives the same job."""
        _validate("CreateModelCustomizationJob", request)
        name, token = request["jobName"], request.get("clientRequestToken")
        with self._lock:
            known = self._jobs.get(name)
            if known is None:
                self._jobs[name] = known = Job(request, self._clock(), self._seconds, self._failure)
            elif token is None or known.request.get("clientRequestToken") != token:
                raise ProviderError(400, {"message": f"The job name {name} is in use already."})
            elif dict(known.request) != request:
                raise ProviderError(409, {"message": "The client token was used with other parameters."})
        return {"jobArn": self._arn(known)}

    def get(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetModelCustomizationJob, by name or ARN. Losses come with the status Completed."""
        job, now = self._find("GetModelCustomizationJob", request), self._clock()
        status, given = job.status(now), job.request
        kept = (
            "jobName",
            "roleArn",
            "clientRequestToken",
            "hyperParameters",
            "trainingDataConfig",
            "outputDataConfig",
        )
        found = {name: given[name] for name in kept if name in given} | {
            **self._summary(job),
            "outputModelName": given["customModelName"],
            "customizationType": given.get("customizationType", "FINE_TUNING"),
            "validationDataConfig": given.get("validationDataConfig", {"validators": []}),
            "statusDetails": _details(job, now),
        }
        if status == "Completed":
            found |= {"outputModelArn": self._model_arn(job), "trainingMetrics": {"trainingLoss": LOSS}}
        if status == "Failed":
            found["failureMessage"] = job.failure
        return found

    def stop(self, request: dict[str, Any]) -> dict[str, Any]:
        """StopModelCustomizationJob."""
        job, now = self._find("StopModelCustomizationJob", request), self._clock()
        if job.status(now) in ENDED:
            raise ProviderError(409, {"message": "The job has ended and cannot be stopped."})
        if job.stopped is None:
            job.stopped = now
        return {}

    def list_jobs(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListModelCustomizationJobs, by name and status, on one page."""
        _validate("ListModelCustomizationJobs", request)
        found = []
        for job in self._jobs.values():
            summary = self._summary(job)
            if request.get("nameContains", "") not in summary["jobName"]:
                continue
            if request.get("statusEquals", summary["status"]) != summary["status"]:
                continue
            model = {"customModelName": job.request["customModelName"]}
            completed = summary["status"] == "Completed"
            found.append(summary | model | ({"customModelArn": self._model_arn(job)} if completed else {}))
        return {"modelCustomizationJobSummaries": found[: request.get("maxResults", 1000)]}

    def _find(self, operation: str, request: dict[str, Any]) -> Job:
        _validate(operation, request)
        wanted = request["jobIdentifier"]
        for name, job in list(self._jobs.items()):
            if wanted in (name, self._arn(job)):
                return job
        raise ProviderError(404, {"message": f"Could not find the job {wanted}."})

    def _summary(self, job: Job) -> dict[str, Any]:
        now = self._clock()
        status, region = job.status(now), self._account.partition(":")[0]
        ended = {"endTime": _time(job.end())} if status in ENDED else {}
        return ended | {
            "jobName": job.request["jobName"],
            "jobArn": self._arn(job),
            "baseModelArn": f"arn:aws:bedrock:{region}::foundation-model/{_base(job)}",
            "status": status,
            "creationTime": _time(job.created),
            "lastModifiedTime": _time(min(now, job.end())),
        }

    def _arn(self, job: Job) -> str:
        own_id = _digest(job.request["jobName"])
        return f"arn:aws:bedrock:{self._account}:model-customization-job/{_base(job)}/{own_id}"

    def _model_arn(self, job: Job) -> str:
        name = _digest(job.request["customModelName"])
        return f"arn:aws:bedrock:{self._account}:custom-model/{_base(job)}/{name}"


def error(failure: ProviderError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    headers = {"content-type": "application/json", "x-amzn-ErrorType": EXCEPTIONS[failure.status]}
    return failure.status, headers, json.dumps({"message": str(failure)}).encode()


def _base(job: Job) -> str:
    return str(job.request["baseModelIdentifier"]).rpartition("/")[2]


def _digest(text: str) -> str:
    """Twelve characters, as ids of Amazon Bedrock have."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _details(job: Job, now: float) -> dict[str, Any]:
    """The states of the parts, each of which begins when the one before has ended."""
    begun, status, found = job.created, job.status(now), {}
    reached = now if job.stopped is None else min(now, job.stopped)
    for name, share in SHARES:
        end = job.created + share * job.seconds
        state = "NotStarted" if reached < begun else "Completed" if reached >= end else status
        failed = name == "trainingDetails" and status == "Failed"
        found[name] = {"status": "Failed" if failed else state}
        begun = end
    return found


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _sent(value: dict[str, Any]) -> dict[str, Any]:
    """Times as the protocol has them."""
    sent: dict[str, Any] = json.loads(json.dumps(value, default=lambda time: time.isoformat()))
    return sent


def _read(body: bytes) -> dict[str, Any]:
    try:
        request: dict[str, Any] = json.loads(body)
    except ValueError:
        raise invalid("The request body is not JSON.") from None
    return request


def _query(query: str) -> dict[str, Any]:
    return {name: int(value) if name == "maxResults" else value for name, value in parse_qsl(query)}


@functools.cache
def _model() -> ServiceModel:
    return botocore.session.get_session().get_service_model("bedrock")


def _validate(operation: str, request: Any) -> None:
    shape = _model().operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        raise invalid(report.generate_report())
    for name, member in shape.members.items():  # type: ignore[union-attr]  # botocore does not check patterns
        pattern, value = member.metadata.get("pattern"), request.get(name)
        if pattern and isinstance(value, str) and not re.fullmatch(pattern, value):
            raise invalid(f"1 validation error detected: the value at '{name}' must satisfy the pattern {pattern}")
