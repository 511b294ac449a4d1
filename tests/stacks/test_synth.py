"""Synthesis needs only the project's files: no credentials, account, home directory or network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_wrong_knob_ends_the_synthesis(tmp_path: Path) -> None:
    """The message names the knob, without a stack trace, and no template is written."""
    done = synthesise(tmp_path, chunk_overlap="1000")
    message = "cdk.json: chunk_overlap: 1000 must be smaller than chunk_size (1000)\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
    assert not (tmp_path / "cdk.out" / "manifest.json").exists()
