"""Synthesis needs only the project's files: no credentials, account, home directory or network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.stacks.templates import Assembly

ROOT = Path(__file__).parents[2]
CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]


def synthesise(home: Path, **context: Any) -> subprocess.CompletedProcess[str]:
    """Run the app as the CDK CLI does, in a minimal environment."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "CDK_OUTDIR": str(home / "cdk.out"),
        "CDK_CONTEXT_JSON": json.dumps(CONTEXT | {"aws:cdk:bundling-stacks": []} | context),
        "CDK_VALIDATION": os.environ.get("CDK_VALIDATION", "false"),  # CI leaves it on; it takes 11 s of CPU
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        # the CDK's library, 200 MB, which is unpacked once
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": os.environ.get(
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(Path.home() / ".cache/aws/jsii/package-cache")
        ),
    }
    return subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_synthesis_needs_no_credentials_and_no_account(tmp_path: Path) -> None:
    """With an empty home and no AWS variable, both stacks are synthesised without context lookups."""
    done = synthesise(tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    manifest = json.loads((tmp_path / "cdk.out" / "manifest.json").read_text())
    stacks = {name: a for name, a in manifest["artifacts"].items() if a["type"] == "aws:cloudformation:stack"}
    assert sorted(stacks) == ["RecadoService", "RecadoStorage"]
    assert {stack["environment"] for stack in stacks.values()} == {"aws://unknown-account/unknown-region"}
    assert manifest.get("missing", []) == []


def test_second_environment_shares_no_name_with_the_first(tmp_path: Path, whole: Assembly) -> None:
    """Another `name` makes other stacks with the same resources; none has a name of the first."""
    done = synthesise(tmp_path, name="Staging")
    assert done.returncode == 0, done.stderr
    found = {path.name: json.loads(path.read_text()) for path in (tmp_path / "cdk.out").glob("*.template.json")}
    assert set(found) == {"StagingStorage.template.json", "StagingService.template.json"}
    for stack, first in whole.templates.items():
        second = found[f"{stack.replace('Recado', 'Staging')}.template.json"]
        shared = {name for name in physical_names(first) & physical_names(second) if "recado" in name.lower()}
        assert shared == set()
        kinds = [Counter(each["Type"] for each in template["Resources"].values()) for template in (first, second)]
        assert kinds[0] - kinds[1] == Counter()


def physical_names(value: Any) -> set[str]:
    """What a template calls resources and exports by itself, wherever it stands."""
    if isinstance(value, list):
        return {name for part in value for name in physical_names(part)}
    if not isinstance(value, dict):
        return set()
    own = {text for key, text in value.items() if key.endswith("Name") and isinstance(text, str)}
    return own.union(*(physical_names(part) for part in value.values()))


def test_wrong_knob_ends_the_synthesis(tmp_path: Path) -> None:
    """The message names the knob, without a stack trace, and no template is written."""
    done = synthesise(tmp_path, chunk_overlap="1000")
    message = "cdk.json: chunk_overlap: 1000 must be smaller than chunk_size (1000)\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
    assert not (tmp_path / "cdk.out" / "manifest.json").exists()
