"""cdk-nag's AwsSolutions findings equal the committed list: a new one fails, and so does one that is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import app_files
from tests.stacks import nag

ACKNOWLEDGED = json.loads(Path(__file__).with_name("nag_acknowledgements.json").read_text())


def acknowledged() -> list[nag.Finding]:
    return [(construct, entry["rule"]) for entry in ACKNOWLEDGED for construct in entry["constructs"]]


def test_findings_are_those_that_were_acknowledged(pytestconfig: pytest.Config) -> None:
    """Every finding, warnings included, is on the list with its reason; nothing on the list is stale."""
    found = nag.findings(Path(pytestconfig.cache.mkdir("nag")), app_files())
    assert found == set(acknowledged())


def test_each_finding_is_acknowledged_once_and_for_a_reason() -> None:
    """One entry per finding, and each says why in a sentence of its own."""
    assert len(acknowledged()) == len(set(acknowledged()))
    assert all(len(entry["reason"].split()) >= 8 and entry["reason"].endswith(".") for entry in ACKNOWLEDGED)
    assert len({entry["reason"] for entry in ACKNOWLEDGED}) == len(ACKNOWLEDGED)
