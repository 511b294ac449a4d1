"""Keys that S3 would refuse are refused before S3 sees them."""

from __future__ import annotations

import pytest

from tests.support.problems import assert_problem
from tests.support.service import Service

PREFIX = "uploads/ana/"


@pytest.mark.parametrize(
    "key", [PREFIX + "é" * 507, PREFIX + "👩" * 254, PREFIX + "a" * 1013, PREFIX + "é" * 1000, PREFIX + "a" * 5000]
)
def test_too_long_in_bytes(service: Service, key: str) -> None:
    """A key of over 1,024 bytes is no upload, however few characters it has."""
    assert len(key.encode()) > 1024
    service.cloud.calls.log.clear()
    body = {"kind": "document", "input": {"s3_key": key}}
    answer = service.call("POST", "/jobs", json=body)
    assert assert_problem(answer, 422, "invalid_request")["field"] == "input.s3_key"
    assert not [call for call in service.cloud.calls.log if call.service == "s3"]


@pytest.mark.parametrize("key", [PREFIX + rest for rest in ("é" * 506, "a" * 1012, "", "../../inputs/ben/job_1")])
def test_as_long_as_s3_allows(service: Service, key: str) -> None:
    """Any other key under the owner's prefix is a file that is not uploaded yet."""
    found = assert_problem(
        service.call("POST", "/jobs", json={"kind": "document", "input": {"s3_key": key}}), 422, "invalid_request"
    )
    assert "not uploaded" in found["detail"]
