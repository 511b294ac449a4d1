"""The body of POST /jobs (rest.api.requests)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from core.jobs import Kind
from kinds.document.kind import DOCUMENT, DocumentInput
from rest.api.requests import any_job, request_model
from tests.unit.examples import EchoInput, echo_kind

ECHO, FINE_TUNE = echo_kind(), echo_kind(name="fine_tune")


def by_name(*kinds: Kind) -> dict[str, Kind]:
    return {kind.name: kind for kind in kinds}


@pytest.mark.parametrize(
    ("kind", "name"), [(ECHO, "EchoJob"), (FINE_TUNE, "FineTuneJob"), (DOCUMENT, "DocumentJob")]
)
def test_model_of_kind(kind: Kind, name: str) -> None:
    """A kind's model has its name, the description of its input, and its events."""
    model = request_model(kind)
    assert (model.__name__, model.__doc__, model.event_names) == (name, kind.input.__doc__, kind.event_names)
    request = model(kind=kind.name, input=dict(kind.example))
    assert (request.kind, request.input) == (kind.name, kind.input(**kind.example))
    assert (request.webhook_url, request.webhook_events, request.metadata) == (None, None, {})


def test_one_kind() -> None:
    """With one kind the body is its model, without a discriminator."""
    model, names = any_job(by_name(ECHO))
    assert (model.__name__, names) == ("EchoJob", ())


def test_several_kinds() -> None:
    """With several kinds, `kind` is the discriminator; its values are the submittable kinds."""
    union, names = any_job(by_name(DOCUMENT, ECHO, FINE_TUNE))
    assert names == ("document", "echo", "fine_tune")
    body: TypeAdapter[Any] = TypeAdapter(union)
    for kind, model in ((ECHO, EchoInput), (FINE_TUNE, EchoInput), (DOCUMENT, DocumentInput)):
        request = body.validate_python({"kind": kind.name, "input": {"text": "x"}})
        assert (request.kind, type(request.input)) == (kind.name, model)
