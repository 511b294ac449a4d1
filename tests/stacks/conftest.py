"""The synthesised app as data, read once per session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinds.registry import KINDS
from tests.conftest import app_files, synthesised
from tests.stacks import own_kinds
from tests.stacks.machines import RUN_BY_MACHINES, Machine, machines
from tests.stacks.templates import Assembly, Template

# Knobs whose effect does not show in the default templates.
OVERRIDES: dict[str, Any] = {
    "removal_policy": "destroy",
    "cors_origins": ["https://app.example.com"],
    "alert_email": "ops@example.com",
    "embedding": "local",
    "layers": False,
    "models": {
        "bedrock/amazon.nova-micro-v1:0": {},
        "bedrock/eu.amazon.nova-lite-v1:0": {"tokens": "5000/s"},
        "bedrock/arn:aws:bedrock:eu-west-1:123456789012:custom-model-deployment/abc": {},
        "openai/gpt-4o-mini": {"requests": "100/m"},
    },
    "openai_base_url": "https://api.openai.com/v1",
    "openai_key_secret": "openai-key",
    "log_retention_days": 40,
    "account_concurrency": 1000,
    "long_poll_reserved_concurrency": 300,
    "search_reserved_concurrency": 20,
    "parsing_reserved_concurrency": 50,
}


@pytest.fixture(scope="session")
def whole(assembly: Path) -> Assembly:
    """The app with the defaults of cdk.json and every registered kind."""
    return Assembly(assembly)


@pytest.fixture(scope="session")
def app(assembly: Path, pytestconfig: pytest.Config) -> Assembly:
    """The app with the defaults of cdk.json and the kinds of this project."""
    return Assembly(assembly if own_kinds.SHIPPED == KINDS else made("shipped", pytestconfig))


def made(name: str, pytestconfig: pytest.Config) -> Path:
    return own_kinds.assembly(name, Path(pytestconfig.cache.mkdir(f"assembly-{name}-kinds")), app_files())


@pytest.fixture(scope="session")
def overridden(pytestconfig: pytest.Config) -> Assembly:
    """The app with `OVERRIDES`, as from `cdk synth -c key=value`."""
    return Assembly(synthesised(Path(pytestconfig.cache.mkdir("assembly-overridden")), context=OVERRIDES))


@pytest.fixture(scope="session")
def own(pytestconfig: pytest.Config) -> Assembly:
    """The app with the defaults of cdk.json and two kinds more."""
    return Assembly(made("own", pytestconfig))


@pytest.fixture(scope="session", params=[*RUN_BY_MACHINES, own_kinds.PHOTO_ALBUM.name])
def machine(request: pytest.FixtureRequest) -> Machine:
    """The state machine of each kind that has one, and of a kind that is only declared."""
    name: str = request.param
    assembly: Assembly = request.getfixturevalue("own" if name in own_kinds.OWN else "app")
    return machines(assembly)[name]


@pytest.fixture(scope="session")
def service(app: Assembly) -> Template:
    return app.templates["RecadoService"]


@pytest.fixture(scope="session")
def storage(app: Assembly) -> Template:
    return app.templates["RecadoStorage"]
