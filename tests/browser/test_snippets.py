"""The guide's JavaScript, as it is printed, in a real browser that follows real jobs by their links."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from recado import Recado
from recado.models import Job
from tests.browser import pages
from tests.browser.chromium import Page
from tests.browser.pages import Web
from tests.e2e.conftest import wait_for

pytestmark = pytest.mark.enable_socket
EVENT_SOURCE, WEB_SOCKET = "new EventSource(", "new WebSocket("
RETRY_SECONDS = 1.0
Open = Callable[[str], Page]
Submit = Callable[[], Job]


def told(page: Page) -> dict[str, Any]:
    facts: dict[str, Any] = page.evaluate("told")
    return facts


def over(page: Page) -> dict[str, Any]:
    """What the page was told, once it has come to an end, good or bad."""

    def facts() -> dict[str, Any] | None:
        now = told(page)
        return now if now["done"] or now["refused"] else None

    facts_at_end: dict[str, Any] = wait_for(facts)
    return facts_at_end


def log(client: Recado, job: Job) -> list[dict[str, Any]]:
    return [dict(event.raw) for event in client.events(job.job_id)]


def test_every_snippet_is_tried() -> None:
    """The guide has two blocks of JavaScript, which are the two that run here."""
    assert pages.snippets() == [pages.snippet(EVENT_SOURCE), pages.snippet(WEB_SOCKET)]


# ── EventSource ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_event_source_sees_every_event(client: Recado, web: Web, opened: Open, submit: Submit) -> None:
    """Each once, in order, and the end, over several connections that ask no permission; then it stays away."""
    job = submit()
    page = opened(web.origin + web.put(pages.page(job.links, pages.snippet(EVENT_SOURCE))))
    assert over(page) == {"seen": log(client, job), "done": ["completed"], "refused": 0}
    sent = page.requests(job.links["events"])
    assert {request["method"] for request in sent} == {"GET"}
    came_back = [int(request["headers"]["Last-Event-ID"]) for request in sent[1:]]
    assert came_back
    assert came_back == sorted(came_back)
    time.sleep(2.5 * RETRY_SECONDS)
    assert page.requests(job.links["events"]) == sent
    assert page.complaints() == []


def test_an_event_source_that_nobody_closes_stops(web: Web, opened: Open, ended: Job) -> None:
    """Who ignores `end` comes back once, is answered 204, and is not heard of again."""
    ignorant = f"const events = new EventSource({ended.links['events']!r});"
    page = opened(web.origin + web.put(pages.page(ended.links, ignorant)))
    wait_for(lambda: page.evaluate("events.readyState == EventSource.CLOSED"))
    time.sleep(2.5 * RETRY_SECONDS)
    answers = [note["response"]["status"] for note in page.notes("Network.responseReceived")]
    assert answers == [200, 200, 204]  # the page itself first


def test_a_wrong_link_ends_an_event_source(web: Web, opened: Open, ended: Job) -> None:
    """It is refused once: the page learns of it, and does not ask again."""
    wrong = {"events": pages.changed(ended.links["events"])}
    page = opened(web.origin + web.put(pages.page(wrong, pages.snippet(EVENT_SOURCE))))
    assert over(page) == {"seen": [], "done": [], "refused": 1}
    time.sleep(2.5 * RETRY_SECONDS)
    assert len(page.requests(wrong["events"])) == 1
    (complaint,) = page.complaints()
    assert "403" in complaint


def test_a_foreign_page_sees_nothing(web: Web, opened: Open, ended: Job) -> None:
    """A page of an origin that is not in `cors_origins`: the browser lets it read nothing, and it gives up."""
    page = opened(web.foreign + web.put(pages.page(ended.links, pages.snippet(EVENT_SOURCE))))
    assert over(page) == {"seen": [], "done": [], "refused": 1}
    assert len(page.requests(ended.links["events"])) == 1
    assert any("CORS policy" in complaint for complaint in page.complaints())
    assert page.evaluate(f"fetch({ended.links['status']!r}).then(() => 'read', () => 'kept away')") == "kept away"


def test_a_page_polls_without_a_preflight(web: Web, opened: Open, submit: Submit) -> None:
    """fetch() of the status link is one GET, whose `Retry-After` and `ETag` the page can read."""
    link = submit().links["status"]
    page = opened(web.origin + web.put(pages.page({}, "")))
    asking = f"fetch({link!r}).then(async (a) => [a.status, (await a.json()).status, ...a.headers.keys()])"
    status, _, *headers = page.evaluate(asking)
    assert status == 200
    assert {"retry-after", "etag"} <= set(headers)
    assert [request["method"] for request in page.requests(link)] == ["GET"]
    assert page.complaints() == []


# ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_web_socket_sees_every_event(client: Recado, web: Web, opened: Open, submit: Submit) -> None:
    """Each once, in order, and the end, though some are told twice, a connection is cut, and one skips events."""
    job = submit()
    page = opened(web.origin + web.put(pages.page(job.links, pages.snippet(WEB_SOCKET), before=pages.FAULTS)))
    facts, events = over(page), log(client, job)
    assert facts == {"seen": events, "done": ["completed"], "refused": 0}
    known = [int(parse_qs(urlsplit(url).query)["after"][0]) for url in page.sockets()]
    assert len(known) == 3
    assert 0 == known[0] < known[1] <= known[2] < len(events)
    time.sleep(2.5 * RETRY_SECONDS)
    assert len(page.sockets()) == 3
    assert page.complaints() == []


def test_a_wrong_link_ends_a_web_socket(web: Web, opened: Open, ended: Job) -> None:
    """A browser does not tell a page why there is no connection: it tries five times, more and more slowly."""
    wrong = {"live": pages.changed(ended.links["live"])}
    page = opened(web.origin + web.put(pages.page(wrong, pages.snippet(WEB_SOCKET))))
    assert over(page) == {"seen": [], "done": [], "refused": 1}
    assert len(page.sockets()) == 5
    assert all("403" in complaint for complaint in page.complaints())
