"""What state machines promise, read as they are deployed: errors, retries, time, and the document's sizes."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core import errors, tasks
from core.jobs import Job
from core.jobs.queue_messages import BatchMessage, read_embedding_message
from kinds.document.chunk_document.handler import MAX_BATCHES, batch_size
from kinds.document.index import embedding
from kinds.document.kind import DOCUMENT
from kinds.embedding.planning import MAX_BATCHES as MAX_TEXT_BATCHES
from kinds.registry import KINDS
from kinds.summary.parts import MAX_PARTS
from stacks.kinds.declarations import retryable_errors
from stacks.kinds.definition import expand
from tests.stacks.machines import (
    LAST_RESORT,
    RUN_BY_MACHINES,
    Machine,
    State,
    every_state,
    inner_machines,
    machines,
)
from tests.stacks.templates import Assembly, Resource
from tests.statemachines import payloads

ROOT = Path(__file__).parents[2]
FILES = {path.name.removesuffix(".asl.json"): path for path in (ROOT / "statemachines").glob("*.asl.json")}
STEPS = ("ValidateDocument", "ChunkDocument", "EmbedChunks", "StoreVectors", "NotifySuccess")

# https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
MAX_STATE_BYTES, MAX_EVENTS, MAX_NAME, MAX_CAUSE = 262_144, 25_000, 256, 32_768
MAX_ARRAY_RANGE = 1000  # https://docs.aws.amazon.com/step-functions/latest/dg/intrinsic-functions.html
MAX_MESSAGE_BYTES = 262_144
LAMBDA_SECONDS = 900
# https://docs.aws.amazon.com/lambda/latest/dg/invocation-retries.html and .../dg/concepts-error-handling.html
CRASHES = {"Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown"}
LAMBDA_FAULTS = {
    f"Lambda.{name}"
    for name in ("TooManyRequestsException", "ServiceException", "AWSLambdaException", "SdkClientException")
}
WORKING = {"Task", "Map", "Parallel"}


@pytest.fixture(scope="session")
def document(app: Assembly) -> Machine:
    return machines(app)["document"]


@pytest.fixture(scope="session")
def states(document: Machine) -> dict[str, State]:
    """Those of the document machine, on the highest level."""
    return document.states


@pytest.fixture(scope="session")
def embed_batch(document: Machine) -> State:
    return document.tasks["EmbedBatch"]


def retried(state: State) -> list[str]:
    return [name for retry in state["Retry"] for name in retry["ErrorEquals"]]


def attempts(state: State) -> dict[str, int]:
    """How often in all, by error."""
    return {error: retry["MaxAttempts"] + 1 for retry in state["Retry"] for error in retry["ErrorEquals"]}


def own(names: set[str]) -> set[str]:
    """Names that are not of AWS are names of our classes."""
    return {name for name in names if "." not in name}


def retryable() -> set[str]:
    return {cls.__name__ for cls in errors._subclasses(errors.Retryable) if not cls.__subclasses__()}


def worth_another_try(machine: Machine) -> set[str]:
    """What goes wrong in our code, where the kind has more than one attempt."""
    return retryable() | CRASHES if machine.kind.max_attempts > 1 else set()


def stages_of(machine: Machine) -> list[str]:
    """Of the states that do something; a state machine ends with `notify`."""
    return [*machine.kind.stages, "notify"]


def working(machine: Machine) -> dict[str, State]:
    """The states on the highest level at which something can go wrong, but for the last resort."""
    return {name: s for name, s in machine.states.items() if s["Type"] in WORKING and name != LAST_RESORT}


# The files


def test_every_file_is_a_kinds() -> None:
    """A file is the machine of the kind that it is named after."""
    assert set(FILES) <= set(RUN_BY_MACHINES)


@pytest.mark.parametrize("name", FILES)
def test_what_is_deployed_is_the_file_expanded(app: Assembly, name: str) -> None:
    """Placeholders and all, with the stages and the attempts of its kind, and our own retryable errors."""
    kind = KINDS[name]
    assert machines(app)[name].definition == expand(
        json.loads(FILES[name].read_text()),
        stages=[*kind.stages, "notify"],
        retryable=retryable_errors(),
        attempts=kind.max_attempts,
    )


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_as_readable_as_a_drawing(name: str) -> None:
    """It leaves out what is added: usual retries, where an error is kept, and the states that name a stage."""
    found = dict(every_state(json.loads(FILES[name].read_text())))
    usual = {n for n, s in found.items() if re.match(r"\$\{|.*:states:::sqs:", s.get("Resource", ""))}
    assert {n for n in usual if "Retry" in found[n]} == set()
    assert {n for n, s in found.items() if any("ResultPath" in catch for catch in s.get("Catch", []))} == set()
    assert {n for n, s in found.items() if s["Type"] == "Pass" and s.get("ResultPath") == "$.stage"} == set()


# Errors, in every machine


def test_every_task_is_retried(machine: Machine) -> None:
    """None is given up at the first error."""
    assert {name for name, task in machine.tasks.items() if not task.get("Retry")} == set()


def test_retries_and_retryable_classes_agree(machine: Machine) -> None:
    """A function's state retries exactly the classes that are declared retryable, each by its own name."""
    for name in machine.calling.keys() - {LAST_RESORT}:
        assert own(set(retried(machine.tasks[name]))) == own(worth_another_try(machine))


def test_retries_name_classes_without_children() -> None:
    """Step Functions compares names, so the name of a parent in a Retry would not match its subclasses."""
    assert set(retryable_errors()) == retryable()
    assert all(cls.retryable for cls in errors._subclasses(errors.Retryable))


def test_every_own_name_is_a_class(machine: Machine) -> None:
    """Whatever the definition names anywhere, and is not of AWS, is in the exception tree."""
    named = {
        name
        for _, state in every_state(machine.definition)
        for rule in (*state.get("Retry", []), *state.get("Catch", []))
        for name in rule["ErrorEquals"]
    }
    assert {name for name in own(named) if errors.by_name(name) is None} == set()


def test_crashes_and_faults_of_lambda_are_retried(machine: Machine) -> None:
    """A worker killed for memory or time is tried again, and so is a call that Lambda did not take."""
    for name in machine.calling.keys() - {LAST_RESORT}:
        assert set(retried(machine.tasks[name])) == worth_another_try(machine) | LAMBDA_FAULTS


def test_a_stage_is_tried_as_often_as_its_kind_says(machine: Machine) -> None:
    """What fails in our code gets the kind's attempts in all; what never reached it, more."""
    for name in machine.calling.keys() - {LAST_RESORT}:
        found = attempts(machine.tasks[name])
        assert {found.get(error, 1) for error in retryable() | CRASHES} == {machine.kind.max_attempts}
        assert all(found[error] > machine.kind.max_attempts for error in LAMBDA_FAULTS)


def test_a_document_is_tried_three_times() -> None:
    """The number behind the fact above."""
    assert DOCUMENT.max_attempts == 3


def test_retries_wait_with_jitter_and_a_cap(machine: Machine) -> None:
    """Waits grow, are spread over their whole length, and never pass two minutes; no error has two rules."""
    for task in machine.tasks.values():
        for retry in task["Retry"]:
            assert retry["JitterStrategy"] == "FULL"
            assert retry["BackoffRate"] > 1
            assert 1 <= retry["IntervalSeconds"] <= retry["MaxDelaySeconds"] <= 120
            assert retry["MaxAttempts"] >= 1
        assert len(retried(task)) == len(set(retried(task)))


def test_what_was_sent_to_the_worker_is_not_sent_again(machine: Machine) -> None:
    """The sending alone is retried: what the worker answers, and the deadline, are final."""
    sending = [task for task in machine.tasks.values() if ":sqs:" in task["Resource"]]
    assert all(set(retried(task)) == {"SQS.AmazonSQSException", "SQS.SdkClientException"} for task in sending)


def test_a_batch_is_sent_to_the_worker(embed_batch: State) -> None:
    """The fact above speaks of the document's batches."""
    assert embed_batch["Resource"].endswith(":states:::sqs:sendMessage.waitForTaskToken")


def test_the_last_resort_retries_everything(machine: Machine) -> None:
    """NotifyFailure has nothing behind it, so it tries long, and catches nothing."""
    state = machine.states[LAST_RESORT]
    assert [retry["ErrorEquals"] for retry in state["Retry"]] == [["States.ALL"]]
    assert state["Retry"][0]["MaxAttempts"] >= 10
    assert "Catch" not in state


def test_every_task_has_an_end(machine: Machine) -> None:
    """Without TimeoutSeconds a task waits for 99,999,999 seconds."""
    for task in (task for name, task in machine.tasks.items() if name != LAST_RESORT):
        limits = [task.get("TimeoutSeconds"), task.get("TimeoutSecondsPath")]
        assert sum(limit is not None for limit in limits) == 1
        assert limits[0] is None or limits[0] > 0


def test_no_task_waits_for_a_function_that_is_gone(machine: Machine) -> None:
    """Lambda ends a function after 15 minutes, and its state does not wait much longer."""
    for name in machine.calling.keys() - {LAST_RESORT}:
        assert machine.tasks[name]["TimeoutSeconds"] <= LAMBDA_SECONDS + 60


def test_a_batch_may_take_until_the_deadline(states: dict[str, State], embed_batch: State) -> None:
    """Messages may queue for hours: the limit is what is left of the job's time."""
    assert embed_batch["TimeoutSecondsPath"] == "$.timeout_seconds"
    assert states["EmbedChunks"]["ItemSelector"]["timeout_seconds.$"] == "$.timeout_seconds"


# The failure path, in every machine


def test_every_failure_is_told_with_its_stage(machine: Machine) -> None:
    """Each step catches everything, keeps its input, and goes through a Pass that names a stage of the kind."""
    for name, state in working(machine).items():
        catch = state["Catch"][-1]
        assert (catch["ErrorEquals"], catch["ResultPath"]) == (["States.ALL"], "$.error"), name
        told = machine.states[catch["Next"]]
        assert told | {"Result": "any"} == {
            "Type": "Pass",
            "Result": "any",
            "ResultPath": "$.stage",
            "Next": LAST_RESORT,
        }
        assert told["Result"] in stages_of(machine)


def test_the_last_resort_is_reached_through_a_stage_alone(machine: Machine) -> None:
    """Nothing but a Pass that names a stage leads there, so it always finds job, stage and error."""
    before = {name for name, state in machine.states.items() if LAST_RESORT in next_states(state)}
    assert {machine.states[name].get("ResultPath") for name in before} == {"$.stage"}


def test_every_stage_can_be_told(machine: Machine) -> None:
    """A kind declares no stage in which its machine could not fail."""
    told = {s["Result"] for s in machine.states.values() if s.get("ResultPath") == "$.stage"}
    assert told == set(stages_of(machine))


def test_names_of_states_begin_with_a_stage(machine: Machine) -> None:
    """Whatever does something, inside a Map too, is called after the stage that it belongs to."""
    beginnings = tuple("".join(map(str.capitalize, stage.split("_"))) for stage in stages_of(machine))
    names = {name for name, state in every_state(machine.definition) if state["Type"] in WORKING}
    assert {name for name in names if not name.startswith(beginnings)} == set()


@pytest.mark.parametrize(("name", "stage"), list(zip(STEPS, DOCUMENT.all_stages[1:], strict=True)))
def test_every_step_of_a_document_is_a_stage(states: dict[str, State], name: str, stage: str) -> None:
    """The five steps are the five stages, in order."""
    (catch,) = states[name]["Catch"]
    assert states[catch["Next"]]["Result"] == stage


def test_every_task_is_covered_by_a_catch(machine: Machine) -> None:
    """States that do something have a Catch, those inside a Map the Map's; the last resort has none."""
    assert {name for name, state in machine.states.items() if "Catch" in state} >= set(working(machine))
    inside = machine.tasks.keys() - machine.states.keys()
    covered = {
        name
        for state in working(machine).values()
        for inner in inner_machines(state)
        for name, _ in every_state(inner)
    }
    assert inside <= covered


def test_every_failed_job_ends_in_a_failed_execution(machine: Machine) -> None:
    """The failure branch tells the job first and then fails the execution."""
    assert machine.states[machine.states[LAST_RESORT]["Next"]]["Type"] == "Fail"


def test_a_success_costs_no_state_more(machine: Machine) -> None:
    """NotifySuccess is the end: each state that is entered is charged, and a Succeed state does nothing."""
    assert machine.states["NotifySuccess"]["End"] is True
    assert not [name for name, state in machine.states.items() if state["Type"] == "Succeed"]


def next_states(state: State) -> set[str]:
    rules = (state, *state.get("Catch", []), *state.get("Choices", []))
    found = {rule["Next"] for rule in rules if "Next" in rule}
    return found | ({state["Default"]} if "Default" in state else set())


def test_every_state_is_reached_and_leads_somewhere(machine: Machine) -> None:
    """No state is left over, no transition leads nowhere, and what has no next is an end."""
    assert_connected(machine.definition)
    ends = {state["Type"] for state in machine.states.values() if state.get("End") or not next_states(state)}
    assert ends == {"Task", "Fail"}


def assert_connected(definition: Mapping[str, Any]) -> None:
    states, reached, todo = definition["States"], set(), [definition["StartAt"]]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo.extend(next_states(states[name]))
    assert reached == set(states)
    for name, state in states.items():
        assert next_states(state) or state.get("End") is True or state["Type"] in ("Succeed", "Fail"), name
        for inner in inner_machines(state):
            assert_connected(inner)


def test_the_steps_follow_each_other(document: Machine) -> None:
    """Validate, chunk, embed, store, notify, in this order."""
    order, name = [], document.definition["StartAt"]
    while name in document.states:
        order.append(name)
        name = document.states[name].get("Next", "")
    assert order == list(STEPS)


# What functions are told


def subscripts(path: Path, variable: str) -> set[str]:
    """The literal keys with which the code reads `variable`; none where there is no such file."""
    tree = ast.parse(path.read_text() if path.exists() else "")
    return {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == variable
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    }


def code(function: Resource) -> Path:
    """The file that its handler is in."""
    module = str(function.properties["Handler"]).rpartition(".")[0]
    return ROOT / "lambdas" / f"{module.replace('.', '/')}.py"


def code_of(module: Any) -> Path:
    return Path(module.__file__)


def keys(parameters: dict[str, Any]) -> set[str]:
    return {key.removesuffix(".$") for key in parameters}


def test_functions_are_told_what_they_read(machine: Machine) -> None:
    """Every key that a stage's handler reads is among its state's parameters; `task` makes some handlers."""
    for name, function in machine.calling.items():
        if machine.called[name] != "finish_job":
            read = subscripts(code(function), "event") or subscripts(code_of(tasks), "event")
            assert read
            assert read <= keys(machine.tasks[name]["Parameters"]), name


def test_finish_job_is_told_what_it_reads(machine: Machine) -> None:
    """Success and failure between them give every key that the handler reads, but for EventBridge's own."""
    success, failure = (machine.states[name]["Parameters"] for name in ("NotifySuccess", LAST_RESORT))
    read = subscripts(code(machine.calling["NotifySuccess"]), "event") - {"detail"}
    assert read == {"job_id", "execution", "result", "stage", "error"}
    assert keys(success) == {"job_id", "execution", "result"}
    assert keys(failure) == {"job_id", "execution", "stage", "error"}


def test_the_document_completes_with_what_it_is_told(states: dict[str, State]) -> None:
    """Every field of the result, and of the document in the catalog, is what the last step is given."""
    told = keys(states["NotifySuccess"]["Parameters"]["result"])
    read = subscripts(ROOT / "lambdas/kinds/document/kind.py", "result")
    assert read
    assert read | set(DOCUMENT.result.model_fields) <= told


def test_message_of_a_batch(embed_batch: State) -> None:
    """The message has every key that the worker, the reaper and the kind read."""
    body = keys(embed_batch["Parameters"]["MessageBody"])
    message = read_embedding_message(json.dumps(dict.fromkeys(body, 1)))
    assert isinstance(message, BatchMessage)
    assert (message.token, message.job_id, message.execution, message.batch) == (1, "1", "1", 1)
    embedded = subscripts(ROOT / "lambdas/kinds/document/batches.py", "message")
    assert embedded
    assert embedded <= body


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
GIVEN_TO_EVERY_KIND = {"job_id", "owner", "timeout_seconds"}
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


Journey = Mapping[str, tuple[Any, Any]]


@pytest.fixture(scope="session")
def journey(document: Machine) -> Journey:
    """(its input, what it is given to work with) of every state on the way to success, in the worst case."""
    return dict(steps(document))


def steps(document: Machine) -> Iterator[tuple[str, tuple[Any, Any]]]:
    data, name = INPUT, document.definition["StartAt"]
    while name:
        state = document.states[name]
        if state["Type"] == "Map":
            items = payloads.path(state["ItemsPath"], data, CONTEXT)
            given_to = [payloads.template(state["ItemSelector"], data, CONTEXT)] * len(items)
            yield name, (data, given_to[0])
            data = payloads.output(state, data, [{}] * len(items))
        else:
            given_to = payloads.sent(state, data, CONTEXT)
            yield name, (data, given_to)
            data = payloads.output(state, data, RESULTS.get(name, given_to))
        name = state.get("Next", "")


def test_the_document_is_given_what_its_machine_reads() -> None:
    """The worst case has every key of an execution's input, and no other."""
    times = dict.fromkeys(("created_at", "updated_at", "deadline"), "2026-11-29T14:33:00.123Z")
    job = Job(
        **times,
        job_id=JOB_ID,
        owner="ana",
        kind="document",
        input={"source_key": "inputs/ana/x"},
        subject={"document_id": "manual"},
        expires_at=0,
    )
    assert set(INPUT) == GIVEN_TO_EVERY_KIND | DOCUMENT.execution_input(job).keys()


def test_the_journey_passes_every_step(journey: Journey) -> None:
    """Every path in the definition finds what it names, from the first state to the last."""
    assert list(journey) == list(STEPS)
    assert journey["EmbedChunks"][0]["chunks"]["numbers"] == list(range(MAX_BATCHES))
    assert journey["NotifySuccess"][0]["stored"] == RESULTS["StoreVectors"]


@pytest.mark.parametrize("name", STEPS)
def test_state_stays_small_whatever_the_document(journey: Journey, name: str) -> None:
    """With the longest names and 400 batches, no state comes near an eighth of what Step Functions takes."""
    data, given_to = journey[name]
    assert size(data) < MAX_STATE_BYTES / 8
    assert size(given_to) < MAX_STATE_BYTES / 8


@pytest.mark.parametrize("name", STEPS)
def test_a_failure_fits_with_all_it_tells(states: dict[str, State], journey: Journey, name: str) -> None:
    """Even with the longest cause that Step Functions keeps, the failure branch has room, and finds its paths."""
    (catch,) = states[name]["Catch"]
    told = states[catch["Next"]]
    data = payloads.placed(journey[name][0], catch["ResultPath"], ERROR)
    data = payloads.output(told, data, told["Result"])
    given_to = payloads.sent(states[LAST_RESORT], data, CONTEXT)
    assert set(given_to) == {"job_id", "execution", "stage", "error"}
    assert size(data) < MAX_STATE_BYTES * 2 / 3
    assert size(given_to) < MAX_STATE_BYTES * 2 / 3


def test_the_map_keeps_nothing_of_its_batches(states: dict[str, State], embed_batch: State) -> None:
    """400 empty answers are all that ever comes together, and they are dropped."""
    assert states["EmbedChunks"]["ResultPath"] is None
    assert "ResultPath" not in embed_batch
    assert "ResultSelector" not in embed_batch
    assert size([{}] * MAX_BATCHES) < MAX_STATE_BYTES / 100


def test_a_message_to_the_embedder_is_small(journey: Journey, embed_batch: State) -> None:
    """Token, names and numbers of one batch: no text, and a twentieth of what SQS takes."""
    message = payloads.sent(embed_batch, journey["EmbedChunks"][1], CONTEXT)
    assert size(message["MessageBody"]) < MAX_MESSAGE_BYTES / 20
    assert message["MessageBody"]["task_token"] == CONTEXT["Task"]["Token"]
    assert len(message["MessageGroupId"]) <= 128


# History


def events_of(state: State) -> int:
    """History events that a Task leaves if every retry is used up: entered, exited, and what each attempt adds.

    An attempt is scheduled, started, submitted (where an answer is awaited) and ended; one that is tried again
    was never submitted.
    """
    waits = state["Resource"].endswith(".waitForTaskToken")
    again = sum(retry["MaxAttempts"] for retry in state["Retry"])
    return 2 + 3 * again + (4 if waits else 3)


def test_an_iteration_costs_eight_events(embed_batch: State) -> None:
    """Without retries: the iteration's two, and six of its task."""
    undisturbed = {**embed_batch, "Retry": []}
    assert 2 + events_of(undisturbed) == 8


def test_the_history_has_room_for_every_batch(document: Machine, embed_batch: State) -> None:
    """400 batches, each sent at the last retry, and every other state at its last: well within 25,000 events."""
    iterations = MAX_BATCHES * (2 + events_of(embed_batch))
    tasks = sum(events_of(state) for name, state in document.tasks.items() if name != "EmbedBatch")
    others = 4 * len(document.states) + 4
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


# Fine-tunes


def test_message_of_a_fine_tune(app: Assembly) -> None:
    """The message has every key that the worker, the reaper and the function of the service's events read."""
    task = machines(app)["fine_tune"].tasks["TrainModel"]
    body = task["Parameters"]["MessageBody"]
    message = read_embedding_message(json.dumps(dict.fromkeys(keys(body), 1)))
    assert isinstance(message, BatchMessage)
    assert (message.token, message.job_id, message.execution, message.batch) == (1, "1", "1", 1)
    assert subscripts(ROOT / "lambdas/kinds/fine_tune/training_ended/handler.py", "message") <= keys(body)
    assert task["TimeoutSecondsPath"] == "$.timeout_seconds"


# Summaries


@pytest.fixture(scope="session")
def summary(app: Assembly) -> Machine:
    return machines(app)["summary"]


def test_messages_of_a_summary(summary: Machine) -> None:
    """Both messages have every key that the worker, the reaper and the kind read. The last one asks to merge."""
    read = subscripts(ROOT / "lambdas/kinds/summary/batches.py", "message")
    assert read == {"batch", "execution"}
    for name, merges in (("SummarizePart", False), ("ReduceSummaries", True)):
        body = summary.tasks[name]["Parameters"]["MessageBody"]
        message = read_embedding_message(json.dumps(dict.fromkeys(keys(body), 1)))
        assert isinstance(message, BatchMessage)
        assert (message.token, message.job_id, message.execution, message.batch) == (1, "1", "1", 1)
        assert body.get("reduce", False) is merges


def test_the_calls_of_a_summary_may_take_until_the_deadline(summary: Machine) -> None:
    """Messages may queue for hours: the limit is what is left of the job's time."""
    for name in ("SummarizePart", "ReduceSummaries"):
        assert summary.tasks[name]["TimeoutSecondsPath"] == "$.timeout_seconds"


def test_the_history_has_room_for_every_part(summary: Machine) -> None:
    """400 parts, each sent at the last retry, and every other state at its last: well within 25,000 events."""
    iterations = MAX_PARTS * (2 + events_of(summary.tasks["SummarizePart"]))
    others = sum(events_of(state) for name, state in summary.tasks.items() if name != "SummarizePart")
    assert iterations + others + 4 * len(summary.states) < MAX_EVENTS / 2
    assert MAX_PARTS <= MAX_ARRAY_RANGE
    assert summary.states["SummarizeParts"]["ResultPath"] is None


# Bulk embeddings


@pytest.fixture(scope="session")
def bulk_embedding(app: Assembly) -> Machine:
    return machines(app)["embedding"]


def test_messages_of_a_bulk_embedding(bulk_embedding: Machine) -> None:
    """The message of a batch has every key that the worker, the reaper and the kind read."""
    body = bulk_embedding.tasks["EmbedBatch"]["Parameters"]["MessageBody"]
    assert subscripts(ROOT / "lambdas/kinds/embedding/batches.py", "message") == {"batch", "batches"}
    message = read_embedding_message(json.dumps(dict.fromkeys(keys(body), 1)))
    assert isinstance(message, BatchMessage)
    assert (message.token, message.job_id, message.execution, message.batch) == (1, "1", "1", 1)
    assert "batches" in keys(body)
    assert bulk_embedding.tasks["EmbedBatch"]["TimeoutSecondsPath"] == "$.timeout_seconds"


def test_the_history_has_room_for_every_batch_of_texts(bulk_embedding: Machine) -> None:
    """400 batches, each sent at the last retry, and every other state at its last: well within 25,000 events."""
    iterations = MAX_TEXT_BATCHES * (2 + events_of(bulk_embedding.tasks["EmbedBatch"]))
    others = sum(events_of(state) for name, state in bulk_embedding.tasks.items() if name != "EmbedBatch")
    assert iterations + others + 4 * len(bulk_embedding.states) < MAX_EVENTS / 2
    assert MAX_TEXT_BATCHES <= MAX_ARRAY_RANGE
    assert bulk_embedding.states["EmbedTexts"]["ResultPath"] is None
