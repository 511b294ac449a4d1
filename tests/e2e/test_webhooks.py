"""Webhooks from outside: endpoints created over HTTP, real receivers that succeed and fail, all deliveries."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
from standardwebhooks.webhooks import Webhook

import recado
from local import toolchain
from local.api import Api
from local.receiver import HOST, Received, is_genuine, tampered
from tests.e2e.conftest import SCHEDULE, System, ended, wait_for
from tests.e2e.sites import Answer, Site, site
from tests.e2e.test_system import NOTE, document, kill_workers, log

RECEIVERS = toolchain.ROOT / "examples" / "receivers"
JOBS = 10  # of five events each
OPEN = ("pending", "sending")
Delivery = dict[str, Any]
calls: list[str] = []  # functions that were invoked from here


@pytest.fixture(scope="module")
def api(system: System) -> Api:
    return system.caller("hooked")


@contextmanager
def endpoint(api: Api, url: str, **facts: Any) -> Iterator[dict[str, Any]]:
    """An endpoint for the length of a `with` block. By default it gets `document.indexed`."""
    made = api.post("/webhooks", {"url": url, "events": ["document.indexed"], **facts})
    try:
        yield made
    finally:
        api.delete(f"/webhooks/{made['webhook_id']}")


def deliveries(api: Api, webhook: Mapping[str, Any], **query: Any) -> list[Delivery]:
    found: list[Delivery] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get(f"/webhooks/{webhook['webhook_id']}/deliveries", limit=100, **query, **cursor)
        found += page["deliveries"]
        if page["cursor"] is None:
            return found
        cursor = {"cursor": page["cursor"]}


def all_ended(api: Api, webhook: Mapping[str, Any], count: int, *, seconds: float = 90) -> list[Delivery]:
    """The endpoint's deliveries, once there are so many and none is open."""

    def look() -> list[Delivery] | None:
        found = deliveries(api, webhook)
        return found if len(found) >= count and not any(d["status"] in OPEN for d in found) else None

    return list(wait_for(look, seconds=seconds))


def index(api: Api, count: int = 1, name: str = "note") -> list[dict[str, Any]]:
    """So many jobs that have ended."""
    made = [api.post("/jobs", document(NOTE, document_id=f"{name}-{n}"))["job_id"] for n in range(count)]
    return [ended(api, job_id) for job_id in made]


def run_retry_scheduler(system: System) -> None:
    """Invoke the function that the schedule invokes once a minute."""
    name = function_name(system, "RetryScheduler")
    calls.append(name)
    answer = system.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def function_name(system: System, part: str) -> str:
    names = [function["FunctionName"] for function in system.client("lambda").list_functions()["Functions"]]
    return str(next(name for name in names if part in name))


def deliveries_table(system: System) -> str:
    configuration = system.client("lambda").get_function_configuration(
        FunctionName=function_name(system, "RetryScheduler")
    )
    return str(configuration["Environment"]["Variables"]["DELIVERIES_TABLE"])


def rewrite(system: System, pk: str, sk: str, **values: str) -> None:
    """Set attributes of an item, so that the test need not wait. Digits are written as numbers, others as text."""
    system.client("dynamodb").update_item(
        TableName=deliveries_table(system),
        Key={"pk": {"S": pk}, "sk": {"S": sk}},
        UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in values),
        ExpressionAttributeValues={
            f":{name}": {"N" if value.isdigit() else "S": value} for name, value in values.items()
        },
    )


# ── receivers that fail ──────────────────────────────────────────────────────────────────────────────────


def failing_at_first() -> Callable[[Received], int]:
    """Of every three events one succeeds at once, one at the second attempt, one at the third."""
    order, tries = itertools.count(), defaultdict[str, int](int)
    failures: dict[str, int] = {}

    def react(received: Received) -> int:
        event_id = received.headers["webhook-id"]
        failures.setdefault(event_id, next(order) % 3)
        tries[event_id] += 1
        return 503 if tries[event_id] <= failures[event_id] else 204

    return react


def slow(received: Received) -> Answer:
    """Half of the responses come after two seconds; the others take as long, byte by byte."""
    if received.event["sequence"] % 2:
        return Answer(200, body=b"0123456789", drip=0.2)
    time.sleep(2)
    return Answer(204)


def redirecting(elsewhere: str) -> Callable[[Received], Answer]:
    targets = itertools.cycle(["http://169.254.169.254/latest/meta-data/", elsewhere])
    return lambda _: Answer(302, {"location": next(targets)})


def check_log(server: Site, found: Iterable[Delivery], *, refused: bool) -> None:
    """Each attempt in the log was received, unless its connection was `refused`. None follows a 2xx."""
    by_id = {delivery["event_id"]: delivery for delivery in found}
    assert set(by_id) >= {visit.id for visit in server.visits}
    for event_id, delivery in by_id.items():
        statuses = [visit.status for visit in server.of(event_id)]
        assert not any(status < 300 for status in statuses[:-1]), statuses
        assert refused or len(statuses) == delivery["attempt_count"]
        if delivery["status"] == "delivered":
            assert statuses[-1] < 300
        assert len({visit.received.body for visit in server.of(event_id)}) <= 1


def test_every_delivery_ends_with_the_right_status(system: System) -> None:
    """Fifty events for five endpoints that fail in different ways: none is lost, sent twice or sent elsewhere."""
    # Starts every function, so that nothing below is held for too long. Another owner, so no endpoint gets events.
    index(system.caller("warming-up"), 2)
    api = system.caller("scenario")
    everything = {"events": ["document.*", "endpoint.disabled"]}
    with ExitStack() as stack:
        enter = stack.enter_context
        trap = enter(site())
        sites = {
            "flapping": enter(site(failing_at_first())),
            "dead": enter(site(is_open=False)),
            "slow": enter(site(slow)),
            "redirecting": enter(site(redirecting(trap.url))),
            "gone": enter(site(lambda _: 410)),
        }
        # Five documents: with more, its circuit would open before the schedule is used up.
        chosen = [{"prefix": "scene-1"}, *(f"scene-{n}" for n in range(2, 6))]
        few = {"events": ["document.indexed"], "filter": {"document_id": chosen}}
        facts = {"slow": {"events": ["document.*"]}, "redirecting": few, "gone": {"events": ["document.*"]}}
        hooks = {name: enter(endpoint(api, s.url, **facts.get(name, everything))) for name, s in sites.items()}

        jobs = index(api, JOBS, "scene")
        logged = {event["event_id"]: event for job in jobs for event in log(api, job["job_id"])}
        assert len(logged) == 50

        check_recovery(api, system, hooks["dead"], sites["dead"])
        found = {name: all_ended(api, hook, 5 if name == "redirecting" else 50) for name, hook in hooks.items()}

    for name, server in sites.items():
        check_log(server, found[name], refused=name == "dead")
        if name != "redirecting":
            sent = {d["event_id"] for d in found[name] if d["event"] != "endpoint.disabled"}
            assert sent == set(logged), name
    outcome = {name: Counter(delivery["status"] for delivery in those) for name, those in found.items()}
    assert outcome["flapping"] == {"delivered": 51}
    assert outcome["dead"] == {"delivered": 51}
    assert outcome["slow"] == {"delivered": 50}
    check_redirected(api, found["redirecting"], trap)
    check_gone(sites["flapping"], hooks["gone"], found["gone"])


def check_recovery(api: Api, system: System, hook: Mapping[str, Any], server: Site) -> None:
    """The circuit of a host that refuses connections opens. Held deliveries wait without attempts."""
    path = f"/webhooks/{hook['webhook_id']}"

    def spent() -> dict[str, int]:
        return {delivery["delivery_id"]: delivery["attempt_count"] for delivery in deliveries(api, hook)}

    def held() -> dict[str, int] | None:
        before = spent()
        time.sleep(1)
        return before if len(before) == 51 and before == spent() else None

    wait_for(lambda: api.get(path)["host_circuit"]["state"] == "open")
    before = wait_for(held)
    assert {d["last_attempt"]["error"] for d in deliveries(api, hook) if d["last_attempt"]} == {"connect"}
    assert server.visits == []
    server.open()
    long_ago = "2000-01-01T00:00:00.000Z"  # instead of the minute's pause before the first probe
    circuit = f"HEALTH#scenario#host#{HOST}:{server.port}"
    rewrite(system, circuit, "HEALTH", next_check_at=long_ago, gsi2sk=long_ago)

    def drained() -> bool:
        run_retry_scheduler(system)
        return not any(d["status"] in OPEN for d in deliveries(api, hook))

    wait_for(drained)
    assert spent() == {delivery_id: attempts + 1 for delivery_id, attempts in before.items()}
    # The counters follow at the end of each batch.
    wait_for(lambda: api.get(path)["counters"]["attempts"] == sum(spent().values()))
    after = api.get(path)
    assert (after["host_circuit"]["state"], after["counters"]["delivered"]) == ("draining", 51)


def check_redirected(api: Api, found: Sequence[Delivery], trap: Site) -> None:
    """A redirect is a failure, and its target gets no request."""
    assert [(d["status"], d["attempt_count"]) for d in found] == [("failed", len(SCHEDULE))] * 5
    attempts = [a for d in found for a in api.get(f"/deliveries/{d['delivery_id']}")["attempts"]]
    assert {(a["status"], a["error"]) for a in attempts} == {(302, "http_3xx")}
    assert {a["response_headers"]["location"] for a in attempts} >= {trap.url}
    assert trap.visits == []


def check_gone(notified: Site, hook: Mapping[str, Any], found: Sequence[Delivery]) -> None:
    """After a 410 nothing more is sent, and the owner's other endpoints are notified once."""
    statuses = Counter(delivery["status"] for delivery in found)
    assert set(statuses) == {"failed", "discarded"}
    assert {d["attempt_count"] for d in found if d["status"] == "failed"} == {1}
    assert {d["attempt_count"] for d in found if d["status"] == "discarded"} == {0}
    sent = {v.id: v.received.event for v in notified.visits if v.received.event["event"] == "endpoint.disabled"}
    (event,) = sent.values()
    assert (event["endpoint_id"], event["reason"]) == (hook["webhook_id"], "gone")


# ── the examples ─────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def started(command: Sequence[str], secret: str, output: Path) -> Iterator[None]:
    """An example, started from its own directory with the command in its first line."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(toolchain.ROOT / "client"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RECADO_WEBHOOK_SECRET": secret,
    }
    with output.open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=RECEIVERS, env=environment, stdout=log_file, stderr=log_file
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with site(is_open=False) as reserved:
        return reserved.port


def flask(module: str, port: int) -> list[str]:
    return ["flask", "--app", module, "run", "--port", str(port)]


COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "flask_plain": lambda port: flask("flask_plain", port),
    "flask_app": lambda port: flask("flask_app", port),
    "fastapi_app": lambda port: ["uvicorn", "fastapi_app:app", "--port", str(port)],
}


def http_api_event(received: Received) -> dict[str, Any]:
    """The event of API Gateway's HTTP APIs, payload format 2.0, with a binary body:
    https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
    """
    return {
        "version": "2.0",
        "routeKey": "POST /webhooks",
        "rawPath": "/webhooks",
        "headers": dict(received.headers),
        "body": b64encode(received.body).decode(),
        "isBase64Encoded": True,
    }


def rest_api_event(received: Received) -> dict[str, Any]:
    """The event of REST APIs: names as they were sent, and the body as text."""
    headers = {name.title(): value for name, value in received.headers.items()}
    return {
        "resource": "/webhooks",
        "path": "/webhooks",
        "httpMethod": "POST",
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "body": received.body.decode(),
        "isBase64Encoded": False,
    }


def lambda_function(secret: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], int]:
    """The example's handler, loaded with this secret. It takes an event and returns the status."""
    monkeypatch.setenv("RECADO_WEBHOOK_SECRET", secret)
    spec = importlib.util.spec_from_file_location("lambda_function", RECEIVERS / "lambda_function.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda event: int(module.handler(event)["statusCode"])


def post(url: str, received: Received) -> int:
    return urllib3.request(
        "POST", url, body=received.body, headers=dict(received.headers), retries=False, timeout=10
    ).status


def answers(port: int) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"http://{HOST}:{port}/", retries=False, timeout=5).status == 404
    return False


def as_sent(api: Api, delivery_id: str) -> Received:
    """The request that the endpoint got, from the log of attempts."""
    view = api.get(f"/deliveries/{delivery_id}")
    return Received(view["payload"].encode(), view["attempts"][-1]["request_headers"])


def test_examples_accept_only_genuine_requests(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example answers a document's webhook and a ping with 2xx, and a copy with one byte changed with 403."""
    events = {"lambda_http_api": http_api_event, "lambda_rest_api": rest_api_event}
    with ExitStack() as stack:
        ports = {name: free_port() for name in COMMANDS}
        fronts = {name: stack.enter_context(site(is_open=False)) for name in events}
        urls = {name: f"http://{HOST}:{port}/webhooks" for name, port in ports.items()}
        urls |= {name: front.url for name, front in fronts.items()}
        hooks = {name: stack.enter_context(endpoint(api, url)) for name, url in urls.items()}
        for name, port in ports.items():
            output = tmp_path / f"{name}.log"
            stack.enter_context(started(COMMANDS[name](port), hooks[name]["secret"], output))
        for name, front in fronts.items():
            function = lambda_function(hooks[name]["secret"], monkeypatch)
            front.react = lambda received, f=function, event=events[name]: f(event(received))
            front.open()
        for port in ports.values():
            wait_for(lambda port=port: answers(port), seconds=30)

        (job,) = index(api)
        for name, hook in hooks.items():
            (delivery,) = all_ended(api, hook, 1)
            assert (delivery["status"], delivery["last_attempt"]["status"]) == ("delivered", 204), name
            genuine = as_sent(api, delivery["delivery_id"])
            assert genuine.event == log(api, job["job_id"])[-1]
            assert post(urls[name], genuine) == 204, name
            assert post(urls[name], tampered(genuine)) == 403, name
            ping = api.post(f"/webhooks/{hook['webhook_id']}/test")
            assert (ping["event"], ping["attempts"][0]["status"]) == ("ping", 204), name


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────


def test_ping_shows_the_response(api: Api) -> None:
    """A ping goes to its endpoint only, once, also if that is disabled. The attempt shows the response."""
    answer = Answer(418, {"x-pot": "short", "set-cookie": "s=1"}, "thé".encode())
    with site(lambda _: answer) as teapot, endpoint(api, teapot.url) as hook, endpoint(api, teapot.url) as other:
        api.patch(f"/webhooks/{hook['webhook_id']}", {"enabled": False})
        view = api.post(f"/webhooks/{hook['webhook_id']}/test")
        (attempt,) = view["attempts"]
        assert (view["status"], attempt["status"], attempt["error"]) == ("failed", 418, "http_4xx")
        assert (attempt["body"], attempt["response_headers"]["x-pot"]) == ("thé", "short")
        assert attempt["response_headers"]["set-cookie"] == "(hidden)"
        assert view["event_id"] in {event["event_id"] for event in owner_events(api)}
        assert deliveries(api, other) == []
        assert [visit.id for visit in teapot.visits] == [view["event_id"]]


def owner_events(api: Api) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = api.get("/webhooks/events", limit=100)["events"]
    return events


def test_both_secrets_verify_during_a_rotation(api: Api) -> None:
    """In the grace period the old and the new secret verify. Without grace only the new one does."""
    with site() as server, endpoint(api, server.url, events=["document.*"]) as hook:
        path = f"/webhooks/{hook['webhook_id']}"
        old = hook["secret"]
        with ThreadPoolExecutor(1) as pool:
            jobs = pool.submit(index, api, 3)
            wait_for(lambda: server.visits)
            new = api.post(f"{path}/rotate-secret", {"grace_seconds": 3600})["secret"]
            jobs.result()
        all_ended(api, hook, 15)
        for visit in server.visits:
            assert recado.verify(visit.received.headers, visit.received.body, [old, new]).scheme == "v1"
        api.post(f"{path}/test")
        last = server.visits[-1].received
        assert is_genuine(last, new)
        Webhook(old).verify(last.body, dict(last.headers))
        newest = api.post(f"{path}/rotate-secret", {"grace_seconds": 0, "secret": "whsec_" + "cd" * 16})["secret"]
        api.post(f"{path}/test")
        last = server.visits[-1].received
        assert is_genuine(last, newest)
        with pytest.raises(recado.NoMatchingSignature):
            recado.verify(last.headers, last.body, new)


def test_edits_apply_to_the_next_delivery(api: Api) -> None:
    """The next request goes to the new URL, and reuses no connection of the old one."""
    with site() as server, site() as elsewhere, endpoint(api, server.url) as hook:
        path = f"/webhooks/{hook['webhook_id']}"

        def ping() -> None:
            assert api.post(f"{path}/test")["status"] == "delivered"

        def kept() -> bool:
            ping()
            return len({visit.connection for visit in server.visits}) < len(server.visits)

        wait_for(kept)
        before = {visit.connection for visit in server.visits}
        api.patch(path, {"url": f"{server.url}/new"})
        ping()
        assert server.visits[-1].path == "/webhooks/new"
        assert server.visits[-1].connection not in before
        count = len(server.visits)
        api.patch(path, {"url": elsewhere.url})
        ping()
        assert (len(server.visits), len(elsewhere.visits)) == (count, 1)


def test_redelivery_sends_the_same_bytes_and_ends_the_retries(api: Api) -> None:
    """After a successful redelivery the automatic retry is not made. A second redelivery sends once more."""
    # Twice the scheduled wait is the most that a Retry-After gets: four seconds before the next attempt.
    answers = [Answer(503, {"retry-after": "3600"})]
    with site(lambda _: answers.pop(0) if answers else 204) as server, endpoint(api, server.url) as hook:
        index(api)
        waiting = wait_for(lambda: [d for d in deliveries(api, hook) if d["attempt_count"] == 1])
        path = f"/deliveries/{waiting[0]['delivery_id']}"
        api.post(f"{path}/redeliver")
        wait_for(lambda: api.get(path)["status"] == "delivered")
        wait_for(lambda: waiting[0]["next_attempt_at"] < now())
        time.sleep(1)  # in which the retry would have come
        assert len(server.visits) == 2
        api.post(f"{path}/redeliver")
        view = wait_for(lambda: (v := api.get(path))["attempt_count"] == 3 and v)
        assert [attempt["trigger"] for attempt in view["attempts"]] == ["automatic", "manual", "manual"]
        assert len({(visit.id, visit.received.body) for visit in server.visits}) == 1
        assert len({visit.received.headers["webhook-timestamp"] for visit in server.visits}) > 1


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_recover_and_replay(api: Api) -> None:
    """Recover sends discarded deliveries, replay events from before the endpoint. The jobs show how many."""
    begin = now()
    with site() as server, site() as later, endpoint(api, server.url, events=["document.*"]) as hook:
        path = f"/webhooks/{hook['webhook_id']}"
        api.patch(path, {"enabled": False})
        logged = {event["event_id"] for job in index(api, 3) for event in log(api, job["job_id"])}
        found = all_ended(api, hook, 15)
        assert {delivery["status"] for delivery in found} == {"discarded"}
        assert server.visits == []
        api.patch(path, {"enabled": True})
        check_job(api, api.post(f"{path}/recover", {"since": begin}), sent=15, total=15)
        assert {d["status"] for d in all_ended(api, hook, 15)} == {"delivered"}
        assert sorted(visit.id for visit in server.visits) == sorted(logged)

        with endpoint(api, later.url, events=["*"]) as new:
            replay = {"since": begin, "events": ["document.indexed"]}
            check_job(api, api.post(f"/webhooks/{new['webhook_id']}/replay", replay), sent=3)
            wait_for(lambda: len(indexed(later)) == 3)
            assert set(indexed(later)) < logged


def indexed(server: Site) -> list[str]:
    return [visit.id for visit in server.visits if visit.received.event["event"] == "document.indexed"]


def check_job(api: Api, accepted: Mapping[str, Any], *, sent: int, total: int | None = None) -> None:
    job = ended(api, accepted["job_id"])
    assert (job["kind"], job["status"], job["result"]["sent"]) == ("replay", "completed", sent)
    progress = job["progress"]
    assert progress["done"] == progress["total"]
    assert total in (None, progress["total"])


def test_formats_signatures_and_headers_arrive(api: Api) -> None:
    """Each endpoint gets the event in its format, signed over these bytes, with the headers its owner chose."""
    facts: dict[str, dict[str, Any]] = {
        "cloudevents": {"format": "cloudevents"},
        "slack": {"format": "slack"},
        "thin": {"format": "thin", "headers": {"Authorization": "Bearer mine", "X-Team": "cellar"}},
        "ed25519": {"signing": "ed25519"},
    }
    with site() as server, ExitStack() as stack:
        hooks = {
            name: stack.enter_context(endpoint(api, f"{server.url}/{name}", **chosen))
            for name, chosen in facts.items()
        }
        (job,) = index(api)
        wait_for(lambda: len(server.visits) == len(hooks))
        came = {visit.path.rpartition("/")[2]: visit.received for visit in server.visits}
        (ours,) = all_ended(api, hooks["thin"], 1)
        (key,) = api.get(f"/webhooks/{hooks['ed25519']['webhook_id']}/public-key")["keys"]

    event = log(api, job["job_id"])[-1]
    cloud = came["cloudevents"].event
    assert came["cloudevents"].headers["content-type"] == "application/cloudevents+json"
    assert (cloud["id"], cloud["type"], cloud["data"]) == (event["event_id"], "recado.document.indexed", event)
    assert came["slack"].event["text"] == "document.indexed · note-0 · 1 chunk"
    assert came["thin"].event.keys() == {"event", "event_id", "job_id", "sequence", "timestamp"}
    assert came["thin"].headers["authorization"] == "Bearer mine"
    shown = as_sent(api, ours["delivery_id"]).headers
    assert (shown["x-team"], came["thin"].headers["x-team"]) == ("…", "cellar")
    for name in ("cloudevents", "slack", "thin"):
        assert is_genuine(came[name], hooks[name]["secret"])
    assert "secret" not in hooks["ed25519"]
    verified = recado.verify(came["ed25519"].headers, came["ed25519"].body, key["public_key"])
    assert (verified.scheme, verified.id, verified.json()) == ("v1a", event["event_id"], event)
    with pytest.raises(recado.NoMatchingSignature):
        recado.verify(came["ed25519"].headers, tampered(came["ed25519"]).body, key["public_key"])


# ── killed senders ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def short_visibility_timeout(system: System) -> Iterator[None]:
    """The messages of a killed sender are received again after five seconds instead of four minutes."""
    sqs = system.client("sqs")
    queue = next(url for url in sqs.list_queues()["QueueUrls"] if "WebhooksQueue" in url)
    as_deployed = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["VisibilityTimeout"])["Attributes"]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "5"})
    yield
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=as_deployed)


@pytest.mark.usefixtures("short_visibility_timeout")
def test_killed_sender_loses_nothing(api: Api, system: System) -> None:
    """After a SIGKILL during requests, attempts that were not recorded are made again, and no others."""
    turns, held = itertools.count(), list[str]()

    def react(received: Received) -> int:
        if 2 <= next(turns) < 6:
            held.append(received.headers["webhook-id"])
            time.sleep(2)
        return 204

    with site(react) as server, endpoint(api, server.url, events=["document.*"]) as hook:
        jobs = [api.post("/jobs", document(NOTE))["job_id"] for _ in range(2)]
        wait_for(lambda: held)
        assert kill_workers(system, "webhooks.sender")
        in_hand = deliveries(api, hook, status="sending")
        for delivery in in_hand:  # else the killed sender's claim lasts two minutes
            rewrite(system, f"DELIVERY#{delivery['delivery_id']}", "META", lease_until="0")
        logged = {event["event_id"] for job_id in jobs if ended(api, job_id) for event in log(api, job_id)}
        found = all_ended(api, hook, 10)
        assert {delivery["status"] for delivery in found} == {"delivered"}
        assert {visit.id for visit in server.visits} == logged
        again = {visit.id for visit in server.visits if len(server.of(visit.id)) > 1}
        assert again
        assert again <= {delivery["event_id"] for delivery in in_hand}


def test_retry_scheduler_is_invoked_by_its_schedule(system: System) -> None:
    """The schedule invokes it once a minute, besides the invocations of these tests."""
    functions = system.client("lambda")
    name = function_name(system, "RetryScheduler")
    group = functions.get_function_configuration(FunctionName=name)["LoggingConfig"]["LogGroup"]

    def runs() -> int:
        found = system.client("logs").filter_log_events(logGroupName=group, filterPattern="REPORT")
        return len(found["events"])

    wait_for(lambda: runs() > calls.count(name))
