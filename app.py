"""The CDK app: reads the configuration, makes the stacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

import aws_cdk as cdk

from stacks.config import Config, ConfigError
from stacks.kinds.declarations import KINDS, Kind
from stacks.kinds.definition import DefinitionError
from stacks.service import ServiceStack
from stacks.storage import StorageStack


def build(app: cdk.App, *, kinds: Collection[Kind] = tuple(KINDS.values())) -> tuple[StorageStack, ServiceStack]:
    """Both stacks of Recado, for these kinds of jobs; account and region are those of the CDK CLI."""
    config = Config.from_context(app.node.try_get_context)
    env = cdk.Environment(
        account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=os.environ.get("CDK_DEFAULT_REGION")
    )
    storage = StorageStack(app, f"{config.name}Storage", config=config, env=env)
    service = ServiceStack(app, f"{config.name}Service", config=config, storage=storage, kinds=kinds, env=env)
    cdk.Tags.of(app).add("project", "recado")
    return storage, service


if __name__ == "__main__":
    app = cdk.App()
    try:
        build(app)
    except ConfigError as error:
        sys.exit(f"cdk.json: {error}")
    except DefinitionError as error:
        sys.exit(f"a kind of job: {error}")
    app.synth()
