"""Bulk embeddings: ten thousand lines and a model that throttles and fails, in the deployed service."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulated_cloud.calls import Call
from tests.support.parquet import read
from tests.support.service import Service

HOUR = 3600.0
LINES = 10_000
DIMENSIONS = 8


def line(number: int) -> bytes:
    """Every tenth line has the text of the one before, and some cannot be embedded."""
    if number % 997 == 0:
        return random.Random(number).choice([b"", b"{", b'{"id": "no text"}', b'"\\ud800"', b'"caf\xe9"'])
    text = f"line {number - 1 if number % 10 == 0 else number}"
    return json.dumps({"id": f"id {number}", "text": text} if number % 3 == 0 else text).encode()


def submit(service: Service, data: bytes, **given: Any) -> str:
    source = {"s3_key": service.upload(data, content_type="application/x-ndjson")}
    answer = service.call("POST", "/jobs", json={"kind": "embedding", "input": {**source, **given}})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def file(service: Service, job: dict[str, Any], label: str) -> bytes:
    """What the link to a result file returns, without a key."""
    answer = service.cloud.fetch("GET", job["files"][label])
    assert answer.status_code == 200, answer.text
    return bytes(answer.content)


def rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(row) for row in data.splitlines()]


def test_ten_thousand_lines(service: Service, knob: Callable[..., None]) -> None:
    """Every line is in both results or in the errors, once and in order, and no text is paid for twice, although
    the model throttles and fails, refuses some texts, and answers of tasks are lost.
    """
    for function in ("Worker", "ExportEmbedding"):
        knob(function, EMBEDDING_DIMENSIONS=DIMENSIONS)
    chance, paid = random.Random(7), Counter[str]()

    def text(call: Call) -> str:
        return str(json.loads(call.params["body"])["inputText"])

    def sometimes(share: float) -> Callable[[Call], bool]:
        return lambda call: chance.random() < share

    def refused(call: Call) -> bool:
        return text(call).endswith("77")

    def fails(call: Call) -> bool:
        return text(call).endswith("555")

    fail = service.cloud.fail
    fail("bedrock-runtime", "InvokeModel", "ValidationException", when=refused, times=None)
    fail("bedrock-runtime", "InvokeModel", "InternalServerException", when=fails, times=None)
    fail("bedrock-runtime", "InvokeModel", "ThrottlingException", when=sometimes(0.05), times=None)
    fail("bedrock-runtime", "InvokeModel", "ServiceUnavailableException", when=sometimes(0.01), times=None)
    lost = fail("stepfunctions", "SendTaskSuccess", "InternalServerError", every=7, times=10)
    service.cloud.on(
        "bedrock-runtime", "InvokeModel", lambda call: paid.update([text(call)]), times=None, after=True
    )
    job_id = submit(service, b"\n".join(map(line, range(1, LINES + 1))))
    with service.paused_reaper():
        service.cloud.settle(within=6 * HOUR)
    job = service.job(job_id)
    assert job["status"] == "completed", job
    assert lost.hits > 0
    vectors, errors = rows(file(service, job, "jsonl")), rows(file(service, job, "errors"))
    parquet = read(file(service, job, "parquet"))
    assert [row["line"] for row in vectors] == [number for number, _, _ in parquet]
    assert sorted([row["line"] for row in [*vectors, *errors]]) == list(range(1, LINES + 1))
    assert [row["line"] for row in vectors] == sorted(row["line"] for row in vectors)
    codes = Counter(error["code"] for error in errors)
    assert set(codes) <= {"empty", "invalid_line", "model_rejected", "model_failed"}
    assert codes["model_rejected"] > 90
    assert codes["model_failed"] >= 10
    result = job["result"]
    assert (result["lines"], result["embedded"], result["errors"]) == (LINES, len(vectors), len(errors))
    assert result["duplicates"] > 900
    assert result["input_tokens"] == job["usage"]["input_tokens"]
    assert result["cost_usd"] == job["usage"]["cost_usd"] > 0
    assert set(paid.values()) == {1}
    assert len(paid) == job["usage"]["calls"]
    assert service.steps(job_id) == ["requested", "started", "planned", "embedded", "completed"]
    assert service.keys(f"work/{job_id}/") == []
