"""The WebSocket API, its routes, and the functions that send to its connections."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.gateway_logs import GatewayLogs
from stacks.constructs.jobs_stream import jobs_stream
from stacks.storage import StorageStack

STAGE = "v1"
# API Gateway closes a connection that is idle for ten minutes. A revocation ends connections within five.
PING_EVERY = Duration.minutes(4)


class LiveApi(Construct):
    """`on_message` handles what clients send, `push` sends them new events, `ping` keeps connections open."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        functions: Functions,
        storage: StorageStack,
        logs: GatewayLogs,
    ) -> None:
        super().__init__(scope, construct_id)
        self._config, self._functions, self._storage = config, functions, storage
        self.websocket_api = apigateway.WebSocketApi(self, "Api", api_name=f"{config.name.lower()}-live")
        self.url = f"{self.websocket_api.api_endpoint}/{STAGE}"
        self.on_message = self._on_message()
        self.push = self._push()
        self.ping = self._ping()
        stage = self._stage(logs)
        stage.node.add_dependency(*self._routes())  # an API without routes cannot be deployed

    def _on_message(self) -> lambda_.Function:
        on_message = self._function("OnMessage", "live/on_message", timeout=Duration.seconds(29), keys=True)
        self._storage.grant_jobs(on_message, "GetItem", "PutItem", "DeleteItem", "Query", index=True)
        return on_message

    def _push(self) -> lambda_.Function:
        """The stream's second reader. After a lost record, the job's next event sends all that is missing."""
        push = self._function("Push", "live/push", timeout=Duration.minutes(1), memory_mb=1024)
        calls = ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem", "Query")
        self._storage.grant_jobs(push, *calls, index=True)
        push.add_event_source(
            jobs_stream(
                self._storage,
                filters=[
                    _job_items("event", ["INSERT"]),
                    _job_items("subscription", ["INSERT", "MODIFY"], state="requested"),
                ],
                retry_attempts=10,
                max_record_age=Duration.minutes(10),
            )
        )
        return push

    def _ping(self) -> lambda_.Function:
        ping = self._function("Ping", "live/ping", timeout=Duration.seconds(58), retries=0, keys=True)
        self._storage.grant_jobs(ping, "BatchGetItem", "DeleteItem", index=True)
        call_every(self, "Pings", PING_EVERY, ping)
        return ping

    def _function(
        self,
        construct_id: str,
        handler: str,
        *,
        timeout: Duration,
        memory_mb: int = 512,
        retries: int | None = None,
        keys: bool = False,
    ) -> lambda_.Function:
        """A function that may send to connections and close them. `keys`: it also reads the epochs of owners."""
        function = self._functions.create(
            construct_id,
            handler,
            timeout=timeout,
            memory_mb=memory_mb,
            retries=retries,
            environment={"JOBS_TABLE": self._storage.jobs.table_name, "LIVE_URL": self.url}
            | ({"KEYS_TABLE": self._storage.keys.table_name} if keys else {}),
        )
        if keys:
            self._storage.grant_epochs(function)
        self.websocket_api.grant_manage_connections(function)
        return function

    def _routes(self) -> list[apigateway.WebSocketRoute]:
        """No authorizer: `on_message` checks the job's link or the ticket of a new connection itself."""
        routes = {"connect": "$connect", "disconnect": "$disconnect", "message": "$default"}
        return [
            self.websocket_api.add_route(
                key, integration=integrations.WebSocketLambdaIntegration(name.capitalize(), self.on_message)
            )
            for name, key in routes.items()
        ]

    def _stage(self, logs: GatewayLogs) -> apigateway.CfnStage:
        """A handshake's query contains a token or a ticket, so the access log has no query."""
        stage = apigateway.CfnStage(
            self,
            "Stage",
            api_id=self.websocket_api.api_id,
            stage_name=STAGE,
            auto_deploy=True,
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=self._config.api_throttle_rate,
                throttling_burst_limit=self._config.api_throttle_burst,
            ),
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=logs.group("LiveAccess").log_group_arn, format=json.dumps(_ACCESS_LOG)
            ),
        )
        logs.allow(stage)
        return stage


_ACCESS_LOG = {
    "request_id": "$context.requestId",
    "time": "$context.requestTime",
    "event": "$context.eventType",
    "route": "$context.routeKey",
    "connection": "$context.connectionId",
    "status": "$context.status",
    "source_ip": "$context.identity.sourceIp",
}


def _job_items(entity: str, names: list[str], *, state: str | None = None) -> dict[str, object]:
    """A filter for stream records of these event names, about a job's items of this entity."""
    image = {"entity": entity} | ({"state": state} if state else {})
    return {
        "eventName": lambda_.FilterRule.or_(*names),
        "dynamodb": {
            "Keys": {"pk": {"S": lambda_.FilterRule.begins_with("JOB#")}},
            "NewImage": {key: {"S": lambda_.FilterRule.is_equal(value)} for key, value in image.items()},
        },
    }
