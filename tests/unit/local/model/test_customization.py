"""Model customization jobs of the model's server, called by boto3 (local.model.customization)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError

from local.model.customization import STOP_SECONDS, Customizations
from local.model.service import Service
from tests.unit.local.model.conftest import Raw

REQUEST = {
    "jobName": "recado-1",
    "customModelName": "support-1",
    "roleArn": "arn:aws:iam::123456789012:role/x",
    "clientRequestToken": "recado-1",
    "baseModelIdentifier": "amazon.nova-micro-v1:0:128k",
    "customizationType": "FINE_TUNING",
    "hyperParameters": {"epochCount": "2"},
    "trainingDataConfig": {"s3Uri": "s3://data/a.jsonl"},
    "outputDataConfig": {"s3Uri": "s3://data/out/"},
}


class Clock:
    now = 1_796_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(service: Service) -> Clock:
    clock = Clock()
    service.customizations = Customizations(clock)
    return clock


@pytest.fixture
def client(service: Service, clock: Clock) -> Iterator[Any]:
    """boto3's client, whose requests go to the service without a socket."""
    client = boto3.client("bedrock", config=Config(retries={"total_max_attempts": 1}))

    def send(request: Any, **_: object) -> AWSResponse:
        address = urlsplit(request.url)
        path = f"{address.path}?{address.query}" if address.query else address.path
        response = service.handle(request.method, path, {}, request.body or b"")
        return AWSResponse(request.url, response.status, response.headers, Raw(response.body))

    client.meta.events.register("before-send.bedrock", send)
    yield client
    client.close()


def get(client: Any, name: str = "recado-1") -> dict[str, Any]:
    found: dict[str, Any] = client.get_model_customization_job(jobIdentifier=name)
    return found


def code(call: Any, **request: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**request)
    return str(caught.value.response["Error"]["Code"])


def test_states(client: Any, clock: Clock) -> None:
    """A job and its parts go from in progress to completed, and the loss comes at the end only."""
    client.create_model_customization_job(**REQUEST)
    seen = []
    for seconds in (0, 10, 30, 20):
        clock.now += seconds
        found = get(client)
        parts = [found["statusDetails"][name]["status"] for name in sorted(found["statusDetails"])]
        seen.append((found["status"], "trainingMetrics" in found, "outputModelArn" in found, parts))
    assert seen == [
        ("InProgress", False, False, ["NotStarted", "NotStarted", "InProgress"]),
        ("InProgress", False, False, ["InProgress", "NotStarted", "Completed"]),
        ("InProgress", False, False, ["Completed", "InProgress", "Completed"]),
        ("Completed", True, True, ["Completed", "Completed", "Completed"]),
    ]
    assert found["endTime"].timestamp() == 1_796_000_060


def test_responses_have_the_form_of_the_service(client: Any, clock: Clock) -> None:
    """Every text of a response matches its pattern in botocore's model, and no required field is missing."""
    client.create_model_customization_job(**REQUEST)
    clock.now += 60
    found = get(client)
    shape = client.meta.service_model.operation_model("GetModelCustomizationJob").output_shape
    assert set(shape.required_members) <= set(found)
    for name, member in shape.members.items():
        if name in found and member.metadata.get("pattern"):
            assert re.fullmatch(member.metadata["pattern"], found[name]), name
    assert get(client, found["jobArn"])["jobName"] == "recado-1"


def test_idempotency(client: Any) -> None:
    """The same token gives the same job; other parameters, or the name without the token, are refused."""
    create = client.create_model_customization_job
    assert create(**REQUEST)["jobArn"] == create(**REQUEST)["jobArn"]
    assert len(client.list_model_customization_jobs()["modelCustomizationJobSummaries"]) == 1
    assert code(create, **REQUEST | {"customModelName": "other"}) == "ConflictException"
    assert code(create, **REQUEST | {"clientRequestToken": "other"}) == "ValidationException"


def test_stop(client: Any, clock: Clock) -> None:
    """A job is stopping for some seconds, and gives no model. One that has ended cannot be stopped."""
    client.create_model_customization_job(**REQUEST)
    client.stop_model_customization_job(jobIdentifier="recado-1")
    client.stop_model_customization_job(jobIdentifier="recado-1")
    assert get(client)["status"] == "Stopping"
    clock.now += STOP_SECONDS
    found = get(client)
    assert (found["status"], "outputModelArn" in found) == ("Stopped", False)
    assert code(client.stop_model_customization_job, jobIdentifier="recado-1") == "ConflictException"


def test_failure(client: Any, clock: Clock, service: Service) -> None:
    """`PUT /customization` sets how long the next jobs take, and makes them fail."""
    switches = json.dumps({"seconds": 5, "failure": "No such file."}).encode()
    assert service.handle("PUT", "/customization", {}, switches).status == 200
    client.create_model_customization_job(**REQUEST)
    clock.now += 5
    found = get(client)
    assert (found["status"], found["failureMessage"]) == ("Failed", "No such file.")
    assert found["statusDetails"]["trainingDetails"]["status"] == "Failed"
    for wrong in (b"[]", b'{"seconds": "x"}', b'{"other": 1}'):
        assert service.handle("PUT", "/customization", {}, wrong).status == 400


def test_list(client: Any, clock: Clock) -> None:
    """Jobs are listed by name and status."""
    client.create_model_customization_job(**REQUEST)
    clock.now += 60
    client.create_model_customization_job(**REQUEST | {"jobName": "other", "clientRequestToken": "other"})

    def names(**query: Any) -> list[str]:
        found = client.list_model_customization_jobs(**query)["modelCustomizationJobSummaries"]
        return [summary["jobName"] for summary in found]

    assert names() == ["recado-1", "other"]
    assert names(nameContains="recado") == names(statusEquals="Completed") == names(maxResults=1) == ["recado-1"]


@pytest.mark.parametrize(
    "change", [{"jobName": "a_b"}, {"roleArn": "x"}, {"customModelName": "-"}, {"baseModelIdentifier": "a b"}]
)
def test_invalid_requests(client: Any, change: dict[str, str]) -> None:
    """What the service's model does not allow is refused."""
    assert code(client.create_model_customization_job, **REQUEST | change) == "ValidationException"


def test_unknown_jobs(client: Any, service: Service) -> None:
    """An unknown job is not found, nor is another operation; a body that is no JSON is refused."""
    assert code(client.get_model_customization_job, jobIdentifier="none") == "ResourceNotFoundException"
    assert code(client.stop_model_customization_job, jobIdentifier="none") == "ResourceNotFoundException"
    assert service.handle("DELETE", "/model-customization-jobs/none", {}, b"").status == 404
    assert service.handle("POST", "/model-customization-jobs", {}, b"{").status == 400
