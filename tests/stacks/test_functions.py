"""What functions have in common, and how their limits fit the numbers in their code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.llm.in_flight import INVOCATION_SECONDS
from core.webhooks.deliveries.store import LEASE_SECONDS
from jobs.worker import handler as worker
from kinds.document import batches
from kinds.embedding.lines import MAX_LINES
from rest.api.handler import router as open_routes
from stacks.kinds import embedding
from tests.stacks.templates import ARN, Assembly, Resource
from webhooks.retry_scheduler import handler as retry_scheduler
from webhooks.sender import polling

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
LAMBDA_MAX_TIMEOUT = 900  # seconds
GATEWAY_TIMEOUT = 29  # seconds
MAX_WEBHOOK_TIMEOUT = 30  # seconds, the bound in stacks/config.py


def mapping_of(app: Assembly, function: str) -> Resource:
    name = app.functions()[function].name
    (found,) = [m for m in app.of("AWS::Lambda::EventSourceMapping") if m.properties["FunctionName"] == name]
    return found


def queue_of(app: Assembly, function: str) -> Resource:
    arn = mapping_of(app, function).properties["EventSourceArn"]
    (found,) = [queue for queue in app.of("AWS::SQS::Queue") if ARN + queue.name == arn]
    return found


def test_runtime_architecture_and_tracing(app: Assembly) -> None:
    """Every function has the configured runtime and architecture, and X-Ray tracing."""
    found = {
        (f["Runtime"], *f["Architectures"], f["TracingConfig"]["Mode"])
        for f in (function.properties for function in app.of("AWS::Lambda::Function"))
    }
    assert found == {(CONTEXT["runtime"], CONTEXT["architecture"], "Active")}


def test_one_code_asset(app: Assembly) -> None:
    """All functions share one code asset, which a deployment uploads once."""
    assert len({f.properties["Code"]["S3Key"] for f in app.of("AWS::Lambda::Function")}) == 1


def test_each_function_has_a_log_group_of_its_own(app: Assembly) -> None:
    """Every function has a log group of the stack. A group that Lambda creates would never expire."""
    groups = [f.properties["LoggingConfig"]["LogGroup"] for f in app.of("AWS::Lambda::Function")]
    assert len(set(groups)) == len(groups)
    assert set(groups) <= {group.name for group in app.of("AWS::Logs::LogGroup")}


@pytest.mark.parametrize(("name", "days"), [("app", 30), ("overridden", 60)])
def test_log_retention_is_configured(request: pytest.FixtureRequest, name: str, days: int) -> None:
    """Every log group has `log_retention_days`, rounded up to a number of days that CloudWatch offers."""
    assembly: Assembly = request.getfixturevalue(name)
    assert {group.properties["RetentionInDays"] for group in assembly.of("AWS::Logs::LogGroup")} == {days}


def test_reserved_concurrency(app: Assembly, overridden: Assembly) -> None:
    """Nothing is reserved by default. The knobs reserve for the long poll, the search and both parsers."""
    found = [
        {
            name: function.properties["ReservedConcurrentExecutions"]
            for name, function in assembly.functions().items()
            if "ReservedConcurrentExecutions" in function.properties
        }
        for assembly in (app, overridden)
    ]
    parsers = {"validate_document": 50, "chunk_document": 50, "plan_summary": 50}
    assert found == [{}, {"long_poll": 300, "search": 20, **parsers}]


def test_limits_of_an_owner_fit_the_account(app: Assembly, overridden: Assembly) -> None:
    """In an account of 10, one owner holds four requests and runs four jobs; in one of 1,000, as configured."""
    names = (("long_poll", "MAX_HOLDS_PER_OWNER"), ("start_job", "MAX_RUNNING_JOBS"))
    found = [
        [assembly.functions()[function].properties["Environment"]["Variables"][name] for function, name in names]
        for assembly in (app, overridden)
    ]
    assert found == [["4", "4"], ["100", "50"]]


def test_places_of_calls_outlive_no_worker(app: Assembly) -> None:
    """A place among an owner's calls of models is kept as long as the worker may run."""
    assert app.functions()["worker"].properties["Timeout"] == INVOCATION_SECONDS


def test_small_accounts_are_told(app: Assembly, overridden: Assembly) -> None:
    """Synthesis says what an account lacks that is too small for reservations."""
    assert ["account_concurrency is 10" in made.metadata for made in (app, overridden)] == [True, False]


def test_what_only_waits_has_little_memory(app: Assembly) -> None:
    """`long_poll` has half the memory of the smallest other function behind the API, since it sleeps."""
    memory = {name: app.functions()[name].properties["MemorySize"] for name in ("long_poll", "authorizer")}
    assert memory == {"long_poll": 256, "authorizer": 512}


def test_layers_of_functions(app: Assembly) -> None:
    """Every function has the base layer. Parsers, regex, numpy and ed25519 are only in functions that use them."""
    layers = {
        function: [layer.rpartition("/")[2] for layer in resource.properties["Layers"]]
        for function, resource in app.functions().items()
    }
    assert all(found[0] == "BaseLayer" for found in layers.values())
    assert {f: found[1:] for f, found in layers.items() if found[1:]} == {
        "validate_document": ["DocumentsLayer"],
        "chunk_document": ["ChunkingLayer"],
        "plan_summary": ["DocumentsLayer"],
        "search": ["VectorsLayer"],
        "worker": ["VectorsLayer"],
        **{name: ["TablesLayer"] for name in ("clean_dataset", "export_results")},
        **{name: ["TrainingLayer"] for name in ("train_model", "predict_rows")},
        "report_results": ["PlotsLayer"],
        **{name: ["SigningLayer"] for name in ("api", "sender")},
    }


def test_every_requirements_file_is_a_layer(app: Assembly) -> None:
    """Every file in lambdas/requirements is deployed as a layer, `openai` only if a model needs it."""
    deployed = {layer.name.rpartition("/")[2] for layer in app.of("AWS::Lambda::LayerVersion")}
    files = (Path(__file__).parents[2] / "lambdas" / "requirements").glob("*.txt")
    assert deployed == {f"{file.stem.capitalize()}Layer" for file in files if file.stem != "openai"}


def test_layers_can_be_switched_off(overridden: Assembly) -> None:
    """`layers: false` deploys no layer."""
    assert overridden.of("AWS::Lambda::LayerVersion") == []


def test_worker_knows_its_last_receive(app: Assembly) -> None:
    """`worker` fails a task on the receive after which SQS moves the message to the DLQ."""
    redrive = queue_of(app, "worker").properties["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == worker.LAST_RECEIVE


def test_sender_sends_a_whole_batch_in_parallel(app: Assembly) -> None:
    """`sender` has a thread for each message of the mapping's batch, so all of them end within one timeout."""
    assert mapping_of(app, "sender").properties["BatchSize"] == polling.BATCH


def test_sender_has_time_for_its_last_group(app: Assembly) -> None:
    """A group that is taken at the end has a whole webhook timeout, and 10 s to wait for room and to be stored."""
    taken_until = polling.POLL_SECONDS + CONTEXT["webhook_timeout_seconds"]
    timeout = app.functions()["sender"].properties["Timeout"]
    assert timeout >= taken_until + CONTEXT["webhook_timeout_seconds"] + 10


def test_delivery_lease_outlasts_the_sender(app: Assembly) -> None:
    """A lease ends after the longest run of the sender, and before SQS makes the message visible again."""
    slack = app.functions()["sender"].properties["Timeout"] - 2 * CONTEXT["webhook_timeout_seconds"]
    assert slack + 2 * MAX_WEBHOOK_TIMEOUT < LEASE_SECONDS
    assert queue_of(app, "sender").properties["VisibilityTimeout"] > LEASE_SECONDS


def test_worker_reserves_a_small_part_of_its_timeout(app: Assembly) -> None:
    """The time that is reserved for storing vectors is at most a fifth of the worker's timeout."""
    assert app.functions()["worker"].properties["Timeout"] >= batches.RESERVE_SECONDS * 5


def test_rest_functions_end_before_the_gateway_times_out(app: Assembly) -> None:
    """API Gateway ends a request after 29 s. A long poll has 4 s for its last read of the job."""
    functions = app.functions()
    names = ("api", "long_poll", "search", "authorizer")
    assert all(functions[name].properties["Timeout"] <= GATEWAY_TIMEOUT for name in names)
    assert CONTEXT["wait_seconds_max"] + 4 <= functions["long_poll"].properties["Timeout"]


def test_scheduled_functions(app: Assembly) -> None:
    """Reaper, retry scheduler and ping run on a schedule, and no other function does."""
    scheduled = {
        target["Arn"].removeprefix(ARN)
        for rule in app.of("AWS::Events::Rule")
        if "ScheduleExpression" in rule.properties
        for target in rule.properties["Targets"]
    }
    assert scheduled == {app.functions()[name].name for name in ("reaper", "retry_scheduler", "ping")}


def test_retry_scheduler_stops_before_its_timeout(app: Assembly) -> None:
    """It begins no page of deliveries in the last 10 s of its timeout."""
    assert app.functions()["retry_scheduler"].properties["Timeout"] >= retry_scheduler.SECONDS + 10


def test_parser_limits_are_below_those_of_its_function(app: Assembly) -> None:
    """The parser's subprocess reaches its own limits before Lambda's, so the job fails with the parser's error."""
    validate = app.functions()["validate_document"].properties
    assert validate["MemorySize"] >= CONTEXT["parse_memory_mb"] + 512
    assert validate["Timeout"] >= CONTEXT["parse_timeout_seconds"] + 60
    assert validate["Timeout"] <= LAMBDA_MAX_TIMEOUT


def test_open_paths_are_routes_of_the_api() -> None:
    """`api` answers the paths that the gateway lets through without a key."""
    routes: Any = open_routes._routes
    assert {path for path, *_ in routes} == {"/health", "/openapi.json", "/docs"}


def test_the_disk_has_room_for_all_vectors(app: Assembly) -> None:
    """`export_embedding` has space for the files of as many lines as a job may have."""
    assert embedding.MAX_LINES == MAX_LINES
    function = app.functions()["export_embedding"].properties
    dimensions = int(function["Environment"]["Variables"]["EMBEDDING_DIMENSIONS"])
    longest = len(", -1.23456789e-38")
    needed = MAX_LINES * dimensions * (4 + 4 + longest) / 2**20
    assert function["EphemeralStorage"]["Size"] > needed
