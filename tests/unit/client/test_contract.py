"""The client and the service, which import nothing of each other, mean the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from core import models as core
from core.jobs import Kind, job
from core.jobs.kind import ENVELOPE
from core.webhooks import models as hooks
from kinds import KINDS
from kinds.document import models as documents
from recado import _api, models
from recado.models import JobEvent, Record
from rest.api import openapi
from tests.unit.client.test_client import CALLS

PAIRS: list[tuple[type[Record], type[BaseModel]]] = [
    (models.JobStatus, core.JobStatus),
    (models.JobSummary, core.JobSummary),
    (models.Job, core.JobAccepted),
    (models.Progress, core.Progress),
    (models.Failure, core.Failure),
    (models.LiveTicket, core.LiveTicket),
    (models.Upload, core.Upload),
    (models.MultipartUpload, core.MultipartUpload),
    (models.UploadPart, core.UploadPart),
    (models.Document, documents.DocumentView),
    (models.Hit, documents.SearchHit),
    (models.Webhook, hooks.WebhookWithSecret),
    (models.Circuit, hooks.Circuit),
    (models.Attempt, hooks.AttemptSummary),
    (models.Pending, hooks.PingPending),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda model: model.__name__)
def test_fields_are_those_of_the_service(ours: type[Record], theirs: type[BaseModel]) -> None:
    """What the client must find is always sent, and it knows no field that is never sent."""
    always = {name for name, field in theirs.model_fields.items() if field.is_required()}
    assert models._required(ours) <= always
    assert set(models._kinds(ours)) - {"expected_completion"} <= set(theirs.model_fields)


def test_a_delivery_is_a_summary_or_whole() -> None:
    """A delivery in a list and a single one are read by the same class."""
    listed, whole = set(hooks.DeliverySummary.model_fields), set(hooks.DeliveryView.model_fields)
    assert models._required(models.Delivery) <= listed & whole
    assert set(models._kinds(models.Delivery)) <= listed | whole


@pytest.mark.usefixtures("environment", "secrets_key")
def test_every_call_is_a_route() -> None:
    """Every request that the client makes is one that the service describes."""
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
    """What the client sends is valid for the service."""
    accepting: dict[str, type[BaseModel]] = {
        "POST /v1/search": documents.SearchRequest,
        "POST /v1/webhooks": hooks.WebhookRequest,
        "PATCH /v1/webhooks/wh_1": hooks.WebhookPatch,
        "POST /v1/webhooks/wh_1/rotate-secret": hooks.RotationRequest,
        "POST /v1/webhooks/wh_1/recover": hooks.RecoverRequest,
        "POST /v1/webhooks/wh_1/replay": hooks.ReplayRequest,
    }
    bodies: list[tuple[str, Any]] = [(line, body) for _, _, line, body in CALLS if line in accepting]
    assert {line for line, _ in bodies} == set(accepting)
    for line, body in bodies:
        accepting[line].model_validate(body)
    upload = {"filename": "a.md", "content_type": "text/plain; charset=utf-8", "size": 4}
    for said in ({}, {"parts": True}):
        core.UploadRequest.model_validate(upload | said)
    core.CompleteRequest.model_validate({"parts": [{"number": 1, "etag": '"e"'}]})


def test_submissions_are_accepted() -> None:
    """What the client submits is valid for the service, of each kind that the service has."""
    submitted = [body for _, _, line, body in CALLS if line == "POST /v1/jobs"]
    assert _api.DEFAULT_KIND in {body["kind"] for body in submitted}
    for body in submitted:
        core.JobRequest.model_validate(body)
        if body["kind"] in KINDS:
            KINDS[body["kind"]].input.model_validate(body["input"])


def test_the_default_kind_is_one() -> None:
    """The kind that is meant where none is named can be submitted, and takes what has a shorthand."""
    kind = KINDS[_api.DEFAULT_KIND]
    assert kind.submittable
    assert {"text", "s3_key", "document_id"} <= set(kind.input.model_fields)


def test_both_know_what_is_final() -> None:
    """A job ends with the same statuses for both."""
    assert models.FINAL == job.FINAL


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_what_a_job_is_about_is_found(kind: Kind) -> None:
    """Of every kind, the client finds the field that says what a job is about, and takes no other for it."""
    fields = [name for name, field in core.JobView.model_fields.items() if field.annotation in (str, str | None)]
    shown = dict.fromkeys(["job_id", "status", "stage", "kind", *fields], "x") | {"kind": kind.name}
    expected = None
    if kind.subject:
        shown, expected = shown | {kind.subject: "what"}, (kind.subject, "what")
    assert models.Job.of(shown).subject == expected


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_events_have_what_is_read(kind: Kind) -> None:
    """Each field that the client reads of an event is in all of them, and no kind has one of the same name."""
    assert set(models._kinds(JobEvent)) == set(ENVELOPE)
    for model in kind.events.values():
        assert not set(model.model_fields) & set(ENVELOPE)
