"""Commands that calculate costs."""

from __future__ import annotations

import json

import pytest

from tests.unit.client.cli.conftest import Run

pytestmark = pytest.mark.enable_socket


def test_advise(run: Run) -> None:
    """The advice is a line for programs, or JSON."""
    assert run("advise", "--can-receive-http", "--duration", "2h")[1].startswith("webhook\t1\t")
    assert json.loads(run("advise", "--json")[1])["naive"]["requests"] == 121


def test_advise_for_people(run: Run, for_people: None) -> None:
    """The strategy has a reason, instructions, and its cost beside that of polling once a minute."""
    lines = run("advise", "--can-receive-http")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["webhook:", "how:", "cost:"]
    assert "1 request," in lines[2]
    assert "121 requests," in lines[2]


def test_cost(run: Run) -> None:
    """Every strategy has a line."""
    _, out, _ = run("cost", "47m", "--interval", "30s")
    assert "short_polling\t95\t93\t97.9 %\t30 s" in out.splitlines()
    assert len(out.splitlines()) == 7


def test_cost_as_json(run: Run) -> None:
    """With --json every strategy is a document with its counts."""
    costs = [json.loads(line) for line in run("cost", "47m", "--interval", "30s", "--json")[1].splitlines()]
    assert len(costs) == 7
    assert {"strategy", "duration", "polls", "delay", "requests", "useful", "wasted", "percent"} <= set(costs[0])


def test_cost_for_people(run: Run, for_people: None) -> None:
    """The table has headings."""
    assert run("cost", "2h")[1].split()[:3] == ["strategy", "requests", "wasted"]
