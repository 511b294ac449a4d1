"""State machines in Amazon States Language. `expand` adds retries and error handling, so that files stay short.

- A Task without `Retry` gets one that fits the service which it calls.
- A `Catch` whose `Next` is NotifyFailure gets a `ResultPath`, and leads through a Pass that names the stage.
- The state's name gives the stage: `ChunkDocument` is the stage `chunk`, `NotifySuccess` the stage `notify`.

https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

State = dict[str, Any]
LAST_RESORT = "NotifyFailure"

# https://docs.aws.amazon.com/lambda/latest/dg/invocation-retries.html
CRASHES = ("Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown")
LAMBDA_FAULTS = (
    "Lambda.TooManyRequestsException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
)


class DefinitionError(ValueError):
    """A kind or its state machine cannot be deployed. The message names it and says what to change."""


def expand(
    definition: Mapping[str, Any], *, stages: Sequence[str], retryable: Sequence[str], attempts: int
) -> State:
    """The definition with retries and the failure branch.

    `stages`: all stages of the kind. `retryable`: the names of errors of our code that may be retried.
    `attempts`: how often a Task that calls a function is tried in all. Raises DefinitionError if the name of a
    state gives no stage.
    """
    expanded: State = json.loads(json.dumps(definition))  # a deep copy
    for name, state in tasks(expanded):
        if "Retry" not in state:
            state["Retry"] = _retry(name, state, retryable, attempts)
    states = expanded["States"]
    for name in list(states):
        for catch in states[name].get("Catch", []):
            if catch["Next"] == LAST_RESORT:
                failed = f"{name}Failed"
                if failed in definition["States"]:
                    raise DefinitionError(f"{failed}: a state of this name is added after {name}; choose another")
                catch |= {"ResultPath": "$.error", "Next": failed}
                states[failed] = _stage_pass(stage_of(name, stages))
    return expanded


def single_task(name: str, *, timeout_seconds: int) -> State:
    """The definition of a kind without a file: one Task, whose output is the job's result."""
    caught = [{"ErrorEquals": ["States.ALL"], "Next": LAST_RESORT}]
    job = {"job_id.$": "$.job_id", "execution.$": "$$.Execution.Id"}
    return {
        "Comment": "One stage. State carries keys and small results.",
        "StartAt": name,
        "States": {
            name: {
                "Type": "Task",
                "Resource": f"${{{name}}}",
                "Parameters": job,
                "ResultPath": "$.result",
                "TimeoutSeconds": timeout_seconds,
                "Catch": caught,
                "Next": "NotifySuccess",
            },
            "NotifySuccess": {
                "Type": "Task",
                "Resource": "${FinishJob}",
                "Parameters": {**job, "result.$": "$.result"},
                "ResultPath": None,
                "TimeoutSeconds": 300,
                "Catch": caught,
                "End": True,
            },
            LAST_RESORT: {
                "Type": "Task",
                "Resource": "${FinishJob}",
                "Parameters": {**job, "stage.$": "$.stage", "error.$": "$.error"},
                "ResultPath": None,
                "Next": "Failed",
            },
            "Failed": {"Type": "Fail", "Error": "JobFailed", "Cause": "The job's `error` says why."},
        },
    }


def tasks(definition: Mapping[str, Any]) -> Iterator[tuple[str, State]]:
    """(name, state) of every Task, also inside a Map or a Parallel."""
    for name, state in definition["States"].items():
        if state["Type"] == "Task":
            yield name, state
        for inner in (*state.get("Branches", ()), *filter(None, [state.get("ItemProcessor")])):
            yield from tasks(inner)


def stage_of(name: str, stages: Sequence[str]) -> str:
    """The stage that the state's name begins with. If several match, the longest."""
    found = [stage for stage in stages if re.match(rf"{re.escape(camel(stage))}(?![a-z0-9])", name)]
    if not found:
        raise DefinitionError(
            f"{name}: its name does not begin with a stage of the kind; "
            f"begin it with one of {', '.join(map(camel, stages))}"
        )
    return max(found, key=len)


def camel(name: str) -> str:
    """`fine_tune` as `FineTune`, the form of construct ids and state names."""
    return "".join(part.capitalize() for part in name.split("_"))


def _stage_pass(stage: str) -> State:
    return {"Type": "Pass", "Result": stage, "ResultPath": "$.stage", "Next": LAST_RESORT}


def _retry(name: str, state: State, retryable: Sequence[str], attempts: int) -> list[State]:
    if name == LAST_RESORT:
        return [_rule(["States.ALL"], rate=2, attempts=10, cap=120)]
    resource = str(state["Resource"])
    if ":states:::sqs:" in resource:  # only the sending: a failure from the worker and a timeout are final
        return [_rule(["SQS.AmazonSQSException", "SQS.SdkClientException"], rate=2, attempts=5, cap=60)]
    if not resource.startswith("${"):
        raise DefinitionError(f"{name}: it calls {resource}, so give it a Retry of its own")
    own = [_rule([*retryable, *CRASHES], rate=4, attempts=attempts - 1, cap=120)] if attempts > 1 else []
    return [*own, _rule(LAMBDA_FAULTS, rate=2, attempts=8, cap=120)]


def _rule(errors: Sequence[str], *, rate: int, attempts: int, cap: int) -> State:
    """Waits grow from 2 s by `rate` to at most `cap` seconds, with full jitter."""
    return {
        "ErrorEquals": list(errors),
        "IntervalSeconds": 2,
        "BackoffRate": rate,
        "MaxAttempts": attempts,
        "MaxDelaySeconds": cap,
        "JitterStrategy": "FULL",
    }
