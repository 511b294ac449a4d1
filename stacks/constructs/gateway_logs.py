"""API Gateway's permission to write access logs: one setting per account and region, for all its APIs.

Without it, a stage with an access log cannot be created.
https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-logging.html#set-up-access-logging-permissions
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from stacks.config import Config
from stacks.constructs.functions import log_retention


class GatewayLogs(Construct):
    """The account's setting, if `api_log_role` is true, and a log group for each stage."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        self._setting = self._account() if config.api_log_role else None

    def _account(self) -> apigateway.CfnAccount:
        """Both outlive the stack, because other APIs of the account may depend on them."""
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonAPIGatewayPushToCloudWatchLogs")
            ],
        )
        role.apply_removal_policy(RemovalPolicy.RETAIN)
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        return account

    def wait_for(self, api: IConstruct) -> None:
        """Make the account's setting after this API: an account that never had an API refuses it."""
        if self._setting:
            self._setting.node.add_dependency(api)

    def group(self, construct_id: str) -> logs.LogGroup:
        """A log group for a stage's access log."""
        return logs.LogGroup(
            self, construct_id, retention=log_retention(self._config), removal_policy=RemovalPolicy.DESTROY
        )

    def allow(self, stage: Construct) -> None:
        """Create the stage after the account's setting."""
        if self._setting:
            stage.node.add_dependency(self._setting)
