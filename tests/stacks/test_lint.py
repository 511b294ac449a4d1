"""cfn-lint on the templates, state machines included, for two regions and with options on and off."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path

import pytest

from tests.stacks.templates import Assembly, Template, resources

REGIONS = ("us-east-1", "eu-south-2")
MACHINE = "AWS::StepFunctions::StateMachine"
ACKNOWLEDGED = {
    "W3005": "The CDK has each function wait for the policy of its role; a second DependsOn does no harm.",
    "W6001": "`ops` reads all names from the outputs of the service stack, those of the storage stack included.",
}
Finding = tuple[str, str]


def prepared(template: Template) -> Template:
    """The template with the partition in its state machines: cfn-lint checks ARNs before it substitutes."""
    copy = deepcopy(template)
    for _, machine in resources(copy, MACHINE):
        machine["DefinitionString"] = machine["DefinitionString"].replace("${Partition}", "aws")
        machine["DefinitionSubstitutions"].pop("Partition", None)
    return copy


def lint(templates: Iterable[Template], cache: Path) -> set[Finding]:
    """(rule, message) of all findings, from `cache` if these templates were checked before: it takes seconds."""
    texts = [json.dumps(template, indent=1) for template in templates]
    kept = cache / f"{hashlib.sha256(''.join([*texts, *REGIONS]).encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        files = [cache / f"{kept.stem}-{number}.template.json" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        command = [str(Path(sys.executable).with_name("cfn-lint")), "--regions", *REGIONS, "--format", "json"]
        command += map(str, files)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        json.loads(done.stdout)  # else it did not run
        kept.write_text(done.stdout)
        for file in files:
            file.unlink()
    return {(each["Rule"]["Id"], each["Message"]) for each in json.loads(kept.read_text())}


@pytest.fixture
def cache(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.cache.mkdir("lint"))


@pytest.mark.parametrize("name", ["whole", "overridden"])
def test_findings_are_acknowledged(request: pytest.FixtureRequest, cache: Path, name: str) -> None:
    """Every finding is of a rule that is acknowledged with a reason, and each of these rules has findings."""
    assembly: Assembly = request.getfixturevalue(name)
    found = lint(map(prepared, assembly.templates.values()), cache)
    assert [finding for finding in found if finding[0] not in ACKNOWLEDGED] == []
    assert {rule for rule, _ in found} == set(ACKNOWLEDGED)


@pytest.mark.parametrize("mistake", [{"Type": "Tsk"}, {"TimeoutSeconds": "soon"}])
def test_mistakes_in_state_machines_are_found(service: Template, cache: Path, mistake: dict[str, str]) -> None:
    """A state of an unknown type, and a timeout that is no number, are errors of the state machine's validator."""
    logical_id, machine = next(resources(prepared(service), MACHINE))
    definition = json.loads(machine["DefinitionString"])
    definition["States"][definition["StartAt"]] |= mistake
    role = "arn:aws:iam::123456789012:role/any"
    properties = {"DefinitionString": json.dumps(definition), "RoleArn": role}
    found = lint([{"Resources": {logical_id: {"Type": MACHINE, "Properties": properties}}}], cache)
    assert "E3601" in {rule for rule, _ in found}
