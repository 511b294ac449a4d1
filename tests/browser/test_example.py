"""The example's page in a real browser: what a person sees of a job."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from recado import Recado
from recado.models import Job
from tests.browser import pages
from tests.browser.pages import Web

pytestmark = pytest.mark.enable_socket


@pytest.fixture(scope="module")
def example(web: Web) -> str:
    return web.origin + web.put(pages.EXAMPLE.read_text())


def shown(page: Page, status: str) -> list[str]:
    """The rows of the page, as soon as it shows this status, if only for a moment."""
    page.wait_for_function("status => $('#status').textContent === status", arg=status)
    return page.locator("ol b").all_text_contents()


@pytest.mark.parametrize("block", pages.snippets())
def test_it_has_the_guides_code(block: str) -> None:
    """What the guide prints is what the example runs, line by line."""
    assert textwrap.indent(block, "    ") in pages.EXAMPLE.read_text()


@pytest.mark.parametrize("way", ["events", "live"])
def test_it_shows_a_job(
    way: str, client: Recado, example: str, page: Page, submit: Callable[[], Job], album: Path
) -> None:
    """By either link, behind the `#` of the address: every event in its order, and that the job is completed."""
    job = submit()
    page.goto(f"{example}#{job.links[way]}")
    shown(page, "running")
    page.screenshot(path=album / f"follow-{way}-running.png")
    rows = shown(page, "completed")
    page.wait_for_timeout(500)  # the bar glides to its end
    page.screenshot(path=album / f"follow-{way}-completed.png")
    assert rows == [event.verb for event in client.events(job.job_id)]
    assert page.evaluate("$('progress').value") == 1
    assert pages.complaints(page) == []


def test_it_takes_a_link_from_its_form(example: str, page: Page, ended: Job) -> None:
    """A link that is pasted and sent off is followed."""
    page.goto(example)
    page.get_by_label("Link").fill(ended.links["events"])
    page.get_by_role("button", name="Follow").click()
    assert shown(page, "completed")[-1] == "indexed"


def test_it_says_that_a_link_is_invalid(example: str, page: Page, ended: Job) -> None:
    """Refused, with what to do; nothing is shown as if it had happened."""
    page.goto(f"{example}#{pages.changed(ended.links['events'])}")
    assert shown(page, "refused") == []
    assert "Fetch the job for a new one" in page.locator("#note").inner_text()
