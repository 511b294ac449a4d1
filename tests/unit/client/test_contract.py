"""The client agrees with the service, although neither imports the other."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from pydantic import BaseModel

from core.jobs import Kind, job, steps
from core.jobs import models as jobs
from core.jobs.kind import ENVELOPE
from core.webhooks import models as hooks
from kinds.agent import models as agents
from kinds.agent.passages import Passage
from kinds.document import models as documents
from kinds.document.index.vectors import Hit
from kinds.registry import KINDS
from recado import _api, _messages, models
from recado.models import JobEvent, Record
from rest.api import openapi
from rest.api import upload_models as uploads
from rest.api.live import LiveTicket, TicketRequest
from tests.unit.client.cli import test_language_models, test_questions
from tests.unit.client.test_api import CALLS

PAIRS: list[tuple[type[Record], type[BaseModel]]] = [
    (models.JobStatus, jobs.JobStatus),
    (models.JobSummary, jobs.JobSummary),
    (models.Job, jobs.JobAccepted),
    (models.Progress, jobs.Progress),
    (models.ModelUsage, jobs.ModelUsage),
    (models.Failure, jobs.Failure),
    (models.LiveTicket, LiveTicket),
    (models.Upload, uploads.Upload),
    (models.MultipartUpload, uploads.MultipartUpload),
    (models.UploadPart, uploads.UploadPart),
    (models.Document, documents.DocumentView),
    (models.Hit, documents.SearchHit),
    (models.Webhook, hooks.WebhookWithSecret),
    (models.Circuit, hooks.Circuit),
    (models.Attempt, hooks.AttemptSummary),
    (models.Pending, hooks.PingPending),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda model: model.__name__)
def test_fields_match_the_service(ours: type[Record], theirs: type[BaseModel]) -> None:
    """The service always sends the fields that the client requires, and has all fields that the client knows."""
    always = {name for name, field in theirs.model_fields.items() if field.is_required()}
    assert models._required_fields(ours) <= always
    assert set(models._field_types(ours)) - {"expected_completion"} <= set(theirs.model_fields)


def test_deliveries_match_the_service() -> None:
    """One class reads deliveries of a list and single ones."""
    listed, whole = set(hooks.DeliverySummary.model_fields), set(hooks.DeliveryView.model_fields)
    assert models._required_fields(models.Delivery) <= listed & whole
    assert set(models._field_types(models.Delivery)) <= listed | whole


@pytest.mark.usefixtures("environment", "secrets_key")
def test_every_call_is_a_route() -> None:
    """Every request of the client is in the OpenAPI document."""
    routes = {
        (method.upper(), re.compile(re.sub(r"\{\w+\}|<\w+>", "[^/]+", path)))
        for path, operations in openapi.document()["paths"].items()
        for method in operations
    }
    for _, _, line, _ in CALLS:
        method, path = line.partition("?")[0].split()
        found = [route for verb, route in routes if verb == method and route.fullmatch(path.removeprefix("/v1"))]
        assert found, line


def test_bodies_are_accepted() -> None:
    """The service accepts the bodies that the client sends."""
    accepting: dict[str, type[BaseModel]] = {
        "POST /v1/live/tickets": TicketRequest,
        "POST /v1/search": documents.SearchRequest,
        "POST /v1/webhooks": hooks.WebhookRequest,
        "PATCH /v1/webhooks/wh_1": hooks.WebhookPatch,
        "POST /v1/webhooks/wh_1/rotate-secret": hooks.RotationRequest,
        "POST /v1/webhooks/wh_1/recover": hooks.RecoverRequest,
        "POST /v1/webhooks/wh_1/replay": hooks.ReplayRequest,
    }
    bodies: list[tuple[str, Any]] = [(line, body) for _, _, line, body in CALLS if line in accepting and body]
    assert {line for line, _ in bodies} == set(accepting)
    for line, body in bodies:
        accepting[line].model_validate(body)
    upload = {"filename": "a.md", "content_type": "text/plain; charset=utf-8", "size": 4}
    for options in ({}, {"parts": True}, {"kind": "dataset"}):
        uploads.UploadRequest.model_validate(upload | options)
    uploads.CompleteRequest.model_validate({"parts": [{"number": 1, "etag": '"e"'}]})


def test_submissions_are_accepted() -> None:
    """The service accepts the submissions of the client and the command, with the inputs of its kinds."""
    submitted: list[Any] = [body for _, _, line, body in CALLS if line == "POST /v1/jobs"]
    for commands in (test_language_models, test_questions):
        submitted += [body for _, body in commands.SUBMISSIONS]
    assert _api.DEFAULT_KIND in {body["kind"] for body in submitted}
    for body in submitted:
        jobs.JobRequest.model_validate(body)
        if body["kind"] in KINDS:
            KINDS[body["kind"]].input.model_validate(body["input"])


def test_answers_and_steps_are_those_of_agents() -> None:
    """The stub's answers, citations and passages, which the command shows, are those of the service."""
    agents.AgentAnswer.model_validate(test_questions.RESULT)
    fields = set(models._field_types(models.Passage))
    assert fields == {field.name for field in dataclasses.fields(Hit)}
    assert fields - {"score"} == {field.name for field in dataclasses.fields(Passage)}


def test_step_types_match_the_service() -> None:
    """The client knows the types of text and of the end."""
    assert (_messages.TOKEN, _messages.DONE) == (steps.TOKEN, steps.DONE)


def test_the_default_kind_exists() -> None:
    """It can be submitted, and its input has the fields that are parameters of `submit`."""
    kind = KINDS[_api.DEFAULT_KIND]
    assert kind.submittable
    assert {"text", "s3_key", "document_id"} <= set(kind.input.model_fields)


def test_final_statuses_match_the_service() -> None:
    """Jobs end with the same statuses."""
    assert models.FINAL == job.FINAL


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_subject_of_every_kind_is_found(kind: Kind) -> None:
    """The client finds the subject of each kind, and no other field in its place."""
    fields = [name for name, field in jobs.JobView.model_fields.items() if field.annotation in (str, str | None)]
    shown = dict.fromkeys(["job_id", "status", "stage", "kind", *fields], "x") | {"kind": kind.name}
    expected = None
    if kind.subject:
        shown, expected = shown | {kind.subject: "what"}, (kind.subject, "what")
    assert models.Job.of(shown).subject == expected


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_event_fields_match_the_service(kind: Kind) -> None:
    """All events have the fields that the client reads, and no kind has its own field with one of these names."""
    assert set(models._field_types(JobEvent)) == set(ENVELOPE)
    for model in kind.events.values():
        assert not set(model.model_fields) & set(ENVELOPE)
