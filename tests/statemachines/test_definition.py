"""What the document state machine promises, read from its definition: errors, retries, time, and sizes."""

from __future__ import annotations

import ast
import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chunk_document.handler import MAX_BATCHES, batch_size
from core import embedding, errors
from core.jobs import STAGES
from tests.statemachines import payloads

ROOT = Path(__file__).parents[2]
DEFINITION: dict[str, Any] = json.loads((ROOT / "statemachines" / "document.asl.json").read_text())
STATES: dict[str, dict[str, Any]] = DEFINITION["States"]
EMBED_BATCH: dict[str, Any] = STATES["EmbedChunks"]["ItemProcessor"]["States"]["EmbedBatch"]
LAST_RESORT = "NotifyFailure"
STEPS = ("ValidateDocument", "ChunkDocument", "EmbedChunks", "StoreVectors", "NotifySuccess")
TASKS = {name: state for name, state in STATES.items() if state["Type"] == "Task"} | {"EmbedBatch": EMBED_BATCH}
FUNCTIONS = {
    "ValidateDocument": "validate_document",
    "ChunkDocument": "chunk_document",
    "StoreVectors": "store_vectors",
    "NotifySuccess": "finish_job",
    "NotifyFailure": "finish_job",
}
CALLING = [name for name in FUNCTIONS if name != LAST_RESORT]

# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
MAX_STATE_BYTES, MAX_EVENTS, MAX_NAME, MAX_CAUSE = 262_144, 25_000, 256, 32_768
MAX_ARRAY_RANGE = 1000  # https://docs.aws.amazon.com/step-functions/latest/dg/intrinsic-functions.html
MAX_MESSAGE_BYTES = 262_144
# https://docs.aws.amazon.com/lambda/latest/dg/invocation-retries.html and .../dg/concepts-error-handling.html
CRASHES = {"Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown"}
LAMBDA_FAULTS = {
    f"Lambda.{name}"
    for name in ("TooManyRequestsException", "ServiceException", "AWSLambdaException", "SdkClientException")
}


def retried(state: dict[str, Any]) -> list[str]:
    return [name for retry in state["Retry"] for name in retry["ErrorEquals"]]


def own(names: list[str]) -> set[str]:
    """Names that are not of AWS are names of our classes."""
    return {name for name in names if "." not in name}


def retryable() -> set[str]:
    return {cls.__name__ for cls in errors.Retryable.__subclasses__()}


# Errors


@pytest.mark.parametrize("name", CALLING)
def test_retries_and_retryable_classes_agree(name: str) -> None:
    """A function's state retries exactly the classes that are declared retryable, each by its own name."""
    assert own(retried(STATES[name])) == retryable()


def test_a_retryable_class_has_no_children() -> None:
    """Step Functions compares names, so a subclass would pass by the Retry of its parent."""
    assert [cls for cls in errors.Retryable.__subclasses__() if cls.__subclasses__()] == []
    assert all(cls.retryable for cls in errors.Retryable.__subclasses__())


def test_every_own_name_is_a_class() -> None:
    """Whatever the definition names anywhere, and is not of AWS, is in the exception tree."""
    named = {
        name
        for state in TASKS.values()
        for rule in (*state.get("Retry", []), *state.get("Catch", []))
        for name in rule["ErrorEquals"]
    }
    assert {name for name in own(list(named)) if errors.by_name(name) is None} == set()


@pytest.mark.parametrize("name", CALLING)
def test_crashes_and_faults_of_lambda_are_retried(name: str) -> None:
    """A worker killed for memory or time is tried again, and so is a call that Lambda did not take."""
    assert set(retried(STATES[name])) == retryable() | CRASHES | LAMBDA_FAULTS


@pytest.mark.parametrize("name", CALLING)
def test_a_stage_is_tried_three_times(name: str) -> None:
    """What fails in our code gets three attempts in all; what never reached it, more."""
    attempts = {
        error: retry["MaxAttempts"] + 1 for retry in STATES[name]["Retry"] for error in retry["ErrorEquals"]
    }
    assert {attempts[error] for error in retryable() | CRASHES} == {3}
    assert all(attempts[error] > 3 for error in LAMBDA_FAULTS)


@pytest.mark.parametrize("name", TASKS)
def test_retries_wait_with_jitter_and_a_cap(name: str) -> None:
    """Waits grow, are spread over their whole length, and never pass two minutes; no error has two rules."""
    for retry in TASKS[name]["Retry"]:
        assert retry["JitterStrategy"] == "FULL"
        assert retry["BackoffRate"] > 1
        assert 1 <= retry["IntervalSeconds"] <= retry["MaxDelaySeconds"] <= 120
        assert retry["MaxAttempts"] >= 1
    assert len(retried(TASKS[name])) == len(set(retried(TASKS[name])))


def test_a_batch_that_was_sent_is_not_sent_again() -> None:
    """EmbedBatch retries the sending alone: what the worker answers, and the deadline, are final."""
    assert set(retried(EMBED_BATCH)) == {"SQS.AmazonSQSException", "SQS.SdkClientException"}


def test_the_last_resort_retries_everything() -> None:
    """NotifyFailure has nothing behind it, so it tries long, and catches nothing."""
    state = STATES[LAST_RESORT]
    assert [retry["ErrorEquals"] for retry in state["Retry"]] == [["States.ALL"]]
    assert state["Retry"][0]["MaxAttempts"] >= 10
    assert "Catch" not in state


@pytest.mark.parametrize("name", [name for name in TASKS if name != LAST_RESORT])
def test_every_task_has_an_end(name: str) -> None:
    """Without TimeoutSeconds a task waits for 99,999,999 seconds."""
    limits = [TASKS[name].get("TimeoutSeconds"), TASKS[name].get("TimeoutSecondsPath")]
    assert sum(limit is not None for limit in limits) == 1
    assert limits[0] is None or 0 < limits[0] <= 900


def test_a_batch_may_take_until_the_deadline() -> None:
    """Messages may queue for hours: the limit is what is left of the job's time."""
    assert EMBED_BATCH["TimeoutSecondsPath"] == "$.timeout_seconds"
    assert STATES["EmbedChunks"]["ItemSelector"]["timeout_seconds.$"] == "$.timeout_seconds"


# The failure path


@pytest.mark.parametrize(("name", "stage"), list(zip(STEPS, STAGES["document"][1:], strict=True)))
def test_every_failure_is_told_with_its_stage(name: str, stage: str) -> None:
    """Each step catches everything, keeps its input, and goes through a Pass that names its stage."""
    (catch,) = STATES[name]["Catch"]
    assert catch["ErrorEquals"] == ["States.ALL"]
    assert catch["ResultPath"] == "$.error"
    assert STATES[catch["Next"]] == {
        "Type": "Pass",
        "Result": stage,
        "ResultPath": "$.stage",
        "Next": LAST_RESORT,
    }


def test_every_task_is_covered_by_a_catch() -> None:
    """Tasks have a Catch of their own, those inside a Map the Map's; only the last resort has none."""
    assert {name for name, state in TASKS.items() if "Catch" not in state} == {LAST_RESORT, "EmbedBatch"}
    assert "Catch" in STATES["EmbedChunks"]


def test_every_failed_job_ends_in_a_failed_execution() -> None:
    """The failure branch tells the job first and then fails the execution."""
    assert STATES[LAST_RESORT]["Next"] == "Failed"
    assert STATES["Failed"]["Type"] == "Fail"
    assert STATES["Completed"]["Type"] == "Succeed"


def next_states(state: dict[str, Any]) -> Iterator[str]:
    yield from (rule["Next"] for rule in [state, *state.get("Catch", [])] if "Next" in rule)


def test_every_state_is_reached_and_leads_somewhere() -> None:
    """No state is left over, no transition leads nowhere, and what has no next is an end."""
    reached, todo = set(), [DEFINITION["StartAt"]]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo.extend(next_states(STATES[name]))
    assert reached == set(STATES)
    assert {name for name, state in STATES.items() if not list(next_states(state))} == {"Completed", "Failed"}
    inner = STATES["EmbedChunks"]["ItemProcessor"]
    assert (inner["StartAt"], list(inner["States"]), EMBED_BATCH["End"]) == ("EmbedBatch", ["EmbedBatch"], True)


def test_the_steps_follow_each_other() -> None:
    """Validate, chunk, embed, store, notify, in this order."""
    order, name = [], DEFINITION["StartAt"]
    while name in STATES:
        order.append(name)
        name = STATES[name].get("Next", "")
    assert order == ["ValidateDocument", "ChunkDocument", "NumberBatches", *STEPS[2:], "Completed"]


# What functions are told


def subscripts(function: str, variable: str) -> set[str]:
    """The literal keys with which the handler's code reads `variable`."""
    tree = ast.parse((ROOT / "lambdas" / function / "handler.py").read_text())
    return {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == variable
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    }


def keys(parameters: dict[str, Any]) -> set[str]:
    return {key.removesuffix(".$") for key in parameters}


@pytest.mark.parametrize("function", sorted({"validate_document", "chunk_document", "store_vectors"}))
def test_functions_are_told_what_they_read(function: str) -> None:
    """Every key that a stage's handler reads is among its state's parameters."""
    (state,) = [STATES[name] for name, called in FUNCTIONS.items() if called == function]
    assert subscripts(function, "event")
    assert subscripts(function, "event") <= keys(state["Parameters"])


def test_finish_job_is_told_what_it_reads() -> None:
    """Success and failure between them give every key that the handler reads, but for EventBridge's own."""
    given_keys = keys(STATES["NotifySuccess"]["Parameters"]) | keys(STATES[LAST_RESORT]["Parameters"])
    assert subscripts("finish_job", "event") - {"detail"} <= given_keys
    assert subscripts("finish_job", "result") <= keys(STATES["NotifySuccess"]["Parameters"]["result"])


def test_the_embedder_is_told_what_it_reads() -> None:
    """Every key of the message that the worker or the sweep reads is in the message."""
    body = keys(EMBED_BATCH["Parameters"]["MessageBody"])
    assert subscripts("embed_chunks", "task") | subscripts("sweep", "task") <= body


# Sizes

JOB_ID = "job_" + "Z" * 26
CONTEXT = {
    "Execution": {"Id": "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:" + "m" * 80 + ":" + JOB_ID},
    "Task": {"Token": "t" * 1024},
    "Map": {"Item": {"Value": MAX_BATCHES - 1}},
}
# The longest names that the API takes, made of what is longest in JSON.
INPUT = {
    "job_id": JOB_ID,
    "owner": "o" * 64,
    "document_id": "\U0001f600" * 256,
    "version": "Z" * 26,
    "source_key": "\x01" * 1024,
    "timeout_seconds": 4 * 24 * 3600,
}
RESULTS: dict[str, Any] = {
    "ValidateDocument": {"text_key": f"work/{JOB_ID}/text", "characters": 10**8, "media_type": "m" * 128},
    "ChunkDocument": {
        "chunks": 10**8,
        "batches": MAX_BATCHES,
        "characters": 10**8,
        "last_batch": MAX_BATCHES - 1,
    },
    "StoreVectors": {"index": embedding.index_name("m" * 256, 4096)},
    "NotifySuccess": {"job_id": JOB_ID, "status": "completed"},
}
ERROR = {"Error": "E" * MAX_NAME, "Cause": "\U0001f600" * MAX_CAUSE}


def size(data: Any) -> int:
    """In bytes, in whichever of JSON's spellings is longer but for text of Step Functions' own, which is UTF-8."""
    return max(len(json.dumps(data, ensure_ascii=False).encode()), len(json.dumps(without_cause(data)).encode()))


def without_cause(data: Any) -> Any:
    return {**data, "error": None} if isinstance(data, dict) and "error" in data else data


def journey() -> Iterator[tuple[str, Any, Any]]:
    """(state, its input, what it is given to work with) all along the way to success, in the worst case."""
    data, name = INPUT, DEFINITION["StartAt"]
    while STATES[name]["Type"] != "Succeed":
        state = STATES[name]
        if state["Type"] == "Map":
            items = payloads.path(state["ItemsPath"], data, CONTEXT)
            given_to = [payloads.template(state["ItemSelector"], data, CONTEXT)] * len(items)
            yield name, data, given_to[0]
            data = payloads.output(state, data, [{}] * len(items))
        else:
            given_to = payloads.sent(state, data, CONTEXT)
            yield name, data, given_to
            data = payloads.output(state, data, RESULTS.get(name, given_to))
        name = state["Next"]


@functools.cache
def inputs() -> dict[str, Any]:
    return {name: data for name, data, _ in journey()}


def test_the_journey_passes_every_step() -> None:
    """Every path in the definition finds what it names, from the first state to the last."""
    assert list(inputs()) == [*STEPS[:2], "NumberBatches", *STEPS[2:]]
    assert inputs()["EmbedChunks"]["batches"]["numbers"] == list(range(MAX_BATCHES))
    assert inputs()["NotifySuccess"]["stored"] == RESULTS["StoreVectors"]


@pytest.mark.parametrize("name", [*STEPS[:2], "NumberBatches", *STEPS[2:]])
def test_state_stays_small_whatever_the_document(name: str) -> None:
    """With the longest names and 400 batches, no state comes near an eighth of what Step Functions takes."""
    (given_to,) = [worked_with for state, _, worked_with in journey() if state == name]
    assert size(inputs()[name]) < MAX_STATE_BYTES / 8
    assert size(given_to) < MAX_STATE_BYTES / 8


@pytest.mark.parametrize("name", STEPS)
def test_a_failure_fits_with_all_it_tells(name: str) -> None:
    """Even with the longest cause that Step Functions keeps, the failure branch has room, and finds its paths."""
    (catch,) = STATES[name]["Catch"]
    told = STATES[catch["Next"]]
    data = payloads.placed(inputs()[name], catch["ResultPath"], ERROR)
    data = payloads.output(told, data, told["Result"])
    given_to = payloads.sent(STATES[LAST_RESORT], data, CONTEXT)
    assert set(given_to) == {"job_id", "execution", "stage", "error"}
    assert size(data) < MAX_STATE_BYTES * 2 / 3
    assert size(given_to) < MAX_STATE_BYTES * 2 / 3


def test_the_map_keeps_nothing_of_its_batches() -> None:
    """400 empty answers are all that ever comes together, and they are dropped."""
    assert STATES["EmbedChunks"]["ResultPath"] is None
    assert "ResultPath" not in EMBED_BATCH
    assert "ResultSelector" not in EMBED_BATCH
    assert size([{}] * MAX_BATCHES) < MAX_STATE_BYTES / 100


def test_a_message_to_the_embedder_is_small() -> None:
    """Token, names and numbers of one batch: no text, and a twentieth of what SQS takes."""
    item = payloads.template(STATES["EmbedChunks"]["ItemSelector"], inputs()["EmbedChunks"], CONTEXT)
    message = payloads.sent(EMBED_BATCH, item, CONTEXT)
    assert size(message["MessageBody"]) < MAX_MESSAGE_BYTES / 20
    assert message["MessageBody"]["task_token"] == CONTEXT["Task"]["Token"]
    assert len(message["MessageGroupId"]) <= 128


# History


def events_of(state: dict[str, Any]) -> int:
    """History events that a Task leaves if every retry is used up: entered, exited, and what each attempt adds.

    An attempt is scheduled, started, submitted (where an answer is awaited) and ended; one that is tried again
    was never submitted.
    """
    waits = state["Resource"].endswith(".waitForTaskToken")
    again = sum(retry["MaxAttempts"] for retry in state["Retry"])
    return 2 + 3 * again + (4 if waits else 3)


def test_an_iteration_costs_eight_events() -> None:
    """Without retries: the iteration's two, and six of its task."""
    undisturbed = {**EMBED_BATCH, "Retry": []}
    assert 2 + events_of(undisturbed) == 8


def test_the_history_has_room_for_every_batch() -> None:
    """400 batches, each sent at the last retry, and every other state at its last: well within 25,000 events."""
    iterations = MAX_BATCHES * (2 + events_of(EMBED_BATCH))
    tasks = sum(events_of(state) for name, state in TASKS.items() if name != "EmbedBatch")
    others = 4 * len(STATES) + 4
    assert iterations + tasks + others < MAX_EVENTS / 2
    assert MAX_BATCHES <= MAX_ARRAY_RANGE


@given(chunks=st.integers(1, 10**9), usual=st.integers(1, 500))
@example(chunks=400 * 16, usual=16)
@example(chunks=400 * 16 + 1, usual=16)
def test_batches_never_outnumber_the_history(chunks: int, usual: int) -> None:
    """However long the document, it has 400 batches at most, larger than usual only where they must be."""
    in_each = batch_size(chunks, usual)
    batches = math.ceil(chunks / in_each)
    assert 1 <= batches <= MAX_BATCHES
    assert in_each >= usual
    assert in_each == usual or math.ceil(chunks / (in_each - 1)) > MAX_BATCHES
