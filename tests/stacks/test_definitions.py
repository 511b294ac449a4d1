"""How a state machine's file is expanded, and how a kind's construct and file are found."""

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
    """A machine inside a Map or a Parallel."""
    return {"StartAt": next(iter(states)), "States": states}


def machine(**states: State) -> State:
    """A machine of these states, NotifySuccess and NotifyFailure."""
    ends = {"NotifySuccess": task("${FinishJob}"), LAST_RESORT: task("${FinishJob}")}
    return {"StartAt": next(iter(states)), "States": states | ends}


def expanded(attempts: int = 3, **states: State) -> dict[str, State]:
    found = expand(machine(**states), stages=STAGES, retryable=ERRORS, attempts=attempts)
    return dict(found["States"])


def errors(state: State) -> list[list[str]]:
    return [rule["ErrorEquals"] for rule in state["Retry"]]


# Retries


def test_retry_of_a_function() -> None:
    """Retryable errors and crashes are retried as the kind says, Lambda's own errors 8 times."""
    own, faults = expanded(attempts=4, DrawAll=task())["DrawAll"]["Retry"]
    assert own["ErrorEquals"] == [*ERRORS, *CRASHES]
    assert own["MaxAttempts"] == 3
    assert all(error.startswith("Lambda.") for error in faults["ErrorEquals"])
    assert faults["MaxAttempts"] == 8


def test_one_attempt_retries_only_lambdas_errors() -> None:
    """With one attempt, errors of the function are not retried."""
    (faults,) = expanded(attempts=1, DrawAll=task())["DrawAll"]["Retry"]
    assert set(faults["ErrorEquals"]) & {*ERRORS, *CRASHES} == set()


def test_retry_of_a_message_to_a_queue() -> None:
    """Only SQS's errors are retried: a failure that the worker sends is final."""
    for resource in (QUEUE, "arn:${Partition}:states:::sqs:sendMessage"):
        state = expanded(attempts=1, DrawAll=task(resource))["DrawAll"]
        assert errors(state) == [["SQS.AmazonSQSException", "SQS.SdkClientException"]]


def test_notify_failure_retries_all_errors() -> None:
    """NotifyFailure retries all errors, also for a kind with one attempt."""
    assert errors(expanded(attempts=1, DrawAll=task())[LAST_RESORT]) == [["States.ALL"]]


@pytest.mark.parametrize("resource", ["${Draw}", QUEUE, "arn:aws:states:::batch:submitJob.sync"])
@pytest.mark.parametrize("retry", [MINE, []])
def test_retry_of_the_file_is_kept(resource: str, retry: list[State]) -> None:
    """A Task's own Retry is kept, also an empty one."""
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
def test_other_services_need_a_retry_in_the_file(resource: str) -> None:
    """Without a Retry, a Task that calls another service is refused. The error names the state and resource."""
    with pytest.raises(DefinitionError, match="Retry of its own") as caught:
        expanded(DrawAll=task(resource))
    assert str(caught.value).startswith(f"DrawAll: it calls {resource}, ")


def test_tasks_inside_a_map_and_a_parallel_are_retried() -> None:
    """Tasks at every depth get a Retry, a Map or a Parallel gets none."""
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


def test_other_states_are_not_changed() -> None:
    """A Pass or a Wait stays as it is."""
    count = {"Type": "Pass", "Next": "DrawAll"}
    rest = {"Type": "Wait", "Seconds": 1, "Next": "Count"}
    found = expanded(Count=count, Rest=rest, DrawAll=task())
    assert (found["Count"], found["Rest"]) == (count, rest)


# Failures


@pytest.mark.parametrize("kind", ["Task", "Map", "Parallel"])
def test_catch_leads_through_a_pass_with_the_stage(kind: str) -> None:
    """The Catch keeps the input, and its Pass, named after the state, sets the stage."""
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


def test_catch_to_another_state_is_kept() -> None:
    """A Catch with another `Next` is not changed, the others are."""
    mine = {"ErrorEquals": ["NoPaper"], "Next": "DrawSmaller", "ResultPath": "$.paper"}
    states = expanded(DrawAll=task(Catch=[mine, CATCH]), DrawSmaller=task())
    assert states["DrawAll"]["Catch"][0] == mine
    assert states["DrawAll"]["Catch"][1]["Next"] == "DrawAllFailed"
    assert "DrawSmallerFailed" not in states


def test_two_catches_share_a_pass() -> None:
    """All Catches of a state lead to the same Pass."""
    states = expanded(DrawAll=task(Catch=[CATCH | {"ErrorEquals": ["NoPaper"]}, CATCH]))
    assert {catch["Next"] for catch in states["DrawAll"]["Catch"]} == {"DrawAllFailed"}


def test_existing_name_of_a_pass_is_refused() -> None:
    """A state of the file is not replaced by an added one; the error says so."""
    with pytest.raises(DefinitionError, match=r"^DrawAllFailed: .*DrawAll; choose another"):
        expanded(DrawAll=task(Catch=[CATCH]), DrawAllFailed={"Type": "Fail"})


def test_state_without_a_stage_is_refused() -> None:
    """The error names the state and the possible beginnings of its name."""
    with pytest.raises(DefinitionError) as caught:
        expanded(PaintAll=task(Catch=[CATCH]))
    message = str(caught.value)
    assert message.startswith("PaintAll: ")
    assert message.endswith("begin it with one of Draw, FineTune, Notify")


def test_expand_does_not_change_its_argument() -> None:
    """The definition that was read stays as it is, and gives the same result again."""
    read = machine(DrawAll=task(Catch=[CATCH]))
    kept = copy.deepcopy(read)
    once, again = (expand(read, stages=STAGES, retryable=ERRORS, attempts=3) for _ in range(2))
    assert read == kept
    assert once == again


@given(st.lists(st.sampled_from(["DrawA", "DrawB", "FineTuneC", "DrawD"]), min_size=1, unique=True), st.data())
def test_expand_adds_only_retries_and_passes(names: list[str], data: st.DataObject) -> None:
    """An expanded definition without its Retries and added Passes equals the file."""
    catching = [name for name in names if data.draw(st.booleans())]
    read = machine(**{name: task() | ({"Catch": [CATCH]} if name in catching else {}) for name in names})
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
def test_stage_is_the_beginning_of_the_states_name(name: str, stages: list[str], stage: str) -> None:
    """A stage is compared in camel case, and the longest match counts."""
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
def test_parts_of_words_are_no_stages(name: str, stages: list[str]) -> None:
    """A stage must be followed by the end of a word: `Chunks` is not `chunk`."""
    with pytest.raises(DefinitionError, match=f"^{name}: "):
        stage_of(name, stages)


@given(st.from_regex(r"[a-z][a-z0-9]{0,7}(_[a-z0-9]{1,7}){0,3}", fullmatch=True))
def test_camel_case_of_a_stage_is_its_state(stage: str) -> None:
    """For every stage, the state of a kind without a file gives that stage."""
    assert stage_of(camel(stage), [stage]) == stage
    assert stage_of(f"{camel(stage)}Again", [stage]) == stage


# Kinds without a file


def test_definition_of_one_stage() -> None:
    """The Task's output is the job's result, and the Task and NotifySuccess have a Catch."""
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


def test_declared_kind_is_deployed_with_that_definition(own: Assembly) -> None:
    """The state's timeout is a minute longer than its function's, and the attempts are those of the kind."""
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
    """`files(poster="…")` adds the module `stacks.kinds.poster`."""
    monkeypatch.setattr(stacks.kinds, "__path__", [*stacks.kinds.__path__, str(tmp_path)])

    def write(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(f"from stacks.kinds.base import KindConstruct\n{source}")

    return write


def test_construct_is_found_by_the_kinds_name(files: Callable[..., None]) -> None:
    """The one subclass of KindConstruct in `<kind>.py` is used, whatever its name."""
    files(poster_a="class Anything(KindConstruct): ...\nclass Helper: ...\n")
    made = base.construct(cdk.Stack(), kind=kind(name="poster_a", **RUN_BY_WORKER), shared=NOTHING)
    assert type(made).__name__ == "Anything"
    assert made.node.id == "PosterA"


def test_kind_without_a_file_has_the_default_construct() -> None:
    """It is a KindConstruct, without a state machine if the worker runs the kind."""
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
def test_file_must_have_one_construct(files: Callable[..., None], name: str, source: str, number: int) -> None:
    """No subclass or two are refused. The error names the file and the number of subclasses."""
    files(**{name: source})
    with pytest.raises(DefinitionError) as caught:
        base.construct(cdk.Stack(), kind=kind(name=name, **RUN_BY_WORKER), shared=NOTHING)
    assert str(caught.value) == f"stacks/kinds/{name}.py: give it one subclass of KindConstruct; it has {number}"


def test_several_stages_need_a_construct() -> None:
    """A kind with several stages must say which functions do them."""
    with pytest.raises(DefinitionError) as caught:
        base.construct(cdk.Stack(), kind=kind(stages=("draw", "print")), shared=NOTHING)
    assert str(caught.value).startswith("poster: it has several stages; say in its construct ")


def test_several_tasks_need_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind with several Tasks needs a state machine's file. The error names it."""

    class Poster(KindConstruct):
        def tasks(self) -> Any:
            return dict.fromkeys(("DrawAll", "PrintAll"))

    monkeypatch.setattr(base, "DEFINITIONS", tmp_path)
    with pytest.raises(DefinitionError) as caught:
        Poster(cdk.Stack(), kind=kind(stages=("draw", "print")), shared=NOTHING)
    assert str(caught.value) == "poster: it has several Tasks; write statemachines/poster.asl.json"


def test_file_replaces_the_default_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind with one stage may have a file, and an error in it fails the synthesis."""

    class Poster(KindConstruct):
        def tasks(self) -> Any:
            return {"DrawAll": None}

    monkeypatch.setattr(base, "DEFINITIONS", tmp_path)
    (tmp_path / "poster.asl.json").write_text(json.dumps(machine(PaintAll=task(Catch=[CATCH]))))
    with pytest.raises(DefinitionError, match=r"^PaintAll: .* Draw, Notify$"):
        Poster(cdk.Stack(), kind=kind(), shared=NOTHING)


def test_definition_module_does_not_import_cdk() -> None:
    """Tests of state machines import the module without loading the CDK's library."""
    assert "aws_cdk" not in Path(definition.__file__).read_text()
    assert "import" not in Path(stacks.kinds.__file__ or "").read_text()


RUN_BY_WORKER: dict[str, Any] = {"runs_on": "worker", "work": lambda attempt: {}}
NOTHING: Any = None
