"""Event patterns: the events that an endpoint subscribes to, by name.

A pattern is an event's name, `<kind>.*`, `*.<verb>` or `*`. `*.completed` also covers the successful end of each
kind, whatever its verb is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from core import events
from core.events import Event
from core.jobs import Kind

PING = "ping"
COMPLETED = "*.completed"
"""The pattern that covers the successful end of each kind, whatever its verb is."""


def event_names(kinds: Iterable[Kind]) -> tuple[str, ...]:
    """The events that an endpoint can subscribe to."""
    of_owners = (name for name in events.OWNER_EVENTS if name != PING)
    return (*(name for kind in kinds for name in kind.event_names), *of_owners)


def all_patterns(kinds: Collection[Kind]) -> tuple[str, ...]:
    """All valid patterns."""
    names = event_names(kinds)
    of_kinds = (f"{name}.*" for name in (*(kind.name for kind in kinds), events.OWNER_KIND))
    of_verbs = dict.fromkeys((*(f"*.{name.partition('.')[2]}" for name in names), COMPLETED))
    return (*names, *of_kinds, *of_verbs, "*")


def check_pattern(text: str, kinds: Collection[Kind]) -> str:
    """The pattern itself. ValueError if it is not valid, with the list of those that are."""
    if text == PING:
        raise ValueError("ping goes only to the endpoint that is tested, without a subscription; leave it out")
    known = all_patterns(kinds)
    if text not in known:
        raise ValueError(f"{text[:80]!a} is not a valid pattern; use one of {', '.join(known)}")
    return text


def matches(patterns: Iterable[str], event: Event) -> bool:
    """Whether any of these valid patterns covers the event. No pattern covers `ping`."""
    kind, _, verb = event.name.partition(".")
    covering = {event.name, f"{kind}.*", f"*.{verb}", "*"}
    if event.final_status == "completed":
        covering.add(COMPLETED)
    return event.name != PING and not covering.isdisjoint(patterns)
