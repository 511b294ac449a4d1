"""What the package exports, and what importing it loads."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recado
from recado import cost, errors, models, polling, webhooks

CLIENT = Path(recado.__file__).parents[1]


def test_exports_can_be_imported() -> None:
    """Every name in `__all__` exists, and other names raise AttributeError."""
    for name in recado.__all__:
        assert getattr(recado, name)
    with pytest.raises(AttributeError):
        _ = recado.nonsense


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (recado.TimeUp, recado.WaitTimeout),
        (errors.TimeUp, recado.WaitTimeout),
        (cost.PollFailed, polling.PollFailed),
        (cost.poll_with_backoff, polling.poll_with_backoff),
        (webhooks.Event, recado.Event),
        (webhooks.verify, recado.verify),
    ],
)
def test_old_names_are_the_same_objects(old: object, new: object) -> None:
    """Programs that import a name from where an earlier version had it still work."""
    assert old is new


def test_verifying_loads_no_http_client() -> None:
    """`import recado` loads what receivers of webhooks need. The clients are loaded at their first use."""
    program = (
        "import sys, recado; recado.verify; assert not {'httpx2', 'rich', 'websockets'} & set(sys.modules);"
        "recado.polling_cost(60, 1); recado.poll_with_backoff; assert 'httpx2' not in sys.modules;"
        "recado.Recado; assert 'httpx2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(CLIENT)})


def test_the_documentation_lists_every_error() -> None:
    """The tree in the docstring of `errors` names every error class."""
    listed = set(re.findall(r"^[ │├└─]*?([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE))
    values = [*vars(models).values(), *vars(errors).values()]
    classes = {value.__name__ for value in values if inspect.isclass(value) and issubclass(value, Exception)}
    assert classes <= listed


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"title": "not found", "detail": "There is no such job."}, "404 not found: There is no such job."),
        ({"type": "urn:recado:problem:not_found", "detail": "Gone."}, "404 urn:recado:problem:not_found: Gone."),
        ({"title": "not found"}, "404 not found"),
        ({}, "404 about:blank"),
    ],
)
def test_the_message_of_an_api_error(facts: dict[str, str], message: str) -> None:
    """It has the status, the title or else the type, and the detail if there is one."""
    assert str(errors.ApiError(status=404, **facts)) == message  # type: ignore[arg-type]
