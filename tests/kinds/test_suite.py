"""What holds for every kind of job that can be submitted, those of these tests and those of a reader included.

A kind needs no test here: its declaration says what it takes, what it logs and what it comes to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from core import events
from core.events import encode
from core.jobs import Kind
from kinds.registry import KINDS
from recado import Recado, cli
from recado._cli import jobs as job_commands
from tests.kinds.conftest import NAMES
from tests.simulated_cloud.calls import Killed
from tests.support.kinds import example_input
from tests.support.recado_client import connected
from tests.support.receiver import Receiver
from tests.support.service import Service
from tests.support.sse import parse

SUBMITTABLE = [*(name for name, kind in KINDS.items() if kind.submittable), *NAMES]
SUBMITTED = pytest.mark.parametrize("name", SUBMITTABLE)
EVERY_KIND = pytest.mark.parametrize("name", [*SUBMITTABLE, "replay"])
WORKER, DISPATCH = "worker", "dispatch"
HOUR, DAY = 3600.0, 86_400.0
HOOK = "https://hooks.example.com/in"
Event = dict[str, Any]


# ── what a kind's declaration says ───────────────────────────────────────────────────────────────────────────


def body_of(service: Service, name: str, **more: Any) -> dict[str, Any]:
    """A submission of the kind's example. If it needs a file, it is uploaded."""
    return {"kind": name, "input": example_input(service, name), **more}


def submit(service: Service, name: str, **more: Any) -> str:
    if name == "replay":
        return replay(service)
    answer = service.call("POST", "/jobs", json=body_of(service, name, **more))
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def replay(service: Service) -> str:
    """A replay for an endpoint, made by its route."""
    made = service.call("POST", "/webhooks", json={"url": f"{HOOK}/again", "events": ["endpoint.disabled"]}).json()
    since = events.timestamp(service.cloud.clock.time - HOUR)
    answer = service.call("POST", f"/webhooks/{made['webhook_id']}/replay", json={"since": since})
    assert answer.status == 202, answer.text
    return str(answer.json()["job_id"])


def functions(service: Service, kind: Kind) -> dict[str, str]:
    """The function of each stage, from the deployed state machine."""
    if kind.runs_on == "worker":
        return dict.fromkeys(kind.stages, WORKER if kind.work else DISPATCH)
    machine = service.cloud.deployment.find("AWS::StepFunctions::StateMachine", f"{camel(kind.name)}/Machine")
    states = json.loads(machine.properties["DefinitionString"])["States"]
    arns = machine.properties["DefinitionSubstitutions"]
    stages = {name: note["Result"] for name, note in states.items() if note["Type"] == "Pass" and "Result" in note}
    called = {
        stages[f"{name}Failed"]: arns.get(str(state.get("Resource", "")).strip("${}"))
        for name, state in states.items()
        if f"{name}Failed" in stages
    }
    by_arn = {
        service.cloud.functions.get(found.reference).function_arn: found.properties["Handler"].split(".")[-3]
        for found in service.cloud.deployment.of("AWS::Lambda::Function")
    }
    return {stage: by_arn.get(arn or "", WORKER) for stage, arn in called.items() if stage in kind.stages}


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def assert_ended(service: Service, job_id: str, status: str) -> list[Event]:
    """The job ended once with this status, its log is in order, everybody was notified, and no files are left."""
    job, log = service.job(job_id), service.events(job_id)
    kind = KINDS[job["kind"]]
    assert job["status"] == status, job
    assert [event["sequence"] for event in log] == list(range(1, len(log) + 1))
    assert log[0]["event"] == kind.submitted_event
    assert [event["status"] in ("completed", "failed", "canceled") for event in log] == [
        *[False] * (len(log) - 1),
        True,
    ]
    assert (
        log[-1]["event"] == dict(zip(("completed", "failed", "canceled"), kind.final_events, strict=True))[status]
    )
    for event in log:
        assert event["event"] in kind.event_names
        assert event["stage"] in kind.all_stages
        assert kind.subject is None or event[kind.subject] == job[kind.subject]
        assert event in service.published("DocEventsTopic", job_id=job_id)
    assert service.execution_status(job_id) != "RUNNING"
    for queue in ("Indexing", "Embedding"):
        for part in ("Queue", "DeadLetters"):
            assert service.cloud.queue(f"{queue}/{part}").bodies == []
    assert service.keys(f"work/{job_id}/") == []
    return log


def verbs(log: list[Event]) -> list[str]:
    return [event["event"].partition(".")[2] for event in log if not event["event"].endswith(".progressed")]


def reached(service: Service, job_id: str, stage: str) -> bool:
    """Whether the job has come to this stage: several stages of a state machine may have the same function."""
    if not any(found.name == job_id for found in service.cloud.executions.all()):
        return True
    return any(name.startswith(camel(stage)) for name in service.cloud.execution(job_id).states)


@contextmanager
def breaking(service: Service, function: str, job_id: str, stage: str) -> Iterator[None]:
    """In this context, every run of the function fails at its first call to AWS, from this stage on."""
    rule = service.cloud.fail(
        "*",
        "*",
        "AccessDeniedException",
        function=function,
        when=lambda call: call.index == 1 and reached(service, job_id, stage),
        times=None,
    )
    try:
        yield
    finally:
        rule.remove()


# ── from the submission to the end ───────────────────────────────────────────────────────────────────────────


@EVERY_KIND
def test_success(service: Service, name: str) -> None:
    """A job with the kind's example completes, with the declared events and result."""
    kind = KINDS[name]
    metadata = {"mine": "1"} if kind.submittable else {}
    job_id = submit(service, name, metadata=metadata)
    service.cloud.settle(within=HOUR)
    log, job = assert_ended(service, job_id, "completed"), service.job(job_id)
    assert verbs(log) == [
        verb.partition(".")[2] for verb in kind.event_names if verb.partition(".")[2] in verbs(log)
    ]
    assert {*kind.events, "started"} == {*verbs(log)}
    for event in log:
        model = kind.events.get(event["event"].partition(".")[2])
        assert model is None or model.model_validate(event)
    assert kind.result.model_validate(job["result"])
    assert job["result"].items() <= log[-1].items()
    assert (job["metadata"], job.get("error")) == (metadata, None)


@SUBMITTED
def test_idempotency(service: Service, name: str) -> None:
    """The same key and body return the same job. The same key with another body is refused."""
    body = body_of(service, name)
    first, second = (service.call("POST", "/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status, second.status) == (202, 202)
    assert first.json()["job_id"] == second.json()["job_id"]
    assert second.headers["Idempotent-Replayed"] == "true"
    other = service.call("POST", "/jobs", json=body | {"metadata": {"a": "b"}}, headers={"Idempotency-Key": "k"})
    assert other.status == 422


@SUBMITTED
def test_unknown_field(service: Service, name: str) -> None:
    """The error names the unknown field as the caller wrote it."""
    body = body_of(service, name)
    body["input"] |= {"no_such_field": 1}
    answer = service.call("POST", "/jobs", json=body)
    assert (answer.status, answer.json()["field"]) == (422, "input.no_such_field")


def test_unknown_kind(service: Service) -> None:
    """The error names the field `kind` and lists the kinds."""
    answer = service.call("POST", "/jobs", json={"kind": "nothing", "input": {}})
    assert (answer.status, answer.json()["field"]) == (422, "kind")
    assert all(name in answer.json()["detail"] for name in SUBMITTABLE)
    assert "replay" not in answer.json()["detail"]


# ── ends that are not good ───────────────────────────────────────────────────────────────────────────────────


@EVERY_KIND
def test_cancel_queued_job(service: Service, name: str) -> None:
    """A job that is canceled before it starts never starts."""
    service.cloud.pause("start_job", WORKER, DISPATCH)
    job_id = submit(service, name)
    service.cloud.settle()
    assert service.cancel(job_id).status == 200
    service.cloud.resume()
    service.cloud.settle(within=HOUR)
    assert verbs(assert_ended(service, job_id, "canceled")) == [KINDS[name].submitted_verb, "canceled"]


@EVERY_KIND
def test_cancel_at_each_stage(service: Service, name: str) -> None:
    """A job that is canceled during a stage ends canceled, and the stage's files are deleted."""
    submit(service, name)
    service.cloud.settle(within=HOUR)
    for stage, function in functions(service, KINDS[name]).items():
        half = max(run.calls for run in service.cloud.functions.invocations if run.name == function) // 2
        job_id = submit(service, name)
        cancel = partial(service.cancel, job_id)
        rule = service.cloud.on(
            "*",
            "*",
            lambda _, cancel=cancel: cancel(),
            function=function,
            when=lambda c, n=half, i=job_id, s=stage: c.index == n and reached(service, i, s),
        )
        service.cloud.settle(within=HOUR)
        assert rule.hits == 1, stage
        rule.remove()
        assert_ended(service, job_id, "canceled")


@SUBMITTED
def test_failure_at_each_stage(service: Service, name: str) -> None:
    """The error names the stage. A retry is another job, which completes."""
    for stage, function in functions(service, KINDS[name]).items():
        job_id = submit(service, name)
        with breaking(service, function, job_id, stage), service.paused_reaper():
            service.cloud.settle(within=4 * HOUR)
        service.cloud.advance(120)  # the reaper handles dead letters
        log = assert_ended(service, job_id, "failed")
        if KINDS[name].runs_on == "machine":
            assert log[-1]["error"]["stage"] == stage
        again = service.call("POST", f"/jobs/{job_id}/retry").json()["job_id"]
        service.cloud.settle(within=HOUR)
        assert_ended(service, again, "completed")
        assert service.job(again)["retry_of"] == job_id


@EVERY_KIND
def test_kill_at_each_call(service: Service, name: str) -> None:
    """Wherever the functions of a job are killed, it completes once."""
    submit(service, name)
    service.cloud.settle(within=HOUR)
    of_stages = functions(service, KINDS[name])
    of_kind = {*of_stages.values(), "start_job"}
    longest = max(run.calls for run in service.cloud.functions.invocations if run.name in of_kind)
    for number in range(1, longest + 1):
        job_id = submit(service, name)
        service.cloud.fail("*", "*", Killed, function="start_job", when=lambda call, n=number: call.index == n)
        for stage, function in of_stages.items():
            service.cloud.fail(
                "*",
                "*",
                Killed,
                function=function,
                when=lambda call, n=number, i=job_id, s=stage: call.index == n and reached(service, i, s),
            )
        with service.paused_reaper():
            service.cloud.settle(within=2 * HOUR)
        log = assert_ended(service, job_id, "completed")
        assert Counter(verbs(log))[KINDS[name].completed_verb] == 1


@EVERY_KIND
def test_expired_job(service: Service, name: str) -> None:
    """An expired job is a 404, and a message about it has no effect."""
    job_id = submit(service, name)
    service.cloud.settle(within=HOUR)
    (first, *_), last = service.events(job_id), service.events(job_id)[-1]
    service.cloud.clock.advance_to(service.cloud.clock.time + 91 * DAY)
    service.cloud.bus.skip_ticks()
    assert service.call("GET", f"/jobs/{job_id}").status == 404
    assert service.call("GET", "/jobs").json()["jobs"] == []
    for queue in ("Indexing", "Embedding"):
        for event in (first, last):
            service.cloud.queue(f"{queue}/Queue").send(event)
    service.cloud.settle(within=HOUR)
    assert all(service.cloud.queue(f"{queue}/Queue").bodies == [] for queue in ("Indexing", "Embedding"))


# ── learning of it ───────────────────────────────────────────────────────────────────────────────────────────


@EVERY_KIND
def test_every_way_of_waiting(service: Service, name: str) -> None:
    """Log, long polls, both forms of SSE and WebSockets return the same events, beside steps if there are any."""
    follower = service.cloud.connect(service.call("POST", "/live/tickets").json()["url"])
    follower.send(json.dumps({"action": "follow", "kind": name}))
    service.cloud.settle()
    job_id = submit(service, name)
    links = service.job(job_id)["links"]
    by_link = service.cloud.connect(f"{links['live']}&after=0")
    etag = service.call("GET", f"/jobs/{job_id}/status").headers["ETag"]
    service.cloud.settle(within=HOUR)
    log = assert_ended(service, job_id, "completed")
    poll = service.call("GET", f"/jobs/{job_id}/status?wait=20", headers={"If-None-Match": etag})
    assert (poll.json()["status"], poll.json()["sequence"]) == ("completed", len(log))
    assert received(by_link) == received(follower) == log
    for query, named in (("", [event["event"] for event in log]), ("?event=message", ["message"] * len(log))):
        path = f"/jobs/{job_id}/events{query}"
        stream = parse(service.call("GET", path, headers={"Accept": "text/event-stream"}).text).events
        events = [one for one in stream if "event" in json.loads(one.data)]  # the others are steps
        assert [json.loads(one.data) for one in events] == log
        assert [one.type for one in events] == named
        assert [one.type for one in stream if one.type == "end"] == ([] if query else ["end"])


def received(socket: Any) -> list[Event]:
    return [event for message in socket.take() for event in message.get("events", [])]


@SUBMITTED
def test_webhooks(service: Service, receiver: Receiver, name: str) -> None:
    """`*.completed` matches the last event of every kind, and the job's own URL gets the final event."""
    everything = {"url": f"{HOOK}/all", "events": [f"{name}.*"]}
    good = {"url": f"{HOOK}/good", "events": ["*.completed"], "format": "slack"}
    for endpoint in (everything, good):
        assert service.call("POST", "/webhooks", json=endpoint).status == 201
    job_id = submit(service, name, webhook_url=f"{HOOK}/job")
    service.cloud.settle(within=HOUR)
    log = service.events(job_id)
    came = {url: [r for r in receiver.requests if r.url == f"{HOOK}/{url}"] for url in ("all", "good", "job")}
    assert sorted(encode(event).encode() for event in log) == sorted(request.body for request in came["all"])
    assert [request.body for request in came["job"]] == [encode(log[-1]).encode()]
    (line,) = [json.loads(request.body)["text"] for request in came["good"]]
    assert line.startswith(f"{name}.{KINDS[name].completed_verb}")


@EVERY_KIND
def test_sns_attributes(service: Service, name: str) -> None:
    """Attributes have kind, owner, type, status and lifecycle, so that filters work for every kind."""
    job_id = submit(service, name)
    service.cloud.settle(within=HOUR)
    sent = [call.params for call in service.cloud.calls.log if call.action == "sns:Publish"]
    for published in (params for params in sent if job_id in params["Message"]):
        event = json.loads(published["Message"])
        attributes = {key: value["StringValue"] for key, value in published["MessageAttributes"].items()}
        ended = event["status"] in ("completed", "failed", "canceled")
        lifecycle = "ended" if ended else "submitted" if event["sequence"] == 1 else "progress"
        facts = {"event_type": event["event"], "kind": name, "owner": "ana"}
        assert attributes == facts | {"status": event["status"], "lifecycle": lifecycle}


# ── those who ask ────────────────────────────────────────────────────────────────────────────────────────────


@SUBMITTED
def test_lists(service: Service, name: str) -> None:
    """GET /jobs shows the job with its subject, and can be limited to its kind."""
    job_id, kind = submit(service, name), KINDS[name]
    (job,) = service.call("GET", f"/jobs?kind={name}").json()["jobs"]
    assert (job["job_id"], job["kind"], job["status"]) == (job_id, name, "queued")
    assert kind.subject is None or job[kind.subject]
    assert service.call("GET", "/jobs?kind=replay").json()["jobs"] == []


@SUBMITTED
@pytest.mark.parametrize("way", ["websocket", "sse", "long_poll", "poll"])
def test_client(service: Service, monkeypatch: pytest.MonkeyPatch, name: str, way: Any) -> None:
    """The client submits a job, watches it in every way, and returns its result."""
    with connected(service, monkeypatch) as client:
        job = client.submit(kind=name, input=body_of(service, name)["input"])
        events = [event.raw for event in client.watch(job, transport=way)]
        assert events == service.events(job.job_id)
        assert client.wait(job.job_id, transport=way).result == service.job(job.job_id)["result"]


@SUBMITTED
def test_command(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """`recado submit --kind` accepts any input, and `recado ls --kind` shows the job."""
    with connected(service, monkeypatch) as client:
        monkeypatch.setattr(job_commands, "open_client", partial(_given, client))
        given = json.dumps(body_of(service, name)["input"])
        assert cli.main(["submit", "--kind", name, "--input", given, "--wait"]) == 0
        job_id = capsys.readouterr().out.split()[0]
        assert service.job(job_id)["status"] == "completed"
        assert cli.main(["ls", "--kind", name]) == 0
        assert job_id in capsys.readouterr().out


@contextmanager
def _given(client: Recado, _: object) -> Iterator[Recado]:
    yield client


@SUBMITTED
def test_openapi(service: Service, name: str) -> None:
    """OpenAPI has the input with an example, the result and the events."""
    shown, kind = service.cloud.request("GET", "/openapi.json").json(), KINDS[name]
    models, post = shown["components"]["schemas"], shown["paths"]["/jobs"]["post"]["requestBody"]
    content = post["content"]["application/json"]
    assert content["examples"][name]["value"]["input"] == dict(kind.example)
    assert content["schema"]["discriminator"]["propertyName"] == "kind"
    (model,) = (m for m in models.values() if m["properties"].get("kind", {}).get("const") == name)
    assert model["description"] == kind.input.__doc__
    assert {"$ref": f"#/components/schemas/{name}.{kind.completed_verb}"} in models["JobView"]["properties"][
        "result"
    ]["anyOf"]
    assert set(kind.event_names) <= set(shown["webhooks"])
