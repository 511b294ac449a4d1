"""The REST API: its routes, the Lambda authorizer for bearer keys, and its errors as problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import Duration, Size
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IConstruct

from stacks.config import Config
from stacks.constructs.gateway_logs import GatewayLogs

STAGE = "v1"
OPEN_PATHS = ("health", "openapi.json", "docs")
LINKS = ("status", "events")
PROBLEM_JSON = "application/problem+json"
# Like those of the functions (`core.http`). A static value cannot contain the quotes of 'none'; a sandbox runs no
# script.
SECURITY_HEADERS = {
    "Content-Security-Policy": "'sandbox'",
    "Referrer-Policy": "'no-referrer'",
    "Strict-Transport-Security": "'max-age=31536000'",
    "X-Content-Type-Options": "'nosniff'",
    "X-Frame-Options": "'DENY'",
}
# Gateway response type -> status, problem type, title and what to do.
GATEWAY_PROBLEMS = {
    "UNAUTHORIZED": (
        401,
        "unauthorized",
        "Send 'Authorization: Bearer rk_...' with a key that is not revoked.",
    ),
    "ACCESS_DENIED": (403, "forbidden", "This key may not make this call."),
    "THROTTLED": (429, "throttled", "Too many requests. Wait a second, then try again more slowly."),
    "REQUEST_TOO_LARGE": (413, "payload_too_large", "Send what is large through POST /uploads instead."),
    "MISSING_AUTHENTICATION_TOKEN": (404, "not_found", "There is no such path; see /openapi.json."),
    "INTEGRATION_TIMEOUT": (504, "timeout", "The answer took too long. Try again."),
}


class RestApi(Construct):
    """`long_poll` answers the paths that hold a request open, `routes` those of kinds, `api` all others.

    `routes`: functions by the first segment of the path.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        authorizer: lambda_.Function,
        api: lambda_.Function,
        long_poll: lambda_.Function,
        routes: Mapping[str, lambda_.Function],
        logs: GatewayLogs,
    ) -> None:
        super().__init__(scope, construct_id)
        self._authorizer = apigateway.RequestAuthorizer(
            self,
            "Keys",
            handler=authorizer,
            identity_sources=[apigateway.IdentitySource.header("Authorization")],
            results_cache_ttl=Duration.seconds(config.authorizer_cache_seconds),
        )
        self.rest_api = apigateway.RestApi(
            self,
            "Api",
            rest_api_name=config.name.lower(),
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            deploy_options=self._stage(config, logs),
            cloud_watch_role=False,
            default_cors_preflight_options=_cors(config.cors_origins),
            min_compression_size=Size.kibibytes(1),
        )
        logs.wait_for(self._resource())  # not for the whole construct, whose stage waits for the setting
        logs.allow(self.rest_api.deployment_stage)
        self._gateway_responses(config)
        self._route(api, long_poll, routes)

    def _resource(self) -> IConstruct:
        """The API alone, as CloudFormation has it."""
        resource = self.rest_api.node.default_child
        assert resource is not None  # noqa: S101 every RestApi has one
        return resource

    def _stage(self, config: Config, logs: GatewayLogs) -> apigateway.StageOptions:
        return apigateway.StageOptions(
            stage_name=STAGE,
            throttling_rate_limit=config.api_throttle_rate,
            throttling_burst_limit=config.api_throttle_burst,
            method_options=self._open_methods(config),
            tracing_enabled=False,  # X-Ray records paths, and the path of a link is a token
            access_log_destination=apigateway.LogGroupLogDestination(logs.group("Access")),
            # the resource instead of the path: a path or a query may contain a token
            access_log_format=apigateway.AccessLogFormat.custom(json.dumps(_ACCESS_LOG)),
        )

    def _open_methods(self, config: Config) -> dict[str, apigateway.MethodDeploymentOptions]:
        """Anybody may call these, so each has a throttle of its own and leaves the others' alone."""
        pages = apigateway.MethodDeploymentOptions(
            throttling_rate_limit=config.open_throttle_rate, throttling_burst_limit=config.open_throttle_burst
        )
        links = apigateway.MethodDeploymentOptions(
            throttling_rate_limit=config.link_throttle_rate, throttling_burst_limit=config.link_throttle_burst
        )
        return {f"/{path}/GET": pages for path in OPEN_PATHS} | {
            f"/follow/{{token}}/{name}/GET": links for name in LINKS
        }

    def _gateway_responses(self, config: Config) -> None:
        for name, (status, problem, detail) in GATEWAY_PROBLEMS.items():
            self._gateway_response(config, name, status, problem, detail)
        # no $context.error.message: it may quote the request, a token or broken JSON included
        refused = "The request was refused. Check its method, path and headers; see /openapi.json."
        self._gateway_response(config, "DEFAULT_4XX", None, "bad_request", refused)
        self._gateway_response(config, "DEFAULT_5XX", None, "internal", "An internal error occurred. Try again.")

    def _gateway_response(self, config: Config, name: str, status: int | None, problem: str, detail: str) -> None:
        body = {"type": f"urn:recado:problem:{problem}", "title": problem.replace("_", " "), "detail": detail}
        template = json.dumps(body | ({"status": status} if status else {}))
        headers = {"Content-Type": f"'{PROBLEM_JSON}'"} | SECURITY_HEADERS
        if name == "UNAUTHORIZED":
            headers["WWW-Authenticate"] = "'Bearer'"
        if name == "THROTTLED":
            headers["Retry-After"] = "'1'"
        if config.cors_origins:
            headers["Access-Control-Allow-Origin"] = f"'{_allow_origin(config.cors_origins)}'"
        self.rest_api.add_gateway_response(
            f"Problem{name}",
            type=apigateway.ResponseType.of(name),
            status_code=str(status) if status else None,
            response_headers=headers,
            templates={"application/json": template, PROBLEM_JSON: template},
        )

    def _route(
        self, api: lambda_.Function, long_poll: lambda_.Function, routes: Mapping[str, lambda_.Function]
    ) -> None:
        """A literal path takes precedence over `{proxy+}`, so each level below one needs its own `{proxy+}`."""
        to_api, to_long_poll = _integration(api), _integration(long_poll)
        root = self.rest_api.root
        jobs = root.add_resource("jobs")
        job = jobs.add_resource("{job_id}")
        webhooks = root.add_resource("webhooks")
        webhook = webhooks.add_resource("{webhook_id}")
        for resource in (jobs, job, webhooks, webhook):
            self._method(resource, "ANY", to_api)
        for parent in (job, webhook, root):
            self._method(parent.add_resource("{proxy+}"), "ANY", to_api)
        for held_open in (job.add_resource("status"), job.add_resource("events"), webhook.add_resource("test")):
            self._method(held_open, "ANY", to_long_poll)
        link = root.add_resource("follow").add_resource("{token}")
        for name in LINKS:  # the token in the path stands for a key
            link.add_resource(name).add_method("GET", to_long_poll)
        for path, function in routes.items():
            self._method(root.add_resource(path), "ANY", _integration(function))
        for path in OPEN_PATHS:
            root.add_resource(path).add_method("GET", to_api)

    def _method(
        self, resource: apigateway.IResource, verb: str, integration: apigateway.LambdaIntegration
    ) -> None:
        resource.add_method(
            verb,
            integration,
            authorizer=self._authorizer,
            authorization_type=apigateway.AuthorizationType.CUSTOM,
        )


def _integration(function: lambda_.Function) -> apigateway.LambdaIntegration:
    return apigateway.LambdaIntegration(function, allow_test_invoke=False)


_ACCESS_LOG = {
    "request_id": "$context.requestId",
    "time": "$context.requestTime",
    "method": "$context.httpMethod",
    "resource": "$context.resourcePath",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
    "owner": "$context.authorizer.owner",
    "source_ip": "$context.identity.sourceIp",
    "error": "$context.error.responseType",
}


def _allow_origin(origins: tuple[str, ...]) -> str:
    """A gateway response cannot depend on the request, so several origins need `*` (no cookie is used)."""
    return origins[0] if len(origins) == 1 else "*"


def _cors(origins: tuple[str, ...]) -> apigateway.CorsOptions | None:
    if not origins:
        return None
    return apigateway.CorsOptions(
        allow_origins=list(origins),
        allow_headers=[
            "authorization",
            "content-type",
            "idempotency-key",
            "if-none-match",
            "last-event-id",
            "prefer",
        ],
        expose_headers=["etag", "idempotent-replayed", "location", "preference-applied", "retry-after"],
        max_age=Duration.hours(1),
    )
