"""Each function gets exactly the environment that its code reads, in a form that it can read.

What a function reads follows from its modules: the parts of `core.dependencies` that it uses, what these use, and
the settings that it reads itself.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from core.aws.settings import Environment, Setting
from core.dependencies import Settings
from kinds.agent.dependencies import AgentSettings
from kinds.dataset.dependencies import DatasetSettings
from kinds.document.dependencies import DocumentSettings
from kinds.embedding.dependencies import EmbeddingSettings
from kinds.fine_tune.dependencies import FineTuneSettings
from kinds.registry import KINDS
from kinds.summary.dependencies import SummarySettings
from tests.stacks.own_kinds import SHIPPED
from tests.stacks.templates import Assembly


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(LAMBDAS).with_suffix("").parts)


LAMBDAS = Path(__file__).parents[2] / "lambdas"
# Handlers of kinds that somebody has added are theirs to look after.
FOREIGN = {LAMBDAS / "kinds" / name for name in KINDS.keys() - SHIPPED.keys()}
FILES = [path for path in sorted(LAMBDAS.rglob("handler.py")) if FOREIGN.isdisjoint(path.parents)]
HANDLERS = {path.parent.name: module_name(path) for path in FILES}
"""The module of each handler, by the name of the function's folder."""

COMMON = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_LOG_LEVEL"}
READ_BY_LIBRARIES = {"train_model": {"OMP_WAIT_POLICY"}, "predict_rows": {"OMP_WAIT_POLICY"}}
STAGES_OF_DATASETS = ("clean_dataset", "train_model", "predict_rows", "export_results", "report_results")
OF_KINDS = {
    "on_message": ("core.submission", "kinds.agent.submission"),
    "api": (
        "core.submission",
        "kinds.agent.submission",
        "kinds.document.routes",
        "kinds.completion.prompt",
        "kinds.embedding.submission",
        "kinds.summary.submission",
        "kinds.fine_tune.submission",
    ),
    "worker": (
        "kinds.agent.work",
        "kinds.document.batches",
        "kinds.completion.work",
        "kinds.embedding.batches",
        "kinds.summary.batches",
        "kinds.fine_tune.training",
        "kinds.fine_tune.customization",
    ),
    **dict.fromkeys(STAGES_OF_DATASETS, ("core.tasks", "kinds.dataset.stage")),
}
"""What kinds bring into functions that serve all of them: routes, the price of a job, the work of a message."""

SOURCES: dict[str, tuple[str, type[Environment]]] = {
    "agent_dependencies": ("kinds/agent/dependencies.py", AgentSettings),
    "dependencies": ("core/dependencies.py", Settings),
    "dataset_dependencies": ("kinds/dataset/dependencies.py", DatasetSettings),
    "document_dependencies": ("kinds/document/dependencies.py", DocumentSettings),
    "embedding_dependencies": ("kinds/embedding/dependencies.py", EmbeddingSettings),
    "fine_tune_dependencies": ("kinds/fine_tune/dependencies.py", FineTuneSettings),
    "summary_dependencies": ("kinds/summary/dependencies.py", SummarySettings),
}
"""The objects that hold a function's parts: where their class is, and the settings that it reads."""


# ── what a function reads ────────────────────────────────────────────────────────────────────────────────────


def modules(function: str) -> Iterator[Path]:
    """The function's own modules, and what kinds bring into it."""
    yield from sorted((LAMBDAS / HANDLERS[function].replace(".", "/")).parent.glob("*.py"))
    yield from (LAMBDAS / f"{name.replace('.', '/')}.py" for name in OF_KINDS.get(function, ()))


def used(tree: ast.AST) -> set[tuple[str, str]]:
    """(object, attribute) for every attribute of one of SOURCES; of their `settings`, (object, `settings.x`).

    A name that a module gives to settings (`config = dependencies.settings`) is followed by its attributes.
    """
    found: set[tuple[str, str]] = set()
    renamed = dict.fromkeys(("config", "settings"), "dependencies")
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr="settings"), attr=attribute):
                found.add((name, f"settings.{attribute}"))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in SOURCES:
                found.add((name, attribute))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in renamed:
                found |= {(source, f"settings.{attribute}") for source in SOURCES}
    return {(name, attribute) for name, attribute in found if name in SOURCES and attribute != "settings"}


@functools.cache
def parts(source: str) -> dict[str, set[tuple[str, str]]]:
    """What each part uses. Within the class, the object is `self`."""
    tree = ast.parse((LAMBDAS / SOURCES[source][0]).read_text())
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list]
    return {method.name: used(_with_names(method, source)) for method in methods}


def _with_names(method: ast.FunctionDef, source: str) -> ast.AST:
    for node in ast.walk(method):
        if isinstance(node, ast.Name) and node.id == "self":
            node.id = source
    return method


def variables(uses: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """(object, setting) that these uses come to, through parts that use other parts."""
    read: set[tuple[str, str]] = set()
    for name, attribute in uses:
        if attribute.startswith("settings."):
            read.add((name, attribute.removeprefix("settings.")))
        else:
            read |= variables(parts(name).get(attribute, ()))
    return read


def settings_read(function: str) -> dict[str, set[str]]:
    """By object, the settings that the function reads."""
    uses = {use for path in modules(function) for use in used(ast.parse(path.read_text()))}
    found = {(name, setting) for name, setting in variables(uses) if setting in known(name)}
    return {name: {setting for source, setting in found if source == name} for name in SOURCES}


def known(source: str) -> set[str]:
    cls = SOURCES[source][1]
    return {name for name, value in vars(cls).items() if isinstance(value, Setting)}


def environment(app: Assembly, function: str) -> dict[str, str]:
    variables: dict[str, str] = app.functions()[function].properties["Environment"]["Variables"]
    return variables


# ── the template ─────────────────────────────────────────────────────────────────────────────────────────────


def test_each_handler_is_deployed_once(app: Assembly) -> None:
    """Every `handler.py` below lambdas/ is a function, and every function's handler is there."""
    handlers = [f.properties["Handler"] for f in app.of("AWS::Lambda::Function")]
    wanted = [f"{module_name(path)}.handler" for path in FILES]
    assert sorted(handlers) == sorted(wanted)


def test_functions_are_told_apart_by_their_folders() -> None:
    """No two handlers are in folders of the same name: the simulated cloud goes by it."""
    assert len(HANDLERS) == len(FILES)


def test_no_module_of_a_kind_is_forgotten() -> None:
    """Each module of a kind that uses parts, and belongs to no function, runs in a function that is known."""
    own = {path for function in HANDLERS for path in modules(function)}
    outside = [path for path in (LAMBDAS / "kinds").rglob("*.py") if path not in own]
    using = {path for path in outside if FOREIGN.isdisjoint(path.parents) and used(ast.parse(path.read_text()))}
    assert using == {LAMBDAS / "kinds" / name / "dependencies.py" for name in ("agent", "document")}


@pytest.mark.parametrize("function", HANDLERS)
def test_environment_is_what_the_code_reads(app: Assembly, function: str) -> None:
    """No variable is missing and none is left over, but for those that all functions have."""
    read = {setting.upper() for settings in settings_read(function).values() for setting in settings}
    assert set(environment(app, function)) - COMMON - READ_BY_LIBRARIES.get(function, set()) == read


@pytest.mark.parametrize("function", HANDLERS)
def test_settings_can_read_the_environment(app: Assembly, overridden: Assembly, function: str) -> None:
    """Every value has the form that its setting wants, with other knobs turned as well."""
    for assembly in (app, overridden):
        for source, settings in settings_read(function).items():
            reader = SOURCES[source][1](environment(assembly, function))
            assert all(getattr(reader, setting) is not None for setting in settings)


@pytest.mark.parametrize("function", HANDLERS)
def test_each_function_says_who_it_is(app: Assembly, function: str) -> None:
    """Logs carry the function's path and keep to the configured level."""
    found = environment(app, function)
    assert {key: found[key] for key in COMMON} == {
        "POWERTOOLS_SERVICE_NAME": HANDLERS[function].removesuffix(".handler").replace(".", "/"),
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }


# ── the reading itself ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("dependencies.jobs.get('x')", {"jobs_table"}),
        ("dependencies.settings.link_hours", {"link_hours"}),
        ("def f():\n    config = dependencies.settings\n    return config.link_hours", {"link_hours"}),
        ("dependencies.after_attempt", {"jobs_table", "deliveries_table", "webhooks_queue_url"}),
        ("dependencies.services.blobs", {"jobs_table", "data_bucket"}),
        ("document_dependencies.catalog", {"jobs_table"}),
        ("other.jobs", set()),
    ],
)
def test_what_code_reads_is_found(source: str, read: set[str]) -> None:
    """Settings are found through parts, through parts of parts, and behind a local name."""
    found = {(name, setting) for name, setting in variables(used(ast.parse(source))) if setting in known(name)}
    assert {setting for _, setting in found} == read


def test_every_source_has_its_settings() -> None:
    """A module that keeps parts is one of those that are read here."""
    keeping = {path for path in LAMBDAS.rglob("*.py") if "(Parts):" in path.read_text()}
    assert {path for path in keeping if FOREIGN.isdisjoint(path.parents)} == {
        LAMBDAS / place for place, _ in SOURCES.values()
    }
    assert all(importlib.import_module(place[:-3].replace("/", ".")) for place, _ in SOURCES.values())
