"""Layers: pip's arguments, the contents, and which builds share an asset."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_lambda as lambda_

from stacks.constructs import layers

SOURCES = layers.REQUIREMENTS.parent
ARM, X86 = lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would run. Each installs files that functions need, and some that they do not need.

    What a function needs depends on the requirements and the platform.
    """
    commands: list[list[str]] = []
    really = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if command[1:3] != ["-m", "pip"]:
            return really(command, **options)
        commands.append(command)
        target = Path(command[command.index("--target") + 1])
        needed = [Path(command[-1]).read_text(), command[command.index("--python-version") + 1]]
        for name in ("package/code.py", "package/tests/test_code.py", "package-1.dist-info/RECORD"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_text(f"x = {[*needed, command[command.index('--platform') + 1]]!r}\n")
        return None

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(layers, "_candidates", lambda runtime: [])  # uv would ask the network
    layers.interpreter.cache_clear()
    return commands


def synthesise(
    tmp_path: Path, architecture: lambda_.Architecture, version: str = "python3.13", name: str = "base"
) -> Path:
    """Synthesise a layer; returns its asset's folder."""
    app = cdk.App(outdir=str(tmp_path))
    stack = cdk.Stack(app, "Layers")
    runtime = lambda_.Runtime(version, lambda_.RuntimeFamily.PYTHON)
    layers.dependency_layer(stack, name, runtime=runtime, architecture=architecture)
    resources = app.synth().get_stack_by_name("Layers").template["Resources"].values()
    (layer,) = [each for each in resources if each["Type"] == "AWS::Lambda::LayerVersion"]
    return tmp_path / f"asset.{layer['Properties']['Content']['S3Key'].removesuffix('.zip')}"


def test_pip_installs_for_the_platform_of_lambda(pip: list[list[str]], tmp_path: Path) -> None:
    """pip installs only wheels, for the runtime's Python and architecture, with all tags up to Lambda's glibc."""
    synthesise(tmp_path, ARM)
    (command,) = pip
    platforms = [command[i + 1] for i, part in enumerate(command) if part == "--platform"]
    assert platforms[0] == "manylinux_2_28_aarch64"
    assert len(platforms) == len(layers.MANYLINUX)
    assert "--only-binary=:all:" in command
    assert command[command.index("--python-version") + 1] == "3.13"


@pytest.mark.parametrize("name", sorted(path.stem for path in layers.REQUIREMENTS.glob("*.txt")))
def test_layer_installs_its_requirements_file(pip: list[list[str]], tmp_path: Path, name: str) -> None:
    """pip gets the locked file that the layer is named after, and accepts nothing without a hash."""
    synthesise(tmp_path, ARM, name=name)
    ((*command, option, path),) = pip
    assert (option, path) == ("-r", f"lambdas/requirements/locked/{name}.txt")
    assert {"--require-hashes", "--no-deps"} <= set(command)


@pytest.mark.parametrize("name", sorted(path.stem for path in layers.REQUIREMENTS.glob("*.txt")))
def test_what_deploys_is_locked(name: str) -> None:
    """The locked file has the versions that the layer's own file names, and hashes of every package."""
    chosen = [line for line in (SOURCES / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in chosen)
    text = (layers.REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ")
    locked = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert set(chosen) <= {requirement for requirement, *_ in locked}
    for requirement, *rest in locked:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9.a-z]+", requirement)
        assert [part for part in rest if re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", part)]


def test_no_layer_repeats_the_base() -> None:
    """Every function has the layer `base`, and two versions of a package would hide each other."""
    packages = {
        path.stem: set(re.findall(r"^([a-z0-9-]+)==", path.read_text(), re.MULTILINE))
        for path in layers.REQUIREMENTS.glob("*.txt")
    }
    base = packages.pop("base")
    assert {name: found & base for name, found in packages.items() if found & base} == {}


def test_every_layer_is_locked() -> None:
    """Each file of requirements has a locked one: `make lock` writes it."""
    assert {path.name for path in SOURCES.glob("*.txt")} == {
        path.name for path in layers.REQUIREMENTS.glob("*.txt")
    }


def test_change_of_one_file_rebuilds_one_layer(
    pip: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer's asset depends on its own requirements file and on no other."""
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    monkeypatch.setattr(layers, "REQUIREMENTS", requirements)
    (requirements / "base.txt").write_text("x==1\n")
    assets: dict[str, list[str]] = {"base": [], "signing": []}
    for version in ("1", "2"):
        (requirements / "signing.txt").write_text(f"y=={version}\n")
        for name, found in assets.items():
            found.append(synthesise(tmp_path / f"{name}{version}", ARM, name=name).name)
    assert [len(set(found)) for found in assets.values()] == [1, 2]


def test_bytecode_is_for_the_runtime(
    pip: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever Python builds, that of the runtime compiles. If there is none, a warning says what that costs."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons = {f"python{here}": ["", sys.executable], "python3.9": [sys.executable]}
    monkeypatch.setattr(layers, "_candidates", pythons.__getitem__)
    layers.interpreter.cache_clear()
    found = {
        runtime: {path.name for path in synthesise(tmp_path / runtime, ARM, runtime).rglob("*.pyc")}
        for runtime in pythons
    }
    layers.interpreter.cache_clear()
    assert found == {f"python{here}": {f"code.cpython-{here.replace('.', '')}.pyc"}, "python3.9": set()}
    assert "python3.9 is not on this machine" in capfd.readouterr().err


def test_asset_is_named_after_what_is_in_the_layer(
    pip: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A builder whose pip writes something else deploys another layer; a second build deploys nothing."""
    built = [synthesise(tmp_path / name, ARM).name for name in ("first", "second")]
    monkeypatch.setattr(layers, "UNUSED", (*layers.UNUSED, "code.py"))
    assert len({*built}) == 1
    assert synthesise(tmp_path / "third", ARM).name not in built


def test_layer_has_no_tests_of_packages(pip: list[list[str]], tmp_path: Path) -> None:
    """Tests and the notes of pip are removed, and the rest is in python/, where Lambda looks for it."""
    asset = synthesise(tmp_path, ARM)
    files = {str(path.relative_to(asset)) for path in asset.rglob("*.py")}
    assert files == {"python/package/code.py"}
    assert not list(asset.rglob("RECORD"))


def test_package_is_cut_to_what_is_imported(tmp_path: Path) -> None:
    """Of scipy, only the folders are kept that LightGBM imports."""
    for folder in ("scipy/sparse", "scipy/_lib", "scipy/stats", "scipy.libs", "numpy/linalg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "scipy" / "__init__.py").touch()
    layers.prune(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"scipy", "scipy/__init__.py", "scipy/sparse", "scipy/_lib", "numpy", "numpy/linalg"}


def test_another_platform_is_another_asset(pip: list[list[str]], tmp_path: Path) -> None:
    """The same requirements give another asset for another architecture or Python version."""
    builds = [(ARM, "python3.13"), (X86, "python3.13"), (ARM, "python3.12")]
    assets = {synthesise(tmp_path / str(i), *build).name for i, build in enumerate(builds)}
    assert len(assets) == 3
