"""How a readable file becomes a definition that fails well, and how a kind finds its construct and its file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import stacks.kinds
from core.jobs import Kind
from stacks.kinds import base, definition
from stacks.kinds.base import KindConstruct
from stacks.kinds.declarations import NOTIFY, retryable_errors
from stacks.kinds.definition import LAST_RESORT, DefinitionError, camel, expand, single_task, stage_of
from tests.stacks.machines import inner_machines, machines
from tests.stacks.own_kinds import PHOTO_ALBUM, Asked, Made
from tests.stacks.templates import Assembly

State = dict[str, Any]
ERRORS = ("Throttled", "Unavailable")
STAGES = ("draw", "fine_tune", NOTIFY)
CATCH = {"ErrorEquals": ["States.ALL"], "Next": LAST_RESORT}
QUEUE = "arn:${Partition}:states:::sqs:sendMessage.waitForTaskToken"
MINE = [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 1}]
CRASHES = ["Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown"]


def task(resource: str = "${Draw}", **more: Any) -> State:
    return {"Type": "Task", "Resource": resource, "Next": "NotifySuccess"} | more


def inside(**states: State) -> State:
    """A small machine inside a Map or a Parallel."""
    return {"StartAt": next(iter(states)), "States": states}


def machine(**states: State) -> State:
    """These states, and the two with which every machine ends."""
    ends = {"NotifySuccess": task("${FinishJob}"), LAST_RESORT: task("${FinishJob}")}
    return {"StartAt": next(iter(states)), "States": states | ends}


def expanded(attempts: int = 3, **states: State) -> dict[str, State]:
    found = expand(machine(**states), stages=STAGES, retryable=ERRORS, attempts=attempts)
    return dict(found["States"])


def errors(state: State) -> list[list[str]]:
    return [rule["ErrorEquals"] for rule in state["Retry"]]


# Retries


def test_what_calls_a_function_is_retried() -> None:
    """Our own errors and crashes as often as the kind says; calls that Lambda did not take, more often."""
    own, faults = expanded(attempts=4, DrawAll=task())["DrawAll"]["Retry"]
    assert own["ErrorEquals"] == [*ERRORS, *CRASHES]
    assert own["MaxAttempts"] == 3
    assert all(error.startswith("Lambda.") for error in faults["ErrorEquals"])
    assert faults["MaxAttempts"] == 8


def test_a_kind_with_one_attempt_does_not_try_again() -> None:
    """Then only what never reached the function is repeated."""
    (faults,) = expanded(attempts=1, DrawAll=task())["DrawAll"]["Retry"]
    assert set(faults["ErrorEquals"]) & {*ERRORS, *CRASHES} == set()


def test_what_sends_to_the_queue_repeats_the_sending() -> None:
    """What the worker answers is final, whatever the attempts."""
    for resource in (QUEUE, "arn:${Partition}:states:::sqs:sendMessage"):
        state = expanded(attempts=1, DrawAll=task(resource))["DrawAll"]
        assert errors(state) == [["SQS.AmazonSQSException", "SQS.SdkClientException"]]


def test_the_last_resort_tries_everything_again() -> None:
    """Also with one attempt: nothing comes after it."""
    assert errors(expanded(attempts=1, DrawAll=task())[LAST_RESORT]) == [["States.ALL"]]


@pytest.mark.parametrize("resource", ["${Draw}", QUEUE, "arn:aws:states:::batch:submitJob.sync"])
@pytest.mark.parametrize("retry", [MINE, []])
def test_a_retry_of_its_own_is_left_alone(resource: str, retry: list[State]) -> None:
    """Even an empty one, and whatever the Task calls."""
    assert expanded(DrawAll=task(resource, Retry=retry))["DrawAll"]["Retry"] == retry


@pytest.mark.parametrize(
    "resource",
    [
        "arn:${Partition}:states:::batch:submitJob.sync",
        "arn:aws:states:::lambda:invoke",
        "arn:aws:states:::aws-sdk:sqs:sendMessage",
        "arn:aws:lambda:eu-west-1:123456789012:function:sqs",
    ],
)
def test_another_service_needs_a_retry_of_its_own(resource: str) -> None:
    """Which of its errors pass by themselves is not known here; the message names the state and what it calls."""
    with pytest.raises(DefinitionError, match="Retry of its own") as caught:
        expanded(DrawAll=task(resource))
    assert str(caught.value).startswith(f"DrawAll: it calls {resource}, ")


def test_tasks_inside_a_map_and_a_parallel_are_retried() -> None:
    """At every depth; what holds them is as it was."""
    map_state = {"Type": "Map", "ItemProcessor": inside(DrawOne=task(QUEUE, End=True))}
    nested = {"Type": "Parallel", "Branches": [inside(DrawDeep=task())]}
    parallel = {"Type": "Parallel", "Branches": [inside(DrawLeft=task()), inside(DrawRight=nested)]}
    states = expanded(DrawMany=map_state, DrawBoth=parallel)
    (one,), (left, right) = (inner_machines(states[name]) for name in ("DrawMany", "DrawBoth"))
    (deep,) = inner_machines(right["States"]["DrawRight"])
    assert errors(one["States"]["DrawOne"]) == [["SQS.AmazonSQSException", "SQS.SdkClientException"]]
    for state in (left["States"]["DrawLeft"], deep["States"]["DrawDeep"]):
        assert errors(state)[0] == [*ERRORS, *CRASHES]
    assert not any("Retry" in states[name] for name in ("DrawMany", "DrawBoth"))


def test_states_that_are_no_tasks_are_left_alone() -> None:
    """A Pass or a Wait cannot fail."""
    states = {
        "Count": {"Type": "Pass", "Next": "DrawAll"},
        "Rest": {"Type": "Wait", "Seconds": 1, "Next": "Count"},
    }
    found = expanded(**states, DrawAll=task())
    assert {name: found[name] for name in states} == states


# Failures


@pytest.mark.parametrize("kind", ["Task", "Map", "Parallel"])
def test_a_failure_goes_through_a_state_that_names_the_stage(kind: str) -> None:
    """The error is kept beside the input, and the Pass is called after the state."""
    inner = {
        "Task": task(),
        "Map": {"Type": "Map", "ItemProcessor": inside(DrawOne=task())},
        "Parallel": {"Type": "Parallel", "Branches": [inside(DrawOne=task())]},
    }[kind]
    states = expanded(DrawAll=inner | {"Catch": [CATCH]})
    assert states["DrawAll"]["Catch"] == [
        {"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "DrawAllFailed"}
    ]
    assert states["DrawAllFailed"] == {
        "Type": "Pass",
        "Result": "draw",
        "ResultPath": "$.stage",
        "Next": LAST_RESORT,
    }


def test_a_catch_to_another_state_is_left_alone() -> None:
    """What a file does about some errors is its own affair; the rest goes the usual way."""
    mine = {"ErrorEquals": ["NoPaper"], "Next": "DrawSmaller", "ResultPath": "$.paper"}
    states = expanded(DrawAll=task(Catch=[mine, CATCH]), DrawSmaller=task())
    assert states["DrawAll"]["Catch"][0] == mine
    assert states["DrawAll"]["Catch"][1]["Next"] == "DrawAllFailed"
    assert "DrawSmallerFailed" not in states


def test_two_catches_share_the_state_that_names_the_stage() -> None:
    """Which error it was does not change where the job was."""
    states = expanded(DrawAll=task(Catch=[CATCH | {"ErrorEquals": ["NoPaper"]}, CATCH]))
    assert {catch["Next"] for catch in states["DrawAll"]["Catch"]} == {"DrawAllFailed"}


def test_a_name_that_is_taken_is_told() -> None:
    """A state of the file is not replaced by one that is added."""
    with pytest.raises(DefinitionError, match=r"^DrawAllFailed: .*DrawAll; choose another"):
        expanded(DrawAll=task(Catch=[CATCH]), DrawAllFailed={"Type": "Fail"})


def test_a_state_that_belongs_to_no_stage_is_told() -> None:
    """The message names the state and what its name may begin with."""
    with pytest.raises(DefinitionError) as caught:
        expanded(PaintAll=task(Catch=[CATCH]))
    message = str(caught.value)
    assert message.startswith("PaintAll: ")
    assert message.endswith("begin it with one of Draw, FineTune, Notify")


def test_the_file_itself_is_not_changed() -> None:
    """What was read stays as it was, however often it is expanded."""
    read = machine(DrawAll=task(Catch=[CATCH]))
    kept = copy.deepcopy(read)
    once, again = (expand(read, stages=STAGES, retryable=ERRORS, attempts=3) for _ in range(2))
    assert read == kept
    assert once == again


@given(st.lists(st.sampled_from(["DrawA", "DrawB", "FineTuneC", "DrawD"]), min_size=1, unique=True), st.data())
def test_nothing_is_added_but_retries_and_stages(names: list[str], data: st.DataObject) -> None:
    """Without what is added, an expanded definition is the file again, whichever states catch."""
    catching = [name for name in names if data.draw(st.booleans())]
    read = machine(**{name: task(**({"Catch": [CATCH]} if name in catching else {})) for name in names})
    found = expand(read, stages=STAGES, retryable=ERRORS, attempts=3)
    added = {name for name, state in found["States"].items() if state.get("ResultPath") == "$.stage"}
    assert added == {f"{name}Failed" for name in catching}
    for name in added:
        found["States"].pop(name)
    for state in found["States"].values():
        state.pop("Retry")
        for catch in state.get("Catch", []):
            assert catch.pop("ResultPath") == "$.error"
            catch["Next"] = LAST_RESORT
    assert found == read


# Stages


@pytest.mark.parametrize(
    ("name", "stages", "stage"),
    [
        ("ChunkDocument", ["validate", "chunk"], "chunk"),
        ("Chunk", ["chunk"], "chunk"),
        ("FineTuneModel", ["fine_tune"], "fine_tune"),
        ("FineTune", ["fine_tune", "fine"], "fine_tune"),
        ("FineTuneModel", ["fine", "fine_tune"], "fine_tune"),
        ("FineArt", ["fine", "fine_tune"], "fine"),
        ("Step2Model", ["step_2"], "step_2"),
        ("NotifySuccess", ["chunk", "notify"], "notify"),
    ],
)
def test_a_state_is_the_stage_that_its_name_begins_with(name: str, stages: list[str], stage: str) -> None:
    """Underscores are capital letters there, and the longest stage counts."""
    assert stage_of(name, stages) == stage


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("Chunks", ["chunk"]),
        ("chunkDocument", ["chunk"]),
        ("FineTuning", ["fine_tune"]),
        ("FinetuneModel", ["fine_tune"]),
        ("ReChunk", ["chunk"]),
        ("Chunk", []),
    ],
)
def test_half_a_word_is_no_stage(name: str, stages: list[str]) -> None:
    """`Chunks` is another word than `chunk`."""
    with pytest.raises(DefinitionError, match=f"^{name}: "):
        stage_of(name, stages)


@given(st.from_regex(r"[a-z][a-z0-9]{0,7}(_[a-z0-9]{1,7}){0,3}", fullmatch=True))
def test_every_stage_has_a_state_of_its_name(stage: str) -> None:
    """The state that a kind without a file gets is the stage that it is named after."""
    assert stage_of(camel(stage), [stage]) == stage
    assert stage_of(f"{camel(stage)}Again", [stage]) == stage


# Kinds without a file


def test_one_stage_needs_no_file() -> None:
    """Its answer is the job's result, and all that can fail is caught."""
    found = expand(single_task("DrawAll", timeout_seconds=70), stages=STAGES, retryable=ERRORS, attempts=3)
    states = found["States"]
    assert found["StartAt"] == "DrawAll"
    assert (states["DrawAll"]["Resource"], states["DrawAll"]["TimeoutSeconds"]) == ("${DrawAll}", 70)
    assert states["DrawAll"]["ResultPath"] == "$.result"
    assert states["NotifySuccess"]["Parameters"]["result.$"] == "$.result"
    assert {name for name in states if name.endswith("Failed") and name != "Failed"} == {
        "DrawAllFailed",
        "NotifySuccessFailed",
    }


def test_the_deployed_machine_of_an_own_kind_is_that(own: Assembly) -> None:
    """With a minute more than its function has, and the attempts of the kind."""
    machine = machines(own)[PHOTO_ALBUM.name]
    assert machine.definition == expand(
        single_task("PrintOut", timeout_seconds=960),
        stages=[*PHOTO_ALBUM.stages, NOTIFY],
        retryable=retryable_errors(),
        attempts=PHOTO_ALBUM.max_attempts,
    )


# Constructs


def kind(**changes: Any) -> Kind:
    events: dict[str, type[BaseModel]] = {"requested": Asked, "made": Made}
    facts: dict[str, Any] = {"name": "poster", "input": Asked, "result": Made, "events": events}
    return Kind(**facts | {"stages": ("draw",), "runs_on": "machine"} | changes)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`files(poster="…")` puts a file beside those of stacks/kinds."""
    monkeypatch.setattr(stacks.kinds, "__path__", [*stacks.kinds.__path__, str(tmp_path)])

    def write(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(f"from stacks.kinds.base import KindConstruct\n{source}")

    return write


def test_a_construct_is_found_by_the_name_of_its_kind(files: Callable[..., None]) -> None:
    """The one subclass in `<kind>.py` is made; it need not be called after the kind."""
    files(poster_a="class Anything(KindConstruct): ...\nclass Helper: ...\n")
    made = base.construct(cdk.Stack(), kind=kind(name="poster_a", **RUN_BY_WORKER), shared=NOTHING)
    assert type(made).__name__ == "Anything"
    assert made.node.id == "PosterA"


def test_a_kind_without_a_file_has_the_ordinary_construct() -> None:
    """And one that the worker runs has no state machine in it."""
    made = base.construct(cdk.Stack(), kind=kind(**RUN_BY_WORKER), shared=NOTHING)
    assert type(made) is KindConstruct
    assert made.state_machine is None
    assert made.routes == {}


@pytest.mark.parametrize(
    ("name", "source", "number"),
    [
        ("poster_b", "", 0),
        ("poster_c", "class Poster: ...\n", 0),
        ("poster_d", "class One(KindConstruct): ...\nclass Two(KindConstruct): ...\n", 2),
        ("poster_e", "class One(KindConstruct): ...\nclass Two(One): ...\n", 2),
    ],
)
def test_a_file_has_one_construct(files: Callable[..., None], name: str, source: str, number: int) -> None:
    """With none or two it is not guessed which; the message names the file and how many it has."""
    files(**{name: source})
    with pytest.raises(DefinitionError) as caught:
        base.construct(cdk.Stack(), kind=kind(name=name, **RUN_BY_WORKER), shared=NOTHING)
    assert str(caught.value) == f"stacks/kinds/{name}.py: give it one subclass of KindConstruct; it has {number}"


def test_several_stages_need_functions() -> None:
    """Which function does which stage cannot be guessed; the message says where to say it."""
    with pytest.raises(DefinitionError) as caught:
        base.construct(cdk.Stack(), kind=kind(stages=("draw", "print")), shared=NOTHING)
    assert str(caught.value).startswith("poster: it has several stages; say in its construct ")


def test_several_tasks_need_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which order they come cannot be guessed; the message names the file to write."""

    class Poster(KindConstruct):
        def tasks(self) -> Any:
            return dict.fromkeys(("DrawAll", "PrintAll"))

    monkeypatch.setattr(base, "DEFINITIONS", tmp_path)
    with pytest.raises(DefinitionError) as caught:
        Poster(cdk.Stack(), kind=kind(stages=("draw", "print")), shared=NOTHING)
    assert str(caught.value) == "poster: it has several Tasks; write statemachines/poster.asl.json"


def test_a_file_goes_before_the_ordinary_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of one stage may have one all the same, and what is wrong with it is told at synthesis."""

    class Poster(KindConstruct):
        def tasks(self) -> Any:
            return {"DrawAll": None}

    monkeypatch.setattr(base, "DEFINITIONS", tmp_path)
    (tmp_path / "poster.asl.json").write_text(json.dumps(machine(PaintAll=task(Catch=[CATCH]))))
    with pytest.raises(DefinitionError, match=r"^PaintAll: .* Draw, Notify$"):
        Poster(cdk.Stack(), kind=kind(), shared=NOTHING)


def test_definitions_need_no_cdk() -> None:
    """Who reads a definition, as the tests of state machines do, does not wait for the CDK's library."""
    assert "aws_cdk" not in Path(definition.__file__).read_text()
    assert "import" not in Path(stacks.kinds.__file__ or "").read_text()


RUN_BY_WORKER: dict[str, Any] = {"runs_on": "worker", "work": lambda attempt: {}}
NOTHING: Any = None
