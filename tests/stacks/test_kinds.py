"""The resources of kinds of jobs: state machines, their permissions, and what the queues receive."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kinds.fine_tune.customization import PREFIX
from stacks.kinds.definition import camel
from tests.stacks.machines import LAST_RESORT, PLACEHOLDER, RUN_BY_MACHINES, Machine, machines
from tests.stacks.own_kinds import OWN, PHOTO_ALBUM, SHIPPED
from tests.stacks.templates import ARN, Assembly, as_list, statements

ROOT = Path(__file__).parents[2]
CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]
INDEXING, NOTIFY, EMBEDDING = "Indexing/Queue", "Webhooks/Notify/Queue", "Embedding/Queue"
QUEUES = {INDEXING, NOTIFY, EMBEDDING, "Webhooks/Webhooks/Queue"}
MAX_PARSE_TIMEOUT = 600  # seconds, the bound in stacks/config.py
# https://docs.aws.amazon.com/sns/latest/dg/subscription-filter-policy-constraints.html
MAX_FILTER_VALUES = 150


@pytest.fixture(scope="session")
def document(app: Assembly) -> Machine:
    return machines(app)["document"]


def allowed(app: Assembly, role: str, action: str) -> set[str]:
    """Resources on which the role's policies allow the action."""
    return {
        resource
        for policy in app.of("AWS::IAM::Policy")
        if role.removeprefix(ARN) in policy.properties["Roles"]
        for statement in statements(policy.properties)
        if action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }


def may(machine: Machine, app: Assembly, action: str) -> set[str]:
    return allowed(app, machine.resource.properties["RoleArn"], action)


@pytest.fixture(scope="session")
def its_assembly(request: pytest.FixtureRequest, machine: Machine) -> Assembly:
    """The assembly that the machine belongs to."""
    found: Assembly = request.getfixturevalue("own" if machine.kind.name in OWN else "app")
    return found


# Every state machine


def test_each_kind_has_its_state_machine(app: Assembly, own: Assembly) -> None:
    """Each kind that a machine runs has one machine and an output with its ARN. There are no other machines."""
    for assembly, names in ((app, RUN_BY_MACHINES), (own, (*RUN_BY_MACHINES, PHOTO_ALBUM.name))):
        found = machines(assembly)
        assert sorted(found) == sorted(names)
        deployed = [resource.name for resource in assembly.of("AWS::StepFunctions::StateMachine")]
        assert sorted(deployed) == sorted(f"Kinds/{camel(name)}/Machine" for name in names)
        outputs = assembly.templates["RecadoService"]["Outputs"]
        assert {f"{camel(name)}StateMachine" for name in names} <= set(outputs)


def test_every_placeholder_has_a_substitution(machine: Machine) -> None:
    """The definition's placeholders are the names of its substitutions."""
    assert set(PLACEHOLDER.findall(machine.text)) == set(machine.substitutions)


def test_machine_may_call_its_functions(machine: Machine, its_assembly: Assembly) -> None:
    """A machine may call the functions in its definition, and no others."""
    arns = {ARN + function.name for function in machine.calling.values()}
    assert arns
    found = may(machine, its_assembly, "lambda:InvokeFunction")
    assert arns <= found <= arns | {f"{arn}:$LATEST" for arn in arns}


def test_machine_may_send_to_its_queue(machine: Machine, its_assembly: Assembly) -> None:
    """A state may only send to the worker's queue, and the role may send to it if a state does."""
    queue = worker_queue(its_assembly)
    urls = {
        PLACEHOLDER.sub(lambda match: machine.substitutions[match.group(1)], state["Parameters"]["QueueUrl"])
        for state in machine.tasks.values()
        if ":sqs:" in state["Resource"]
    }
    assert urls <= {queue}
    assert may(machine, its_assembly, "sqs:SendMessage") == {ARN + url for url in urls}


def worker_queue(app: Assembly) -> str:
    (mapping,) = [
        m
        for m in app.of("AWS::Lambda::EventSourceMapping")
        if m.properties["FunctionName"] == app.functions()["worker"].name
    ]
    return str(mapping.properties["EventSourceArn"]).removeprefix(ARN)


def test_functions_that_may_send_task_results(machine: Machine, its_assembly: Assembly) -> None:
    """The reaper may send a task's result to every machine, the worker to those that give out task tokens."""
    gives_tokens = any(state["Resource"].endswith(".waitForTaskToken") for state in machine.tasks.values())
    found = {
        name
        for name, function in its_assembly.functions().items()
        if ARN + machine.resource.name
        in allowed(its_assembly, function.properties["Role"], "states:SendTaskFailure")
    }
    assert found == {"reaper"} | ({"worker"} if gives_tokens else set())


@pytest.mark.parametrize(
    ("action", "pattern"),
    [
        ("states:StartExecution", "{arn}"),
        ("states:DescribeExecution", "arn:aws:states:eu-west-1:123456789012:execution:{name}:*"),
        ("states:StopExecution", "arn:aws:states:eu-west-1:123456789012:execution:{name}:*"),
    ],
)
def test_only_start_job_manages_executions(
    machine: Machine, its_assembly: Assembly, action: str, pattern: str
) -> None:
    """`start_job` may start, describe and stop a machine's executions, and no other function may."""
    name = machine.resource.name
    resource = pattern.format(arn=ARN + name, name=name)
    holders = {
        function
        for function, properties in its_assembly.functions().items()
        if resource in allowed(its_assembly, properties.properties["Role"], action)
    }
    assert holders == {"start_job"}


def test_functions_time_out_before_their_states(machine: Machine) -> None:
    """A function's own timeout is retried, a state's timeout is not."""
    limits = {
        name: (function.properties["Timeout"], machine.tasks[name]["TimeoutSeconds"])
        for name, function in machine.calling.items()
        if name != LAST_RESORT
    }
    assert {name: limit for name, limit in limits.items() if limit[0] >= limit[1]} == {}


def test_every_transition_is_logged_and_no_data_is(machine: Machine, its_assembly: Assembly) -> None:
    """The machine logs all transitions without data, below /aws/vendedlogs/, and is traced."""
    logging = machine.resource.properties["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    (destination,) = logging["Destinations"]
    group = destination["CloudWatchLogsLogGroup"]["LogGroupArn"].removeprefix(ARN)
    names = {
        found.name: found.properties.get("LogGroupName", "") for found in its_assembly.of("AWS::Logs::LogGroup")
    }
    # below this path, one entry of a policy of 5,120 characters serves all groups
    assert names[group] == f"/aws/vendedlogs/states/RecadoService-{group.split('/')[1]}"
    assert machine.resource.properties["TracingConfiguration"] == {"Enabled": True}


def test_ended_executions_call_finish_job(machine: Machine, its_assembly: Assembly) -> None:
    """A rule for this machine calls `finish_job` when an execution failed, timed out or was aborted."""
    patterns = [
        rule.properties
        for rule in its_assembly.of("AWS::Events::Rule")
        if rule.properties.get("EventPattern", {}).get("source") == ["aws.states"]
    ]
    arn = ARN + machine.resource.name
    (rule,) = [one for one in patterns if arn in one["EventPattern"]["detail"]["stateMachineArn"]]
    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"], "stateMachineArn": [arn]},
    }
    assert [target["Arn"] for target in rule["Targets"]] == [ARN + its_assembly.functions()["finish_job"].name]
    assert rule.get("State", "ENABLED") == "ENABLED"
    assert len(patterns) == len(machines(its_assembly))


def test_finish_job_ends_every_job(machine: Machine) -> None:
    """NotifySuccess and NotifyFailure call `finish_job` in every machine."""
    assert {machine.called["NotifySuccess"], machine.called[LAST_RESORT]} == {"finish_job"}


def test_kinds_have_a_scope_of_their_own(app: Assembly) -> None:
    """A kind may have the name of a construct of the stack, such as `embedding`."""
    names = {resource.path.split("/")[1] for resource in app.resources if resource.path.startswith("Kinds/")}
    assert names == {camel(name) for name, kind in SHIPPED.items() if kind.runs_on == "machine"}


# Documents


def test_functions_of_a_document(document: Machine) -> None:
    """Each Task of the machine calls its function. The embedding is a message to the worker."""
    assert document.called == {
        "ValidateDocument": "validate_document",
        "ChunkDocument": "chunk_document",
        "StoreVectors": "store_vectors",
        "NotifySuccess": "finish_job",
        "NotifyFailure": "finish_job",
    }


def test_longest_parse_timeout_ends_before_the_state(document: Machine) -> None:
    """With the largest `parse_timeout_seconds`, the function still times out before its state."""
    function = document.calling["ValidateDocument"].properties["Timeout"]
    limit = document.tasks["ValidateDocument"]["TimeoutSeconds"]
    assert function - CONTEXT["parse_timeout_seconds"] + MAX_PARSE_TIMEOUT < limit


# Fine-tunes


def test_ended_trainings_call_their_function(app: Assembly) -> None:
    """A rule calls `training_ended` when a training that the worker has named has ended."""
    (rule,) = [
        rule.properties
        for rule in app.of("AWS::Events::Rule")
        if rule.properties.get("EventPattern", {}).get("source") == ["aws.bedrock"]
    ]
    assert rule["EventPattern"] == {
        "source": ["aws.bedrock"],
        "detail-type": ["Model Customization Job State Change"],
        "detail": {"jobStatus": ["Completed", "Failed", "Stopped"], "jobName": [{"prefix": PREFIX}]},
    }
    assert [target["Arn"] for target in rule["Targets"]] == [ARN + app.functions()["training_ended"].name]


# Kinds that are only declared


def added(app: Assembly, own: Assembly, kind: str) -> set[str]:
    """Construct paths of resources of this type that the two kinds add."""
    return {resource.name for resource in own.of(kind)} - {resource.name for resource in app.of(kind)}


def test_resources_of_declared_kinds(app: Assembly, own: Assembly) -> None:
    """A kind that a machine runs adds a function and a machine; a kind that the worker runs adds nothing."""
    assert added(app, own, "AWS::Lambda::Function") == {"Functions/PhotoAlbum"}
    assert added(app, own, "AWS::StepFunctions::StateMachine") == {"Kinds/PhotoAlbum/Machine"}
    assert added(app, own, "AWS::Lambda::EventSourceMapping") == set()
    assert not any(resource.name.startswith("Poem") for resource in own.resources)


@pytest.mark.parametrize("name", ["app", "own", "overridden"])
def test_no_kind_adds_a_queue(request: pytest.FixtureRequest, name: str) -> None:
    """There are four queues. With the publisher, they use the 10 concurrent executions of a new account."""
    assembly: Assembly = request.getfixturevalue(name)
    queues = assembly.of("AWS::SQS::Queue")
    assert {queue.name for queue in queues if "RedrivePolicy" in queue.properties} == QUEUES


def test_declared_kind_calls_the_handler_in_its_folder(own: Assembly) -> None:
    """The machine's one state has the name of the kind's stage and calls `kinds/<kind>/handler.py`."""
    machine = machines(own)[PHOTO_ALBUM.name]
    assert machine.definition["StartAt"] == "PrintOut"
    assert machine.calling["PrintOut"].properties["Handler"] == "kinds.photo_album.handler.handler"
    assert set(machine.called.values()) == {"photo_album", "finish_job"}


def test_default_settings_of_a_kinds_function(own: Assembly) -> None:
    """The function has the settings that `core.tasks.task` reads, and Lambda's longest timeout."""
    function = own.functions()[PHOTO_ALBUM.name].properties
    common = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"}
    assert set(function["Environment"]["Variables"]) - common == {"JOBS_TABLE", "DATA_BUCKET"}
    assert function["Timeout"] == 900


def test_default_grants_of_a_kinds_function(own: Assembly) -> None:
    """The function may read inputs and uploads, use `work/`, store results, and has no access to vectors."""
    role = own.functions()[PHOTO_ALBUM.name].properties["Role"]
    objects = {
        action: {resource.partition("/")[2] for resource in allowed(own, role, f"s3:{action}")}
        for action in ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")
    }
    assert objects == {
        "GetObject": {"inputs/*", "uploads/*", "work/*"},
        "PutObject": {"work/*", "results/*"},
        "DeleteObject": {"work/*"},
        "AbortMultipartUpload": set(),
    }
    for call in ("GetItem", "PutItem", "UpdateItem"):
        assert allowed(own, role, f"dynamodb:{call}") == {f"{ARN}Jobs"}
    for call in ("DeleteItem", "Scan", "Query"):
        assert allowed(own, role, f"dynamodb:{call}") == set()


# Subscriptions


def subscribed(app: Assembly) -> dict[str, set[str] | None]:
    """Event types by the queue that SNS sends them to; None: all types."""
    found: dict[str, set[str] | None] = {}
    for subscription in app.of("AWS::SNS::Subscription"):
        if subscription.properties["Protocol"] == "sqs":
            policy: dict[str, Any] | None = subscription.properties.get("FilterPolicy")
            assert policy is None or set(policy) == {"event_type"}
            queue = subscription.properties["Endpoint"].removeprefix(ARN)
            assert queue not in found
            found[queue] = None if policy is None else set(policy["event_type"])
    return found


def expected(kinds: Iterable[Any]) -> dict[str, set[str] | None]:
    declared = list(kinds)
    started = {f"{kind.name}.{kind.submitted_verb}" for kind in declared if kind.runs_on == "machine"}
    worked = {f"{kind.name}.{kind.submitted_verb}" for kind in declared if kind.work is not None}
    ended = {
        f"{kind.name}.{verb}"
        for kind in declared
        if kind.needs_clean_up
        for verb in (kind.completed_verb, "failed", "canceled")
    }
    embedding: dict[str, set[str] | None] = {EMBEDDING: worked} if worked else {}
    return {INDEXING: started | ended, NOTIFY: None, **embedding}


def test_queues_get_the_events_that_kinds_declare(app: Assembly, own: Assembly) -> None:
    """`indexing` gets first events for machines and final events, `embedding` first events for the worker."""
    assert subscribed(app) == expected(SHIPPED.values())
    assert subscribed(own) == expected([*SHIPPED.values(), *OWN.values()])


def test_replays_are_only_sent_to_notify(app: Assembly) -> None:
    """`dispatch` runs replays, so neither `indexing` nor `embedding` gets their events."""
    filtered = [name for names in subscribed(app).values() for name in names or ()]
    assert filtered
    assert not any(name.startswith("replay.") for name in filtered)


@pytest.mark.parametrize("name", ["app", "own", "overridden"])
def test_filters_of_subscriptions_have_values(request: pytest.FixtureRequest, name: str) -> None:
    """No filter is empty, since SNS refuses it or lets all events through, or larger than SNS allows."""
    assembly: Assembly = request.getfixturevalue(name)
    for subscription in assembly.of("AWS::SNS::Subscription"):
        policy = subscription.properties.get("FilterPolicy", {"any": ["thing"]})
        assert policy
        assert all(0 < len(values) <= MAX_FILTER_VALUES for values in policy.values())
