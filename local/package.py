"""`make package`: the functions as AWS gets them, how large each is when unpacked, and what is in their layers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from local import deploy, toolchain
from local.sbom import write_sbom

# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html: function and layers, unzipped
LIMIT_BYTES = 250 * 1024 * 1024


def package(options: argparse.Namespace, console: Console) -> int:
    """Build for AWS with the defaults of cdk.json; fails if a function is over Lambda's limit."""
    with console.status("building the layers with pip for Lambda's platform …"):
        assembly = deploy.synthesise_for_aws(toolchain.WORKSPACE / "package")
    sizes = function_sizes(assembly)
    table = Table("function", "code", "layers", "total MB", "of the limit")
    for name, (code, layers) in sorted(sizes.items()):
        total = code + sum(layers.values())
        parts = ", ".join(f"{layer} {_mb(size)}" for layer, size in layers.items())
        table.add_row(name, _mb(code), parts, _mb(total), f"{total / LIMIT_BYTES:.0%}")
    console.print(table)
    bill = toolchain.WORKSPACE / "package" / "sbom.cdx.json"
    count = write_sbom(bill, layer_folders(assembly))
    console.print(f"{count} packages in the layers: {bill.relative_to(toolchain.ROOT)}")
    return int(any(code + sum(layers.values()) > LIMIT_BYTES for code, layers in sizes.values()))


def function_sizes(assembly: Path) -> dict[str, tuple[int, dict[str, int]]]:
    """Function -> (bytes of code, bytes of each layer)."""
    resources = _resources(assembly)
    functions = {key: r["Properties"] for key, r in resources.items() if r["Type"] == "AWS::Lambda::Function"}
    return {
        properties["Handler"].split(".")[-3]: (
            _size(assembly, properties["Code"]),
            {
                _layer_name(ref): _size(assembly, resources[ref]["Properties"]["Content"])
                for ref in _layers(properties)
            },
        )
        for properties in functions.values()
    }


def layer_folders(assembly: Path) -> dict[str, Path]:
    """Layer -> its unpacked folder."""
    return {
        _layer_name(key): _folder(assembly, each["Properties"]["Content"])
        for key, each in _resources(assembly).items()
        if each["Type"] == "AWS::Lambda::LayerVersion"
    }


def _resources(assembly: Path) -> dict[str, Any]:
    """The resources of the service's template, by logical id."""
    (template,) = assembly.glob("*Service.template.json")
    found: dict[str, Any] = json.loads(template.read_text())["Resources"]
    return found


def _layers(properties: dict[str, Any]) -> list[str]:
    return [layer["Ref"] for layer in properties.get("Layers", [])]


def _layer_name(logical_id: str) -> str:
    return logical_id.removeprefix("Functions").partition("Layer")[0].lower()


def _size(assembly: Path, location: dict[str, Any]) -> int:
    return sum(file.stat().st_size for file in _folder(assembly, location).rglob("*") if file.is_file())


def _folder(assembly: Path, location: dict[str, Any]) -> Path:
    return assembly / f"asset.{location['S3Key'].removesuffix('.zip')}"


def _mb(size: int) -> str:
    return f"{size / 1_000_000:.1f}"
