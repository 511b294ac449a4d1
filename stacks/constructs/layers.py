"""Lambda layers from locked requirements, built by pip without Docker, on any machine."""

from __future__ import annotations

import compileall
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

REQUIREMENTS = Path("lambdas/requirements/locked")
# Every tag up to Amazon Linux 2023's glibc: with the oldest alone, pip silently takes years-old releases.
MANYLINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
UNUSED = ("__pycache__", "tests", "*.pyi", "*.pyx", "*.pxd", "*.h", "bin")

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
        if self._runtime == f"python{sys.version_info.major}.{sys.version_info.minor}":
            _compile(target)
        return True


def prune(target: Path) -> None:
    """Remove what no function imports: tests, headers, type stubs, console scripts."""
    for pattern in UNUSED:
        for path in list(target.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
    for package, kept in KEPT_FOLDERS.items():
        for folder in [*(target / package).glob("*/"), *target.glob(f"{package}.libs/")]:
            if folder.name not in kept:
                shutil.rmtree(folder)


def _compile(target: Path) -> None:
    """Compile here, because /opt is read-only and every cold start would compile again. Needs the same Python."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # no time stamps, so that builds are reproducible
    compileall.compile_dir(target, quiet=2, invalidation_mode=mode, stripdir=str(target.parent))


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
        code=lambda_.Code.from_asset(
            str(REQUIREMENTS), bundling=bundling, asset_hash_type=AssetHashType.SOURCE, exclude=_others(name)
        ),
        compatible_runtimes=[runtime],
        compatible_architectures=[architecture],
    )


def _others(name: str) -> list[str]:
    """Exclude the other layers' files, so that a change to one does not rebuild all."""
    return ["*", f"!{name}.txt"]
