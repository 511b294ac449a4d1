"""The page of the example in a browser."""

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
    """The rows of the page as soon as it shows this status."""
    page.wait_for_function("status => $('#status').textContent === status", arg=status)
    return page.locator("ol b").all_text_contents()


@pytest.mark.parametrize("block", pages.snippets())
def test_the_example_contains_the_code_of_the_guide(block: str) -> None:
    """Every block of the guide is in the page."""
    assert textwrap.indent(block, "    ") in pages.EXAMPLE.read_text()


@pytest.mark.parametrize("name", ["events", "live"])
def test_a_job_is_shown(
    name: str, client: Recado, example: str, page: Page, submit: Callable[[], Job], screenshots: Path
) -> None:
    """With each link in the fragment of the URL, all events are shown in order, and then the status."""
    job = submit()
    page.goto(f"{example}#{job.links[name]}")
    shown(page, "running")
    page.screenshot(path=screenshots / f"follow-{name}-running.png")
    rows = shown(page, "completed")
    page.wait_for_timeout(500)  # the bar is animated
    page.screenshot(path=screenshots / f"follow-{name}-completed.png")
    assert rows == [event.verb for event in client.events(job.job_id)]
    assert page.evaluate("$('progress').value") == 1
    assert pages.console_messages(page) == []


def test_a_link_can_be_pasted(example: str, page: Page, ended: Job) -> None:
    """A link that is entered in the form is followed."""
    page.goto(example)
    page.get_by_label("Link").fill(ended.links["events"])
    page.get_by_role("button", name="Follow").click()
    assert shown(page, "completed")[-1] == "indexed"


def test_an_invalid_link_is_refused(example: str, page: Page, ended: Job) -> None:
    """The page says what to do, and shows no event."""
    page.goto(f"{example}#{pages.with_wrong_signature(ended.links['events'])}")
    assert shown(page, "refused") == []
    assert "Fetch the job for a new one" in page.locator("#note").inner_text()
