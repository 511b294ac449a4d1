"""What people wrote, and what is secret, stays where it belongs: not in logs, events, messages or answers."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from core import log
from core.errors import DeliveryError
from tests.simulated_cloud.calls import transaction_canceled
from tests.simulated_cloud.cloud import Cloud, Killed
from tests.support.receiver import Receiver, response
from tests.support.service import Service

TEXT = "Xylophone"  # a word of the document
HOOK = "https://hooks.example.com/in?token=Hyacinth"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """All that functions log: their own lines as they go to CloudWatch, and warnings of libraries."""
    stream = io.StringIO()
    (handler,) = log.logger.handlers
    monkeypatch.setattr(handler, "stream", stream)
    libraries = logging.StreamHandler(stream)
    libraries.setLevel(logging.INFO)
    logging.getLogger().addHandler(libraries)
    yield stream.getvalue
    logging.getLogger().removeHandler(libraries)


def run(service: Service) -> dict[str, str]:
    """A job with everything that must not be told, and another of the same owner that fails. Gives the secrets."""
    text = f"# {TEXT}\n\n" + f"{TEXT} is a word. " * 200
    body = {
        "kind": "document",
        "input": {"text": text, "document_id": "d"},
        "webhook_url": HOOK,
        "metadata": {"note": "Marigold"},
    }
    answer = service.call("POST", "/jobs", json=body, headers={"Idempotency-Key": "Foxglove"})
    service.cloud.settle(within=1200)
    tokens = follow(service.cloud, answer.json().get("links", {}))
    service.call("POST", "/jobs", json=body | {"input": {"text": f"<a>{TEXT}</a>\x00\x00\x00"}})
    service.call("POST", "/jobs", json=body | {"kind": TEXT})
    service.call("POST", "/search", json={"query": f"{TEXT}?"})
    service.call("DELETE", "/documents/d")
    service.cloud.settle(within=1200)
    keys = {f"key of links {number}": key for number, key in enumerate(service.link_keys())}
    return keys | {
        "text": TEXT,
        "metadata": "Marigold",
        "idempotency key": "Foxglove",
        "token of the URL": "Hyacinth",
        "answer of the server": "Nasturtium",
        "webhook secret": answer.json().get("webhook_secret", "").removeprefix("whsec_"),
        "API key": service.authorization["Authorization"].rpartition("_")[2],
        "signature": "sha256=",
        "token of links": tokens,
    }


def follow(cloud: Cloud, links: dict[str, str]) -> str:
    """Use a job's links as they are, and spoilt. Gives what is secret of their token, or nothing without links."""
    targets = [urlsplit(link).path.removeprefix("/v1") for name, link in links.items() if name != "self"]
    for target in targets:
        for headers in ({}, {"Accept": "text/event-stream"}):
            cloud.request("GET", target, headers=headers)
            cloud.request("GET", target[::-1].replace("/", "/x", 1)[::-1], headers=headers)
            cloud.request("GET", target.replace(".", ".1"), headers=headers)
    return targets[0].split("/")[2].rpartition(".")[2] if targets else ""


def assert_silent(logged: str, secrets: dict[str, str]) -> None:
    told = [what for what, secret in secrets.items() if secret and secret in logged]
    assert not told, [line[:2000] for line in logged.splitlines() if secrets[told[0]] in line]


TROUBLE: dict[str, Callable[[Cloud], object]] = {
    "nothing": lambda cloud: None,
    "everything busy": lambda cloud: cloud.fail("*", "*", "ThrottlingException", every=7, times=None),
    "broken connections": lambda cloud: cloud.fail("*", "*", ConnectionResetError("reset"), every=9, times=None),
    "refusals": lambda cloud: cloud.fail("*", "*", "ValidationException", every=11, times=None),
    "conflicts": lambda cloud: cloud.fail(
        "dynamodb", "TransactWriteItems", transaction_canceled(), every=2, times=None
    ),
    "deaths": lambda cloud: cloud.fail(
        "*", "*", Killed, every=13, times=None, when=lambda call: bool(call.function)
    ),
    "no model": lambda cloud: cloud.fail("bedrock-runtime", "*", "AccessDeniedException", times=None),
    "no topic": lambda cloud: cloud.fail("sns", "*", "InvalidParameterException", times=None),
}


class TestLogs:
    @pytest.mark.parametrize("trouble", TROUBLE)
    @pytest.mark.usefixtures("without_reaper")
    def test_no_line_tells_what_it_should_not(
        self, service: Service, receiver: Receiver, lines: Callable[[], str], trouble: str
    ) -> None:
        """Through whole jobs, whatever goes wrong, logs have ids, sizes and codes, and no secret or text."""
        receiver.answers = [response(500, b"Nasturtium"), DeliveryError("tls", "bad certificate")]
        TROUBLE[trouble](service.cloud)
        secrets = run(service)
        assert_silent(lines(), secrets)
        assert '"level":"INFO"' in lines() or trouble != "nothing"

    def test_an_event_that_cannot_be_read_is_not_repeated(
        self, service: Service, lines: Callable[[], str]
    ) -> None:
        """Messages that are no JSON fail without being quoted."""
        for name in ("Indexing", "Embedding", "Notify", "Webhooks"):
            service.cloud.queue(f"{name}/Queue").send(f'{{"event": "{TEXT}", "job_id": {TEXT}')
        service.cloud.settle()
        assert "message failed" in lines()
        assert TEXT not in lines()

    def test_the_capture_works(self, service: Service, lines: Callable[[], str]) -> None:
        """What a handler logs is what these tests see."""
        job_id = service.submit()
        service.cloud.settle(within=60)
        assert job_id in lines()


class TestEverythingElse:
    def test_events_and_messages_have_no_secret(self, service: Service, receiver: Receiver) -> None:
        """Log, topics, queues and executions carry neither text nor secret; only the deliveries know the URL."""
        secrets = run(service)
        log = [item for item in service.cloud.table("Jobs").scan()["Items"] if item.get("entity") == "event"]
        carried: list[Any] = [
            call.params for call in service.cloud.calls.log if call.service in ("sns", "sqs", "stepfunctions")
        ]
        carried += [execution.events for execution in service.cloud.executions.all()]
        assert_silent(json.dumps([log, carried], default=str), secrets)

    def test_no_answer_repeats_a_key_or_secret(self, service: Service, receiver: Receiver) -> None:
        """After the first 202, what an owner reads of its jobs has neither secret, key nor signature.

        Nor has any answer, by key or by link, the key that a job's links are signed with.
        """
        secrets = run(service)
        (job_id, *_) = [job["job_id"] for job in service.call("GET", "/jobs").json()["jobs"]]
        paths = ["/jobs", f"/jobs/{job_id}", f"/jobs/{job_id}/events", f"/jobs/{job_id}/status", "/documents"]
        answers = "".join(service.call("GET", path).text for path in paths)
        for link in service.job(job_id)["links"].values():
            target = urlsplit(link).path.removeprefix("/v1")
            for headers in ({}, {"Accept": "text/event-stream"}):
                answers += service.cloud.request("GET", target, headers=headers).text
        signed = [what for what in secrets if what.startswith("key of links")]
        assert len(signed) == 2
        assert_silent(
            answers, {what: secrets[what] for what in ("webhook secret", "API key", "signature", *signed)}
        )

    def test_environments_and_tables_hold_no_plain_secret(self, service: Service, receiver: Receiver) -> None:
        """Secrets are stored encrypted or hashed, and no environment of a function contains one."""
        secrets = run(service)
        tables = [service.cloud.table(name).scan()["Items"] for name in ("Jobs", "Deliveries", "Keys")]
        functions = service.cloud.client("lambda").list_functions()["Functions"]
        environments = [function.get("Environment") for function in functions]
        kept = repr([tables, environments])
        assert_silent(kept, {what: secrets[what] for what in ("webhook secret", "API key", "idempotency key")})
