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


GOOD = {
    "JOBS_TABLE": "jobs",
    "WAIT_SECONDS_MAX": "25",
    "WEBHOOK_ALLOW_HTTP": "false",
    "ALLOW_PRIVATE_CIDRS": '["127.0.0.0/8"]',
    "SCHEDULE_SECONDS": "[0, 5]",
    "STATE_MACHINES": '{"document": "arn:1", "dataset": ""}',
}


def read(variables: dict[str, str]) -> dict[str, object]:
    settings = Everything(variables)
    return {variable: getattr(settings, variable.lower()) for variable in GOOD}


def test_every_type() -> None:
    """Each setting is read from the variable of its name, in the type that it declares."""
    assert read(GOOD | {"OTHER": "x"}) == {
        "JOBS_TABLE": "jobs",
        "WAIT_SECONDS_MAX": 25,
        "WEBHOOK_ALLOW_HTTP": False,
        "ALLOW_PRIVATE_CIDRS": ("127.0.0.0/8",),
        "SCHEDULE_SECONDS": (0, 5),
        "STATE_MACHINES": {"document": "arn:1", "dataset": ""},
    }


def test_the_process_has_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping the variables are those of the process."""
    monkeypatch.setenv("JOBS_TABLE", "from the process")
    assert Everything().jobs_table == "from the process"


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_any_mapping(mapping: dict[str, str]) -> None:
    """A mapping of texts to texts is read as it was written, an empty one too."""
    assert Everything({"STATE_MACHINES": json.dumps(mapping)}).state_machines == mapping


@pytest.mark.parametrize("key", sorted(GOOD))
def test_a_missing_key_is_named(key: str) -> None:
    """A variable that is missing is named, whichever it is."""
    with pytest.raises(SettingsError, match=f"the environment variable {key} is missing"):
        read({name: value for name, value in GOOD.items() if name != key})


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
def test_a_wrong_form_is_named(key: str, value: str) -> None:
    """A value of another type is an error that names its variable, not a setting that means something else."""
    with pytest.raises(SettingsError, match=f"the environment variable {key} is not"):
        read(GOOD | {key: value})
