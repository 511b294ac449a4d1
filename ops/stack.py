"""What the deployed stack is called and where its parts are."""

from __future__ import annotations

import boto3
from botocore.exceptions import BotoCoreError, ClientError


class StackNotFound(Exception):
    """There is no such stack where these credentials point, or no credentials."""


def use(*, profile: str | None, region: str | None) -> None:
    """Make this profile and region those of all clients; None: the environment's. Raises BotoCoreError."""
    if profile or region:
        boto3.setup_default_session(profile_name=profile, region_name=region)


def outputs(stack: str) -> dict[str, str]:
    """The stack's outputs, by name."""
    try:
        described = boto3.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        raise StackNotFound(f"stack {stack}: {error.response['Error'].get('Message', error)}") from error
    except BotoCoreError as error:
        raise StackNotFound(f"AWS cannot be asked: {error}") from error
    found = {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}
    if "KeysTable" not in found:
        raise StackNotFound(f"stack {stack} has no output KeysTable, so it is not the service's")
    return found
