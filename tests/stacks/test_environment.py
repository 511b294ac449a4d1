"""Each function gets exactly the environment that its typed settings name, in a form they can read."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path

import pytest

from core.aws import settings
from core.jobs import run
from kinds import KINDS
from tests.stacks.own_kinds import SHIPPED
from tests.stacks.templates import Assembly


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(LAMBDAS).with_suffix("").parts)


LAMBDAS = Path(__file__).parents[2] / "lambdas"
# The module of each handler, by the function's name: that of the folder.
# Handlers of kinds that somebody has added are theirs to look after.
FOREIGN = {LAMBDAS / "kinds" / name for name in KINDS.keys() - SHIPPED.keys()}
FILES = [path for path in sorted(LAMBDAS.rglob("handler.py")) if FOREIGN.isdisjoint(path.parents)]
HANDLERS = {path.parent.name: module_name(path) for path in FILES}
COMMON = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"}
# Settings are declared in the handler, but where several modules of a function need them.
ELSEWHERE = {
    "api": "rest.api.dependencies",
    "dispatch": "webhooks.dispatch.dependencies",
    "sender": "webhooks.sender.dependencies",
}
ELSEWHERE |= dict.fromkeys(("on_message", "push", "ping"), "live.dependencies")
# What kinds bring into functions that serve all of them: routes, and the work of a message.
OF_KINDS = {"api": ("kinds.document.routes",), "worker": ("kinds.document.batches",)}


def declared(function: str) -> list[type]:
    """The settings of every module that runs in the function; those of `task` where a handler has none."""
    own = ELSEWHERE.get(function, HANDLERS[function])
    modules = map(importlib.import_module, (own, *OF_KINDS.get(function, ())))
    return [getattr(module, "Settings", run.Settings) for module in modules]


def environment(app: Assembly, function: str) -> dict[str, str]:
    variables: dict[str, str] = app.functions()[function].properties["Environment"]["Variables"]
    return variables


def test_each_handler_is_deployed_once(app: Assembly) -> None:
    """Every `handler.py` below lambdas/ is a function, and every function's handler is there."""
    handlers = [f.properties["Handler"] for f in app.of("AWS::Lambda::Function")]
    wanted = [f"{module_name(path)}.handler" for path in FILES]
    assert sorted(handlers) == sorted(wanted)


def test_functions_are_told_apart_by_their_folders() -> None:
    """No two handlers are in folders of the same name: logs and the simulated cloud go by it."""
    assert len(HANDLERS) == len(FILES)


def test_no_settings_of_a_kind_are_forgotten() -> None:
    """Each module of a kind that reads the environment, and is no handler, runs in a function that is known."""
    reading = {
        module_name(path)
        for path in (LAMBDAS / "kinds").rglob("*.py")
        if "settings.load(" in path.read_text() and path.name != "handler.py"
    }
    assert {module for modules in OF_KINDS.values() for module in modules} == reading


@pytest.mark.parametrize("function", HANDLERS)
def test_environment_is_what_the_settings_name(app: Assembly, function: str) -> None:
    """No variable is missing and none is left over, but for those that all functions have."""
    named = {field.name.upper() for settings_of in declared(function) for field in fields(settings_of)}
    assert set(environment(app, function)) - COMMON == named


@pytest.mark.parametrize("function", HANDLERS)
def test_settings_can_read_the_environment(app: Assembly, overridden: Assembly, function: str) -> None:
    """Every value has the form that its field's type wants, with other knobs turned as well."""
    for assembly in (app, overridden):
        for settings_of in declared(function):
            assert settings.load(settings_of, environment(assembly, function)) is not None


@pytest.mark.parametrize("function", HANDLERS)
def test_each_function_says_who_it_is(app: Assembly, function: str) -> None:
    """Logs carry the function's name and keep to the configured level."""
    variables = environment(app, function)
    assert {key: variables[key] for key in COMMON} == {
        "POWERTOOLS_SERVICE_NAME": function,
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }
