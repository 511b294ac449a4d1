"""The service is never its own client: no webhook starts the next one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Refused
from core.webhooks.endpoints.headers import check_headers
from core.webhooks.transport.guard import Policy, check_url
from tests.simulated_cloud.cloud import Cloud
from tests.support.problems import assert_problem
from tests.support.receiver import Receiver
from tests.support.service import Service
from tests.support.webhooks import canceled, endpoint

SPELLINGS = ["Recado-Delivery", "recado-delivery", "RECADO-DELIVERY"]
MUTATING = ["post", "put", "patch", "delete"]


def operations(service: Service) -> list[tuple[str, str]]:
    """Method and path of every operation of the API that can change something, of every kind."""
    paths = service.call("GET", "/openapi.json").json()["paths"]
    filled = {path: re.sub(r"[{<]\w+[}>]", "job_01JDXQ3V8N2M4K6H8G0F2E4D6C", path) for path in paths}
    return [(method.upper(), filled[path]) for path in paths for method in MUTATING if method in paths[path]]


@pytest.mark.parametrize("value", ["dlv_1", " ", "0"])
def test_webhooks_cannot_change_anything(service: Service, value: str) -> None:
    """Every operation that can change something answers 508 to a webhook, whatever the header's value is."""
    found = operations(service)
    assert ("POST", "/jobs") in found
    assert ("POST", "/search") in found
    for number, (method, path) in enumerate(found):
        headers = {SPELLINGS[number % len(SPELLINGS)]: value}
        assert_problem(service.call(method, path, json={}, headers=headers), 508, "loop_detected")


def test_webhooks_can_read(service: Service) -> None:
    """A request that changes nothing may carry the header: a proxy can have copied it."""
    job_id = service.submit()
    answer = service.call("GET", f"/jobs/{job_id}", headers={"Recado-Delivery": "dlv_1"})
    assert answer.status == 200


def test_every_webhook_is_marked(service: Service, receiver: Receiver) -> None:
    """Each attempt names its delivery and its number."""
    receiver.answers = [500, 200]
    endpoint(service)
    canceled(service)
    service.cloud.settle(within=60)
    first, second = receiver.requests
    assert [sent.headers["recado-attempt"] for sent in (first, second)] == ["1", "2"]
    assert first.headers["recado-delivery"] == second.headers["recado-delivery"]
    delivery = service.call("GET", f"/deliveries/{first.headers['recado-delivery']}")
    assert delivery.json()["status"] == "delivered"


@pytest.mark.parametrize("name", [*SPELLINGS, "recado_delivery", "Recado-Attempt", "recado.attempt", "Recado-X"])
def test_endpoints_cannot_set_the_mark(name: str) -> None:
    """No endpoint has a header of its own that receivers cannot distinguish from those of the sender."""
    with pytest.raises(ValueError, match=re.escape(f"header {name}: it is set by the sender")):
        check_headers({name: "1"})


def own_hosts(cloud: Cloud) -> list[str]:
    host = cloud.output("ApiUrl").split("/")[2]
    live = cloud.output("LiveUrl").split("/")[2]
    assert host != live
    return [host, live]


def test_own_hosts_are_refused(service: Service) -> None:
    """A URL at the hosts of this deployment's APIs is refused when it is given, for endpoints and for jobs."""
    for host in own_hosts(service.cloud):
        for url in (f"https://{host}/v1/jobs", f"https://{host.upper()}:443/v1/jobs/job_1/retry?a=b"):
            body = {"url": url, "events": ["*"], "headers": {"Authorization": "Bearer rk_1"}}
            found = assert_problem(service.call("POST", "/webhooks", json=body), 422, "invalid_request")
            assert (found["field"], "part of this service" in found["detail"]) == ("url", True)
            job = {"kind": "document", "input": {"text": "t"}, "webhook_url": url}
            assert_problem(service.call("POST", "/jobs", json=job), 422, "invalid_request")


def test_an_edit_cannot_lead_back(service: Service) -> None:
    """An endpoint cannot be moved to this service afterwards."""
    webhook_id = endpoint(service)["webhook_id"]
    for host in own_hosts(service.cloud):
        answer = service.call("PATCH", f"/webhooks/{webhook_id}", json={"url": f"https://{host}/v1/jobs"})
        assert_problem(answer, 422, "invalid_request")


NAMES = st.sampled_from(["api.example.com", "a1.execute-api.eu-west-1.amazonaws.com", "münchen.example"])


@given(NAMES, st.sampled_from([443, 80, 8443, 8080]), st.sampled_from([443, 80, 8443, 8080]), st.booleans())
def test_host_and_port_decide(name: str, own_port: int, port: int, capitals: bool) -> None:
    """Exactly the own host at the own port is refused, however it is spelled."""
    ascii_name = name.encode("idna").decode()
    policy = Policy.of(allow_http=False, allow_private_cidrs=(), own_hosts=[f"{ascii_name}:{own_port}"])
    url = f"https://{name.upper() if capitals else name}:{port}/x"
    if port == own_port:
        with pytest.raises(Refused, match="part of this service"):
            check_url(url, policy)
    else:
        check_url(url, policy)


@pytest.mark.parametrize("url", ["http://127.0.0.1:4566/jobs", "http://127.0.0.9:4566/", "http://[::1]:4566/"])
def test_own_addresses_are_refused(url: str) -> None:
    """An own host can be an address: all loopback addresses lead to it."""
    networks = ["127.0.0.0/8", "::1/128"]
    policy = Policy.of(allow_http=True, allow_private_cidrs=networks, own_hosts=["127.0.0.1:4566"])
    with pytest.raises(Refused, match="part of this service"):
        check_url(url, policy)
    check_url("http://127.0.0.1:4567/jobs", policy)


def test_others_at_the_same_port(service: Service) -> None:
    """Neighbours of an own host stay reachable: another API of the same region, another name of the domain."""
    (host, _) = own_hosts(service.cloud)
    region = host.split(".", 1)[1]
    for neighbour in (f"another.{region}", f"x.{host}", f"{host}:8443"):
        endpoint(service, url=f"https://{neighbour}/hook")
