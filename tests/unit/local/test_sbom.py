"""The software bill of materials (local.sbom)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.sbom import LAYER, write_sbom


def distribution(layer: Path, name: str, version: str, *metadata: str) -> None:
    folder = layer / "python" / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ("Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *metadata)
    (folder / "METADATA").write_text("\n".join(lines))


def components(target: Path, **layers: Path) -> list[dict[str, Any]]:
    count = write_sbom(target, layers)
    bom = json.loads(target.read_text())
    assert (bom["bomFormat"], bom["specVersion"], len(bom["components"])) == ("CycloneDX", "1.6", count)
    found: list[dict[str, Any]] = bom["components"]
    return found


def test_every_distribution_is_listed(tmp_path: Path) -> None:
    """Each distribution of each layer is a component with its package URL and its layer."""
    distribution(tmp_path / "a", "Some_Name", "1.2")
    distribution(tmp_path / "a", "other", "2")
    distribution(tmp_path / "b", "third", "3.0.post1")
    found = components(tmp_path / "bom.json", a=tmp_path / "a", b=tmp_path / "b")
    assert {(each["purl"], *[(p["name"], p["value"]) for p in each["properties"]]) for each in found} == {
        ("pkg:pypi/some-name@1.2", (LAYER, "a")),
        ("pkg:pypi/other@2", (LAYER, "a")),
        ("pkg:pypi/third@3.0.post1", (LAYER, "b")),
    }


@pytest.mark.parametrize(
    ("metadata", "stated"),
    [
        ("License-Expression: MIT OR Apache-2.0", "MIT OR Apache-2.0"),
        ("License: Apache-2.0", "Apache-2.0"),
        ("License: Our own terms", "Our own terms"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT License"),
    ],
)
def test_licence(tmp_path: Path, metadata: str, stated: str) -> None:
    """A component has the licence that its package states, as SPDX if it is that."""
    distribution(tmp_path / "a", "one", "1", metadata)
    (component,) = components(tmp_path / "bom.json", a=tmp_path / "a")
    (licence,) = component["licenses"]
    shown = licence.get("license", {})
    assert stated in (licence.get("expression"), shown.get("id"), shown.get("name"))
