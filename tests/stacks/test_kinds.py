"""The deployed state machine: its placeholders, its permissions, and its time limits against its functions'."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.stacks.templates import ARN, Assembly, as_list, statements

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "statemachines" / "document.asl.json"
CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def machine(app: Assembly) -> dict[str, Any]:
    (found,) = app.of("AWS::StepFunctions::StateMachine")
    return found.properties


def definition(app: Assembly) -> dict[str, Any]:
    """With its placeholders filled in."""
    given = machine(app)["DefinitionSubstitutions"]
    text = PLACEHOLDER.sub(lambda match: given[match.group(1)], machine(app)["DefinitionString"])
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def states(definition: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every state, those inside a Map too."""
    for name, state in definition["States"].items():
        yield name, state
        if "ItemProcessor" in state:
            yield from states(state["ItemProcessor"])


def called(app: Assembly) -> dict[str, str]:
    """Function by the state that calls it."""
    functions = {ARN + function.name: name for name, function in app.functions().items()}
    return {
        name: functions[state["Resource"]]
        for name, state in states(definition(app))
        if state["Type"] == "Task" and state["Resource"] in functions
    }


def test_every_placeholder_is_filled_and_every_filling_used(app: Assembly) -> None:
    """What the definition asks for is what the construct gives, in both directions."""
    given = set(machine(app)["DefinitionSubstitutions"])
    assert set(PLACEHOLDER.findall(SOURCE.read_text())) == given
    assert set(PLACEHOLDER.findall(machine(app)["DefinitionString"])) == given


def test_the_definition_is_the_file(app: Assembly) -> None:
    """What is deployed is what is read and tested as a file."""
    assert json.loads(machine(app)["DefinitionString"]) == json.loads(SOURCE.read_text())


def test_each_stage_calls_its_function(app: Assembly) -> None:
    """Four functions do the stages; `finish_job` ends the job, well or badly."""
    assert called(app) == {
        "ValidateDocument": "validate_document",
        "ChunkDocument": "chunk_document",
        "StoreVectors": "store_vectors",
        "NotifySuccess": "finish_job",
        "NotifyFailure": "finish_job",
    }


def test_the_machine_may_call_what_it_calls_and_nothing_else(app: Assembly) -> None:
    """CDK grants nothing for a definition that is text, so the grants are held against the text."""
    role = machine(app)["RoleArn"].removeprefix(ARN)
    allowed = {
        resource
        for policy in app.of("AWS::IAM::Policy")
        if role in policy.properties["Roles"]
        for statement in statements(policy.properties)
        if "lambda:InvokeFunction" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
    functions = app.functions()
    arns = {ARN + functions[name].name for name in called(app).values()}
    assert arns <= allowed <= arns | {f"{arn}:$LATEST" for arn in arns}


def test_the_machine_may_send_to_the_queue_it_names(app: Assembly) -> None:
    """The queue that EmbedBatch names is the embedder's, and the role may send to it."""
    (url,) = [
        s["Parameters"]["QueueUrl"]
        for _, s in states(definition(app))
        if s.get("Resource", "").endswith(":sqs:sendMessage.waitForTaskToken")
    ]
    (mapping,) = [
        m
        for m in app.of("AWS::Lambda::EventSourceMapping")
        if m.properties["FunctionName"] == app.functions()["embed_chunks"].name
    ]
    role = machine(app)["RoleArn"].removeprefix(ARN)
    may_send = {
        resource
        for policy in app.of("AWS::IAM::Policy")
        if role in policy.properties["Roles"]
        for statement in statements(policy.properties)
        if "sqs:SendMessage" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
    assert mapping.properties["EventSourceArn"] == ARN + url
    assert may_send == {ARN + url}


def test_functions_end_before_the_state_gives_up(app: Assembly) -> None:
    """A function that is stopped by its own timeout is retried; one that the state gives up on is not."""
    by_name = dict(states(definition(app)))
    limits = {
        name: (app.functions()[function].properties["Timeout"], by_name[name]["TimeoutSeconds"])
        for name, function in called(app).items()
        if name != "NotifyFailure"
    }
    assert all(function < state for function, state in limits.values()), limits


def test_no_configuration_outlasts_the_state(app: Assembly) -> None:
    """Even the longest parsing that cdk.json may ask for ends before the state gives up."""
    limit = dict(states(definition(app)))["ValidateDocument"]["TimeoutSeconds"]
    function = app.functions()["validate_document"].properties["Timeout"]
    longest_parse_timeout = 600  # the bound in stacks/config.py, which test_config.py holds
    assert function - CONTEXT["parse_timeout_seconds"] + longest_parse_timeout < limit


def test_every_transition_is_logged_and_no_data_is(app: Assembly) -> None:
    """The log says what happened to which execution; what passed between states stays out of it."""
    logging = machine(app)["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    assert machine(app)["TracingConfiguration"] == {"Enabled": True}


def test_what_passes_by_every_catch_is_heard(app: Assembly) -> None:
    """An execution that failed, timed out or was aborted calls `finish_job`, for this machine only."""
    (rule,) = [r.properties for r in app.of("AWS::Events::Rule") if "EventPattern" in r.properties]
    (resource,) = app.of("AWS::StepFunctions::StateMachine")
    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "status": ["FAILED", "TIMED_OUT", "ABORTED"],
            "stateMachineArn": [ARN + resource.name],
        },
    }
    assert [target["Arn"] for target in rule["Targets"]] == [ARN + app.functions()["finish_job"].name]
