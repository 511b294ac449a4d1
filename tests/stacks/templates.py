"""The synthesised templates as data: resources by type, with their references resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulated_cloud.deployment import PSEUDO_PARAMETERS, construct_paths, stacks
from tests.simulated_cloud.template import Resolver, handler_folder

Template = dict[str, Any]
Properties = dict[str, Any]
ARN = "arn:aws:any:eu-west-1:123456789012:it:"


def resources(template: Template, kind: str) -> Iterator[tuple[str, Properties]]:
    """(logical id, properties) of every resource of this type."""
    for logical_id, definition in template["Resources"].items():
        if definition["Type"] == kind:
            yield logical_id, definition.get("Properties", {})


def target(value: Any) -> str | None:
    """The logical id that a `Ref` or `Fn::GetAtt` refers to; None for anything else."""
    match value:
        case {"Ref": str(logical_id)} | {"Fn::GetAtt": [str(logical_id), *_]}:
            return logical_id
    return None


def statements(policy: Properties) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return found


def as_list(value: Any) -> list[Any]:
    """A list as it is, anything else in a list: IAM allows a single value instead of a list of one."""
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True)
class Resource:
    """A resource. In its properties, a reference is the construct path of its target, after `ARN` for an ARN."""

    logical_id: str
    path: str
    kind: str
    properties: Properties

    @property
    def name(self) -> str:
        return self.path.removesuffix("/Resource")


class Assembly:
    """All stacks of a cloud assembly: their templates and their resources."""

    def __init__(self, directory: Path) -> None:
        manifest = json.loads((directory / "manifest.json").read_text())
        self.metadata = "".join(file.read_text() for file in directory.glob("*.metadata.json"))
        self.templates: dict[str, Template] = {}
        self.resources: list[Resource] = []
        self._exports: dict[str, Any] = {}
        for name, artifact in stacks(manifest):
            template = json.loads((directory / artifact["properties"]["templateFile"]).read_text())
            self.templates[name] = template
            self._resolve(template, construct_paths(directory, artifact))

    def of(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.kind == kind]

    def functions(self) -> dict[str, Resource]:
        """Functions by the name of the handler's folder."""
        functions = self.of("AWS::Lambda::Function")
        return {handler_folder(function.properties["Handler"]): function for function in functions}

    def _resolve(self, template: Template, paths: dict[str, str]) -> None:
        def name(logical_id: str) -> str:
            return paths.get(logical_id, logical_id).removesuffix("/Resource")

        def reference(logical_id: str) -> Any:
            if logical_id in PSEUDO_PARAMETERS:
                return PSEUDO_PARAMETERS[logical_id]
            refers_by_arn = template["Resources"].get(logical_id, {}).get("Type") in REFERENCE_IS_ARN
            return (ARN if refers_by_arn else "") + name(logical_id)

        def attribute(logical_id: str, attribute: str) -> str:
            return ARN + name(logical_id) + ("" if attribute == "Arn" else f".{attribute}")

        resolver = Resolver(
            reference=reference, attribute=attribute, imported=lambda export: self._exports[export]
        )
        for output in template.get("Outputs", {}).values():
            if "Export" in output:
                self._exports[output["Export"]["Name"]] = resolver.resolve(output["Value"])
        for logical_id, definition in template["Resources"].items():
            properties = resolver.resolve(definition.get("Properties", {}))
            path = paths.get(logical_id, logical_id)
            self.resources.append(Resource(logical_id, path, definition["Type"], properties))


REFERENCE_IS_ARN = {"AWS::SNS::Topic", "AWS::StepFunctions::StateMachine"}
