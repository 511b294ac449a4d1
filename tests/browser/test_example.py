"""The example's page in a real browser: what a person sees of a job."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recado import Recado
from recado.models import Job
from tests.browser import pages
from tests.browser.chromium import BrowserFailed, Page
from tests.browser.pages import Web
from tests.e2e.conftest import wait_for

pytestmark = pytest.mark.enable_socket
ROWS = "Array.from($('ol').children, (row) => row.firstChild.textContent)"
SHOWN = f"({{ status: $('#status').textContent, rows: {ROWS} }})"
Open = Callable[[str], Page]


@pytest.fixture(scope="module")
def example(web: Web) -> str:
    return web.origin + web.put(pages.EXAMPLE.read_text())


def shown(page: Page, status: str) -> list[str]:
    """The rows of the page, as soon as it shows this status."""

    def rows() -> list[str] | None:
        now: dict[str, Any] = {}
        with contextlib.suppress(BrowserFailed):  # between two pages there is nothing to ask
            now = page.evaluate(SHOWN)
        return [status, *now["rows"]] if now.get("status") == status else None

    found: list[str] = wait_for(rows)
    return found[1:]


@pytest.mark.parametrize("block", pages.snippets())
def test_it_has_the_guides_code(block: str) -> None:
    """What the guide prints is what the example runs, line by line."""
    assert textwrap.indent(block, "    ") in pages.EXAMPLE.read_text()


@pytest.mark.parametrize("way", ["events", "live"])
def test_it_shows_a_job(
    way: str, client: Recado, example: str, opened: Open, submit: Callable[[], Job], album: Path
) -> None:
    """By either link, behind the `#` of the address: every event in its order, and that the job is completed."""
    job = submit()
    page = opened(f"{example}#{job.links[way]}")
    shown(page, "running")
    page.screenshot(album / f"follow-{way}-running.png")
    rows = shown(page, "completed")
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 500))")  # the bar glides to its end
    page.screenshot(album / f"follow-{way}-completed.png")
    assert rows == [event.verb for event in client.events(job.job_id)]
    assert page.evaluate("$('progress').value") == 1
    assert page.complaints() == []


def test_it_takes_a_link_from_its_form(example: str, opened: Open, ended: Job) -> None:
    """A link that is pasted and sent off is followed."""
    page = opened(example)
    page.evaluate(f"void ($('input').value = {ended.links['events']!r}, $('form').requestSubmit())")
    assert shown(page, "completed")[-1] == "indexed"


def test_it_says_that_a_link_does_not_hold(example: str, opened: Open, ended: Job) -> None:
    """Refused, with what to do; nothing is shown as if it had happened."""
    page = opened(f"{example}#{pages.changed(ended.links['events'])}")
    assert shown(page, "refused") == []
    assert "fetch the job for a new one" in page.evaluate("$('#note').textContent")
