"""The WebSocket front: its routes, what its stage says and writes down, and who knows where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.aws import settings
from live import dependencies as live
from tests.conftest import synthesised
from tests.stacks.templates import ARN, Assembly, Template, resources, target

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
ROUTES = {"$connect", "$disconnect", "$default"}
SPEAKERS = ("on_message", "push", "ping")
# Whatever could carry a token or a text is not among these.
LOGGED = {
    *("$context.requestId", "$context.requestTime", "$context.eventType", "$context.routeKey"),
    *("$context.connectionId", "$context.status", "$context.identity.sourceIp"),
}
IDLE_MINUTES = 10  # after which API Gateway ends a connection
V2 = "AWS::ApiGatewayV2"


@pytest.fixture(scope="session")
def without_role(pytestconfig: pytest.Config) -> Assembly:
    """Where the account has the setting for logs already, or somebody else takes care of it."""
    return Assembly(
        synthesised(Path(pytestconfig.cache.mkdir("assembly-no-role")), context={"api_log_role": False})
    )


def only(app: Assembly, kind: str) -> dict[str, Any]:
    (found,) = app.of(kind)
    return found.properties


def definition(template: Template, kind: str) -> dict[str, Any]:
    """The only resource of this type, with its dependencies and policies."""
    (logical_id,) = [logical_id for logical_id, _ in resources(template, kind)]
    found: dict[str, Any] = template["Resources"][logical_id]
    return found


def test_it_is_a_websocket_api(app: Assembly) -> None:
    """The one API of its kind is for WebSockets, and knows messages by their action."""
    api = only(app, f"{V2}::Api")
    assert api["ProtocolType"] == "WEBSOCKET"
    assert api["RouteSelectionExpression"] == "$request.body.action"


def test_routes(app: Assembly) -> None:
    """Coming, going and every message lead to the one function, and no route answers by itself."""
    routes = {route.properties["RouteKey"]: route.properties for route in app.of(f"{V2}::Route")}
    integrations = {part.name: part.properties for part in app.of(f"{V2}::Integration")}
    assert set(routes) == ROUTES
    for route in routes.values():
        (place,) = [name for name in integrations if route["Target"] == f"integrations/{name}"]
        assert integrations[place]["IntegrationType"] == "AWS_PROXY"
        assert app.functions()["on_message"].name in integrations[place]["IntegrationUri"]
        assert route["AuthorizationType"] == "NONE"
        assert "RouteResponseSelectionExpression" not in route


def test_the_gateway_may_call_its_function(app: Assembly) -> None:
    """Each route may call the function, and nothing else of the API may."""
    (api,) = app.of(f"{V2}::Api")
    function = ARN + app.functions()["on_message"].name
    allowed = [
        permission.properties["SourceArn"].rpartition(":")[2]
        for permission in app.of("AWS::Lambda::Permission")
        if permission.properties["FunctionName"] == function
    ]
    assert len(allowed) == len(ROUTES)
    assert {source.removeprefix(f"{api.name}/") for source in allowed} == {f"*{route}" for route in ROUTES}


def test_the_stage(app: Assembly) -> None:
    """One stage, always the newest deployment, throttled as cdk.json says."""
    stage = only(app, f"{V2}::Stage")
    assert (stage["StageName"], stage["AutoDeploy"]) == ("v1", True)
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": CONTEXT["api_throttle_rate"],
        "ThrottlingBurstLimit": CONTEXT["api_throttle_burst"],
    }


def test_the_access_log_has_no_query(app: Assembly) -> None:
    """A handshake's query is a token or a ticket, so it is not logged, nor is what clients say; it is JSON."""
    settings = only(app, f"{V2}::Stage")["AccessLogSettings"]
    logged = json.loads(settings["Format"])
    assert set(logged.values()) <= LOGGED
    assert {"request_id", "event", "connection", "status"} <= set(logged)
    assert settings["DestinationArn"] in {ARN + group.name for group in app.of("AWS::Logs::LogGroup")}


def test_no_execution_log(app: Assembly) -> None:
    """The gateway's own log could have messages and queries in it, and is off."""
    settings = only(app, f"{V2}::Stage")["DefaultRouteSettings"]
    assert not settings.keys() & {"LoggingLevel", "DataTraceEnabled"}


def test_the_stage_comes_last(service: Template) -> None:
    """An API without routes cannot be deployed, and none with a log before the account may write logs."""
    needed = set(definition(service, f"{V2}::Stage")["DependsOn"])
    assert needed >= {logical_id for logical_id, _ in resources(service, f"{V2}::Route")}
    assert needed >= {logical_id for logical_id, _ in resources(service, f"{V2}::Integration")}
    assert needed >= {logical_id for logical_id, _ in resources(service, "AWS::ApiGateway::Account")}


def test_all_stages_wait_for_the_setting(service: Template) -> None:
    """The HTTP API's stage has a log as well."""
    (account,) = [logical_id for logical_id, _ in resources(service, "AWS::ApiGateway::Account")]
    assert account in definition(service, "AWS::ApiGateway::Stage")["DependsOn"]


def test_the_account_may_write_logs(service: Template) -> None:
    """The setting names a role that API Gateway may take and that can write logs; both outlive the stack."""
    account = definition(service, "AWS::ApiGateway::Account")
    role = service["Resources"][target(account["Properties"]["CloudWatchRoleArn"])]
    (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "apigateway.amazonaws.com"}
    assert "AmazonAPIGatewayPushToCloudWatchLogs" in json.dumps(role["Properties"]["ManagedPolicyArns"])
    for kept in (account, role):
        assert (kept["DeletionPolicy"], kept["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_the_setting_can_be_left_alone(whole: Assembly, without_role: Assembly) -> None:
    """With `api_log_role: false` there is neither setting nor role, and the rest is the same."""
    assert without_role.of("AWS::ApiGateway::Account") == []
    names = {
        name: {resource.name for resource in assembly.resources}
        for name, assembly in (("with", whole), ("without", without_role))
    }
    assert names["with"] - names["without"] == {"GatewayLogs/Role", "GatewayLogs/Account"}
    assert names["without"] <= names["with"]
    for kind in (f"{V2}::Stage", "AWS::ApiGateway::Stage"):
        assert only(without_role, kind) == only(whole, kind)


def test_logs_go_with_the_stack(service: Template) -> None:
    """What outlives the stack is the setting, not the logs."""
    groups = {
        logical_id: service["Resources"][logical_id]["DeletionPolicy"]
        for logical_id, _ in resources(service, "AWS::Logs::LogGroup")
    }
    assert set(groups.values()) == {"Delete"}
    assert any("LiveAccess" in logical_id for logical_id in groups)


def test_who_knows_the_address(app: Assembly) -> None:
    """What speaks to sockets, and what makes links and tickets, has the address of the stage."""
    (api,) = app.of(f"{V2}::Api")
    known = {
        name: function.properties["Environment"]["Variables"].get("LIVE_URL")
        for name, function in app.functions().items()
    }
    knowing = {name: url for name, url in known.items() if url}
    assert set(knowing) == {"api", *SPEAKERS}
    # ApiEndpoint begins with wss://
    assert set(knowing.values()) == {f"{ARN}{api.name}.ApiEndpoint/{only(app, f'{V2}::Stage')['StageName']}"}


def test_the_address_is_told(app: Assembly) -> None:
    """The outputs have it too."""
    assert "LiveUrl" in app.templates["RecadoService"]["Outputs"]


def test_pings_come_in_time(app: Assembly) -> None:
    """A ping may fail once, and the next still comes before the gateway ends a silent connection."""
    ping = app.functions()["ping"]
    (rule,) = [
        rule.properties
        for rule in app.of("AWS::Events::Rule")
        if any(one["Arn"] == ARN + ping.name for one in rule.properties["Targets"])
    ]
    minutes = int(rule["ScheduleExpression"].removeprefix("rate(").split()[0])
    assert 2 * minutes < IDLE_MINUTES
    assert ping.properties["Timeout"] < minutes * 60
    assert rule.get("State", "ENABLED") == "ENABLED"


def test_a_client_is_answered_in_time(app: Assembly) -> None:
    """The gateway waits for 29 seconds, so the function need not run for longer."""
    assert app.functions()["on_message"].properties["Timeout"] <= 29


def test_the_stream_brings_a_job_in_order(app: Assembly) -> None:
    """One reader at a time for a job, which may report how far it came, gives up in the end, and says so."""
    name = app.functions()["push"].name
    (mapping,) = [
        mapping.properties
        for mapping in app.of("AWS::Lambda::EventSourceMapping")
        if mapping.properties["FunctionName"] == name
    ]
    assert mapping.get("ParallelizationFactor", 1) == 1
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert 0 < mapping["MaximumRetryAttempts"] < 100
    assert "OnFailure" in mapping["DestinationConfig"]


@pytest.mark.parametrize("name", SPEAKERS)
def test_speakers_may_speak(app: Assembly, name: str) -> None:
    """What a function reads from its environment is there, and it may speak to the connections of this API."""
    role = app.functions()[name].properties["Role"]
    policies = [
        policy.properties["PolicyDocument"]["Statement"]
        for policy in app.of("AWS::IAM::Policy")
        if any(ARN + one == role for one in policy.properties["Roles"])
    ]
    speaking = [one for policy in policies for one in policy if one["Action"] == "execute-api:ManageConnections"]
    assert [one["Resource"].rpartition("/")[0].endswith("@connections") for one in speaking] == [True]


def test_the_code_finds_its_settings(app: Assembly, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions' environment has all that their code reads."""
    for name in SPEAKERS:
        variables = app.functions()[name].properties["Environment"]["Variables"]
        for key, value in variables.items():
            monkeypatch.setenv(key, value)
        assert settings.load(live.Settings).live_url == variables["LIVE_URL"]
        for key in variables:
            monkeypatch.delenv(key)
