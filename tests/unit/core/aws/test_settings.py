"""Settings from environment variables (core.aws.settings)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.aws.settings import Environment, SettingsError, flag, mapping, number, numbers, text, texts


class Everything(Environment):
    jobs_table = text()
    wait_seconds_max = number()
    webhook_allow_http = flag()
    allow_private_cidrs = texts()
    schedule_seconds = numbers()
    state_machines = mapping()


VALID = {
    "JOBS_TABLE": "jobs",
    "WAIT_SECONDS_MAX": "25",
    "WEBHOOK_ALLOW_HTTP": "false",
    "ALLOW_PRIVATE_CIDRS": '["127.0.0.0/8"]',
    "SCHEDULE_SECONDS": "[0, 5]",
    "STATE_MACHINES": '{"document": "arn:1", "dataset": ""}',
}


def read(variables: dict[str, str]) -> dict[str, object]:
    settings = Everything(variables)
    return {variable: getattr(settings, variable.lower()) for variable in VALID}


def test_every_type() -> None:
    """Each setting is read from its variable in its declared type."""
    assert read(VALID | {"OTHER": "x"}) == {
        "JOBS_TABLE": "jobs",
        "WAIT_SECONDS_MAX": 25,
        "WEBHOOK_ALLOW_HTTP": False,
        "ALLOW_PRIVATE_CIDRS": ("127.0.0.0/8",),
        "SCHEDULE_SECONDS": (0, 5),
        "STATE_MACHINES": {"document": "arn:1", "dataset": ""},
    }


def test_default_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping, the process's environment is read."""
    monkeypatch.setenv("JOBS_TABLE", "from the process")
    assert Everything().jobs_table == "from the process"


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_any_mapping(mapping: dict[str, str]) -> None:
    """A mapping of strings is read as it was written, also an empty one."""
    assert Everything({"STATE_MACHINES": json.dumps(mapping)}).state_machines == mapping


@pytest.mark.parametrize("key", sorted(VALID))
def test_missing_variable(key: str) -> None:
    """The error names the missing variable."""
    with pytest.raises(SettingsError, match=f"the environment variable {key} is missing"):
        read({name: value for name, value in VALID.items() if name != key})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("WAIT_SECONDS_MAX", "soon"),
        ("WAIT_SECONDS_MAX", "2.5"),
        ("WEBHOOK_ALLOW_HTTP", "yes"),
        ("WEBHOOK_ALLOW_HTTP", "False"),
        ("WEBHOOK_ALLOW_HTTP", '"false"'),
        ("WEBHOOK_ALLOW_HTTP", "1"),
        ("ALLOW_PRIVATE_CIDRS", "127.0.0.0/8"),
        ("ALLOW_PRIVATE_CIDRS", '"127.0.0.0/8"'),
        ("ALLOW_PRIVATE_CIDRS", "[1]"),
        ("SCHEDULE_SECONDS", "5"),
        ("SCHEDULE_SECONDS", '["5"]'),
        ("SCHEDULE_SECONDS", "[true]"),
        ("SCHEDULE_SECONDS", '{"5": 6}'),
        ("STATE_MACHINES", ""),
        ("STATE_MACHINES", "arn:1"),
        ("STATE_MACHINES", "null"),
        ("STATE_MACHINES", '["document", "arn:1"]'),
        ("STATE_MACHINES", '[["document", "arn:1"]]'),
        ("STATE_MACHINES", '{"document": 1}'),
        ("STATE_MACHINES", '{"document": null}'),
        ("STATE_MACHINES", '{"document": true}'),
        ("STATE_MACHINES", '{"document": {"arn": "arn:1"}}'),
        ("STATE_MACHINES", '{"document": ["arn:1"]}'),
    ],
)
def test_invalid_value(key: str, value: str) -> None:
    """A value of another type raises an error that names the variable."""
    with pytest.raises(SettingsError, match=f"the environment variable {key} is not"):
        read(VALID | {key: value})
