"""Each function gets exactly the environment that its typed settings name, in a form they can read."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core import settings
from tests.stacks.templates import Assembly

LAMBDAS = Path(__file__).parents[2] / "lambdas"
FUNCTIONS = sorted(path.parent.name for path in LAMBDAS.glob("*/handler.py"))
COMMON = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"}
# Settings are declared in the handler, but where several modules of a function need them.
ELSEWHERE = {name: f"{name}.dependencies" for name in ("api", "dispatch", "webhook_sender")}
ELSEWHERE |= dict.fromkeys(("live", "live_push", "live_ping"), "live.dependencies")


def declared(function: str) -> Any:
    module: ModuleType = importlib.import_module(ELSEWHERE.get(function, f"{function}.handler"))
    return module.Settings


def environment(app: Assembly, function: str) -> dict[str, str]:
    variables: dict[str, str] = app.functions()[function].properties["Environment"]["Variables"]
    return variables


def test_each_handler_is_deployed_once(app: Assembly) -> None:
    """Every `lambdas/*/handler.py` is a function, and every function's handler is there."""
    handlers = sorted(f.properties["Handler"] for f in app.of("AWS::Lambda::Function"))
    assert handlers == [f"{function}.handler.handler" for function in FUNCTIONS]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_environment_is_what_the_settings_name(app: Assembly, function: str) -> None:
    """No variable is missing and none is left over, but for those that all functions have."""
    named = {field.name.upper() for field in fields(declared(function))}
    assert set(environment(app, function)) - COMMON == named


@pytest.mark.parametrize("function", FUNCTIONS)
def test_settings_can_read_the_environment(app: Assembly, overridden: Assembly, function: str) -> None:
    """Every value has the form that its field's type wants, with other knobs turned as well."""
    for assembly in (app, overridden):
        loaded = settings.load(declared(function), environment(assembly, function))
        assert loaded is not None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_says_who_it_is(app: Assembly, function: str) -> None:
    """Logs carry the function's name and keep to the configured level."""
    variables = environment(app, function)
    assert {key: variables[key] for key in COMMON} == {
        "POWERTOOLS_SERVICE_NAME": function,
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }
