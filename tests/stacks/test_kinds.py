"""What kinds of jobs have on AWS: their state machines, and what else follows from their declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from core.jobs import run
from stacks.kinds.definition import camel
from tests.stacks.machines import LAST_RESORT, PLACEHOLDER, RUN_BY_MACHINES, Machine, machines
from tests.stacks.own_kinds import OWN, PHOTO_ALBUM, SHIPPED
from tests.stacks.templates import ARN, Assembly, Template, as_list, resources, statements

ROOT = Path(__file__).parents[2]
CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]
INDEXING, NOTIFY, EMBEDDING = "Indexing/Queue", "Webhooks/Notify/Queue", "Embedding/Queue"
QUEUES = {INDEXING, NOTIFY, EMBEDDING, "Webhooks/Webhooks/Queue"}
UNDER_WAY = {
    # Another logical id is another resource: CloudFormation would delete the old one with what is in it.
    *("KindsDocumentMachine8B61F34C", "EmbeddingQueue8FE9C051", "EmbeddingDeadLetters2E2123FF"),
    *("IndexingQueue86BC3118", "IndexingDeadLetters18DDD062"),
    *("WebhooksNotifyQueueC7B8ED3C", "WebhooksNotifyDeadLetters0C3DB03A"),
    *("WebhooksQueue9FEFA2C1", "WebhooksDeadLetters4F5CA89C"),
}
LONGEST_PARSE_TIMEOUT = 600  # the bound in stacks/config.py, which test_config.py holds
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
def its_app(request: pytest.FixtureRequest, machine: Machine) -> Assembly:
    """The app that the machine is a part of."""
    found: Assembly = request.getfixturevalue("own" if machine.kind.name in OWN else "app")
    return found


# Every state machine


def test_every_kind_that_a_machine_runs_has_one(app: Assembly, own: Assembly) -> None:
    """No kind shares one, none is without, there is no other, and each is among the outputs."""
    for assembly, names in ((app, RUN_BY_MACHINES), (own, (*RUN_BY_MACHINES, PHOTO_ALBUM.name))):
        found = machines(assembly)
        assert sorted(found) == sorted(names)
        deployed = [resource.name for resource in assembly.of("AWS::StepFunctions::StateMachine")]
        assert sorted(deployed) == sorted(f"Kinds/{camel(name)}/Machine" for name in names)
        outputs = assembly.templates["RecadoService"]["Outputs"]
        assert {f"{camel(name)}StateMachine" for name in names} <= set(outputs)


def test_every_placeholder_is_filled_and_every_filling_used(machine: Machine) -> None:
    """What the definition asks for is what the construct gives, in both directions."""
    assert set(PLACEHOLDER.findall(machine.text)) == set(machine.fillings)


def test_a_machine_may_call_what_it_calls_and_nothing_else(machine: Machine, its_app: Assembly) -> None:
    """CDK grants nothing for a definition that is text, so the grants are held against the text."""
    arns = {ARN + function.name for function in machine.calling.values()}
    assert arns
    found = may(machine, its_app, "lambda:InvokeFunction")
    assert arns <= found <= arns | {f"{arn}:$LATEST" for arn in arns}


def test_a_machine_may_send_to_the_queue_it_names(machine: Machine, its_app: Assembly) -> None:
    """The one queue that a state may name is the worker's, and the role may send to it, or else to none."""
    queue = worker_queue(its_app)
    urls = {
        PLACEHOLDER.sub(lambda match: machine.fillings[match.group(1)], state["Parameters"]["QueueUrl"])
        for state in machine.tasks.values()
        if ":sqs:" in state["Resource"]
    }
    assert urls <= {queue}
    assert may(machine, its_app, "sqs:SendMessage") == {ARN + url for url in urls}


def worker_queue(app: Assembly) -> str:
    (mapping,) = [
        m
        for m in app.of("AWS::Lambda::EventSourceMapping")
        if m.properties["FunctionName"] == app.functions()["worker"].name
    ]
    return str(mapping.properties["EventSourceArn"]).removeprefix(ARN)


def test_whoever_answers_for_a_batch_may_do_so(machine: Machine, its_app: Assembly) -> None:
    """The worker may answer a token where the machine hands one out; the sweep in any case, and nobody else."""
    hands_out = any(state["Resource"].endswith(".waitForTaskToken") for state in machine.tasks.values())
    answering = {
        name
        for name, function in its_app.functions().items()
        if ARN + machine.resource.name in allowed(its_app, function.properties["Role"], "states:SendTaskFailure")
    }
    assert answering == {"reaper"} | ({"worker"} if hands_out else set())


@pytest.mark.parametrize(
    ("action", "pattern"),
    [
        ("states:StartExecution", "{arn}"),
        ("states:DescribeExecution", "arn:aws:states:eu-west-1:123456789012:execution:{name}:*"),
        ("states:StopExecution", "arn:aws:states:eu-west-1:123456789012:execution:{name}:*"),
    ],
)
def test_one_function_has_executions_in_hand(
    machine: Machine, its_app: Assembly, action: str, pattern: str
) -> None:
    """`indexing` may start, look at and stop a machine's executions, and nobody else may."""
    name = machine.resource.name
    resource = pattern.format(arn=ARN + name, name=name)
    holders = {
        function
        for function, properties in its_app.functions().items()
        if resource in allowed(its_app, properties.properties["Role"], action)
    }
    assert holders == {"start_job"}


def test_functions_end_before_the_state_gives_up(machine: Machine) -> None:
    """A function that is stopped by its own timeout is retried; one that the state gives up on is not."""
    limits = {
        name: (function.properties["Timeout"], machine.tasks[name]["TimeoutSeconds"])
        for name, function in machine.calling.items()
        if name != LAST_RESORT
    }
    assert {name: limit for name, limit in limits.items() if limit[0] >= limit[1]} == {}


def test_every_transition_is_logged_and_no_data_is(machine: Machine, its_app: Assembly) -> None:
    """The log says what happened to which execution; what passed between states stays out of it."""
    logging = machine.resource.properties["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    (destination,) = logging["Destinations"]
    group = destination["CloudWatchLogsLogGroup"]["LogGroupArn"].removeprefix(ARN)
    assert group in {found.name for found in its_app.of("AWS::Logs::LogGroup")}
    assert machine.resource.properties["TracingConfiguration"] == {"Enabled": True}


def test_what_passes_by_every_catch_is_heard(machine: Machine, its_app: Assembly) -> None:
    """An execution that failed, timed out or was aborted calls `finish_job`, by a rule for this machine alone."""
    patterns = [rule.properties for rule in its_app.of("AWS::Events::Rule") if "EventPattern" in rule.properties]
    arn = ARN + machine.resource.name
    (rule,) = [one for one in patterns if arn in one["EventPattern"]["detail"]["stateMachineArn"]]
    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"], "stateMachineArn": [arn]},
    }
    assert [target["Arn"] for target in rule["Targets"]] == [ARN + its_app.functions()["finish_job"].name]
    assert rule.get("State", "ENABLED") == "ENABLED"
    assert len(patterns) == len(machines(its_app))


def test_every_end_goes_through_one_function(machine: Machine) -> None:
    """`finish_job` ends the job, well or badly, whatever its kind."""
    assert {machine.called["NotifySuccess"], machine.called[LAST_RESORT]} == {"finish_job"}


def test_what_is_under_way_stays_where_it_is(service: Template, own: Assembly) -> None:
    """Queues and state machines keep their logical ids, with more kinds too, or an update would replace them."""
    kinds_of_resources = ("AWS::SQS::Queue", "AWS::StepFunctions::StateMachine")
    for template in (service, own.templates["RecadoService"]):
        found = {logical_id for kind in kinds_of_resources for logical_id, _ in resources(template, kind)}
        assert found >= UNDER_WAY


def test_a_kind_may_be_called_like_anything(app: Assembly) -> None:
    """Kinds stand in a scope of their own, so none meets a construct of the stack: `embedding` is a fine name."""
    names = {resource.path.split("/")[1] for resource in app.resources if resource.path.startswith("Kinds/")}
    assert names == {camel(name) for name, kind in SHIPPED.items() if kind.runs_on == "machine"}


# Documents


def test_each_stage_of_a_document_calls_its_function(document: Machine) -> None:
    """Three functions do the stages, and the worker that all kinds share does the embedding."""
    assert document.called == {
        "ValidateDocument": "validate_document",
        "ChunkDocument": "chunk_document",
        "StoreVectors": "store_vectors",
        "NotifySuccess": "finish_job",
        "NotifyFailure": "finish_job",
    }


def test_no_configuration_outlasts_the_state(document: Machine) -> None:
    """Even the longest parsing that cdk.json may ask for ends before the state gives up."""
    function = document.calling["ValidateDocument"].properties["Timeout"]
    limit = document.tasks["ValidateDocument"]["TimeoutSeconds"]
    assert function - CONTEXT["parse_timeout_seconds"] + LONGEST_PARSE_TIMEOUT < limit


# A person's own kind, of which there is nothing but a declaration


def added(app: Assembly, own: Assembly, kind: str) -> set[str]:
    """Construct paths of resources of this type that the two kinds bring."""
    return {resource.name for resource in own.of(kind)} - {resource.name for resource in app.of(kind)}


def test_an_own_kind_adds_nothing_but_its_task(app: Assembly, own: Assembly) -> None:
    """A machine kind has one function and one machine; a kind that the worker runs has nothing at all."""
    assert added(app, own, "AWS::Lambda::Function") == {"Functions/PhotoAlbum"}
    assert added(app, own, "AWS::StepFunctions::StateMachine") == {"Kinds/PhotoAlbum/Machine"}
    assert added(app, own, "AWS::Lambda::EventSourceMapping") == set()
    assert not any(resource.name.startswith("Poem") for resource in own.resources)


@pytest.mark.parametrize("name", ["app", "own", "overridden"])
def test_no_kind_adds_a_queue(request: pytest.FixtureRequest, name: str) -> None:
    """An account limited to 10 executions is used up by four queues and the publisher."""
    assembly: Assembly = request.getfixturevalue(name)
    queues = assembly.of("AWS::SQS::Queue")
    assert {queue.name for queue in queues if "RedrivePolicy" in queue.properties} == QUEUES


def test_an_own_kind_needs_no_file_and_no_construct(own: Assembly) -> None:
    """Its one state is named after its one stage, and calls the handler in its folder."""
    machine = machines(own)[PHOTO_ALBUM.name]
    assert machine.definition["StartAt"] == "PrintOut"
    assert machine.calling["PrintOut"].properties["Handler"] == "kinds.photo_album.handler.handler"
    assert set(machine.called.values()) == {"photo_album", "finish_job"}


def test_the_function_of_an_own_kind_has_what_its_handler_reads(own: Assembly) -> None:
    """`core.jobs.run.task` finds its settings, and the function may run as long as Lambda lets it."""
    function = own.functions()[PHOTO_ALBUM.name].properties
    named = {field.name.upper() for field in fields(run.Settings)}
    assert named == set(function["Environment"]["Variables"]) - {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"}
    assert function["Timeout"] == 900


def test_the_function_of_an_own_kind_may_do_the_ordinary(own: Assembly) -> None:
    """It reads what was submitted, works in the work folder, keeps a large result, and sees no vectors."""
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
    assert allowed(own, role, "dynamodb:PutItem") == {f"{ARN}Jobs", f"{ARN}Jobs/index/*"}


# What each queue hears


def heard(app: Assembly) -> dict[str, set[str] | None]:
    """Types of events by the queue that gets them from SNS; None for all of them."""
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
    started = {f"{kind.name}.{kind.first}" for kind in declared if kind.runs_on == "machine"}
    worked = {f"{kind.name}.{kind.first}" for kind in declared if kind.work is not None}
    ended = {
        f"{kind.name}.{verb}"
        for kind in declared
        if kind.leaves_files
        for verb in (kind.good_end, "failed", "canceled")
    }
    embedding: dict[str, set[str] | None] = {EMBEDDING: worked} if worked else {}
    return {INDEXING: started | ended, NOTIFY: None, **embedding}


def test_queues_hear_what_the_registry_says(app: Assembly, own: Assembly) -> None:
    """`indexing`: what it starts and cleans up after; `embedding`: what it works on; `notify`: everything."""
    assert heard(app) == expected(SHIPPED.values())
    assert heard(own) == expected([*SHIPPED.values(), *OWN.values()])


def test_queues_hear_of_documents_and_of_own_kinds(app: Assembly, own: Assembly) -> None:
    """The same for some kinds in so many words, and nothing of replays, which `dispatch` works on by itself."""
    of_documents = {f"document.{verb}" for verb in ("uploaded", "indexed", "failed", "canceled")}
    indexing = heard(app)[INDEXING] or set()
    assert {name for name in indexing if name.startswith(("document.", "replay."))} == of_documents
    of_albums = {f"photo_album.{verb}" for verb in ("requested", "printed", "failed", "canceled")}
    of_poems = {f"poem.{verb}" for verb in ("written", "failed", "canceled")}
    assert heard(own)[INDEXING] == indexing | of_albums | of_poems
    embedding = heard(app).get(EMBEDDING) or set()
    assert heard(own)[EMBEDDING] == embedding | {"poem.requested"}


@pytest.mark.parametrize("name", ["app", "own", "overridden"])
def test_no_queue_is_subscribed_to_nothing(request: pytest.FixtureRequest, name: str) -> None:
    """A queue that is to hear nothing has no subscription: an empty filter is refused, or lets all through."""
    assembly: Assembly = request.getfixturevalue(name)
    for subscription in assembly.of("AWS::SNS::Subscription"):
        policy = subscription.properties.get("FilterPolicy", {"any": ["thing"]})
        assert policy
        assert all(0 < len(values) <= MAX_FILTER_VALUES for values in policy.values())
