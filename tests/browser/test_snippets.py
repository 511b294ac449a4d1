"""The guide's JavaScript, as it is printed, in a real browser that follows real jobs by their links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page

from recado import Recado
from recado.models import Job
from tests.browser import pages
from tests.browser.pages import Web

pytestmark = pytest.mark.enable_socket
EVENT_SOURCE, WEB_SOCKET = "new EventSource(", "new WebSocket("
RETRY_MS = 1000
Submit = Callable[[], Job]


def over(page: Page) -> dict[str, Any]:
    """What the page was told, once it has come to an end, good or bad."""
    facts: dict[str, Any] = page.wait_for_function("(told.done.length || told.refused) && told").json_value()
    return facts


def stream(links: Mapping[str, str]) -> str:
    """The URL that the guide's EventSource opens."""
    return f"{links['events']}?event=message"


def log(client: Recado, job: Job) -> list[dict[str, Any]]:
    return [dict(event.raw) for event in client.events(job.job_id)]


def test_every_snippet_is_tried() -> None:
    """The guide has two blocks of JavaScript, which are the two that run here."""
    assert pages.snippets() == [pages.snippet(EVENT_SOURCE), pages.snippet(WEB_SOCKET)]


# ── EventSource ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_event_source_sees_every_event(
    client: Recado, web: Web, page: Page, preflights: list[str], submit: Submit
) -> None:
    """Each once, in order, and the end, over several connections that ask no permission; then it stays away."""
    job = submit()
    page.goto(web.origin + web.put(pages.page(job.links, pages.snippet(EVENT_SOURCE))))
    assert over(page) == {"seen": log(client, job), "done": ["completed"], "refused": 0}
    sent = pages.requests(page, stream(job.links))
    assert {request.method for request in sent} == {"GET"}
    assert preflights == []
    came_back = [int(request.header_value("last-event-id")) for request in sent[1:]]
    assert came_back
    assert came_back == sorted(came_back)
    page.wait_for_timeout(2.5 * RETRY_MS)
    assert pages.requests(page, stream(job.links)) == sent
    assert pages.complaints(page) == []


@pytest.mark.parametrize("query", ["", "?event=message"])
def test_an_event_source_that_nobody_closes_stops(web: Web, page: Page, ended: Job, query: str) -> None:
    """Who ignores the last event, and `end`, comes back once, is answered 204, and is not heard of again."""
    ignorant = f"const events = new EventSource({ended.links['events'] + query!r});"
    page.goto(web.origin + web.put(pages.page(ended.links, ignorant)))
    page.wait_for_function("events.readyState === EventSource.CLOSED")
    page.wait_for_timeout(2.5 * RETRY_MS)
    answers = [request.response() for request in page.requests()]
    assert [answer.status for answer in answers if answer] == [200, 200, 204]  # the page itself first


def test_a_wrong_link_ends_an_event_source(web: Web, page: Page, ended: Job) -> None:
    """It is refused once: the page learns of it, and does not ask again."""
    wrong = {"events": pages.changed(ended.links["events"])}
    page.goto(web.origin + web.put(pages.page(wrong, pages.snippet(EVENT_SOURCE))))
    assert over(page) == {"seen": [], "done": [], "refused": 1}
    page.wait_for_timeout(2.5 * RETRY_MS)
    assert len(pages.requests(page, stream(wrong))) == 1
    (complaint,) = pages.complaints(page)
    assert "403" in complaint


def test_a_foreign_page_sees_nothing(web: Web, page: Page, ended: Job) -> None:
    """A page of an origin that is not in `cors_origins`: the browser lets it read nothing, and it gives up."""
    page.goto(web.foreign + web.put(pages.page(ended.links, pages.snippet(EVENT_SOURCE))))
    assert over(page) == {"seen": [], "done": [], "refused": 1}
    assert len(pages.requests(page, stream(ended.links))) == 1
    assert any("CORS policy" in complaint for complaint in pages.complaints(page))
    assert page.evaluate(f"fetch({ended.links['status']!r}).then(() => 'read', () => 'kept away')") == "kept away"


def test_a_page_polls_without_a_preflight(web: Web, page: Page, preflights: list[str], submit: Submit) -> None:
    """fetch() of the status link is one GET, whose `Retry-After` and `ETag` the page can read."""
    link = submit().links["status"]
    page.goto(web.origin + web.put(pages.page({}, "")))
    asking = f"fetch({link!r}).then(async (a) => [a.status, (await a.json()).status, ...a.headers.keys()])"
    status, _, *headers = page.evaluate(asking)
    assert status == 200
    assert {"retry-after", "etag"} <= set(headers)
    assert [request.method for request in pages.requests(page, link)] == ["GET"]
    assert preflights == []
    assert pages.complaints(page) == []


# ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_web_socket_sees_every_event(
    client: Recado, web: Web, page: Page, sockets: list[str], submit: Submit
) -> None:
    """Each once, in order, and the end, though some are told twice, a connection is cut, and one skips events."""
    job = submit()
    page.goto(web.origin + web.put(pages.page(job.links, pages.snippet(WEB_SOCKET), before=pages.FAULTS)))
    facts, events = over(page), log(client, job)
    assert facts == {"seen": events, "done": ["completed"], "refused": 0}
    known = [int(parse_qs(urlsplit(url).query)["after"][0]) for url in sockets]
    assert len(known) == 3
    assert 0 == known[0] < known[1] <= known[2] < len(events)
    page.wait_for_timeout(2.5 * RETRY_MS)
    assert len(sockets) == 3
    assert pages.complaints(page) == []


def test_a_wrong_link_ends_a_web_socket(web: Web, page: Page, sockets: list[str], ended: Job) -> None:
    """A browser does not tell a page why there is no connection: it tries five times, more and more slowly."""
    wrong = {"live": pages.changed(ended.links["live"])}
    page.goto(web.origin + web.put(pages.page(wrong, pages.snippet(WEB_SOCKET))))
    assert over(page) == {"seen": [], "done": [], "refused": 1}
    assert len(sockets) == 5
    assert all("403" in complaint for complaint in pages.complaints(page))
