"""core.jobs.kind"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from core.jobs import Completion, Inputs, Kind, Services
from core.jobs.kind import COMMON_VERBS, RESERVED, RESERVED_SUBJECTS
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import Echoed, EchoInput, EchoRequested, echo_kind, job

BAD_NAMES = ["", "Echo", "1a", "_a", "a-b", "a.b", "a b", "ñ", "a\n", "a" * 33, "*"]
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True)
VERBS = NAMES.filter(lambda verb: verb not in COMMON_VERBS)
MACHINE: dict[str, Any] = {"runs_on": "machine", "work": None}


def refusal(**facts: Any) -> str:
    """What is said of a declaration that is refused."""
    with pytest.raises(ValueError, match="kind ") as caught:
        echo_kind(**facts)
    return str(caught.value)


def with_field(name: str) -> type[BaseModel]:
    return create_model("Told", **{name: (str, "")})  # type: ignore[call-overload]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*BAD_NAMES, "endpoint", "ping"])
def test_bad_names(name: str) -> None:
    """A kind's name is a word that events can begin with, and not one with which an owner's own events begin."""
    assert refusal(name=name).startswith(f"kind {name!r}: a name has 1 to 32 of a-z, 0-9 and _")


@given(NAMES.filter(lambda name: name not in ("endpoint", "ping")))
def test_good_names(name: str) -> None:
    """Any other word is a kind's name, and each of its events begins with it."""
    assert {event.partition(".")[0] for event in echo_kind(name=name).names} == {name}


@pytest.mark.parametrize("events", [{}, {"said": Echoed}])
def test_too_few_events(events: dict[str, type[BaseModel]]) -> None:
    """A job has a first event and a good end, which are two."""
    assert "events: name the first and the good end at least" in refusal(events=events)


@pytest.mark.parametrize("last", [EchoRequested, EchoInput, create_model("Echoed", said=(str, ...))])
def test_the_last_event_has_the_result(last: type[BaseModel]) -> None:
    """What completes a job tells its result, by the very same model."""
    refused = refusal(events={"requested": EchoRequested, "said": last})
    assert "events: the last one, said, has the result's model, Echoed" in refused


@pytest.mark.parametrize("verb", [*BAD_NAMES, *COMMON_VERBS])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_bad_verbs(verb: str, place: int) -> None:
    """A verb is a word, and none that every kind logs by itself, at whatever place it stands."""
    models = {0: EchoRequested, 1: EchoRequested, 2: Echoed}
    events = {("asked", "heard", "said")[n] if n != place else verb: model for n, model in models.items()}
    assert f"events: {verb!r} is no verb" in refusal(events=events)


def test_the_common_verbs() -> None:
    """These every kind has: a start, two bad ends, and what may come more than once."""
    assert COMMON_VERBS == ("started", "failed", "canceled", "retried", "progressed")


@pytest.mark.parametrize("field", sorted(RESERVED))
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_reserved_fields(field: str, place: str) -> None:
    """Events are flat, so no field of an event or a result has a name that means something in all of them."""
    told = with_field(field)
    events = {"first": EchoRequested, "middle": EchoRequested, "last": Echoed} | {place: told}
    result = told if place == "last" else Echoed
    assert f"Told.{field}: every event has a field of this name already" in refusal(events=events, result=result)


def test_what_is_reserved() -> None:
    """Reserved is the envelope, and what is told beside an event or of a job."""
    envelope = {"event", "event_id", "job_id", "sequence", "timestamp", "status", "stage"}
    beside = {"type", "kind", "owner", "lifecycle", "metadata", "error", "result_key"}
    beside |= {"result_truncated", "truncated"}
    assert envelope | beside == RESERVED


def test_a_hidden_field_is_as_good_as_any() -> None:
    """Names that only look like reserved ones are free."""
    free = create_model("Told", status_code=(int, 0), Status=(str, ""), jobs=(int, 0))
    assert echo_kind(result=free, events={"requested": EchoRequested, "said": free}).result is free


@pytest.mark.parametrize("subject", sorted(RESERVED_SUBJECTS))
def test_reserved_subjects(subject: str) -> None:
    """A subject stands beside the fields of events and of a job, so it has the name of none of them."""
    assert f"subject: {subject} means something else" in refusal(subject=subject)


def test_subjects_stand_beside_a_jobs_fields() -> None:
    """Whatever a job shows is no subject: the two lists cannot drift apart."""
    from core.models import JobAccepted, JobSummary

    assert JobAccepted.model_fields.keys() | JobSummary.model_fields.keys() <= RESERVED_SUBJECTS


@pytest.mark.parametrize("stages", [(), ("queued",), ("say", "queued"), ("say", "notify"), ("say", "hear", "say")])
def test_bad_stages(stages: tuple[str, ...]) -> None:
    """Stages are named once each, at least one, and those that every kind has are left out."""
    for facts in ({}, MACHINE):
        assert "stages: name at least one, each once" in refusal(stages=stages, **facts)


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempts(attempts: int) -> None:
    """A job that is never tried is refused."""
    assert "max_attempts: at least 1" in refusal(max_attempts=attempts)
    assert echo_kind(max_attempts=1).max_attempts == 1


def test_a_worker_without_work() -> None:
    """What a worker runs, and anybody may submit, says what is to be done; a state machine calls its Tasks."""
    assert "work: a kind that a worker runs needs it" in refusal(work=None)
    assert "work: only a worker calls it" in refusal(runs_on="machine")
    assert echo_kind(work=None, submittable=False).work is None
    assert echo_kind(**MACHINE).work is None


@pytest.mark.parametrize(
    ("example", "place"),
    [({}, "example.text"), ({"text": 1}, "example.text"), ({"text": "x", "times": "often"}, "example.times")],
)
def test_an_example_that_does_not_work(example: dict[str, Any], place: str) -> None:
    """The example is an input that the kind takes; what nobody submits needs none."""
    refused = refusal(example=example)
    assert f"kind 'echo': {place}: " in refused
    assert "give an input that EchoInput takes" in refused
    assert echo_kind(example=example, submittable=False, work=None)


# ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_worker_runs() -> None:
    """A kind that a worker runs is queued to it, may leave files, and has no stage in which it is told of."""
    kind = echo_kind(stages=("hear", "say"))
    assert kind.order == ("queued", "hear", "say")
    assert (kind.is_queued_to_worker, kind.leaves_files) == (True, True)


def test_what_a_machine_runs() -> None:
    """A state machine ends with the stage in which it tells how the job ended; no worker is sent its jobs."""
    kind = echo_kind(**MACHINE, stages=("hear", "say"))
    assert kind.order == ("queued", "hear", "say", "notify")
    assert (kind.is_queued_to_worker, kind.leaves_files) == (False, True)


def test_what_another_works() -> None:
    """What a function of its own works on is neither queued to the worker nor cleaned up after."""
    kind = echo_kind(work=None, submittable=False)
    assert (kind.is_queued_to_worker, kind.leaves_files) == (False, False)


def test_names() -> None:
    """Events are named in the order in which they can happen: the steps, the bad ends, what may be repeated."""
    kind = echo_kind(events={"requested": EchoRequested, "heard": EchoRequested, "said": Echoed})
    assert (kind.first, kind.first_name, kind.good_end) == ("requested", "echo.requested", "said")
    assert kind.names == (
        *("echo.requested", "echo.started", "echo.heard", "echo.said"),
        *("echo.failed", "echo.canceled", "echo.retried", "echo.progressed"),
    )
    assert kind.final_names == ("echo.said", "echo.failed", "echo.canceled")


@given(st.lists(VERBS, min_size=2, max_size=6, unique=True))
def test_any_verbs(verbs: list[str]) -> None:
    """Whatever its verbs are: no two events of a kind share a name, and each end is one of them."""
    kind = echo_kind(events=dict.fromkeys(verbs[:-1], EchoRequested) | {verbs[-1]: Echoed})
    assert len(set(kind.names)) == len(kind.names) == len(verbs) + len(COMMON_VERBS)
    assert set(kind.final_names) < set(kind.names)
    assert kind.names[0] == kind.first_name == f"echo.{verbs[0]}"
    assert kind.final_names[0] == f"echo.{verbs[-1]}"


@given(st.dictionaries(st.sampled_from(["times", "text", "source_key", "etag", "bytes"]), st.integers()))
def test_what_is_announced(stored: dict[str, int]) -> None:
    """The first event tells those fields of the stored input that its model has, and nothing else of it."""
    assert echo_kind().announced(stored) == {name: stored[name] for name in ("times",) if name in stored}


@pytest.mark.parametrize(("name", "shown"), [("notes", "notes"), (7, "7")])
def test_subject(name: Any, shown: str) -> None:
    """What a job is about is a field of its stored input, as text; a kind without a subject has none."""
    kind = echo_kind(subject="about")
    assert kind.subject_of({"about": name, "text": "secret"}) == {"about": shown}
    assert echo_kind().subject_of({"about": name}) == {}


# ── hooks that are left out ──────────────────────────────────────────────────────────────────────────────────


def test_the_ordinary_hooks() -> None:
    """A hook that is left out does the ordinary thing: an input as it came, and a result as it is."""
    kind, services = echo_kind(), Services(MemoryBlobs(), None, "jobs")
    inputs = Inputs(owner="ana", job_id="job_1", blobs=services.blobs, max_inline_bytes=1, max_upload_bytes=1)
    assert kind.prepare(EchoInput(text="hello"), inputs) == {"text": "hello", "times": 1}
    assert kind.execution_input(job()) == {}
    assert kind.on_complete(job(), {"said": "hello"}, services) == Completion(result={"said": "hello"})
    kind.on_ended(job(), services)
    assert list(services.blobs.keys("")) == []
    assert (list(kind.routes()), kind.on_batch, kind.admit, kind.on_message) == ([], None, None, None)
    assert (kind.deadline, kind.max_attempts, kind.submittable, kind.headline) == (None, 3, True, ())


def test_an_input_as_it_came() -> None:
    """What was left out is not stored as null, and what is no JSON is stored as its model writes it."""

    class Asked(BaseModel):
        after: timedelta
        name: str | None = None

    kind = echo_kind(input=Asked, example={"after": 5})
    inputs = Inputs(owner="ana", job_id="1", blobs=MemoryBlobs(), max_inline_bytes=1, max_upload_bytes=1)
    assert kind.prepare(Asked(after=timedelta(minutes=1)), inputs) == {"after": "PT1M"}


def test_a_declaration_is_fixed() -> None:
    """What follows from a declaration cannot change under it."""
    with pytest.raises(AttributeError):
        echo_kind().name = "other"  # type: ignore[misc]
    assert isinstance(echo_kind(), Kind)
