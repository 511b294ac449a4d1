"""POST /jobs and OpenAPI with several kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from core import events
from core.dependencies import Dependencies
from core.jobs import Kind
from kinds.registry import KINDS
from rest.api.openapi import document
from tests.unit.examples import EchoRequested, echo_kind
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
ECHO = {"kind": "echo", "input": {"text": "hello"}}
MAX_INPUT_BYTES = 32 * 1024


class Song(BaseModel):
    """Verses to sing."""

    model_config = ConfigDict(extra="forbid")

    verses: list[str] = Field(min_length=1)
    echo: int = 0
    pitch: float = 440

    @model_validator(mode="after")
    def _not_too_long(self) -> Song:
        if len(self.verses) > 3:
            raise ValueError("give three verses at most")
        return self


SONG = echo_kind(
    name="song",
    input=Song,
    example={"verses": ["la"]},
    prepare=lambda song, inputs: {"pitch": song.pitch},
    deadline=timedelta(minutes=5),
)


@pytest.fixture
def registry(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Kind]]:
    """Two kinds of this project and two more."""
    for kind in (echo_kind(), SONG):
        monkeypatch.setitem(KINDS, kind.name, kind)
    document.cache_clear()
    yield KINDS
    document.cache_clear()


@pytest.fixture
def songs(registry: dict[str, Kind], api: Api) -> Api:
    """The API with this registry."""
    return api


# ── POST /jobs ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "kind"),
        ({"input": {"text": "x"}}, "kind"),
        ({"kind": "nothing", "input": {"text": "x"}}, "kind"),
        ({"kind": "Echo", "input": {"text": "x"}}, "kind"),
        ({"kind": "", "input": {"text": "x"}}, "kind"),
        ({"kind": "replay", "input": {"text": "x"}}, "kind"),
        ({"kind": None, "input": {"text": "x"}}, "kind"),
        ({"kind": 1, "input": {"text": "x"}}, "kind"),
        ({"kind": True, "input": {"text": "x"}}, "kind"),
        ({"kind": ["echo"], "input": {"text": "x"}}, "kind"),
        ({"kind": {"echo": 1}, "input": {"text": "x"}}, "kind"),
        ({"kind": "\ud800", "input": {"text": "x"}}, "kind"),
        ({"kind": "echo"}, "input"),
        ({"kind": "echo", "input": None}, "input"),
        ({"kind": "echo", "input": []}, "input"),
        ({"kind": "echo", "input": {}}, "input.text"),
        ({"kind": "echo", "input": {"text": 1}}, "input.text"),
        ({"kind": "echo", "input": {"text": "x", "times": "often"}}, "input.times"),
        ({"kind": "song", "input": {"verses": ["la", 1]}}, "input.verses.1"),
        ({"kind": "song", "input": {"verses": ["la"], "song": 1}}, "input.song"),
        ({"kind": "song", "input": {"verses": ["la"], "echo": "x"}}, "input.echo"),
        ({"kind": "song", "input": {"verses": ["la"] * 4}}, "input"),
        ({"kind": "song", "input": {"verses": []}}, "input.verses"),
        ({"kind": "document", "input": {}}, "input"),
        ({"kind": "document", "input": {"text": "x", "more": 1}}, "input.more"),
        (ECHO | {"priority": 1}, "priority"),
        (ECHO | {"echo": 1}, "echo"),
        (ECHO | {"song": 1}, "song"),
        (ECHO | {"metadata": {"echo": 1}}, "metadata.echo"),
        (ECHO | {"webhook_events": ["echo.said"]}, "body"),
        (ECHO | {"webhook_url": "https://example.com", "webhook_events": ["song.said"]}, "webhook_events"),
        (ECHO | {"webhook_url": "https://example.com", "webhook_events": []}, "webhook_events"),
        (ECHO | {"webhook_url": "http://example.com"}, "webhook_url"),
        ([], "body"),
        ("{", "body"),
        ("null", "body"),
        ('"echo"', "body"),
        ("", "body"),
    ],
    ids=repr,
)
def test_invalid_fields(songs: Api, deployed: Dependencies, body: Any, field: str) -> None:
    """The error names the field as the caller wrote it, for every kind, and nothing is written."""
    refused = problem(songs("POST", "/jobs", body), 422, "invalid_request")
    assert refused["field"] == field
    assert deployed.jobs.listing.page("ana") == ([], None)


@pytest.mark.parametrize("body", [[ECHO], [ECHO, ECHO]], ids=["one", "two"])
def test_list_of_jobs(songs: Api, deployed: Dependencies, body: Any) -> None:
    """A list of jobs is refused."""
    assert songs("POST", "/jobs", body).status == 422
    assert deployed.jobs.listing.page("ana") == ([], None)


@pytest.mark.parametrize("number", ["NaN", "1e999", "-1e999", '"inf"'])
def test_invalid_numbers(songs: Api, deployed: Dependencies, number: str) -> None:
    """Numbers that JSON does not have are a 422, in any field of any kind."""
    body = f'{{"kind": "song", "input": {{"verses": ["la"], "pitch": {number}}}}}'
    refused = problem(songs("POST", "/jobs", body), 422, "invalid_request")
    assert refused["field"].startswith("input")
    assert deployed.jobs.listing.page("ana") == ([], None)


@pytest.mark.parametrize(
    ("body", "field"), [({"kind": "x"}, "kind"), ({"kind": "echo", "input": {"text": 1}}, "input.text")]
)
def test_trailing_slash(songs: Api, body: Any, field: str) -> None:
    """A path with a trailing slash is the same route, with the same errors."""
    refused = problem(songs("POST", "/jobs/", body), 422, "invalid_request")
    assert refused == problem(songs("POST", "/jobs", body), 422, "invalid_request")
    assert refused["field"] == field


@pytest.mark.parametrize(("name", "seconds"), [("song", 300), ("echo", 240 * 60), ("document", 240 * 60)])
def test_deadlines(songs: Api, deployed: Dependencies, registry: dict[str, Kind], name: str, seconds: int) -> None:
    """A kind can have its own deadline; others have the configured one."""
    answer = songs("POST", "/jobs", {"kind": name, "input": dict(registry[name].example)})
    made = deployed.jobs.get(answer.json["job_id"])
    created, deadline = (datetime.fromisoformat(at) for at in (made.created_at, made.deadline))
    assert (deadline - created).total_seconds() == seconds


@pytest.mark.parametrize("letter", ["x", "ñ"])
@pytest.mark.parametrize("excess", [0, 1])
def test_limit_of_input(songs: Api, deployed: Dependencies, letter: str, excess: int) -> None:
    """The stored input is limited to 32 KiB of JSON."""
    room = MAX_INPUT_BYTES - len(events.encode({"text": "", "times": 1})) + excess
    count, rest = divmod(room, len(events.encode({letter: 0})) - len(events.encode({"": 0})))
    body = {"kind": "echo", "input": {"text": letter * count + "x" * rest}}
    answer = songs("POST", "/jobs", body)
    if not excess:
        made = deployed.jobs.get(answer.json["job_id"])
        assert len(events.encode(made.input)) == MAX_INPUT_BYTES
        return
    refused = problem(answer, 413, "payload_too_large")
    assert (refused["field"], "POST /uploads" in refused["detail"]) == ("input", True)
    assert deployed.jobs.listing.page("ana") == ([], None)


# ── OpenAPI ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_models_with_the_same_name(songs: Api, registry: dict[str, Kind]) -> None:
    """Kinds whose models have the same names keep their own in OpenAPI."""
    fields = {name: create_model("JobView", **{name: (int, 0)}) for name in ("echo", "song")}
    for name, model in fields.items():
        events = {"requested": EchoRequested, "said": model}
        registry[name] = replace(registry[name], result=model, events=events)
    shown = songs("GET", "/openapi.json", owner=None).json["components"]["schemas"]
    assert set(shown["echo.said"]["properties"]) == {"echo"}
    assert set(shown["song.said"]["properties"]) == {"song"}
    assert {"job_id", "links"} <= set(shown["JobView"]["properties"])
