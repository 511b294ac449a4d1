"""The WebSocket API: routes, stage, access log, account setting, and the functions that send to connections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import synthesised
from tests.stacks.templates import ARN, Assembly, Template, resources, target

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
ROUTES = {"$connect", "$disconnect", "$default"}
SENDERS = ("on_message", "push", "ping", "worker")
# None of these can contain a token or a text.
LOGGED = {
    *("$context.requestId", "$context.requestTime", "$context.eventType", "$context.routeKey"),
    *("$context.connectionId", "$context.status", "$context.identity.sourceIp"),
}
IDLE_MINUTES = 10  # after which API Gateway closes a connection
V2 = "AWS::ApiGatewayV2"


@pytest.fixture(scope="session")
def without_role(pytestconfig: pytest.Config) -> Assembly:
    """The app with `api_log_role: false`, for an account that has the setting already."""
    return Assembly(
        synthesised(Path(pytestconfig.cache.mkdir("assembly-no-role")), context={"api_log_role": False})
    )


def only(app: Assembly, kind: str) -> dict[str, Any]:
    (found,) = app.of(kind)
    return found.properties


def definition(template: Template, kind: str) -> dict[str, Any]:
    """The only resource of this type, with DependsOn and deletion policies."""
    (logical_id,) = [logical_id for logical_id, _ in resources(template, kind)]
    found: dict[str, Any] = template["Resources"][logical_id]
    return found


def test_api_is_for_websockets(app: Assembly) -> None:
    """The API's protocol is WEBSOCKET, and it selects routes by the message's `action`."""
    api = only(app, f"{V2}::Api")
    assert api["ProtocolType"] == "WEBSOCKET"
    assert api["RouteSelectionExpression"] == "$request.body.action"


def test_routes(app: Assembly) -> None:
    """$connect, $disconnect and all messages go to `on_message`, and no route has a response of its own."""
    routes = {route.properties["RouteKey"]: route.properties for route in app.of(f"{V2}::Route")}
    integrations = {part.name: part.properties for part in app.of(f"{V2}::Integration")}
    assert set(routes) == ROUTES
    for route in routes.values():
        (integration,) = [name for name in integrations if route["Target"] == f"integrations/{name}"]
        assert integrations[integration]["IntegrationType"] == "AWS_PROXY"
        assert app.functions()["on_message"].name in integrations[integration]["IntegrationUri"]
        assert route["AuthorizationType"] == "NONE"
        assert "RouteResponseSelectionExpression" not in route


def test_gateway_may_call_on_message(app: Assembly) -> None:
    """Each route of the API may call the function, and nothing else of the API may."""
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
    """The one stage deploys changes by itself, and its throttling is configured."""
    stage = only(app, f"{V2}::Stage")
    assert (stage["StageName"], stage["AutoDeploy"]) == ("v1", True)
    assert stage["DefaultRouteSettings"] == {
        "ThrottlingRateLimit": CONTEXT["api_throttle_rate"],
        "ThrottlingBurstLimit": CONTEXT["api_throttle_burst"],
    }


def test_the_access_log_has_no_query(app: Assembly) -> None:
    """The log has no messages and no query of a handshake, which is a token or a ticket. Its format is JSON."""
    settings = only(app, f"{V2}::Stage")["AccessLogSettings"]
    logged = json.loads(settings["Format"])
    assert set(logged.values()) <= LOGGED
    assert {"request_id", "event", "connection", "status"} <= set(logged)
    assert settings["DestinationArn"] in {ARN + group.name for group in app.of("AWS::Logs::LogGroup")}


def test_no_execution_log(app: Assembly) -> None:
    """Execution logging is off, since it could log messages and queries."""
    settings = only(app, f"{V2}::Stage")["DefaultRouteSettings"]
    assert not settings.keys() & {"LoggingLevel", "DataTraceEnabled"}


def test_stage_depends_on_routes_and_account(service: Template) -> None:
    """An API without routes cannot be deployed, and a stage with a log needs the account's setting."""
    needed = set(definition(service, f"{V2}::Stage")["DependsOn"])
    assert needed >= {logical_id for logical_id, _ in resources(service, f"{V2}::Route")}
    assert needed >= {logical_id for logical_id, _ in resources(service, f"{V2}::Integration")}
    assert needed >= {logical_id for logical_id, _ in resources(service, "AWS::ApiGateway::Account")}


def test_rest_stage_depends_on_account(service: Template) -> None:
    """The stage of the REST API has a log as well, so it needs the account's setting."""
    (account,) = [logical_id for logical_id, _ in resources(service, "AWS::ApiGateway::Account")]
    assert account in definition(service, "AWS::ApiGateway::Stage")["DependsOn"]


def test_account_waits_for_an_api(service: Template) -> None:
    """The account's setting is made after the REST API: an account that never had an API refuses it."""
    (api,) = [logical_id for logical_id, _ in resources(service, "AWS::ApiGateway::RestApi")]
    assert api in definition(service, "AWS::ApiGateway::Account")["DependsOn"]


def test_account_may_write_logs(service: Template) -> None:
    """The account's role can be assumed by API Gateway and can write logs. Account and role outlive the stack."""
    account = definition(service, "AWS::ApiGateway::Account")
    role = service["Resources"][target(account["Properties"]["CloudWatchRoleArn"])]
    (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "apigateway.amazonaws.com"}
    assert "AmazonAPIGatewayPushToCloudWatchLogs" in json.dumps(role["Properties"]["ManagedPolicyArns"])
    for kept in (account, role):
        assert (kept["DeletionPolicy"], kept["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_account_setting_can_be_left_out(whole: Assembly, without_role: Assembly) -> None:
    """With `api_log_role: false` there is neither the account's setting nor its role; the rest is the same."""
    assert without_role.of("AWS::ApiGateway::Account") == []
    names = {
        name: {resource.name for resource in assembly.resources}
        for name, assembly in (("with", whole), ("without", without_role))
    }
    assert names["with"] - names["without"] == {"GatewayLogs/Role", "GatewayLogs/Account"}
    assert names["without"] <= names["with"]
    for kind in (f"{V2}::Stage", "AWS::ApiGateway::Stage"):
        assert only(without_role, kind) == only(whole, kind)


def test_log_groups_are_deleted_with_the_stack(service: Template) -> None:
    """Every log group of the stack, those of access logs too, has the deletion policy Delete."""
    groups = {
        logical_id: service["Resources"][logical_id]["DeletionPolicy"]
        for logical_id, _ in resources(service, "AWS::Logs::LogGroup")
    }
    assert set(groups.values()) == {"Delete"}
    assert any("LiveAccess" in logical_id for logical_id in groups)


def test_functions_with_the_url(app: Assembly) -> None:
    """The functions that send to connections, and `api` for its links and tickets, have the stage's URL."""
    (api,) = app.of(f"{V2}::Api")
    urls = {
        name: function.properties["Environment"]["Variables"].get("LIVE_URL")
        for name, function in app.functions().items()
    }
    found = {name: url for name, url in urls.items() if url}
    assert set(found) == {"api", *SENDERS}
    # ApiEndpoint begins with wss://
    assert set(found.values()) == {f"{ARN}{api.name}.ApiEndpoint/{only(app, f'{V2}::Stage')['StageName']}"}


def test_pings_keep_connections_open(app: Assembly) -> None:
    """If one ping fails, the next still comes before the gateway closes an idle connection."""
    ping = app.functions()["ping"]
    (rule,) = [
        rule.properties
        for rule in app.of("AWS::Events::Rule")
        if any(one["Arn"] == ARN + ping.name for one in rule.properties["Targets"])
    ]
    minutes = int(rule["ScheduleExpression"].removeprefix("rate(").split()[0])
    assert 2 * minutes < IDLE_MINUTES
    assert rule.get("State", "ENABLED") == "ENABLED"


def test_on_message_ends_before_the_gateway_times_out(app: Assembly) -> None:
    """The gateway waits 29 s for an integration."""
    assert app.functions()["on_message"].properties["Timeout"] <= 29


def test_push_reads_a_shard_in_order(app: Assembly) -> None:
    """`push` gets one batch of a shard at a time, and gives up a record after less than 100 retries."""
    name = app.functions()["push"].name
    (mapping,) = [
        mapping.properties
        for mapping in app.of("AWS::Lambda::EventSourceMapping")
        if mapping.properties["FunctionName"] == name
    ]
    assert mapping.get("ParallelizationFactor", 1) == 1
    assert mapping["MaximumRetryAttempts"] < 100


@pytest.mark.parametrize("name", SENDERS)
def test_senders_may_manage_connections(app: Assembly, name: str) -> None:
    """The function may send to connections and close them, by one statement on @connections."""
    role = app.functions()[name].properties["Role"]
    policies = [
        policy.properties["PolicyDocument"]["Statement"]
        for policy in app.of("AWS::IAM::Policy")
        if any(ARN + one == role for one in policy.properties["Roles"])
    ]
    found = [one for policy in policies for one in policy if one["Action"] == "execute-api:ManageConnections"]
    assert [one["Resource"].rpartition("/")[0].endswith("@connections") for one in found] == [True]
