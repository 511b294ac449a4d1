"""The WebSocket front: API Gateway WebSocket API, its routes, and what speaks to its open sockets."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import Config
from stacks.constructs.functions import Functions, call_every
from stacks.constructs.gateway_logs import GatewayLogs
from stacks.constructs.jobs_stream import jobs_stream
from stacks.storage import StorageStack, table_actions

STAGE = "v1"
# API Gateway ends a connection on which nothing is said for ten minutes.
PING_EVERY = Duration.minutes(4)


class LiveApi(Construct):
    """`live` takes what clients say, `live_push` tells them what the jobs table's stream brings."""

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
        self.websocket_api = apigateway.WebSocketApi(self, "Api", api_name="recado-live")
        self.url = f"{self.websocket_api.api_endpoint}/{STAGE}"
        self.live = self._live()
        self.push = self._push()
        self.ping = self._ping()
        stage = self._stage(logs)
        stage.node.add_dependency(*self._routes())  # an API without routes cannot be deployed

    def _live(self) -> lambda_.Function:
        live = self._speaker("OnMessage", "live/on_message", timeout=Duration.seconds(29))
        self._storage.jobs.grant(live, *table_actions("GetItem", "PutItem", "DeleteItem", "Query"))
        return live

    def _push(self) -> lambda_.Function:
        """The stream's second reader, and it can have no third. What it misses, the next event makes up for."""
        push = self._speaker("Push", "live/push", timeout=Duration.minutes(1), memory_mb=1024)
        self._storage.jobs.grant(
            push, *table_actions("GetItem", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem", "Query")
        )
        push.add_event_source(
            jobs_stream(
                self._storage,
                filters=[
                    _of_jobs("event", ["INSERT"]),
                    _of_jobs("subscription", ["INSERT", "MODIFY"], state="asked"),
                ],
                retry_attempts=10,
                max_record_age=Duration.minutes(10),
            )
        )
        return push

    def _ping(self) -> lambda_.Function:
        ping = self._speaker("Ping", "live/ping", timeout=Duration.seconds(58), retries=0)
        self._storage.jobs.grant(ping, *table_actions("DeleteItem", "Query"))
        call_every(self, "Pings", PING_EVERY, ping)
        return ping

    def _speaker(self, construct_id: str, handler: str, **options: object) -> lambda_.Function:
        function = self._functions.create(
            construct_id,
            handler,
            environment={"JOBS_TABLE": self._storage.jobs.table_name, "LIVE_URL": self.url},
            **options,  # type: ignore[arg-type]
        )
        self.grant_speaking(function)
        return function

    def grant_speaking(self, function: iam.IGrantable) -> None:
        """Allow to send to open connections, and to end one."""
        self.websocket_api.grant_manage_connections(function)

    def _routes(self) -> list[apigateway.WebSocketRoute]:
        """Who may connect, the function decides: it reads the job whose link it is, or takes the ticket."""
        routes = {"connect": "$connect", "disconnect": "$disconnect", "message": "$default"}
        return [
            self.websocket_api.add_route(
                key, integration=integrations.WebSocketLambdaIntegration(name.capitalize(), self.live)
            )
            for name, key in routes.items()
        ]

    def _stage(self, logs: GatewayLogs) -> apigateway.CfnStage:
        """A handshake's query has a token or a ticket in it, and the log names neither."""
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


def _of_jobs(entity: str, names: list[str], *, state: str | None = None) -> dict[str, object]:
    """Records of items of this kind that belong to jobs."""
    image = {"entity": entity} | ({"state": state} if state else {})
    return {
        "eventName": lambda_.FilterRule.or_(*names),
        "dynamodb": {
            "Keys": {"pk": {"S": lambda_.FilterRule.begins_with("JOB#")}},
            "NewImage": {key: {"S": lambda_.FilterRule.is_equal(value)} for key, value in image.items()},
        },
    }
