"""The API with several kinds, and with jobs of a kind that was removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, create_model, model_validator

import rest.long_poll.handler as long_poll
from core import events
from core.aws.blobs import Blobs
from core.dependencies import Dependencies
from core.errors import InvalidRequest
from core.jobs import Inputs, JobStore, Kind, cancel, fail
from core.jobs.results import MAX_RESULT_BYTES
from kinds.registry import KINDS
from rest.api.openapi import document
from tests.unit.examples import EchoInput, EchoRequested, echo_kind, job
from tests.unit.http_calls import Answer, call, problem

Api = Callable[..., Answer]
ECHO = {"kind": "echo", "input": {"text": "hello"}}
MAX_INPUT_BYTES = 32 * 1024


class Song(BaseModel):
    """Verses to sing."""

    model_config = ConfigDict(extra="forbid")

    verses: list[str]
    echo: int = 0
    pitch: float = 440

    @model_validator(mode="after")
    def _not_too_long(self) -> Song:
        if len(self.verses) > 3:
            raise ValueError("give three verses at most")
        return self


def _in_tune(song: Song, inputs: Inputs) -> dict[str, Any]:
    if "la" not in song.verses:
        raise InvalidRequest("Without la there is no song.", field="input.verses")
    return {
        "title": song.verses[0],
        "pitch": song.pitch,
        "key": inputs.keep_text(" ".join(song.verses), field="input.verses"),
    }


SONG = echo_kind(
    name="song",
    input=Song,
    example={"verses": ["la"]},
    subject="title",
    prepare=_in_tune,
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


@pytest.mark.parametrize("kind", [{}, {"kind": "nothing"}, {"kind": 7}, {"kind": None}], ids=repr)
def test_unknown_kind(songs: Api, kind: dict[str, Any]) -> None:
    """The error for an unknown kind lists the kinds."""
    refused = problem(songs("POST", "/jobs", {"input": {}} | kind), 422, "invalid_request")
    assert refused["detail"] == "kind: choose from document, echo, song"


@pytest.mark.parametrize(
    ("body", "field"), [({"kind": "x"}, "kind"), ({"kind": "echo", "input": {"text": 1}}, "input.text")]
)
def test_trailing_slash(songs: Api, body: Any, field: str) -> None:
    """A path with a trailing slash is the same route, with the same errors."""
    refused = problem(songs("POST", "/jobs/", body), 422, "invalid_request")
    assert refused == problem(songs("POST", "/jobs", body), 422, "invalid_request")
    assert refused["field"] == field


def test_submit(songs: Api, deployed: Dependencies, blobs: Blobs) -> None:
    """A job of any kind has the input, subject and first event that its kind defines."""
    for name, given, subject, fields in (
        ("echo", {"text": "hello", "times": 2}, {}, {"times": 2}),
        ("song", {"verses": ["la", "lo"]}, {"title": "la"}, {}),
    ):
        answer = songs("POST", "/jobs", {"kind": name, "input": given})
        assert answer.status == 202, answer
        shown, made = answer.json, deployed.jobs.get(answer.json["job_id"])
        assert (made.kind, made.status, made.subject) == (name, "queued", subject)
        assert (shown["kind"], shown["status"]) == (name, "queued")
        assert subject.items() <= shown.items()
        (first,) = deployed.jobs.log.read(made.job_id)
        assert first.name == f"{name}.requested"
        assert {key: first.payload[key] for key in first.payload if key in ("times", "text", "verses")} == fields
        assert songs("GET", f"/jobs/{made.job_id}").json["kind"] == name
    assert deployed.jobs.listing.page("ana", wanted=lambda job: job.kind == "echo")[0][0].input == {
        "text": "hello",
        "times": 2,
    }
    (text,) = blobs.keys("inputs/")
    assert blobs.get(text) == b"la lo"


def test_error_in_prepare(songs: Api, deployed: Dependencies) -> None:
    """An error in the kind's hook is returned as any other."""
    refused = problem(
        songs("POST", "/jobs", {"kind": "song", "input": {"verses": ["lo"]}}), 422, "invalid_request"
    )
    assert (refused["field"], refused["detail"]) == ("input.verses", "Without la there is no song.")
    large = {"kind": "song", "input": {"verses": ["la", "x" * 100]}}
    assert problem(songs("POST", "/jobs", large), 413, "payload_too_large")["field"] == "input.verses"
    assert deployed.jobs.listing.page("ana") == ([], None)


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


def test_idempotency_of_kinds(songs: Api) -> None:
    """A key with the same input of another kind is another request."""
    headers = {"Idempotency-Key": "k"}
    assert songs("POST", "/jobs", ECHO, headers=headers).status == 202
    again = songs("POST", "/jobs", ECHO, headers=headers)
    assert (again.status, again.headers["idempotent-replayed"]) == (202, "true")
    other = {"kind": "document", "input": {"text": "hello"}}
    refused = problem(songs("POST", "/jobs", other, headers=headers), 422, "invalid_request")
    assert refused["field"] == "Idempotency-Key"


def test_retry(songs: Api, deployed: Dependencies) -> None:
    """A retried job has the same kind, input and subject, and begins with the kind's first event."""
    first = songs("POST", "/jobs", {"kind": "song", "input": {"verses": ["la"]}}).json
    deployed.jobs.apply(first["job_id"], fail(code="x", message="y"))
    again = songs("POST", f"/jobs/{first['job_id']}/retry")
    assert (again.status, again.json["kind"], again.json["title"]) == (202, "song", "la")
    assert again.json["retry_of"] == first["job_id"]
    assert [event.name for event in deployed.jobs.log.read(again.json["job_id"])] == ["song.requested"]
    made = deployed.jobs.get(again.json["job_id"])
    created, deadline = (datetime.fromisoformat(at) for at in (made.created_at, made.deadline))
    assert deadline - created == timedelta(minutes=5)


# ── what else follows ────────────────────────────────────────────────────────────────────────────────────────


def test_list_by_kind(songs: Api) -> None:
    """A list can be limited to any kind. The error for an unknown one lists the kinds."""
    made = songs("POST", "/jobs", ECHO).json["job_id"]
    songs("POST", "/jobs", {"kind": "document", "input": {"text": "x"}})
    assert [shown["job_id"] for shown in songs("GET", "/jobs", query={"kind": "echo"}).json["jobs"]] == [made]
    assert songs("GET", "/jobs", query={"kind": "replay"}).json["jobs"] == []
    refused = problem(songs("GET", "/jobs", query={"kind": "nothing"}), 422, "invalid_request")
    assert refused == refused | {"field": "kind", "detail": "kind: choose from document, replay, echo, song"}


def test_patterns(songs: Api) -> None:
    """An endpoint can subscribe to events of any kind. The error names the first unknown one."""
    hook = {"url": "https://example.com/hook"}
    wanted = ["echo.*", "song.said", "*.said", "*.completed", "*.said"]
    made = songs("POST", "/webhooks", hook | {"events": wanted})
    assert (made.status, made.json["events"]) == (201, ["echo.*", "song.said", "*.said", "*.completed"])
    for method, path in (("POST", "/webhooks"), ("PATCH", f"/webhooks/{made.json['webhook_id']}")):
        refused = songs(method, path, (hook if method == "POST" else {}) | {"events": ["echo.*", "opera.*"]})
        assert problem(refused, 422, "invalid_request")["field"] == "events.1"


def test_openapi(songs: Api) -> None:
    """The body of POST /jobs is a union of the kinds' models with the discriminator `kind`."""
    described = songs("GET", "/openapi.json", owner=None).json
    schema = described["paths"]["/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert [each["$ref"].rpartition("/")[2] for each in schema["oneOf"]] == ["DocumentJob", "EchoJob", "SongJob"]
    models = described["components"]["schemas"]
    assert schema["discriminator"]["propertyName"] == "kind"
    assert schema["discriminator"]["mapping"]["echo"] == "#/components/schemas/EchoJob"
    assert models["EchoJob"]["description"] == "A text to be said again."
    assert models["SongJob"]["properties"]["kind"]["const"] == "song"
    assert models["SongJob"]["additionalProperties"] is False
    assert models["SongJob"]["properties"]["input"]["$ref"].endswith("/Song")


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


def test_large_result(songs: Api, deployed: Dependencies, blobs: Blobs) -> None:
    """A large result is not in the response. A link reads it without a key."""
    made = songs("POST", "/jobs", ECHO).json["job_id"]
    blobs.put(f"results/ana/{made}/result.json", b"{}")

    def done(subject: Any, now: str) -> Any:
        from core.jobs import begin, complete

        held = begin(echo_kind(), stage="say", lease="x")(subject, now)
        key = f"results/ana/{made}/result.json"
        return complete(echo_kind(), lease="x", result={}, result_key=key)(held.job, now)

    deployed.jobs.apply(made, done)
    shown = songs("GET", f"/jobs/{made}").json
    assert (shown["status"], shown["result"], shown["result_truncated"]) == ("completed", None, True)
    assert f"results/ana/{made}/result.json?" in shown["links"]["result"]
    assert "X-Amz-Expires=300" in shown["links"]["result"]
    assert MAX_RESULT_BYTES == 32_768


# ── a kind that is registered no more ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def removed(deployed: Dependencies) -> str:
    """A queued job of a kind that was removed."""
    opera = echo_kind(
        name="opera", subject="text", events={"requested": EchoRequested, "sung": EchoInput}, result=EchoInput
    )
    return deployed.jobs.submit(opera, job(kind="opera", input={"text": "aria"}, expires_at=2**32)).job.job_id


def status_of(job_id: str, name: str = "status", **options: Any) -> Answer:
    return call(long_poll.handler, "GET", f"/jobs/{job_id}/{name}", **options)


def test_removed_kind_is_shown(api: Api, removed: str) -> None:
    """A job of a removed kind is listed and shown with its subject."""
    (listed,) = api("GET", "/jobs").json["jobs"]
    whole = api("GET", f"/jobs/{removed}")
    for shown in (listed, whole.json):
        assert (shown["job_id"], shown["kind"], shown["text"]) == (removed, "opera", "aria")
    assert whole.status == 200
    problem(api("GET", "/jobs", query={"kind": "opera"}), 422, "invalid_request")


def test_removed_kind_is_followed(api: Api, removed: str) -> None:
    """Its status and its log are returned, as JSON and as a stream."""
    assert (status_of(removed).status, status_of(removed).json["status"]) == (200, "queued")
    assert [event["event"] for event in status_of(removed, "events").json["events"]] == ["opera.requested"]
    stream = status_of(removed, "events", headers={"Accept": "text/event-stream"})
    assert (stream.status, "event: opera.requested" in stream.body) == (200, True)


def test_removed_kind_is_canceled(api: Api, removed: str) -> None:
    """It can be canceled, also twice."""
    for _ in range(2):
        answer = api("POST", f"/jobs/{removed}/cancel")
        assert (answer.status, answer.json["status"]) == (200, "canceled")


def test_removed_kind_is_not_retried(api: Api, deployed: Dependencies, removed: str) -> None:
    """It cannot be retried."""
    problem(api("POST", f"/jobs/{removed}/retry"), 409, "conflict")
    deployed.jobs.apply(removed, cancel)
    refused = problem(api("POST", f"/jobs/{removed}/retry"), 409, "conflict")
    assert "opera" in refused["detail"]
    assert isinstance(deployed.jobs, JobStore)
    assert len(deployed.jobs.listing.page("ana")[0]) == 1
