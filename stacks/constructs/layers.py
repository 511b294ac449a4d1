"""Lambda layers from locked requirements, built by pip without Docker, on any machine and by any Python."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

REQUIREMENTS = Path("lambdas/requirements/locked")
# Every tag up to Amazon Linux 2023's glibc: with the oldest alone, pip silently takes years-old releases.
MANYLINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
UNUSED = ("__pycache__", "tests", "*.pyi", "*.pyx", "*.pxd", "*.h", "bin")
# What pip writes about the installation, and each version of pip writes in its own way.
PIP_NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
NO_BYTECODE = """
{runtime} is not on this machine and uv could not fetch it, so the layers have no bytecode: a cold start of the API
takes 1.76 s of CPU, not 0.54. Install {runtime}, and deploy again.
"""

KEPT_FOLDERS = {"scipy": ("sparse", "_lib", "_external")}
"""Of these packages, functions import no other folder: LightGBM needs the sparse matrices of scipy."""


@jsii.implements(ILocalBundling)
class PipBundling:
    """Installs one requirements file for Lambda's platform into the asset's output directory."""

    def __init__(self, requirements: Path, runtime: str, architecture: str) -> None:
        self._requirements, self._runtime, self._architecture = requirements, runtime, architecture

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        machine = "aarch64" if self._architecture == "arm64" else "x86_64"
        platforms = [arg for tag in MANYLINUX for arg in ("--platform", f"{tag}_{machine}")]
        target = Path(output_dir) / "python"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "--require-hashes",
            "--no-deps",  # the locked file lists all but what the layer `base` has
        ]
        command += ["--target", str(target), "--only-binary=:all:", "--python-version"]
        command += [self._runtime.removeprefix("python"), *platforms, "-r", str(self._requirements)]
        subprocess.run(command, check=True)
        prune(target)
        add_bytecode(target, self._runtime)
        return True


def prune(target: Path) -> None:
    """Remove what no function imports: tests, headers, type stubs, console scripts, the notes of pip."""
    for pattern in (*UNUSED, *(f"*.dist-info/{name}" for name in PIP_NOTES)):
        for path in list(target.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
    for package, kept in KEPT_FOLDERS.items():
        for folder in [*(target / package).glob("*/"), *target.glob(f"{package}.libs/")]:
            if folder.name not in kept:
                shutil.rmtree(folder)


def add_bytecode(target: Path, runtime: str) -> None:
    """Compile for the runtime's Python, because /opt is read-only and every cold start would compile again.

    Other bytecode would be ignored. So without that Python on this machine there is none, and a warning.
    """
    python = interpreter(runtime)
    if python is None:
        sys.stderr.write(NO_BYTECODE.format(runtime=runtime).lstrip())
        return
    # no time stamps, one order of sets, and nothing that the caller's Python loads: the same everywhere
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(target.parent)]
    command = [python, "-s", "-S", "-m", "compileall", *options, str(target)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    # a file of another Python, such as a template, does not compile; all others are compiled all the same
    subprocess.run(command, env=environment | {"PYTHONHASHSEED": "0"}, check=False)


@functools.cache
def interpreter(runtime: str) -> str | None:
    """The path of the runtime's Python, such as `python3.13`: this one, one on PATH, or one that uv fetches."""
    return next((python for python in _candidates(runtime) if _is(python, runtime)), None)


def _candidates(runtime: str) -> Iterator[str]:
    yield sys.executable
    yield shutil.which(runtime) or ""
    version, uv = runtime.removeprefix("python"), Path(sys.executable).with_name("uv")
    if uv.exists():
        subprocess.run([str(uv), "python", "install", "--quiet", "--no-bin", version], check=False)
        find = [str(uv), "python", "find", "--managed-python", "--no-project", version]
        yield subprocess.run(find, capture_output=True, text=True, check=False).stdout.strip()


def _is(python: str, runtime: str) -> bool:
    """Whether it runs and has the runtime's version: a shim of pyenv may exist without its Python."""
    if not python:
        return False
    command = [python, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == runtime


def dependency_layer(
    scope: Construct, name: str, *, runtime: lambda_.Runtime, architecture: lambda_.Architecture
) -> lambda_.LayerVersion:
    """The layer of `lambdas/requirements/locked/<name>.txt`."""
    requirements = REQUIREMENTS / f"{name}.txt"
    bundling = BundlingOptions(
        image=DockerImage.from_registry("unused"),  # CDK asks for one; the local bundling never falls through
        local=PipBundling(requirements, runtime.name, architecture.name),
        command=[runtime.name, architecture.name],  # never run; it makes another platform another asset
    )
    return lambda_.LayerVersion(
        scope,
        f"{name.capitalize()}Layer",
        # OUTPUT names the asset after what is in the layer: whoever builds the same deploys nothing
        code=lambda_.Code.from_asset(str(REQUIREMENTS), bundling=bundling, asset_hash_type=AssetHashType.OUTPUT),
        compatible_runtimes=[runtime],
        compatible_architectures=[architecture],
    )
