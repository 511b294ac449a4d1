"""cdk-nag's AwsSolutions findings equal the committed list. A new finding fails, and a stale entry fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import app_files
from tests.stacks import nag

ACKNOWLEDGED = json.loads(Path(__file__).with_name("nag_acknowledgements.json").read_text())


def acknowledged() -> list[nag.Finding]:
    return [(construct, entry["rule"]) for entry in ACKNOWLEDGED for construct in entry["constructs"]]


def test_findings_are_acknowledged(pytestconfig: pytest.Config) -> None:
    """Every finding, warnings included, is on the list, and every entry of the list is a finding."""
    found = nag.findings(Path(pytestconfig.cache.mkdir("nag")), app_files())
    assert found == set(acknowledged())


def test_each_finding_has_one_reason() -> None:
    """Each finding is in one entry, and each entry has a reason of its own, which is a sentence."""
    assert len(acknowledged()) == len(set(acknowledged()))
    assert all(len(entry["reason"].split()) >= 8 and entry["reason"].endswith(".") for entry in ACKNOWLEDGED)
    assert len({entry["reason"] for entry in ACKNOWLEDGED}) == len(ACKNOWLEDGED)
