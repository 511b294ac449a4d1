"""Nothing that a revoked key or an ended link has opened stays open."""

from __future__ import annotations

import pytest

from core import events
from core.auth import KeyStore
from kinds.registry import KINDS
from tests.simulated_cloud.rest_api import Response
from tests.simulated_cloud.websocket_api import HandshakeRefused
from tests.support.kinds import example_input
from tests.support.service import Service, make_key

EVERY_KIND = pytest.mark.parametrize("kind", sorted(KINDS))
MINUTE = 60.0
AUTHORIZER_CACHE, SOCKETS_END = 300.0, 300.0
HOOK = "https://hooks.example.com/in"


def submit(service: Service, kind: str) -> str:
    """The id of a new job of this kind."""
    if KINDS[kind].submittable:
        answer = service.call("POST", "/jobs", json={"kind": kind, "input": example_input(service, kind)})
    else:
        endpoint = {"url": HOOK, "events": ["endpoint.disabled"]}
        webhook_id = service.call("POST", "/webhooks", json=endpoint).json()["webhook_id"]
        since = events.timestamp(service.cloud.clock.time - 3600)
        answer = service.call("POST", f"/webhooks/{webhook_id}/replay", json={"since": since})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def links(service: Service, job_id: str) -> dict[str, str]:
    found: dict[str, str] = service.job(job_id)["links"]
    return found


def follow(service: Service, found: dict[str, str]) -> list[Response]:
    """The answers of a job's links, which need no key."""
    paths = [found[name].partition("/follow/")[2] for name in ("status", "events")]
    return [service.cloud.request("GET", f"/follow/{path}") for path in paths]


def statuses(answers: list[Response]) -> set[int]:
    return {answer.status for answer in answers}


def key_id(service: Service) -> str:
    return service.authorization["Authorization"].split("_")[1]


def revoke(service: Service) -> None:
    """Revoke the key that the service's owner calls with."""
    table = service.cloud.table("Keys")
    assert KeyStore(table.meta.client, table.name).revoke(key_id(service))


def is_refused(service: Service, url: str) -> bool:
    try:
        service.cloud.connect(url)
    except HandshakeRefused as error:
        return error.status == 403
    return False


def ticket(service: Service) -> str:
    url: str = service.call("POST", "/live/tickets").json()["url"]
    return url


@EVERY_KIND
def test_links_end_with_a_key(service: Service, kind: str) -> None:
    """Within the authorizer's cache time, every link of every job of the owner is refused."""
    found = [links(service, submit(service, kind)) for _ in range(2)]
    assert statuses([answer for one in found for answer in follow(service, one)]) <= {200, 204}
    revoke(service)
    service.cloud.advance(AUTHORIZER_CACHE)
    assert statuses([answer for one in found for answer in follow(service, one)]) == {403}
    assert all(is_refused(service, one["live"]) for one in found)


@EVERY_KIND
def test_other_owners_and_keys_go_on(service: Service, kind: str) -> None:
    """Links of other owners stay valid, and another key of the same owner gets links that work at once."""
    ben, second = Service(service.cloud, owner="ben"), Service(service.cloud)
    job_id, foreign = submit(service, kind), links(ben, submit(ben, kind))
    revoke(service)
    assert statuses(follow(service, links(second, job_id))) <= {200, 204, 403}  # epochs are cached for a minute
    service.cloud.advance(MINUTE)
    assert statuses(follow(service, links(second, job_id))) <= {200, 204}
    assert statuses(follow(service, foreign)) <= {200, 204}
    assert service.cloud.connect(ticket(second)).is_open
    assert service.cloud.connect(foreign["live"]).is_open


@EVERY_KIND
def test_revoked_key_cannot_make_links(service: Service, kind: str) -> None:
    """While API Gateway still lets a revoked key pass, its new links and tickets open nothing, ever."""
    job_id = submit(service, kind)
    revoke(service)
    made = [links(service, job_id)]
    tickets = [ticket(service)]
    service.cloud.advance(MINUTE)
    made.append(links(service, job_id))
    tickets.append(ticket(service))
    assert service.call("GET", f"/jobs/{job_id}").status == 200  # the authorizer's response is cached
    assert all(is_refused(service, url) for url in tickets)
    service.cloud.advance(MINUTE)
    assert statuses([answer for one in made for answer in follow(service, one)]) == {403}
    assert all(is_refused(service, one["live"]) for one in made)


def test_ticket_of_before(service: Service) -> None:
    """A ticket that was issued before the revocation opens nothing, from the same second on."""
    url = ticket(service)
    revoke(service)
    assert is_refused(service, url)


@EVERY_KIND
def test_sockets_end_with_a_key(service: Service, kind: str) -> None:
    """Within five minutes the owner's open WebSockets are closed, by link and by ticket; others are not."""
    ben = Service(service.cloud, owner="ben")
    job_id = submit(service, kind)
    own = [service.cloud.connect(links(service, job_id)["live"]), service.cloud.connect(ticket(service))]
    other = service.cloud.connect(ticket(ben))
    own[1].send({"action": "follow", "kind": kind})
    service.cloud.advance(MINUTE)
    revoke(service)
    service.cloud.advance(SOCKETS_END)
    assert [socket.is_open for socket in (*own, other)] == [False, False, True]


@EVERY_KIND
def test_end_of_one_jobs_links(service: Service, kind: str) -> None:
    """A job's links end at once and its WebSockets in five minutes. It has new links; other jobs keep theirs."""
    job_id, other_id = submit(service, kind), submit(service, kind)
    old, other = links(service, job_id), links(service, other_id)
    sockets = [service.cloud.connect(url) for url in (old["live"], ticket(service), other["live"])]
    answer = service.call("DELETE", f"/jobs/{job_id}/links")
    assert (answer.status, answer.text) == (204, "")
    assert statuses(follow(service, old)) == {403}
    assert is_refused(service, old["live"])
    assert statuses(follow(service, links(service, job_id))) <= {200, 204}
    assert statuses(follow(service, other)) <= {200, 204}
    service.cloud.advance(SOCKETS_END)
    assert [socket.is_open for socket in sockets] == [False, True, True]


@EVERY_KIND
def test_who_may_end_links(service: Service, kind: str) -> None:
    """Another owner's id and an empty one are a 404, a key without the scope gets a 403, and no link ends."""
    job_id = submit(service, kind)
    found = links(service, job_id)
    ben, reader = Service(service.cloud, owner="ben"), make_key(service.cloud, "ana", scopes=("jobs:read",))
    assert ben.call("DELETE", f"/jobs/{job_id}/links").status == 404
    assert service.call("DELETE", "/jobs//links").status in (403, 404)
    headers = {"Authorization": f"Bearer {reader}"}
    assert service.call("DELETE", f"/jobs/{job_id}/links", headers=headers).status == 403
    assert statuses(follow(service, found)) <= {200, 204}


def test_revocation_of_an_epoch(service: Service) -> None:
    """The id of an owner's epoch is not the id of a key: revoking it changes nothing."""
    found = links(service, submit(service, "document"))
    table = service.cloud.table("Keys")
    keys = KeyStore(table.meta.client, table.name)
    for text in ("", "owner#ana", "ana", "0" * 16, f"{key_id(service)} "):
        assert keys.revoke(text) is None
    assert [key.key_id for key in keys.list()] == [key_id(service)]
    service.cloud.advance(AUTHORIZER_CACHE)
    assert statuses(follow(service, found)) <= {200, 204}
