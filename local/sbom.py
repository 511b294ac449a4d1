"""The software bill of materials of a package: every distribution in its layers, as CycloneDX 1.6 JSON.

https://cyclonedx.org/specification/overview/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

LAYER = "recado:layer"


def write_sbom(target: Path, layers: Mapping[str, Path]) -> int:
    """Write the bill of these layers (name -> unpacked folder) to `target`; returns the number of packages."""
    application, components = Component(name="recado", type=ComponentType.APPLICATION), list(_components(layers))
    bom = Bom(components=components)
    bom.metadata.component = application
    bom.register_dependency(application, components)
    target.write_text(JsonV1Dot6(bom).output_as_string(indent=2))
    return len(components)


def _components(layers: Mapping[str, Path]) -> Iterator[Component]:
    for layer, folder in sorted(layers.items()):
        for found in distributions(path=[str(folder / "python")]):
            yield _component(found, layer)


def _component(found: Distribution, layer: str) -> Component:
    name, version = found.metadata["Name"].lower().replace("_", "-"), found.version
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=name, version=version),
        bom_ref=f"{layer}/{name}@{version}",
        licenses=list(_licenses(found)),
        properties=[Property(name=LAYER, value=layer)],
    )


def _licenses(found: Distribution) -> Iterable[License]:
    """The SPDX expression (PEP 639) if the package has one, else the name of its licence, else its classifiers."""
    stated = found.metadata["License-Expression"] or found.metadata["License"]
    if stated:
        return [LicenseFactory().make_from_string(stated.splitlines()[0])]
    prefix = "License :: "
    classifiers = found.metadata.get_all("Classifier") or []
    names = [name.rpartition(" :: ")[2] for name in classifiers if name.startswith(prefix)]
    return [LicenseFactory().make_with_name(name) for name in names]
