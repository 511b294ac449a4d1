"""Deploys the stacks of an unmodified cloud assembly (`cdk.out`) in the order of their dependencies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .functions import ACCOUNT, REGION
from .resources import Client, Resource, create
from .template import NO_VALUE, Resolver, Unsupported

PSEUDO_PARAMETERS: dict[str, Any] = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::NoValue": NO_VALUE,
    "AWS::NotificationARNs": [],
}


@dataclass
class Deployment:
    """The resources, outputs and exports of all stacks."""

    resources: list[Resource] = field(default_factory=list)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    exports: dict[str, Any] = field(default_factory=dict)

    def of(self, kind: str) -> list[Resource]:
        """The resources of this type."""
        return [resource for resource in self.resources if resource.kind == kind]

    def find(self, kind: str, name: str) -> Resource:
        """The only resource of this type whose construct path or logical id contains `name`.

        An exact construct path below the stack (with or without CDK's `/Resource` at its end) or an exact logical
        id wins. Raises LookupError if no resource or more than one matches.
        """
        candidates = self.of(kind)
        exact = [r for r in candidates if name in (r.path, r.path.removesuffix("/Resource"), r.logical_id)]
        found = exact or [r for r in candidates if name in f"{r.stack}/{r.path}" or name in r.logical_id]
        if len(found) != 1:
            known = ", ".join(f"{resource.stack}/{resource.path}" for resource in candidates)
            raise LookupError(f"{len(found)} resources of type {kind} match {name!r}; there are: {known}")
        return found[0]

    def describe_stacks(self, params: dict[str, Any]) -> dict[str, Any]:
        """The answer of CloudFormation's DescribeStacks: scripts read the outputs of a stack."""
        outputs = self.outputs[params["StackName"]].items()
        shown = [{"OutputKey": key, "OutputValue": value} for key, value in outputs]
        return {"Stacks": [{**params, "StackStatus": "CREATE_COMPLETE", "Outputs": shown}]}


def deploy(assembly: Path, client: Client) -> Deployment:
    """Create every resource of every stack.

    Raises `Unsupported` for a resource type, a property or an intrinsic function that the simulation lacks.
    """
    manifest = json.loads((assembly / "manifest.json").read_text())
    deployment = Deployment()
    for name, artifact in stacks(manifest):
        Stack(name, assembly, artifact, deployment, client).deploy()
    return deployment


def stacks(manifest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names and artifacts of the stacks, each after the stacks that it depends on."""
    artifacts = {
        name: artifact
        for name, artifact in manifest["artifacts"].items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if name in artifacts and name not in done:
            done.add(name)
            for needed in artifacts[name].get("dependencies", []):
                yield from visit(needed)
            yield name, artifacts[name]

    for name in artifacts:
        yield from visit(name)


class Stack:
    """Deploys one stack. A resource is created when another one refers to it, or in the order of the template."""

    def __init__(
        self, name: str, assembly: Path, artifact: dict[str, Any], deployment: Deployment, client: Client
    ) -> None:
        self._name = artifact["properties"].get("stackName", name)
        self._template = json.loads((assembly / artifact["properties"]["templateFile"]).read_text())
        self._paths = construct_paths(assembly, artifact)
        self._deployment = deployment
        self._client = client
        self._created: dict[str, Resource] = {}
        self._creating: list[str] = []
        self._resolver = Resolver(reference=self._reference, attribute=self._attribute, imported=self._imported)

    def deploy(self) -> None:
        for logical_id, definition in self._template["Resources"].items():
            if "Condition" in definition:
                raise Unsupported(f"{definition['Type']} {logical_id}: Condition")
            self._resource(logical_id)
        self._deployment.outputs[self._name] = {
            key: self._output(output) for key, output in self._template.get("Outputs", {}).items()
        }

    def _output(self, output: dict[str, Any]) -> Any:
        value = self._resolver.resolve(output["Value"])
        if "Export" in output:
            self._deployment.exports[self._resolver.resolve(output["Export"]["Name"])] = value
        return value

    def _resource(self, logical_id: str) -> Resource:
        if logical_id not in self._created:
            if logical_id in self._creating:
                raise Unsupported(f"a circle: {' > '.join([*self._creating, logical_id])}")
            self._creating.append(logical_id)
            self._created[logical_id] = self._create(logical_id, self._template["Resources"][logical_id])
            self._creating.remove(logical_id)
        return self._created[logical_id]

    def _create(self, logical_id: str, definition: dict[str, Any]) -> Resource:
        resource = Resource(
            kind=definition["Type"],
            stack=self._name,
            logical_id=logical_id,
            path=self._paths.get(logical_id, logical_id),
            properties=self._resolver.resolve(definition.get("Properties", {})),
        )
        create(resource, self._client)
        self._deployment.resources.append(resource)
        return resource

    def _reference(self, name: str) -> Any:
        if name in PSEUDO_PARAMETERS:
            return PSEUDO_PARAMETERS[name]
        if name == "AWS::StackName":
            return self._name
        if name == "AWS::StackId":
            return f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{self._name}/simulated"
        if name in self._template.get("Parameters", {}):
            return self._template["Parameters"][name].get("Default", "")
        return self._resource(name).reference

    def _attribute(self, logical_id: str, attribute: str) -> Any:
        resource = self._resource(logical_id)
        if resource.attributes.get(attribute) is None:
            raise Unsupported(f"{resource.kind} {logical_id} has no attribute {attribute}")
        return resource.attributes[attribute]

    def _imported(self, name: str) -> Any:
        if name not in self._deployment.exports:
            raise Unsupported(f"nothing exports {name}")
        return self._deployment.exports[name]


def construct_paths(assembly: Path, artifact: dict[str, Any]) -> dict[str, str]:
    """The construct paths without the name of the stack, by logical id."""
    metadata = artifact.get("metadata", {})
    if "additionalMetadataFile" in artifact:
        metadata = json.loads((assembly / artifact["additionalMetadataFile"]).read_text())
    return {
        entry["data"]: path.strip("/").partition("/")[2]
        for path, entries in metadata.items()
        for entry in entries
        if entry["type"] == "aws:cdk:logicalId"
    }
