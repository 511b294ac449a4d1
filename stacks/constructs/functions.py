"""The one factory of Lambda functions: runtime, code, layers, role, logs, tracing and common environment."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.config import Config
from stacks.constructs.layers import dependency_layer

IGNORED = ["__pycache__", "*.pyc", ".mypy_cache", "requirements"]


class Functions(Construct):
    """A factory: one code asset, one layer per requirements file, one role and one log group per function."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        self._runtime = lambda_.Runtime(config.runtime, lambda_.RuntimeFamily.PYTHON)
        self._architecture = (
            lambda_.Architecture.ARM_64 if config.architecture == "arm64" else lambda_.Architecture.X86_64
        )
        self._code = lambda_.Code.from_asset(str(Path(config.code_directory)), exclude=IGNORED)
        self._layers: dict[str, lambda_.LayerVersion] = {}

    def create(
        self,
        construct_id: str,
        handler: str,
        *,
        timeout: Duration,
        memory_mb: int = 512,
        disk_mb: int = 512,
        environment: dict[str, str] | None = None,
        layers: tuple[str, ...] = (),
        retries: int | None = None,
        reserved_concurrency: int = 0,
        recursive_loop: lambda_.RecursiveLoop | None = None,
    ) -> lambda_.Function:
        """Make a function whose handler is `lambdas/<handler>/handler.py`, such as `kinds/document/search`.

        Its logs name it by that path. The logical id follows from `construct_id`, so the file may move.
        `retries`: how often Lambda repeats a failed asynchronous call (its default: 2); 0 for scheduled functions.
        `disk_mb`: of /tmp.
        `reserved_concurrency`: how many executions only this function may use, and the most it may use; 0: none.
        """
        log_group = logs.LogGroup(
            self,
            f"{construct_id}Logs",
            retention=log_retention(self._config),
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, f"{construct_id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        return lambda_.Function(
            self,
            construct_id,
            runtime=self._runtime,
            architecture=self._architecture,
            code=self._code,
            handler=f"{handler.replace('/', '.')}.handler.handler",
            role=role,
            log_group=log_group,
            tracing=lambda_.Tracing.ACTIVE,
            timeout=timeout,
            memory_size=memory_mb,
            ephemeral_storage_size=Size.mebibytes(disk_mb) if disk_mb > 512 else None,
            environment=self._common_environment(handler) | (environment or {}),
            layers=[self._layer(layer) for layer in ("base", *layers)] if self._config.layers else None,
            retry_attempts=retries,
            reserved_concurrent_executions=reserved_concurrency or None,
            recursive_loop=recursive_loop,
        )

    def _common_environment(self, handler: str) -> dict[str, str]:
        return {"POWERTOOLS_SERVICE_NAME": handler, "POWERTOOLS_LOG_LEVEL": self._config.log_level}

    def _layer(self, name: str) -> lambda_.LayerVersion:
        if name not in self._layers:
            self._layers[name] = dependency_layer(
                self, name, runtime=self._runtime, architecture=self._architecture
            )
        return self._layers[name]


def call_every(scope: Construct, construct_id: str, period: Duration, function: lambda_.Function) -> None:
    """Call the function on a schedule. A call that failed is not repeated, since the next one follows soon."""
    events.Rule(
        scope,
        construct_id,
        schedule=events.Schedule.rate(period),
        targets=[targets.LambdaFunction(function, retry_attempts=0)],
    )


def log_retention(config: Config) -> logs.RetentionDays:
    """`log_retention_days`, rounded up to a number of days that CloudWatch offers."""
    names = {
        1: "ONE_DAY", 3: "THREE_DAYS", 5: "FIVE_DAYS", 7: "ONE_WEEK", 14: "TWO_WEEKS", 30: "ONE_MONTH",
        60: "TWO_MONTHS", 90: "THREE_MONTHS", 120: "FOUR_MONTHS", 150: "FIVE_MONTHS", 180: "SIX_MONTHS",
        365: "ONE_YEAR", 731: "TWO_YEARS", 1827: "FIVE_YEARS", 3653: "TEN_YEARS",
    }  # fmt: skip
    return logs.RetentionDays[names[min(days for days in names if days >= config.log_retention_days)]]
