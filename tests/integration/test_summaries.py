"""Summaries: a document in parts, each of them a model call, in the deployed service."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

from reportlab.pdfgen.canvas import Canvas

from tests.simulated_cloud.calls import Call
from tests.support.service import Service

HOUR = 3600.0
PAGES = 40
FACT = "The pump of page 39 has the serial number 7741."


def manual() -> bytes:
    """A PDF of forty pages of prose."""
    file = io.BytesIO()
    canvas = Canvas(file, invariant=1)
    for page in range(1, PAGES + 1):
        lines = [f"Page {page}, line {line}: every screw is to be turned once a month." for line in range(40)]
        for row, line in enumerate([FACT if page == 39 else "A page without a pump.", *lines]):
            canvas.drawString(60, 800 - 18 * row, line)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def prompts(service: Service) -> list[str]:
    """What the model was asked, in order."""
    calls = [call for call in service.cloud.calls.log if call.action == "bedrock-runtime:ConverseStream"]
    return [call.params["messages"][-1]["content"][-1]["text"] for call in calls]


def summarize(service: Service, **given: Any) -> str:
    answer = service.call("POST", "/jobs", json={"kind": "summary", "input": given})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def test_forty_pages(service: Service) -> None:
    """Every page of an indexed document is read, progress counts parts, and each call is made once, although
    results of its tasks are lost and messages come again, and although calls wait for the model's limits.
    """
    service.submit(s3_key=service.upload(manual()), document_id="manual")
    service.cloud.settle(within=HOUR)
    lost = service.cloud.fail("stepfunctions", "SendTaskSuccess", "InternalServerError", every=2, times=12)
    seen: list[tuple[int, int]] = []

    def look(call: Call) -> None:
        progress = service.job(job_id)["progress"]
        seen.append((progress["done"], progress["total"]))

    service.cloud.on("bedrock-runtime", "ConverseStream", look, times=None)
    job_id = summarize(service, document_id="manual", max_words=60)
    with service.paused_reaper():
        service.cloud.settle(within=3 * HOUR)  # a message comes again after half an hour
    job, asked = service.job(job_id), prompts(service)
    assert job["status"] == "completed", job
    assert lost.hits == 12
    assert any(call.operation == "SendMessage" for call in service.cloud.calls.of("worker"))  # calls had to wait
    parts = [prompt for prompt in asked if "one part of a longer document" in prompt]
    assert set(Counter(asked).values()) == {1}
    assert len(parts) == job["result"]["parts"] > 20
    assert sum(FACT in prompt for prompt in parts) == 1
    assert all(any(f"Page {page}, line 39:" in prompt for prompt in parts) for page in range(1, PAGES + 1))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == ((0, len(parts)), (len(parts), len(parts)))
    assert job["result"]["calls"] == job["usage"]["calls"] == len(asked)
    assert job["result"]["cost_usd"] == job["usage"]["cost_usd"]
    (planned,) = [event for event in service.events(job_id) if event["event"] == "summary.planned"]
    assert job["result"]["calls"] <= planned["calls"]
    assert job["result"]["cost_usd"] < planned["estimated_cost_usd"]
    assert service.steps(job_id) == ["requested", "started", "planned", "summarized", "completed"]
    assert service.keys(f"work/{job_id}/") == []


def test_no_text_in_messages(service: Service) -> None:
    """No queue, topic, execution or log line has a word of the document, and only the result has the summary's."""
    job_id = summarize(service, text="a xylophone " * 2000)
    service.cloud.settle(within=HOUR)
    assert "xylophone" in "".join(prompts(service))
    carried = [call.params for call in service.cloud.calls.log if call.service in ("sqs", "stepfunctions")]
    carried.append(service.cloud.execution(job_id).events)
    assert "xylophone" not in json.dumps(carried, default=str)


def test_no_model_answers(service: Service) -> None:
    """Where no model answers, the job fails with a code that says so, or has a sample if that is allowed."""
    service.cloud.fail("bedrock-runtime", "ConverseStream", "ServiceUnavailableException", times=None)
    plain, with_sample = (summarize(service, text="Some text.", allow_sample=allowed) for allowed in (False, True))
    with service.paused_reaper():
        service.cloud.settle(within=5 * HOUR)
    failed, sampled = service.job(plain), service.job(with_sample)
    assert failed["status"] == "failed"
    assert (failed["error"]["code"], failed["error"]["stage"]) == ("model_unavailable", "summarize")
    assert (sampled["status"], sampled["result"]["sample"], sampled["result"]["model"]) == (
        "completed",
        True,
        "sample",
    )
