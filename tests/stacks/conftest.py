"""The synthesised app as data, read once per run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinds import KINDS
from tests.conftest import app_files, synthesised
from tests.stacks import own_kinds
from tests.stacks.machines import RUN_BY_MACHINES, Machine, machines
from tests.stacks.templates import Assembly, Template

# Every knob whose effect cannot be seen in the default templates.
OVERRIDES: dict[str, Any] = {
    "removal_policy": "destroy",
    "cors_origins": ["https://app.example.com"],
    "alert_email": "ops@example.com",
    "embedding": "local",
    "layers": False,
    "log_retention_days": 40,
}


@pytest.fixture(scope="session")
def whole(assembly: Path) -> Assembly:
    """With the defaults of cdk.json, and every kind that is registered."""
    return Assembly(assembly)


@pytest.fixture(scope="session")
def app(assembly: Path, pytestconfig: pytest.Config) -> Assembly:
    """With the defaults of cdk.json, and the kinds that this project brings."""
    return Assembly(assembly if own_kinds.SHIPPED == KINDS else made("shipped", pytestconfig))


def made(name: str, pytestconfig: pytest.Config) -> Path:
    return own_kinds.assembly(name, Path(pytestconfig.cache.mkdir(f"assembly-{name}-kinds")), app_files())


@pytest.fixture(scope="session")
def overridden(pytestconfig: pytest.Config) -> Assembly:
    """With `OVERRIDES`, as `cdk synth -c key=value` gives them."""
    return Assembly(synthesised(Path(pytestconfig.cache.mkdir("assembly-overridden")), context=OVERRIDES))


@pytest.fixture(scope="session")
def own(pytestconfig: pytest.Config) -> Assembly:
    """With the defaults of cdk.json and two kinds of a person's own."""
    return Assembly(made("own", pytestconfig))


@pytest.fixture(scope="session", params=[*RUN_BY_MACHINES, own_kinds.PHOTO_ALBUM.name])
def machine(request: pytest.FixtureRequest) -> Machine:
    """The state machine of every kind that has one, and of one that has nothing but a declaration."""
    name: str = request.param
    assembly: Assembly = request.getfixturevalue("own" if name in own_kinds.OWN else "app")
    return machines(assembly)[name]


@pytest.fixture(scope="session")
def service(app: Assembly) -> Template:
    return app.templates["RecadoService"]


@pytest.fixture(scope="session")
def storage(app: Assembly) -> Template:
    return app.templates["RecadoStorage"]
