"""The URL of an endpoint is a secret of its owner: it often contains a token."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from tests.support.receiver import Answer, Received, Receiver
from tests.support.service import Service
from tests.support.webhooks import HOUR, canceled, endpoint

TOKEN = "T0SECRET"
URL = f"https://hooks.example.com:8443/services/{TOKEN}?key={TOKEN}"
OTHER = "https://other.example.org/hook"


@pytest.mark.parametrize("format", ["recado", "cloudevents", "slack", "thin"])
def test_other_receivers_do_not_see_it(service: Service, receiver: Receiver, format: str) -> None:
    """What other receivers, subscribers and operators learn of a disabled endpoint has its host and id only."""

    def react(received: Received) -> Answer:
        return 410 if received.url == URL else 200

    receiver.react = react
    webhook_id = endpoint(service, URL, events=["*"])["webhook_id"]
    endpoint(service, OTHER, events=["endpoint.disabled"], format=format)
    canceled(service)
    service.cloud.settle(within=60)
    (received,) = [each for each in receiver.requests if each.url == OTHER]
    assert TOKEN not in received.body.decode() + str(received.headers)
    assert webhook_id in received.body.decode()
    (alert,) = service.published("ErrorAlertsTopic")
    assert (alert["host"], alert["endpoint_id"]) == ("hooks.example.com:8443", webhook_id)
    assert TOKEN not in json.dumps([alert, service.published("DocEventsTopic")])


def test_links_do_not_show_it(service: Service, receiver: Receiver) -> None:
    """Whoever has a job's link sees its state and events, but not where its webhooks go."""
    receiver.always = 500
    body = {"kind": "document", "input": {"text": "t"}, "webhook_url": URL}
    answer = service.call("POST", "/jobs", json=body)
    service.cloud.settle(within=HOUR)
    job = service.job(answer.json()["job_id"])
    assert job["webhook"]["url"] == URL
    for name in ("status", "events"):
        path = urlsplit(job["links"][name]).path
        answer = service.cloud.request("GET", path[path.index("/follow/") :])
        assert answer.status == 200
        assert TOKEN not in answer.text
