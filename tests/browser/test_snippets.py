"""The JavaScript of the guide in a browser, with the links of jobs."""

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


def final_state(page: Page) -> dict[str, Any]:
    """The calls of the functions of the page, after the last one."""
    state: dict[str, Any] = page.wait_for_function("(state.done.length || state.refused) && state").json_value()
    return state


def stream(links: Mapping[str, str]) -> str:
    """The URL that the EventSource of the guide opens."""
    return f"{links['events']}?event=message"


def log(client: Recado, job: Job) -> list[dict[str, Any]]:
    return [dict(event.raw) for event in client.events(job.job_id)]


def test_every_snippet_is_tested() -> None:
    """The guide has two blocks of JavaScript."""
    assert pages.snippets() == [pages.snippet(EVENT_SOURCE), pages.snippet(WEB_SOCKET)]


# ── EventSource ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_event_source_receives_every_event(
    client: Recado, web: Web, page: Page, preflights: list[str], submit: Submit
) -> None:
    """Each event is received once and in order, over several connections, without a preflight request."""
    job = submit()
    page.goto(web.origin + web.put(pages.page(job.links, pages.snippet(EVENT_SOURCE))))
    assert final_state(page) == {"seen": log(client, job), "done": ["completed"], "refused": 0}
    sent = pages.requests(page, stream(job.links))
    assert {request.method for request in sent} == {"GET"}
    assert preflights == []
    last_event_ids = [int(request.header_value("last-event-id")) for request in sent[1:]]
    assert last_event_ids
    assert last_event_ids == sorted(last_event_ids)
    page.wait_for_timeout(2.5 * RETRY_MS)
    assert pages.requests(page, stream(job.links)) == sent
    assert pages.console_messages(page) == []


@pytest.mark.parametrize("query", ["", "?event=message"])
def test_an_event_source_that_is_not_closed_stops(web: Web, page: Page, ended: Job, query: str) -> None:
    """If a page ignores the last event and `end`, the browser reconnects once and stops after a 204."""
    script = f"const events = new EventSource({ended.links['events'] + query!r});"
    page.goto(web.origin + web.put(pages.page(ended.links, script)))
    page.wait_for_function("events.readyState === EventSource.CLOSED")
    page.wait_for_timeout(2.5 * RETRY_MS)
    responses = [request.response() for request in page.requests()]
    assert [response.status for response in responses if response] == [200, 200, 204]  # the page itself first


def test_a_wrong_link_ends_an_event_source(web: Web, page: Page, ended: Job) -> None:
    """The page is notified of the error, and the browser does not retry."""
    wrong = {"events": pages.with_wrong_signature(ended.links["events"])}
    page.goto(web.origin + web.put(pages.page(wrong, pages.snippet(EVENT_SOURCE))))
    assert final_state(page) == {"seen": [], "done": [], "refused": 1}
    page.wait_for_timeout(2.5 * RETRY_MS)
    assert len(pages.requests(page, stream(wrong))) == 1
    (message,) = pages.console_messages(page)
    assert "403" in message


def test_a_page_of_another_origin_reads_nothing(web: Web, page: Page, ended: Job) -> None:
    """The browser refuses the responses to a page whose origin is not in `cors_origins`."""
    page.goto(web.other_origin + web.put(pages.page(ended.links, pages.snippet(EVENT_SOURCE))))
    assert final_state(page) == {"seen": [], "done": [], "refused": 1}
    assert len(pages.requests(page, stream(ended.links))) == 1
    assert any("CORS policy" in message for message in pages.console_messages(page))
    assert page.evaluate(f"fetch({ended.links['status']!r}).then(() => 'read', () => 'refused')") == "refused"


def test_a_page_polls_without_a_preflight(web: Web, page: Page, preflights: list[str], submit: Submit) -> None:
    """fetch() of the status link is one GET. The page can read `Retry-After` and `ETag`."""
    link = submit().links["status"]
    page.goto(web.origin + web.put(pages.page({}, "")))
    script = f"fetch({link!r}).then(async (a) => [a.status, (await a.json()).status, ...a.headers.keys()])"
    status, _, *headers = page.evaluate(script)
    assert status == 200
    assert {"retry-after", "etag"} <= set(headers)
    assert [request.method for request in pages.requests(page, link)] == ["GET"]
    assert preflights == []
    assert pages.console_messages(page) == []


# ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_web_socket_receives_every_event(
    client: Recado, web: Web, page: Page, sockets: list[str], submit: Submit
) -> None:
    """Each event is shown once and in order, although connections repeat events, break, and skip events."""
    job = submit()
    page.goto(web.origin + web.put(pages.page(job.links, pages.snippet(WEB_SOCKET), before=pages.FAULTS)))
    state, events = final_state(page), log(client, job)
    assert state == {"seen": events, "done": ["completed"], "refused": 0}
    known = [int(parse_qs(urlsplit(url).query)["after"][0]) for url in sockets]
    assert len(known) == 3
    assert 0 == known[0] < known[1] <= known[2] < len(events)
    page.wait_for_timeout(2.5 * RETRY_MS)
    assert len(sockets) == 3
    assert pages.console_messages(page) == []


def test_a_wrong_link_ends_a_web_socket(web: Web, page: Page, sockets: list[str], ended: Job) -> None:
    """A page does not get the reason of a failed connection, so it tries five times, with increasing delays."""
    wrong = {"live": pages.with_wrong_signature(ended.links["live"])}
    page.goto(web.origin + web.put(pages.page(wrong, pages.snippet(WEB_SOCKET))))
    assert final_state(page) == {"seen": [], "done": [], "refused": 1}
    assert len(sockets) == 5
    assert all("403" in message for message in pages.console_messages(page))
