"""Synthesises the app by a module of these tests in another process: `python -m tests.stacks.<module>`.

CDK's own validator takes ten seconds, and can only be switched off before Node starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def synthesise(
    module: str, out: Path, *arguments: str, validation: str = "false"
) -> subprocess.CompletedProcess[str]:
    """Synthesise into `out` with the defaults of cdk.json, and without layers, which pip would download."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"] | {"aws:cdk:bundling-stacks": []}
    environment = os.environ | {
        "CDK_OUTDIR": str(out),
        "CDK_CONTEXT_JSON": json.dumps(context),
        "CDK_VALIDATION": validation,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lambdas")]),
    }
    command = [sys.executable, "-m", f"tests.stacks.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
