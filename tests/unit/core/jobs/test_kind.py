"""Declarations of kinds (core.jobs.kind)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from core.jobs import Completion, Inputs, Services
from core.jobs.kind import COMMON_VERBS, RESERVED, RESERVED_SUBJECTS
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import Echoed, EchoInput, EchoRequested, echo_kind, job

BAD_NAMES = ["", "Echo", "1a", "_a", "a-b", "a.b", "a b", "ñ", "a\n", "a" * 33, "*"]
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True)
VERBS = NAMES.filter(lambda verb: verb not in COMMON_VERBS)
MACHINE: dict[str, Any] = {"runs_on": "machine", "work": None}


def refusal(**facts: Any) -> str:
    """The error for an invalid declaration."""
    with pytest.raises(ValueError, match="kind ") as caught:
        echo_kind(**facts)
    return str(caught.value)


def with_field(name: str) -> type[BaseModel]:
    return create_model("Extra", **{name: (str, "")})  # type: ignore[call-overload]


# ── invalid declarations ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*BAD_NAMES, "endpoint", "ping"])
def test_invalid_names(name: str) -> None:
    """Names of kinds match the pattern, and are not those of owners' events."""
    assert refusal(name=name).startswith(f"kind {name!r}: the name must be 1 to 32 of a-z, 0-9 and _")


@given(NAMES.filter(lambda name: name not in ("endpoint", "ping")))
def test_valid_names(name: str) -> None:
    """Any other name is valid, and the names of all its events begin with it."""
    assert {event.partition(".")[0] for event in echo_kind(name=name).event_names} == {name}


@pytest.mark.parametrize("events", [{}, {"said": Echoed}])
def test_too_few_events(events: dict[str, type[BaseModel]]) -> None:
    """A kind has at least two events."""
    assert "events: declare at least two, the first and the last" in refusal(events=events)


@pytest.mark.parametrize("last", [EchoRequested, EchoInput, create_model("Echoed", said=(str, ...))])
def test_model_of_last_event(last: type[BaseModel]) -> None:
    """The last event has the model of the result."""
    message = refusal(events={"requested": EchoRequested, "said": last})
    assert "events: the last one, said, must have the model Echoed" in message


@pytest.mark.parametrize("verb", [*BAD_NAMES, *COMMON_VERBS])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_invalid_verbs(verb: str, place: int) -> None:
    """Verbs match the pattern, and are not those that every kind logs."""
    models = {0: EchoRequested, 1: EchoRequested, 2: Echoed}
    events = {("requested", "processed", "said")[n] if n != place else verb: model for n, model in models.items()}
    assert f"events: {verb!r} is not a verb" in refusal(events=events)


@pytest.mark.parametrize("field", sorted(RESERVED))
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_reserved_fields(field: str, place: str) -> None:
    """Events are flat, so fields of events and results may not have the names of common fields."""
    model = with_field(field)
    events = {"first": EchoRequested, "middle": EchoRequested, "last": Echoed} | {place: model}
    result = model if place == "last" else Echoed
    assert f"Extra.{field}: every event has a field of this name" in refusal(events=events, result=result)


def test_reserved_names() -> None:
    """The reserved names are the envelope, and the attributes beside events and in jobs."""
    envelope = {"event", "event_id", "job_id", "sequence", "timestamp", "status", "stage"}
    beside = {"type", "kind", "owner", "lifecycle", "metadata", "error", "result_key"}
    beside |= {"result_truncated", "truncated"}
    assert envelope | beside == RESERVED


def test_similar_names_are_free() -> None:
    """Names that are only similar to reserved ones are valid."""
    free = create_model("Extra", status_code=(int, 0), Status=(str, ""), jobs=(int, 0))
    assert echo_kind(result=free, events={"requested": EchoRequested, "said": free}).result is free


@pytest.mark.parametrize("subject", sorted(RESERVED_SUBJECTS))
def test_reserved_subjects(subject: str) -> None:
    """A subject may not have the name of a field of events or jobs."""
    assert f"subject: {subject} is a field of every event or job" in refusal(subject=subject)


def test_exclusive_kind_needs_a_subject() -> None:
    """An exclusive kind says what only one open job may be about."""
    assert "exclusive: declare the subject" in refusal(exclusive=True)
    kind = echo_kind(subject="about", exclusive=True)
    assert kind.exclusive_subject_of({"about": "x"}) == "x"
    assert echo_kind(subject="about").exclusive_subject_of({"about": "x"}) is None


def test_reserved_subjects_contain_fields_of_jobs() -> None:
    """Every field of a job in the API is a reserved subject."""
    from core.jobs.models import JobAccepted, JobSummary

    assert JobAccepted.model_fields.keys() | JobSummary.model_fields.keys() <= RESERVED_SUBJECTS


@pytest.mark.parametrize(
    "stages", [(), ("queued",), ("say", "queued"), ("say", "notify"), ("say", "process", "say")]
)
def test_invalid_stages(stages: tuple[str, ...]) -> None:
    """A kind has at least one stage, each once, without the common ones."""
    for facts in ({}, MACHINE):
        assert "stages: declare at least one, each once" in refusal(stages=stages, **facts)


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempts(attempts: int) -> None:
    """A kind has at least one attempt."""
    assert "max_attempts: at least 1" in refusal(max_attempts=attempts)
    assert echo_kind(max_attempts=1).max_attempts == 1


def test_work_and_worker() -> None:
    """A submittable kind on a worker needs work, and a kind on a state machine may not have it."""
    assert "work: a kind that runs on a worker needs it" in refusal(work=None)
    assert "work: only a worker calls it" in refusal(runs_on="machine")
    assert echo_kind(work=None, submittable=False).work is None
    assert echo_kind(**MACHINE).work is None


@pytest.mark.parametrize(
    ("example", "place"),
    [({}, "example.text"), ({"text": 1}, "example.text"), ({"text": "x", "times": "often"}, "example.times")],
)
def test_invalid_examples(example: dict[str, Any], place: str) -> None:
    """The example of a submittable kind must be a valid input."""
    message = refusal(example=example)
    assert f"kind 'echo': {place}: " in message
    assert "give a valid EchoInput" in message
    assert echo_kind(example=example, submittable=False, work=None)


# ── derived values ───────────────────────────────────────────────────────────────────────────────────────────


def test_kind_on_worker() -> None:
    """A kind on a worker is queued to it, may leave files, and has no stage `notify`."""
    kind = echo_kind(stages=("process", "say"))
    assert kind.all_stages == ("queued", "process", "say")
    assert (kind.is_queued_to_worker, kind.needs_clean_up) == (True, True)


def test_kind_on_state_machine() -> None:
    """A kind on a state machine has the stage `notify`, and is not queued to the worker."""
    kind = echo_kind(**MACHINE, stages=("process", "say"))
    assert kind.all_stages == ("queued", "process", "say", "notify")
    assert (kind.is_queued_to_worker, kind.needs_clean_up) == (False, True)


def test_kind_on_other_function() -> None:
    """A kind on another function is not queued to the worker and needs no clean-up."""
    kind = echo_kind(work=None, submittable=False)
    assert (kind.is_queued_to_worker, kind.needs_clean_up) == (False, False)


def test_event_names() -> None:
    """Event names are in the order in which they can occur: steps, final events, repeatable events."""
    kind = echo_kind(events={"requested": EchoRequested, "processed": EchoRequested, "said": Echoed})
    assert (kind.submitted_verb, kind.submitted_event, kind.completed_verb) == (
        "requested",
        "echo.requested",
        "said",
    )
    assert kind.event_names == (
        *("echo.requested", "echo.started", "echo.processed", "echo.said"),
        *("echo.failed", "echo.canceled", "echo.retried", "echo.progressed"),
    )
    assert kind.final_events == ("echo.said", "echo.failed", "echo.canceled")


@given(st.lists(VERBS, min_size=2, max_size=6, unique=True))
def test_any_verbs(verbs: list[str]) -> None:
    """All event names of a kind are different, and the final events are among them."""
    kind = echo_kind(events=dict.fromkeys(verbs[:-1], EchoRequested) | {verbs[-1]: Echoed})
    assert len(set(kind.event_names)) == len(kind.event_names) == len(verbs) + len(COMMON_VERBS)
    assert set(kind.final_events) < set(kind.event_names)
    assert kind.event_names[0] == kind.submitted_event == f"echo.{verbs[0]}"
    assert kind.final_events[0] == f"echo.{verbs[-1]}"


@given(st.dictionaries(st.sampled_from(["times", "text", "source_key", "etag", "bytes"]), st.integers()))
def test_submitted_fields(stored: dict[str, int]) -> None:
    """The first event has the fields of its model from the stored input, and no others."""
    assert echo_kind().submitted_fields(stored) == {name: stored[name] for name in ("times",) if name in stored}


@pytest.mark.parametrize(("name", "shown"), [("notes", "notes"), (7, "7")])
def test_subject(name: Any, shown: str) -> None:
    """The subject is a field of the stored input, as text. A kind may have none."""
    kind = echo_kind(subject="about")
    assert kind.subject_of({"about": name, "text": "secret"}) == {"about": shown}
    assert echo_kind().subject_of({"about": name}) == {}


# ── default hooks ────────────────────────────────────────────────────────────────────────────────────────────


def test_default_hooks() -> None:
    """The defaults store the input and show the result unchanged, and do nothing else."""
    kind, services = echo_kind(), Services(MemoryBlobs(), None, "jobs")
    inputs = Inputs(owner="ana", job_id="job_1", blobs=services.blobs, max_inline_bytes=1, max_upload_bytes=1)
    assert kind.prepare(EchoInput(text="hello"), inputs) == {"text": "hello", "times": 1}
    assert kind.execution_input(job()) == {}
    assert kind.on_complete(job(), {"said": "hello"}, services) == Completion(result={"said": "hello"})
    kind.on_ended(job(), services)
    assert list(services.blobs.keys("")) == []
    assert (list(kind.routes()), kind.on_batch, kind.admit, kind.on_message) == ([], None, None, None)
    assert (kind.deadline, kind.max_attempts, kind.submittable, kind.headline) == (None, 3, True, ())


def test_default_prepare() -> None:
    """The default stores the input as its model serializes it, without absent fields."""

    class AfterInput(BaseModel):
        after: timedelta
        name: str | None = None

    kind = echo_kind(input=AfterInput, example={"after": 5})
    inputs = Inputs(owner="ana", job_id="1", blobs=MemoryBlobs(), max_inline_bytes=1, max_upload_bytes=1)
    assert kind.prepare(AfterInput(after=timedelta(minutes=1)), inputs) == {"after": "PT1M"}
