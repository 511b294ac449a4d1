"""Runs cdk-nag's AwsSolutions pack and CDK's own validation on the app: `python -m tests.stacks.nag`.

The findings are in `validation-report.json` beside the templates.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from tests.stacks.own_kinds import SHIPPED
from tests.stacks.processes import synthesise

Finding = tuple[str, str]


def findings(cache: Path, sources: list[Path]) -> set[Finding]:
    """The findings of a run in another process, or from `cache` if the sources have not changed."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, Path(__file__)]))
    kept = cache / f"{digest.hexdigest()[:16]}.json"
    if not kept.exists():
        kept.write_text(json.dumps(sorted(_audit())))
    return {(construct, rule) for construct, rule in json.loads(kept.read_text())}


def _audit() -> set[Finding]:
    with tempfile.TemporaryDirectory() as out:
        done = synthesise("nag", Path(out), validation="true")
        report = Path(out, "validation-report.json")
        assert report.exists(), done.stderr
        return _read(json.loads(report.read_text()))


def _read(report: dict[str, list[dict[str, list[dict[str, list[dict[str, str]]]]]]]) -> set[Finding]:
    return {
        (construct["constructPath"], str(violation["ruleName"]))
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    }


def main() -> None:
    """Synthesise with the pack. If it has findings, synthesis writes the report and ends with an error."""
    import aws_cdk as cdk
    from cdk_nag import AwsSolutionsChecks

    from app import build

    app = cdk.App()
    build(app, kinds=tuple(SHIPPED.values()))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


if __name__ == "__main__":
    main()
