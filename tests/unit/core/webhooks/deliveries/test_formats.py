"""core.webhooks.deliveries.formats"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.events import Event
from core.webhooks.deliveries.formats import FORMATS, MAX_SLACK_CHARACTERS, content_type, render
from core.webhooks.endpoints.patterns import event_names
from kinds.registry import KINDS
from kinds.replay.kind import REPLAY

OWNER = "acme-1"
INDEXED = {
    "document_id": "a.pdf",
    "version": 3,
    "media_type": "application/pdf",
    "characters": 9000,
    "chunks": 12,
    "event": "document.indexed",
    "event_id": "evt_01JDX0000000000000000000AA",
    "job_id": "job_01JDX0000000000000000000AA",
    "sequence": 5,
    "timestamp": "2026-11-29T14:33:00.123Z",
}
FAILED = {
    "error": {"code": "too_large", "message": "The file has 60 MB; 50 MB are allowed.", "stage": "validate"},
    "event": "document.failed",
    "event_id": "evt_01JDX0000000000000000000AB",
    "job_id": "job_01JDX0000000000000000000AB",
    "sequence": 3,
    "timestamp": "2026-11-29T14:33:00.123Z",
    "document_id": "b.pdf",
}
DISABLED = {
    "endpoint_id": "wh_01JDX0000000000000000000AA",
    "reason": "gone",
    "event": "endpoint.disabled",
    "event_id": "evt_01JDX0000000000000000000AC",
    "timestamp": "2026-11-29T14:33:00.123Z",
}
PING = DISABLED | {"event": "ping"}

any_text = st.text(st.characters(exclude_categories=()), max_size=60)  # lone surrogates too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
names = any_text.filter(lambda name: name not in ("job_id", "endpoint_id"))  # which are always texts
facts = st.dictionaries(names | st.sampled_from(["chunks", "error", "document_id", "subject", "id"]), values)
errors = st.fixed_dictionaries({}, optional={"code": any_text | values, "message": any_text | values})
known = st.fixed_dictionaries(
    {}, optional={"document_id": any_text, "chunks": st.integers(0) | values, "error": errors}
)
envelopes = st.builds(
    lambda name, own: {**(DISABLED if own else INDEXED), "event": name},
    st.sampled_from([*event_names(KINDS.values()), "ping"]),
    st.booleans(),
)
payloads = st.builds(
    lambda more, what, envelope: {**envelope, **more, **what} | _core(envelope), facts, known, envelopes
)


def _core(envelope: dict[str, Any]) -> dict[str, Any]:
    """The fields of the envelope, which facts cannot override."""
    return {name: envelope[name] for name in envelope if name in ("event", "event_id", "timestamp", "job_id")}


def event(payload: dict[str, Any], owner: str = OWNER) -> Event:
    """An event with this payload."""
    return stored(events.encode(payload), owner)


def stored(body: str, owner: str = OWNER) -> Event:
    """An event with this body. `render` reads only body and owner."""
    return Event("evt_1", "document.indexed", "job_1", "document", owner, 5, "2026-11-29T14:33:00.123Z", body)


def rendered(format: str, payload: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS.get(payload["event"].partition(".")[0])
    body: dict[str, Any] = json.loads(render(format, event(payload), kind=kind))
    return body


@given(payload=payloads, format=st.sampled_from(FORMATS))
def test_ascii_json(payload: dict[str, Any], format: str) -> None:
    """Every format is a JSON object in one line of printable ASCII, the same each time."""
    kind = KINDS.get(payload["event"].partition(".")[0])
    text = render(format, event(payload), kind=kind)
    assert all(" " <= char <= "~" for char in text)
    assert isinstance(json.loads(text), dict)
    assert text == render(format, event(payload), kind=kind)


@given(st.text())
def test_recado_is_the_same_text(body: str) -> None:
    """The format `recado` is the stored text, which is not parsed."""
    assert render("recado", stored(body)) == body


def test_unknown_format() -> None:
    """An unknown format raises KeyError."""
    assert FORMATS == ("recado", "cloudevents", "slack", "thin")
    with pytest.raises(KeyError):
        render("xml", stored("{}"))


def test_content_types() -> None:
    """CloudEvents has its own media type; the other formats are JSON."""
    assert {format: content_type(format) for format in FORMATS} == {
        "recado": "application/json",
        "cloudevents": "application/cloudevents+json",
        "slack": "application/json",
        "thin": "application/json",
    }


def test_thin() -> None:
    """The thin format has only ids, sequence and time."""
    assert rendered("thin", INDEXED) == {
        name: INDEXED[name] for name in ("event", "event_id", "job_id", "sequence", "timestamp")
    }


@pytest.mark.parametrize("payload", [DISABLED, PING])
def test_thin_owner_event(payload: dict[str, Any]) -> None:
    """The thin format of an owner's event has the id of the endpoint instead of a job."""
    assert rendered("thin", payload) == {
        name: payload[name] for name in ("event", "event_id", "timestamp", "endpoint_id")
    }


def test_thin_job_event_names_no_endpoint() -> None:
    """An endpoint_id in the payload of a job's event is not in the thin format."""
    assert "endpoint_id" not in rendered("thin", INDEXED | {"endpoint_id": "wh_1"})


def check_cloudevent(sent: dict[str, Any]) -> None:
    """The rules of the JSON schema and the text of CloudEvents 1.0.2, for structured mode with JSON data."""
    attributes = {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}
    assert {"specversion", "id", "source", "type"} <= sent.keys() <= attributes | {"data"}
    for name in sent.keys() & attributes:
        assert isinstance(sent[name], str), name
        assert sent[name], name
        assert re.fullmatch("[a-z0-9]{1,20}", name)
        # Strings may hold no control characters, half surrogate pairs or non-characters.
        assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]", sent[name]), name
    assert sent["specversion"] == "1.0"
    assert re.fullmatch(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})+", sent["source"])  # URI-reference
    if "time" in sent:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", sent["time"])
        assert datetime.fromisoformat(sent["time"]).tzinfo
    assert re.fullmatch(r"[a-z]+/[a-z0-9.+-]+", sent.get("datacontenttype", "application/json"))


@given(payload=payloads, owner=st.from_regex("[a-z0-9-]{1,64}", fullmatch=True))
def test_cloudevents_are_valid(payload: dict[str, Any], owner: str) -> None:
    """The envelope of any event is valid CloudEvents 1.0, and its data is the event."""
    body = events.encode(payload)
    text = render("cloudevents", event(payload, owner))
    sent = json.loads(text)
    check_cloudevent(sent)
    assert sent["data"] == payload
    assert text.endswith(f',"data":{body}}}')


def test_cloudevent_of_a_job() -> None:
    """Id, type, subject and time are those of the event; the source is its owner."""
    assert rendered("cloudevents", INDEXED) == {
        "specversion": "1.0",
        "id": INDEXED["event_id"],
        "source": "/recado/owners/acme-1",
        "type": "recado.document.indexed",
        "subject": INDEXED["job_id"],
        "time": "2026-11-29T14:33:00.123Z",
        "datacontenttype": "application/json",
        "data": INDEXED,
    }


@pytest.mark.parametrize(
    ("payload", "subject"),
    [
        (DISABLED, DISABLED["endpoint_id"]),
        (PING, DISABLED["endpoint_id"]),
        ({name: value for name, value in PING.items() if name != "endpoint_id"}, None),
    ],
)
def test_cloudevent_of_an_owner(payload: dict[str, Any], subject: str | None) -> None:
    """The subject of an owner's event is its endpoint. Without one there is no subject."""
    sent = rendered("cloudevents", payload)
    check_cloudevent(sent)
    assert sent.get("subject") == subject


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (INDEXED, "document.indexed · a.pdf · 12 chunks"),
        (INDEXED | {"chunks": 1}, "document.indexed · a.pdf · 1 chunk"),
        (INDEXED | {"chunks": 0, "document_id": ""}, f"document.indexed · {INDEXED['job_id']} · 0 chunks"),
        (INDEXED | {"chunks": True, "document_id": 5}, f"document.indexed · {INDEXED['job_id']}"),
        (FAILED, "document.failed · b.pdf · too_large: The file has 60 MB; 50 MB are allowed."),
        (FAILED | {"error": {"code": "empty"}}, "document.failed · b.pdf · empty"),
        (FAILED | {"error": {"message": "Ouch."}}, "document.failed · b.pdf · Ouch."),
        (FAILED | {"error": {"code": 5, "message": None}}, "document.failed · b.pdf"),
        (FAILED | {"error": None}, "document.failed · b.pdf"),
        (DISABLED, f"endpoint.disabled · {DISABLED['endpoint_id']}"),
        (PING, f"ping · {DISABLED['endpoint_id']}"),
    ],
)
def test_slack_line(payload: dict[str, Any], line: str) -> None:
    """The line has the event's name, subject, error and counts."""
    assert rendered("slack", payload) == {
        "text": line,
        "blocks": [{"type": "section", "text": {"type": "plain_text", "text": line, "emoji": False}}],
    }


def test_slack_of_another_kind() -> None:
    """Subject and counts follow from the kind of the job."""
    sent = {"event": "replay.completed", "job_id": "job_1", "webhook_id": "wh_1", "document_id": "a.pdf"}
    sent |= {"sent": 7, "chunks": 3, "words": 1}
    assert rendered("slack", sent)["text"] == "replay.completed · wh_1"
    kind = replace(REPLAY, headline=("sent", "words", "missing"))
    text = json.loads(render("slack", event(sent), kind=kind))["text"]
    assert text == "replay.completed · wh_1 · 7 sent · 1 word"


def test_slack_of_an_unregistered_kind() -> None:
    """For a kind that is not registered any more, the subject is the job's id."""
    text = json.loads(render("slack", event(INDEXED), kind=None))["text"]
    assert text == f"document.indexed · {INDEXED['job_id']}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<!channel>", "&lt;!channel&gt;"),
        ("<!here|here> & <@U123>", "&lt;!here|here&gt; &amp; &lt;@\u200bU123&gt;"),
        ("&lt;!channel&gt;", "&amp;lt;!channel&amp;gt;"),
        ("@here @channel @everyone", "@\u200bhere @\u200bchannel @\u200beveryone"),
        ("<http://bad.example|b.pdf>", "&lt;http://bad.example|b.pdf&gt;"),
        ("two\r\nlines\u2028and\tmore\x00", "two lines and more"),
        ("a\u202efdp.exe\ud83d", "a fdp.exe"),
    ],
)
def test_slack_escapes(name: str, shown: str) -> None:
    """A document id cannot make a mention, link or line break, or change the direction of writing."""
    assert rendered("slack", FAILED | {"document_id": name, "error": None})["text"] == f"document.failed · {shown}"


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(payload=payloads)
def test_slack_is_safe(payload: dict[str, Any]) -> None:
    """For any event, the text is one line without control sequences and mentions."""
    shown = rendered("slack", payload)
    line = shown["text"]
    assert shown["blocks"][0]["text"]["text"] == line
    assert 1 <= units(line) <= MAX_SLACK_CHARACTERS
    assert not re.search(r"[<>]|&(?!(?:amp|lt|gt);)|@(?!\u200b)", line)
    assert len(line.splitlines()) == 1


@given(
    message=st.text("<&>@a😀", min_size=1, max_size=9).map(lambda part: part * 1000),
    shift=st.integers(0, 9).map(lambda n: "x" * n),
)
def test_slack_cut(message: str, shift: str) -> None:
    """A line that is too long ends in an ellipsis, just below the limit, and not inside an entity or character."""
    line = rendered("slack", FAILED | {"error": {"code": shift + "e", "message": message}})["text"]
    assert not re.search(r"&(?!(?:amp|lt|gt);)|@(?!\u200b)|[\ud800-\udfff]", line)
    if line.endswith("…"):
        assert MAX_SLACK_CHARACTERS - 6 <= units(line) <= MAX_SLACK_CHARACTERS
    else:
        assert units(line) <= MAX_SLACK_CHARACTERS


@pytest.mark.parametrize("excess", [0, 1])
def test_slack_limit(excess: int) -> None:
    """3,000 characters are sent unchanged. Of 3,001, the last two are replaced by the ellipsis."""
    head = "document.failed · b.pdf · "
    line = head + "x" * (MAX_SLACK_CHARACTERS - len(head) + excess)
    shown = rendered("slack", FAILED | {"error": {"code": line.removeprefix(head)}})["text"]
    assert shown == (line[: MAX_SLACK_CHARACTERS - 1] + "…" if excess else line)
