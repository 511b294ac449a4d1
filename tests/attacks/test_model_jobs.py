"""Jobs that call models: hostile prompts, schemas, templates and answers, and owners in the way of others."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError

from core.errors import JobClosed
from core.jobs.usage import UsageStore
from core.llm.caller import ModelCaller
from core.llm.catalog import Model
from core.llm.circuit import Circuits
from core.llm.faults import MAX_MESSAGE, classify, public
from core.llm.gate import ModelGate
from core.llm.in_flight import ModelCalls
from core.llm.provider import Answer, Message, ModelRequest, TextPart
from core.llm.rate_limit import RateLimiter
from core.llm.running_call import Connection, RunningCall
from tests.attacks.test_deleted_jobs import assert_gone, deleted
from tests.integration.test_completions import MODEL, STREAM, ask, calls
from tests.integration.test_secrecy import lines
from tests.simulated_cloud.calls import Call
from tests.support import bedrock
from tests.support.problems import assert_problem
from tests.support.receiver import Receiver
from tests.support.service import Service
from tests.unit.conftest import aws, cached_clients, dynamodb, jobs_table
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import job

__all__ = ["aws", "cached_clients", "dynamodb", "jobs_table", "lines"]

HOUR = 3600.0
Knob = Callable[..., None]
PROMPT, ANSWER = "Xylophone", "Hyacinth"


def post(service: Service, kind: str = "completion", **given: Any) -> Any:
    return service.call("POST", "/jobs", json={"kind": kind, "input": given})


def post_raw(service: Service, body: str) -> Any:
    return service.call("POST", "/jobs", body=body.encode(), headers={"Content-Type": "application/json"})


def refused(answer: Any, field: str | None = None) -> str:
    """The detail of the refusal."""
    problem = assert_problem(answer, 422, "invalid_request")
    assert field is None or problem["field"].startswith(field), problem
    return str(problem["detail"])


def says(monkeypatch: pytest.MonkeyPatch, service: Service, *texts: str, tokens: int = 5) -> None:
    """Every answer of the model is these pieces of text."""

    def stream(params: dict[str, Any]) -> dict[str, Any]:
        deltas = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": text}}} for text in texts]
        usage = {"inputTokens": tokens, "outputTokens": 5, "totalTokens": 5 + tokens}
        end = [{"messageStop": {"stopReason": "end_turn"}}, {"metadata": {"usage": usage}}]
        return {"stream": bedrock.Stream([{"messageStart": {"role": "assistant"}}, *deltas, *end])}

    monkeypatch.setitem(service.cloud.calls.answers, STREAM, stream)


def fails(service: Service, code: str, message: str, **options: Any) -> Any:
    """Make calls of the model fail with this message of the provider."""

    def failure(call: Call) -> Exception:
        status = 500 if "Unavailable" in code else 400
        response: Any = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
        }
        return ClientError(response, call.operation)

    return service.cloud.fail("bedrock-runtime", "ConverseStream", failure, **{"times": None, **options})


def finished(service: Service, job_id: str) -> dict[str, Any]:
    with service.paused_reaper():
        service.cloud.settle(within=HOUR)
    return service.job(job_id)


# ── what belongs to others ───────────────────────────────────────────────────────────────────────────────────


def test_sources_of_others(service: Service) -> None:
    """A summary of another owner's document or upload is refused as if there were none."""
    ben = Service(service.cloud, owner="ben")
    key = ben.upload(b"One two three.", content_type="text/plain")
    ben.submit(document_id="manual")
    service.cloud.settle(within=HOUR)
    for field, foreign, absent in (
        ("document_id", "manual", "nothing"),
        ("s3_key", key, key[:-3] + "xyz"),
        ("s3_key", key, "uploads/ben/../ana/nothing"),
    ):
        answers = [post(service, "summary", **{field: value}) for value in (foreign, absent)]
        assert len({refused(answer, f"input.{field}") for answer in answers}) == 1
    assert post(ben, "summary", document_id="manual").status == 202
    assert post(ben, "summary", s3_key=key).status == 202


def test_what_a_prompt_names_is_not_called(service: Service, knob: Knob, receiver: Receiver) -> None:
    """No model, prompt, template or webhook of a job chooses where its call goes."""
    for model in (
        "openai/gpt-4o-mini",
        "openai/https://attacker.example",
        f"{MODEL}/../x",
        "bedrock/",
        "arn:aws:bedrock:eu-west-1:123456789012:x",
    ):
        assert MODEL in refused(post(service, prompt="Hi.", model=model), "input.model")
    for name in ("base_url", "openai_base_url", "endpoint_url", "modelId", "api_key"):
        refused(post(service, prompt="Hi.", **{name: "https://attacker.example/v1"}), f"input.{name}")
    url = "https://attacker.example/v1"
    body = {"kind": "completion", "input": {"prompt": f"base_url={url}"}, "webhook_url": url}
    job_id = service.call("POST", "/jobs", json=body).json()["job_id"]
    assert finished(service, job_id)["status"] == "completed"
    (call,) = calls(service)
    assert call.client.meta.endpoint_url == "https://bedrock-runtime.eu-west-1.amazonaws.com"
    assert call.params["modelId"] == MODEL.partition("/")[2]


# ── hostile input ────────────────────────────────────────────────────────────────────────────────────────────


def test_placeholders_in_variables(service: Service) -> None:
    """What a variable contains is text: placeholders in it are not filled."""
    given = {"a": "{{b}} {{ a }}", "b": "secret of b"}
    job_id = post(service, template="{{a}} and {{b}}", variables=given).json()["job_id"]
    assert finished(service, job_id)["status"] == "completed"
    (call,) = calls(service)
    assert call.params["messages"][0]["content"][0]["text"] == "{{b}} {{ a }} and secret of b"


@pytest.mark.parametrize(("places", "length"), [(20_000, 100_000), (400_000, 1000), (3, 250_000)])
def test_templates_that_explode(service: Service, places: int, length: int) -> None:
    """A template that would become gigabytes is refused without being filled."""
    begin = time.process_time()
    answer = post(service, template="{{a}}" * places, variables={"a": "x" * length})
    assert answer.status in (413, 422)
    assert time.process_time() - begin < 3


def nested(depth: int) -> str:
    return '{"type": "object", "properties": {"a": ' * depth + "{}" + "}}" * depth


@pytest.mark.parametrize("depth", [10, 90, 150, 240, 330, 500, 1000, 3000, 5000])
def test_deep_schemas(service: Service, monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    """A schema of any depth is passed on, or refused with a message; it breaks nothing."""
    says(monkeypatch, service, "{}")
    schema = f'{{"type": "json_schema", "json_schema": {nested(depth)}}}'
    answer = post_raw(
        service, f'{{"kind": "completion", "input": {{"prompt": "a", "response_format": {schema}}}}}'
    )
    if answer.status == 202:
        assert finished(service, answer.json()["job_id"])["status"] == "completed"
        assert len(calls(service)) == 1
    else:
        refused(answer)
    assert depth > 150 or answer.status == 202


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$ref": "https://attacker.example/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$schema": "http://169.254.169.254/latest/meta-data", "type": "object"},
        {"type": "object", "properties": {f"p{n}": {"enum": ["x" * 20] * 5} for n in range(1000)}},
        {"type": "object", "patternProperties": {"(a+)+$": {}}},
        {"": {"\u0000": "\u0007"}},
    ],
    ids=["self", "cycle", "remote", "file", "metadata", "large", "regex", "control"],
)
def test_hostile_schemas(service: Service, monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any]) -> None:
    """A schema is passed on as it is. Nothing that it names is read, and no reference is followed."""
    says(monkeypatch, service, "{}")
    with mock.patch.object(socket, "getaddrinfo", side_effect=AssertionError("a network")):
        answer = post(service, prompt="a", response_format={"type": "json_schema", "json_schema": schema})
        assert answer.status == 202, answer.text
        assert finished(service, answer.json()["job_id"])["status"] == "completed"
    (call,) = calls(service)
    assert json.loads(call.params["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]) == schema


@pytest.mark.parametrize(
    "given",
    [
        '"prompt": "\\ud800"',
        '"prompt": ""',
        '"prompt": "a", "stop": [""]',
        '"prompt": "a", "stop": ["\\udfff"]',
        f'"prompt": "a", "stop": {json.dumps([str(n) for n in range(300)])}',
        '"messages": [{"role": "user", "content": ""}]',
        '"messages": [{"role": "user", "content": "\\ud800"}]',
        '"template": "{{a}}", "variables": {"a": "\\udc00"}',
        '"template": "{{a}}", "variables": {"\\udc00": "a"}',
        '"prompt": "a", "model": "\\ud800"',
        '"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"a": "\\ud800"}}',
        '"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"a": NaN}}',
        '"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"a": 1e999}}',
        '"prompt": "a", "response_format": {"type": "json_schema", "json_schema": []}',
        '"prompt": "a", "temperature": NaN',
        '"prompt": "a", "temperature": 1e999',
        '"prompt": "a", "temperature": "hot"',
        '"prompt": "a", "max_tokens": 1e400',
        f'"prompt": "a", "max_tokens": {"9" * 5000}',
        *(
            f'"prompt": "a", "max_cost_usd": {cost}'
            for cost in ("1e-400", "NaN", "-Infinity", '"NaN"', '"1e-400"', '"much"', "-1", "0", "9" * 400, "[]")
        ),
        '"prompt": "a", "max_cost_usd": 1e-300',
    ],
)
def test_values_that_are_none(service: Service, given: str) -> None:
    """Texts that are no texts and numbers that are none are refused, and nothing is stored."""
    files = service.keys()
    detail = refused(post_raw(service, f'{{"kind": "completion", "input": {{{given}}}}}'))
    assert len(detail) < 500
    assert service.keys() == files
    assert calls(service) == []


# ── hostile providers ────────────────────────────────────────────────────────────────────────────────────────

LEAKS = {
    "arn": "arn:aws:iam::123456789012:role/Recado-Worker",
    "account": "account 210987654321 may not",
    "key": "Incorrect API key provided: sk-proj-abcdef123456",
    "access key": "The key AKIAIOSFODNN7EXAMPLE is not valid",
    "bearer": "got Authorization: Bearer eyJhbGciOi.abc",
    "other key": "Invalid API Key gsk_abcdefghijklmnop1234",
    "tag": "<script>alert(1)</script> failed",
    "control": "red \x1b[31m text\x00 and \x9b bell\x07",
}
SECRETS = re.compile(r"arn:aws|(?<!\d)\d{12}(?!\d)|sk-proj|AKIA|eyJ|gsk_|<[/\w]|[\x00-\x1f\x7f-\x9f]")


@pytest.mark.parametrize("code", ["ValidationException", "ServiceUnavailableException", "ThrottlingException"])
@pytest.mark.parametrize("what", LEAKS)
def test_messages_of_providers(what: str, code: str) -> None:
    """What belongs to the operator does not leave in a provider's message, nor what browsers or terminals obey."""
    assert SECRETS.search(LEAKS[what])
    assert not SECRETS.search(str(classify(LEAKS[what], status=None, codes=(code,))))


def test_long_messages_of_providers() -> None:
    """A message of a megabyte is cut, in no time, whatever it consists of."""
    begin = time.process_time()
    for piece in (
        "x",
        " ",
        "1",
        "arn:aws:",
        "sk-",
        "input tokens ",
        "max_tokens ",
        "<",
        "<a ",
        "Bearer ",
        "prompt",
    ):
        message = piece * (1_000_000 // len(piece))
        assert len(public(message)) <= MAX_MESSAGE
        assert len(str(classify(message, status=400))) < MAX_MESSAGE + 200
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("kind", ["completion", "summary"])
def test_error_of_a_job(service: Service, kind: str) -> None:
    """The job's error, its events and alerts have the provider's message without what is secret in it."""
    fails(service, "ValidationException", " ".join(LEAKS.values()) + "x" * 1_000_000)
    given = {"prompt": "a"} if kind == "completion" else {"text": "Some text."}
    job = finished(service, post(service, kind, **given).json()["job_id"])
    assert (job["status"], job["error"]["code"]) == ("failed", "model_rejected")
    told = json.dumps([job["error"], service.events(job["job_id"])])
    alerts = json.dumps([alert["error"] for alert in service.published("ErrorAlertsTopic", job_id=job["job_id"])])
    for text in (job["error"]["message"], told, alerts):
        assert not SECRETS.search(text)
        assert len(text) < 5000


ANSWERS = {
    "control characters": ["\x00\x1b[2J\x07", "\u202e\ud83d", "\ude00"],
    "a megabyte": ["x" * 1000] * 1000,
    "no text": [],
    "empty texts": ["", ""],
    "lone surrogates": ["\ud800", "a", "\udc00"],
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("kind", ["completion", "summary"])
def test_answers(service: Service, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    """Any text is an answer; a summary needs some. It is stored and shown as valid JSON, and is paid for once."""
    says(monkeypatch, service, *ANSWERS[name])
    given = {"prompt": "a"} if kind == "completion" else {"text": "Some text."}
    job = finished(service, post(service, kind, **given).json()["job_id"])
    assert len(calls(service)) == 1
    if kind == "summary" and not "".join(ANSWERS[name]):
        assert (job["status"], job["error"]["code"]) == ("failed", "model_rejected")
        return
    assert job["status"] == "completed", job
    service.events(job["job_id"])
    if name == "control characters" and kind == "completion":
        assert job["result"]["text"] == "\x00\x1b[2J\x07\u202e\U0001f600"


@pytest.mark.parametrize("answer", ["[" * 100_000, '{"a":' * 50_000, "[" * 100_000 + "]" * 100_000, "9" * 10_000])
def test_deep_answers(service: Service, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """An answer whose JSON cannot be read is malformed: the job fails with that code, and each call is counted."""
    says(monkeypatch, service, answer)
    form = {"type": "json_schema", "json_schema": {"type": "object"}}
    job = finished(service, post(service, prompt="a", response_format=form).json()["job_id"])
    assert job["error"]["code"] == "malformed_answer"
    assert job["usage"]["calls"] == len(calls(service)) == 3


@pytest.mark.parametrize("count", [-(10**6), 10**40])
def test_impossible_usage(service: Service, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A count of tokens that cannot be is none: the usage is estimated."""
    says(monkeypatch, service, "Hello.", tokens=count)
    found = finished(service, post(service, prompt="a").json()["job_id"])
    assert (found["status"], found["attempts"], found["result"]["cost_estimated"]) == ("completed", 1, True)
    assert found["result"]["usage"] == {name: found["usage"][name] for name in ("input_tokens", "output_tokens")}
    assert all(0 < tokens < 1000 for tokens in found["result"]["usage"].values())


# ── secrecy ──────────────────────────────────────────────────────────────────────────────────────────────────

TROUBLE: dict[str, Callable[[Service], Any]] = {
    "nothing": lambda service: None,
    "echo in a refusal": lambda service: fails(service, "ValidationException", f"bad: {PROMPT} {ANSWER}"),
    "echo in a failure": lambda service: fails(service, "ServiceUnavailableException", f"bad: {PROMPT} {ANSWER}"),
    "echo in a throttle": lambda service: fails(service, "ThrottlingException", f"{PROMPT} {ANSWER}", times=2),
    "broken connection": lambda service: service.cloud.fail(
        "bedrock-runtime", "ConverseStream", ConnectionResetError("reset"), times=2
    ),
    "no storage": lambda service: service.cloud.fail("s3", "PutObject", "SlowDown", function="worker", times=3),
}


@pytest.mark.parametrize("kind", ["completion", "summary"])
@pytest.mark.parametrize("trouble", TROUBLE)
def test_prompts_and_answers_are_secret(
    service: Service,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    lines: Callable[[], str],
    kind: str,
    trouble: str,
) -> None:
    """No line of a log, attribute of a message or event has a word of prompt or answer, but result and error."""
    says(monkeypatch, service, f"{ANSWER} ", "is the answer.")
    TROUBLE[trouble](service)
    given = (
        {"prompt": f"Say {PROMPT}."} if kind == "completion" else {"text": f"The {PROMPT} is an instrument. " * 20}
    )
    job = finished(service, post(service, kind, **given).json()["job_id"])
    assert job["status"] in ("completed", "failed")
    of_moto = "Exception=FailureEventException"  # what the simulated Step Functions log
    own = [line for line in lines().splitlines() if not line.startswith(of_moto)]
    for word in (PROMPT, ANSWER):
        assert word not in "".join(own), next(line[:1500] for line in own if word in line)
    sent = [call.params for call in service.cloud.calls.log if call.service in ("sns", "sqs", "stepfunctions")]
    attributes = [
        params.get(name) for params in sent for name in ("MessageAttributes", "Subject", "MessageGroupId")
    ]
    assert PROMPT not in json.dumps(attributes) + "".join(map(str, attributes))
    for event in service.events(job["job_id"]):
        event.pop("error", None)
        assert PROMPT not in json.dumps(event)
        assert (ANSWER in json.dumps(event)) == (event["event"] == f"{kind}.completed")


def canceled_with_text(service: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """A completion that was canceled when the model had begun to answer."""
    job_ids: list[str] = []

    def stream(params: dict[str, Any]) -> dict[str, Any]:
        def cancel() -> None:
            threading.Event().wait(0.2)  # real time: the function reads what has come
            service.cancel(job_ids[0])
            service.cloud.clock.advance(2)

        events = bedrock.stream_events(params)
        return {"stream": bedrock.Stream([*events[:4], cancel, *events[4:]])}

    monkeypatch.setitem(service.cloud.calls.answers, STREAM, stream)
    job_ids.append(ask(service, f"Say {PROMPT} and more."))
    service.cloud.settle(within=60)
    return job_ids[0]


def test_deleted_completion(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting a job erases its prompt, the text that had come, and its usage."""
    job_id = canceled_with_text(service, monkeypatch)
    assert service.job(job_id)["usage"]["partial_text"].startswith("You said:")
    assert service.keys(f"inputs/ana/{job_id}")
    deleted(service, job_id)
    assert_gone(service, job_id)


def test_sample_is_labelled(service: Service) -> None:
    """A sample is labelled in the result and in the event, and no real answer is."""
    real = {kind: post(service, kind, **given).json()["job_id"] for kind, given in INPUTS.items()}
    with service.paused_reaper():
        service.cloud.settle(within=HOUR)
    fails(service, "ServiceUnavailableException", "down")
    sampled = {
        kind: post(service, kind, **given, allow_sample=True).json()["job_id"] for kind, given in INPUTS.items()
    }
    with service.paused_reaper():
        service.cloud.settle(within=4 * HOUR)
    for jobs, is_sample in ((real, True), (sampled, True)):
        for kind, job_id in jobs.items():
            result, ended = service.job(job_id)["result"], service.events(job_id)[-1]
            expected = jobs is sampled and is_sample
            assert (result["sample"], ended["sample"], result["model"] == "sample") == (expected,) * 3, kind


INPUTS = {"completion": {"prompt": "Hello."}, "summary": {"text": "A short text."}}


# ── owners beside each other ─────────────────────────────────────────────────────────────────────────────────


def test_poisonous_prompts(service: Service) -> None:
    """Prompts of one owner that make the provider fail do not keep the jobs of another from running."""
    ben = Service(service.cloud, owner="ben")
    fails(service, "ServiceUnavailableException", "crash", when=lambda call: "poison" in json.dumps(call.params))
    poisonous = [ask(service, f"poison {number}") for number in range(6)]
    with service.paused_reaper():
        service.cloud.settle(within=60)
        assert service.rows("PROVIDER#bedrock")["CIRCUIT"]["open_until"]
        good = [ask(ben, f"good {number}") for number in range(3)]
        service.cloud.settle(within=30)
    assert {ben.job(job_id)["status"] for job_id in good} == {"completed"}
    assert "completed" not in {service.job(job_id)["status"] for job_id in poisonous}


def test_many_jobs_of_one_owner(service: Service, knob: Knob) -> None:
    """Behind a rate limit, the few jobs of one owner do not wait for the many of another."""
    for function in ("Worker", "Api"):
        knob(function, MODELS=json.dumps({MODEL: {"requests": "1/s"}}))
    for _ in range(10):
        ask(service, "Say ana.")
    ben = Service(service.cloud, owner="ben")
    few = [ask(ben, "Say ben.") for _ in range(2)]
    with service.paused_reaper():
        service.cloud.settle(within=60)
    assert {ben.job(job_id)["status"] for job_id in few} == {"completed"}
    order = ["ben" in json.dumps(call.params["messages"]) for call in calls(service)]
    assert (len(order), sum(order)) == (12, 2)
    assert sum(order[:7]) == 2


class Silent:
    """A provider whose answers never come."""

    name = "bedrock"

    def call(self, request: ModelRequest, *, seconds: float) -> Answer:
        def wait(connection: Connection) -> Iterator[Any]:
            closed = threading.Event()
            connection.opened(closed.set)
            yield TextPart("One ")
            closed.wait(10)

        return RunningCall(wait, seconds=seconds)


def test_many_canceled_at_once(dynamodb: Any, jobs_table: str) -> None:
    """Fifty running calls that are canceled at once end, and leave nothing behind that blocks the next one."""
    gate = ModelGate(Circuits(dynamodb, jobs_table), RateLimiter(dynamodb, jobs_table))
    places, usage = ModelCalls(dynamodb, jobs_table, per_owner=50), UsageStore(dynamodb, jobs_table)
    caller = ModelCaller(lambda name: Silent(), gate, places, MemoryBlobs(), usage)
    model, running, canceled, ends = Model(name=MODEL), threading.Barrier(51), threading.Event(), list[Exception]()
    request = ModelRequest(model=model.id, messages=[Message(role="user", content="Hello.")], max_tokens=9)

    def require_open() -> None:
        if canceled.is_set():
            raise JobClosed("canceled")

    def call() -> None:
        options: dict[str, Any] = {"require_open": require_open, "seconds_left": lambda: 60.0, "name": "one"}
        try:
            caller.call(job(), model, request, on_text=lambda text: running.wait() and None, **options)
        except Exception as error:
            ends.append(error)

    threads = [threading.Thread(target=call) for _ in range(50)]
    for thread in threads:
        thread.start()
    running.wait(20)
    assert caller.admit(job(), model, tokens=9) is not None
    canceled.set()
    for thread in threads:
        thread.join(20)
    assert [type(error) for error in ends] == [JobClosed] * 50
    left = {item["sk"] for item in dynamodb.scan(TableName=jobs_table)["Items"]}
    assert left == {"USAGE"}
    assert caller.admit(job(), model, tokens=9) is None
