"""Completions: model calls as jobs, in the deployed service."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from tests.simulated_cloud.calls import Call, Killed
from tests.support import bedrock
from tests.support.service import Service

Knob = Callable[..., None]
HOUR = 3600.0
STREAM = "bedrock-runtime:ConverseStream"
DONE = ["requested", "completed"]
MODEL = "bedrock/amazon.nova-lite-v1:0"


def ask(service: Service, prompt: str = "Say something nice.", *, key: str | None = None, **given: Any) -> str:
    answer = service.call(
        "POST",
        "/jobs",
        json={"kind": "completion", "input": {"prompt": prompt, **given}},
        headers={"Idempotency-Key": key} if key else {},
    )
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def calls(service: Service) -> list[Call]:
    return [call for call in service.cloud.calls.log if call.action in (STREAM, "bedrock-runtime:Converse")]


def test_completion(service: Service) -> None:
    """A prompt becomes a text with its usage, cost and reason of the end."""
    job_id = ask(service, max_tokens=50, stop=["END"], temperature=0.2)
    service.cloud.settle(within=60)
    job = service.job(job_id)
    assert job["result"]["text"] == "You said: Say something nice."
    assert (job["result"]["stop_reason"], job["result"]["model"]) == ("end", MODEL)
    assert job["result"]["cost_usd"] > 0
    assert job["usage"]["calls"] == 1
    (call,) = calls(service)
    assert call.params["inferenceConfig"] == {"maxTokens": 50, "stopSequences": ["END"], "temperature": 0.2}


def test_worked_example(service: Service) -> None:
    """Three submissions with two keys are two jobs. One times out upstream, waits, and succeeds in its second
    attempt; a second delivery of its message runs nothing.
    """
    rule = service.cloud.fail(
        "bedrock-runtime",
        "ConverseStream",
        lambda call: ReadTimeoutError(endpoint_url="https://bedrock"),
        when=lambda call: "slow" in json.dumps(call.params["messages"]),
    )
    first, again = ask(service, "Be quick.", key="a"), ask(service, "Be quick.", key="a")
    slow = ask(service, "Be slow.", key="b")
    assert first == again != slow
    service.cloud.settle(within=HOUR)
    assert rule.hits == 1
    assert service.steps(slow) == ["requested", "started", "retried", "started", "completed"]
    log = service.events(slow)
    assert [event["status"] for event in log] == ["queued", "running", "queued", "running", "completed"]
    assert [event["attempts"] for event in log if event["event"].endswith("started")] == [1, 2]
    assert service.steps(first) == ["requested", "started", "completed"]
    paid = len(calls(service))
    service.cloud.client("sqs").send_message(
        QueueUrl=service.cloud.queue("Embedding/Queue").url,
        MessageBody=json.dumps({"job_id": slow}),
        MessageGroupId="ana",
    )
    service.cloud.settle(within=HOUR)
    assert len(calls(service)) == paid == 3
    assert service.job(slow)["usage"]["cost_estimated"] is True  # the call that timed out may be billed


def test_throttle(service: Service) -> None:
    """A throttled call spends no attempt; the job says what it waits for."""
    service.cloud.fail("bedrock-runtime", "ConverseStream", "ThrottlingException", times=5)
    job_id = ask(service)
    service.cloud.settle()
    assert service.job(job_id)["waiting_for"] == "provider_throttled"
    service.cloud.settle(within=HOUR)
    job = service.job(job_id)
    assert (job["status"], job["attempts"]) == ("completed", 1)
    assert Counter(service.steps(job_id))["retried"] == 5


@pytest.mark.parametrize(
    ("code", "expected"),
    [("ValidationException", "model_rejected"), ("AccessDeniedException", "model_rejected")],
)
def test_refusals(service: Service, code: str, expected: str) -> None:
    """What the provider refuses fails at once."""
    service.cloud.fail("bedrock-runtime", "ConverseStream", code)
    job_id = ask(service)
    service.cloud.settle(within=HOUR)
    assert service.job(job_id)["error"]["code"] == expected
    assert len(calls(service)) == 1


def test_no_model(service: Service) -> None:
    """Where no model answers the job fails with its own code; a sample stands in only if it was asked for."""
    service.cloud.fail("bedrock-runtime", "ConverseStream", "ServiceUnavailableException", times=None)
    plain, sampled = ask(service), ask(service, allow_sample=True)
    service.cloud.settle(within=HOUR)
    assert service.job(plain)["error"]["code"] == "model_unavailable"
    result = service.job(sampled)["result"]
    assert (result["sample"], result["model"]) == (True, "sample")
    assert "sample" in result["text"]


def test_cancel_between_tokens(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canceling ends the call between tokens; what came is kept, with the most that it may cost."""
    job_ids: list[str] = []

    def stream(params: dict[str, Any]) -> dict[str, Any]:
        def cancel() -> None:
            threading.Event().wait(0.2)  # real time: the function reads what has come
            service.cancel(job_ids[0])
            service.cloud.clock.advance(2)

        events = bedrock.stream_events(params)
        return {"stream": bedrock.Stream([*events[:3], cancel, *events[3:]])}

    monkeypatch.setitem(service.cloud.calls.answers, STREAM, stream)
    job_ids.append(ask(service, max_tokens=77))
    service.cloud.settle(within=60)
    job = service.job(job_ids[0])
    assert (job["status"], job["result"]) == ("canceled", None)
    assert job["usage"]["partial_text"] == "You said: "
    assert (job["usage"]["output_tokens"], job["usage"]["cost_estimated"]) == (77, True)


def test_killed_at_each_call(service: Service) -> None:
    """Wherever the worker is killed, the job completes once, and an answer that was recorded is not paid again."""
    ask(service)
    service.cloud.settle(within=60)
    made = max(Counter(call.request_id for call in service.cloud.calls.of("worker")).values())
    for number in range(1, made + 1):
        before = len(calls(service))
        rule = service.cloud.fail(
            "*", "*", Killed, function="worker", when=lambda call, number=number: call.index == number, after=True
        )
        job_id = ask(service, f"Number {number}.")
        with service.paused_reaper():
            service.cloud.settle(within=HOUR)
        assert rule.hits == 1
        assert [step for step in service.steps(job_id) if step not in ("started", "retried")] == DONE
        paid = calls(service)[before:]
        recording = {call.request_id for call in service.cloud.calls.of("worker") if call.action == "s3:PutObject"}
        lost = [call for call in paid if call.request_id not in recording]
        assert len(paid) == 1 + len(lost), number
        assert len(lost) <= 1


def test_rate_limit(service: Service, knob: Knob) -> None:
    """Jobs of all owners together start no more calls in any second than the model's limit allows."""
    for function in ("Worker", "Api"):
        knob(function, MODELS=json.dumps({MODEL: {"requests": "2/s"}}))
    started: list[float] = []
    service.cloud.on(
        "bedrock-runtime", "ConverseStream", lambda call: started.append(service.cloud.clock.time), times=None
    )
    jobs = [ask(service) for _ in range(12)]
    service.cloud.settle(within=HOUR)
    assert {service.job(job_id)["status"] for job_id in jobs} == {"completed"}
    # a call follows its slot within milliseconds, and not always as many
    assert min(later - earlier for earlier, later in zip(started, started[2:], strict=False)) > 0.95
    assert started[-1] - started[0] < 2 * 12 / 2
