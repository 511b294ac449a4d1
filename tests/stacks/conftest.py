"""The synthesised app as data, read once per run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import synthesised
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
def app(assembly: Path) -> Assembly:
    """With the defaults of cdk.json."""
    return Assembly(assembly)


@pytest.fixture(scope="session")
def overridden(pytestconfig: pytest.Config) -> Assembly:
    """With `OVERRIDES`, as `cdk synth -c key=value` gives them."""
    return Assembly(synthesised(Path(pytestconfig.cache.mkdir("assembly-overridden")), context=OVERRIDES))


@pytest.fixture(scope="session")
def service(app: Assembly) -> Template:
    return app.templates["RecadoService"]


@pytest.fixture(scope="session")
def storage(app: Assembly) -> Template:
    return app.templates["RecadoStorage"]
