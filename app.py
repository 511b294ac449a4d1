"""The CDK app: reads the configuration, makes the stacks."""

from __future__ import annotations

import os
import sys

import aws_cdk as cdk

from stacks.config import Config, ConfigError
from stacks.service import ServiceStack
from stacks.storage import StorageStack


def build(app: cdk.App) -> tuple[StorageStack, ServiceStack]:
    """Both stacks of Recado; account and region are the ones that the CDK CLI is pointed at."""
    config = Config.from_context(app.node.try_get_context)
    env = cdk.Environment(
        account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=os.environ.get("CDK_DEFAULT_REGION")
    )
    storage = StorageStack(app, "RecadoStorage", config=config, env=env)
    service = ServiceStack(app, "RecadoService", config=config, storage=storage, env=env)
    cdk.Tags.of(app).add("project", "recado")
    return storage, service


if __name__ == "__main__":
    app = cdk.App()
    try:
        build(app)
    except ConfigError as error:
        sys.exit(f"cdk.json: {error}")
    app.synth()
