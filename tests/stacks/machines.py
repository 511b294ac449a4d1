"""State machines as they are deployed, with the kinds of jobs that they run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.jobs import Kind
from kinds.registry import KINDS
from tests.simulated_cloud.template import handler_folder
from tests.stacks.own_kinds import OWN, SHIPPED
from tests.stacks.templates import ARN, Assembly, Resource

State = dict[str, Any]
LAST_RESORT = "NotifyFailure"
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
RUN_BY_MACHINES = tuple(kind.name for kind in SHIPPED.values() if kind.runs_on == "machine")


@dataclass(frozen=True)
class Machine:
    """The state machine of one kind. `functions`: all functions of the app, by construct path."""

    kind: Kind
    resource: Resource
    functions: Mapping[str, Resource]

    @property
    def text(self) -> str:
        """The definition in the template, with its placeholders."""
        return str(self.resource.properties["DefinitionString"])

    @property
    def substitutions(self) -> dict[str, str]:
        """The values that CloudFormation substitutes, by placeholder."""
        given: dict[str, str] = self.resource.properties["DefinitionSubstitutions"]
        return given

    @property
    def definition(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def states(self) -> dict[str, State]:
        """The states on the top level."""
        found: dict[str, State] = self.definition["States"]
        return found

    @property
    def tasks(self) -> dict[str, State]:
        """Every Task, also inside a Map or a Parallel."""
        return {name: state for name, state in every_state(self.definition) if state["Type"] == "Task"}

    @property
    def calling(self) -> dict[str, Resource]:
        """The functions that Tasks call, by the Task's name."""
        named = {name: PLACEHOLDER.fullmatch(state["Resource"]) for name, state in self.tasks.items()}
        arns = {name: self.substitutions[match.group(1)] for name, match in named.items() if match}
        return {name: self.functions[arn.removeprefix(ARN)] for name, arn in arns.items()}

    @property
    def called(self) -> dict[str, str]:
        """The folder names of the functions that Tasks call, by the Task's name."""
        return {name: handler_folder(function.properties["Handler"]) for name, function in self.calling.items()}


def machines(app: Assembly) -> dict[str, Machine]:
    """State machines by kind, from the environment of `start_job`."""
    variables = app.functions()["start_job"].properties["Environment"]["Variables"]
    by_name = {resource.name: resource for resource in app.of("AWS::StepFunctions::StateMachine")}
    functions = {function.name: function for function in app.of("AWS::Lambda::Function")}
    return {
        name: Machine({**KINDS, **OWN}[name], by_name[arn.removeprefix(ARN)], functions)
        for name, arn in json.loads(variables["STATE_MACHINES"]).items()
    }


def every_state(definition: Mapping[str, Any]) -> Iterator[tuple[str, State]]:
    """(name, state) of every state, also inside a Map or a Parallel."""
    for name, state in definition["States"].items():
        yield name, state
        for inner in inner_machines(state):
            yield from every_state(inner)


def inner_machines(state: State) -> list[dict[str, Any]]:
    processor = state.get("ItemProcessor")
    return [*state.get("Branches", []), *([processor] if processor else [])]
