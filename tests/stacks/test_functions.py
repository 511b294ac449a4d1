"""All functions are alike where they should be, and agree with the numbers in their own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.webhooks.deliveries.store import LEASE_SECONDS
from jobs.worker import handler as embed_chunks
from kinds.document import batches
from rest.api.handler import router as open_routes
from tests.stacks.templates import ARN, Assembly, Resource
from webhooks.retry_scheduler import handler as webhook_waker
from webhooks.sender import handler as webhook_sender

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
STREAM_LIMIT_SECONDS = 900
LONGEST_WEBHOOK_TIMEOUT = 30


def mapping_of(app: Assembly, function: str) -> Resource:
    name = app.functions()[function].name
    (found,) = [m for m in app.of("AWS::Lambda::EventSourceMapping") if m.properties["FunctionName"] == name]
    return found


def queue_of(app: Assembly, function: str) -> Resource:
    arn = mapping_of(app, function).properties["EventSourceArn"]
    (found,) = [queue for queue in app.of("AWS::SQS::Queue") if ARN + queue.name == arn]
    return found


def test_runtime_and_architecture_are_configured(app: Assembly) -> None:
    """Every function runs on the configured runtime and architecture, and is traced."""
    alike = {
        (f["Runtime"], *f["Architectures"], f["TracingConfig"]["Mode"])
        for f in (function.properties for function in app.of("AWS::Lambda::Function"))
    }
    assert alike == {(CONTEXT["runtime"], CONTEXT["architecture"], "Active")}


def test_one_code_asset(app: Assembly) -> None:
    """All functions share one asset, so a deployment uploads the code once."""
    assert len({f.properties["Code"]["S3Key"] for f in app.of("AWS::Lambda::Function")}) == 1


def test_each_function_has_a_log_group_of_its_own(app: Assembly) -> None:
    """No function creates its own group, which would keep logs for ever."""
    groups = [f.properties["LoggingConfig"]["LogGroup"] for f in app.of("AWS::Lambda::Function")]
    assert len(set(groups)) == len(groups)
    assert set(groups) <= {group.name for group in app.of("AWS::Logs::LogGroup")}


@pytest.mark.parametrize(("name", "days"), [("app", 30), ("overridden", 60)])
def test_logs_are_kept_as_configured(request: pytest.FixtureRequest, name: str, days: int) -> None:
    """Every log group is kept for `log_retention_days`, rounded up to what CloudWatch offers."""
    assembly: Assembly = request.getfixturevalue(name)
    assert {group.properties["RetentionInDays"] for group in assembly.of("AWS::Logs::LogGroup")} == {days}


def test_layers_hold_what_functions_import(app: Assembly) -> None:
    """Every function has the base layer; parsers, numpy and ed25519 only where they are used."""
    layers = {
        function: [layer.rpartition("/")[2] for layer in resource.properties["Layers"]]
        for function, resource in app.functions().items()
    }
    assert all(found[0] == "BaseLayer" for found in layers.values())
    assert {f: found[1:] for f, found in layers.items() if found[1:]} == {
        "validate_document": ["DocumentsLayer"],
        "search": ["VectorsLayer"],
        **{name: ["SigningLayer"] for name in ("api", "sender")},
    }


def test_every_requirements_file_is_a_layer(app: Assembly) -> None:
    """None is pinned and never deployed."""
    deployed = {layer.name.rpartition("/")[2] for layer in app.of("AWS::Lambda::LayerVersion")}
    files = (Path(__file__).parents[2] / "lambdas" / "requirements").glob("*.txt")
    assert deployed == {f"{file.stem.capitalize()}Layer" for file in files}


def test_no_layers_where_the_environment_has_them(overridden: Assembly) -> None:
    """`layers: false` deploys none."""
    assert overridden.of("AWS::Lambda::LayerVersion") == []


def test_the_last_receive_is_the_last(app: Assembly) -> None:
    """`embed_chunks` fails the task on the very receive after which SQS gives the message up."""
    redrive = queue_of(app, "worker").properties["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == embed_chunks.LAST_RECEIVE


def test_a_batch_of_deliveries_is_sent_at_once(app: Assembly) -> None:
    """`webhook_sender` has a thread for each message of a batch, so one deadline is enough for all."""
    assert mapping_of(app, "sender").properties["BatchSize"] == webhook_sender.BATCH


def test_the_last_batch_of_a_sender_has_its_time(app: Assembly) -> None:
    """A batch that it takes itself at the last moment may last a whole deadline, and be written down."""
    slack = app.functions()["sender"].properties["Timeout"] - CONTEXT["webhook_timeout_seconds"]
    assert slack >= webhook_sender.DRAIN_SECONDS + 10


def test_a_claim_outlives_its_sender(app: Assembly) -> None:
    """A lease ends after the sender that took it, at any timeout, and before its message comes again."""
    slack = app.functions()["sender"].properties["Timeout"] - CONTEXT["webhook_timeout_seconds"]
    assert slack + LONGEST_WEBHOOK_TIMEOUT < LEASE_SECONDS
    assert queue_of(app, "sender").properties["VisibilityTimeout"] > LEASE_SECONDS


def test_the_embedder_has_time_left_to_write_down(app: Assembly) -> None:
    """What is reserved to keep what was paid for is a small part of the worker's timeout."""
    assert app.functions()["worker"].properties["Timeout"] >= batches.RESERVE_SECONDS * 5


def test_what_holds_a_request_open_is_shorter_than_the_gateway(app: Assembly) -> None:
    """API Gateway gives up after 29 s; waiting and its last look at the job fit in."""
    functions = app.functions()
    assert all(
        functions[name].properties["Timeout"] <= 29 for name in ("api", "long_poll", "search", "authorizer")
    )
    assert CONTEXT["wait_seconds_max"] + 4 <= functions["long_poll"].properties["Timeout"]


def test_three_functions_look_around(app: Assembly) -> None:
    """The sweep and the webhook waker for what no message and no Catch would tell; one keeps WebSockets open."""
    scheduled = {
        target["Arn"].removeprefix(ARN)
        for rule in app.of("AWS::Events::Rule")
        if "ScheduleExpression" in rule.properties
        for target in rule.properties["Targets"]
    }
    assert scheduled == {app.functions()[name].name for name in ("reaper", "retry_scheduler", "ping")}


def test_the_waker_stops_before_it_is_stopped(app: Assembly) -> None:
    """It begins no page of deliveries that it might not get through."""
    assert app.functions()["retry_scheduler"].properties["Timeout"] >= webhook_waker.SECONDS + 10


def test_the_parser_leaves_memory_and_time_to_its_function(app: Assembly) -> None:
    """The subprocess meets its own limits before Lambda's, so a bomb of a document is told by name."""
    validate = app.functions()["validate_document"].properties
    assert validate["MemorySize"] >= CONTEXT["parse_memory_mb"] + 512
    assert validate["Timeout"] >= CONTEXT["parse_timeout_seconds"] + 60
    assert validate["Timeout"] <= STREAM_LIMIT_SECONDS


def test_the_open_routes_are_in_the_code() -> None:
    """What the gateway lets through without a key is answered by the API itself."""
    routes: Any = open_routes._routes
    assert {path for rule in routes for path in [rule[0]]} == {"/health", "/openapi.json", "/docs"}
