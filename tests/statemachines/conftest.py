"""The same service as the integration tests use, and the same templates as those of the stacks."""

from __future__ import annotations

import pytest

from kinds.registry import KINDS
from tests.integration.conftest import knob, service
from tests.stacks.conftest import app, own, whole
from tests.stacks.machines import Machine, machines
from tests.stacks.own_kinds import OWN, PHOTO_ALBUM
from tests.stacks.templates import Assembly

__all__ = ["app", "knob", "own", "service", "whole"]
RUN_BY_MACHINES = [name for name, kind in KINDS.items() if kind.runs_on == "machine"]


@pytest.fixture(scope="session", params=[*RUN_BY_MACHINES, PHOTO_ALBUM.name])
def machine(request: pytest.FixtureRequest) -> Machine:
    """The state machine of every kind that is registered, and of one that has nothing but a declaration."""
    name: str = request.param
    assembly: Assembly = request.getfixturevalue("own" if name in OWN else "whole")
    return machines(assembly)[name]
