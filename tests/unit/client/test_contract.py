"""The client and the service, which import nothing of each other, mean the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from api import openapi
from core import models as core
from core.webhooks import models as hooks
from recado import _feed, _following, _screen, models
from recado.models import Record
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
    (models.Document, core.DocumentView),
    (models.Hit, core.SearchHit),
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
        "POST /v1/search": core.SearchRequest,
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
    core.JobRequest.model_validate(next(body for _, _, line, body in CALLS if line == "POST /v1/jobs"))


def test_what_goes_on_goes_on() -> None:
    """It is known of each event whether a job goes on after it; the stages know every step."""
    from core import events

    final = {name.partition(".")[2] for kind in events.KINDS for name in events.final_names(kind)}
    assert not final & _following.NOT_FINAL
    assert not final & set(_screen.NEXT_STAGE)
    steps = {verb for kind in events.KINDS for verb in events.STEPS[kind]} - final
    assert steps <= _following.NOT_FINAL
    assert final <= _feed.FINAL
    assert not _feed.FINAL & _following.NOT_FINAL
