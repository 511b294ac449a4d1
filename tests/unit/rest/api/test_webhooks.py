from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, get_args

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from core import ids
from core.dependencies import Dependencies
from core.events import timestamp
from core.webhooks import models
from core.webhooks.deliveries import formats
from core.webhooks.deliveries.health import AttemptOutcome
from core.webhooks.deliveries.model import STATUSES, UNSENT, host_destination
from core.webhooks.endpoints.model import MAX_OLD_KEYS, Endpoint
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
URL = "https://example.com/hook?token=t"
HOOK = {"url": URL, "events": ["document.*"]}
EVERYTHING = HOOK | {
    "filter": {"document_id": [{"prefix": "a"}], "chunks": [{"numeric": [">", 1.5]}]},
    "description": "Año 👩‍🚀",
    "headers": {"Authorization": "Bearer s3same"},
    "rate_limit": 2.5,
    "format": "cloudevents",
    "ordered": True,
}
UNKNOWN = "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"
SINCE, NOW = "2026-11-29T08:00:00Z", "2026-11-30T09:00:00.000Z"


def made(api: Api, body: Any = HOOK, **options: Any) -> dict[str, Any]:
    answer = api("POST", "/webhooks", body, **options)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


def endpoint(deployed: Dependencies, webhook_id: str, owner: str = "ana") -> Endpoint:
    return deployed.endpoints.get(owner, webhook_id)


def secret_of(length: int) -> str:
    return "whsec_" + b64encode(bytes(range(length))).decode()


@pytest.fixture
def webhook_id(api: Api) -> str:
    """The id of an endpoint with all fields set."""
    found: str = made(api, EVERYTHING)["webhook_id"]
    return found


@pytest.fixture
def stopped_clock() -> Iterator[time_machine.Traveller]:
    """A clock that only tests advance."""
    with time_machine.travel(datetime.fromisoformat(NOW), tick=False) as traveller:
        yield traveller


# ── creation ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_created(api: Api, deployed: Dependencies) -> None:
    """The 201 has the location of the endpoint and the secret that signs."""
    answer = api("POST", "/webhooks", HOOK)
    body = answer.json
    assert (answer.status, answer.headers["location"]) == (201, f"webhooks/{body['webhook_id']}")
    assert answer.headers["cache-control"] == "no-store"
    assert ids.is_id("wh", body["webhook_id"])
    assert deployed.endpoints_with_secrets.secrets(endpoint(deployed, body["webhook_id"])) == [body["secret"]]


def test_defaults(api: Api) -> None:
    """By default there are no filter, headers and rate limit; HMAC, format `recado`, unordered, enabled."""
    body = made(api)
    here = f"https://api.example.com/v1/webhooks/{body['webhook_id']}"
    assert {name: value for name, value in body.items() if name not in ("secret", "created_at", "updated_at")} == {
        "webhook_id": body["webhook_id"],
        **HOOK,
        "filter": None,
        "description": "",
        "headers": {},
        "rate_limit": None,
        "format": "recado",
        "ordered": False,
        "signing": "hmac",
        "enabled": True,
        "disabled_reason": None,
        "disabled_at": None,
        "failing_since": None,
        "circuit": {"state": "closed", "next_probe_at": None},
        "host_circuit": {"state": "closed", "next_probe_at": None},
        "counters": {
            "attempts": 0,
            "delivered": 0,
            "failed": 0,
            "consecutive_failures": 0,
            "last_success_at": None,
            "last_failure_at": None,
        },
        "old_secrets": [],
        "links": {"self": here, "deliveries": f"{here}/deliveries"},
    }


def test_everything(api: Api, deployed: Dependencies, dynamodb: Any, jobs_table: str) -> None:
    """All fields are stored and shown, except for the values of headers."""
    answer = api("POST", "/webhooks", EVERYTHING)
    shown = {name: answer.json[name] for name in EVERYTHING}
    assert shown == EVERYTHING | {"headers": {"authorization": "…"}}
    written = endpoint(deployed, answer.json["webhook_id"])
    assert deployed.endpoints_with_secrets.own_headers(written) == {"authorization": "Bearer s3same"}
    seen = answer.body + api("GET", "/webhooks").body + str(dynamodb.scan(TableName=jobs_table)["Items"])
    assert "s3same" not in seen


def test_no_public_key(api: Api, webhook_id: str) -> None:
    """An endpoint with a shared secret has no public key, and the error says why."""
    refused = problem(api("GET", f"/webhooks/{webhook_id}/public-key"), 404, "not_found")
    assert "hmac" in refused["detail"]


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (secret_of(23), "24 to 64 bytes"),
        (secret_of(65), "24 to 64 bytes"),
        ("", "not empty"),
        (secret_of(32).removeprefix("whsec_"), "starts with 'whsec_'"),
        (secret_of(32) + "\n", "white space"),
        (secret_of(32) + "=", "padding"),
        ("whsk_" + "A" * 86 + "==", "ed25519 private key"),
        ("whsec_" + "-_" * 22, "URL-safe"),
    ],
)
def test_own_secret_is_refused(api: Api, secret: str, reason: str) -> None:
    """An invalid secret is a 422 with the reason, without the secret."""
    for path, body in (("/webhooks", HOOK), ("/webhooks/default/rotate-secret", {})):
        refused = api("POST", path, body | {"secret": secret})
        document = problem(refused, 422, "invalid_request")
        assert document["field"] == "secret"
        assert reason in document["detail"]
        assert not secret[6:] or secret[6:].strip() not in refused.body


def test_no_own_key_for_ed25519(api: Api) -> None:
    """An ed25519 endpoint accepts no key of the caller."""
    asked = HOOK | {"signing": "ed25519", "secret": secret_of(32)}
    assert problem(api("POST", "/webhooks", asked), 422, "invalid_request")["field"] == "secret"
    webhook_id = made(api, HOOK | {"signing": "ed25519"})["webhook_id"]
    refused = api("POST", f"/webhooks/{webhook_id}/rotate-secret", {"secret": secret_of(32)})
    assert problem(refused, 422, "invalid_request")["field"] == "secret"


WRONG = [
    ({"url": "http://example.com"}, "url"),
    ({"url": "https://127.0.0.1/x"}, "url"),
    ({"url": "https://u:p@example.com/"}, "url"),
    ({"url": "https://example.com/" + "x" * 2048}, "url"),
    ({"url": "https://example.com/\ud800"}, "url"),
    ({"url": None}, "url"),
    ({"events": []}, "events"),
    ({"events": ["document.*"] * 51}, "events"),
    ({"events": ["document.nothing"]}, "events.0"),
    ({"events": ["*", "ping"]}, "events.1"),
    ({"events": "document.*"}, "events"),
    ({"events": None}, "events"),
    ({"filter": {}}, "filter"),
    ({"filter": {"a": "b"}}, "filter"),
    ({"filter": {"a": [{"like": "b"}]}}, "filter"),
    ({"filter": {"a": ["\ud800"]}}, "filter"),
    ({"filter": {f"{n:0200}": ["x" * 200] for n in range(50)}}, "filter"),
    ({"filter": []}, "filter"),
    ({"description": "x" * 513}, "description"),
    ({"description": "\ud800"}, "description"),
    ({"description": None}, "description"),
    ({"headers": {"Webhook-Id": "x"}}, "headers"),
    ({"headers": {"X-A": "a\nb"}}, "headers"),
    ({"headers": {"X-A": 1}}, "headers.X-A"),
    ({"rate_limit": 0.09}, "rate_limit"),
    ({"rate_limit": 1000.1}, "rate_limit"),
    ({"rate_limit": "fast"}, "rate_limit"),
    ({"format": "xml"}, "format"),
    ({"format": None}, "format"),
    ({"ordered": "maybe"}, "ordered"),
    ({"ordered": None}, "ordered"),
    ({"owner": "ben"}, "owner"),
]


@pytest.mark.parametrize(
    ("wrong", "field"), [*WRONG, ({"signing": "rsa"}, "signing"), ({"enabled": True}, "enabled")]
)
def test_invalid_requests(api: Api, deployed: Dependencies, wrong: dict[str, Any], field: str) -> None:
    """An invalid request is a 422 with the field, and nothing is written."""
    assert problem(api("POST", "/webhooks", HOOK | wrong), 422, "invalid_request")["field"] == field
    assert deployed.endpoints.of("ana") == []


@pytest.mark.parametrize("missing", ["url", "events"])
def test_required_fields(api: Api, missing: str) -> None:
    """URL and patterns are required."""
    body = {name: value for name, value in HOOK.items() if name != missing}
    assert problem(api("POST", "/webhooks", body), 422, "invalid_request")["field"] == missing


def test_bounds(api: Api) -> None:
    """Values at the limits are accepted."""
    widest = {"events": ["*", "*"], "description": "ñ" * 512, "rate_limit": 0.1}
    body = made(api, HOOK | widest)
    assert (body["events"], body["rate_limit"]) == (["*"], 0.1)
    assert made(api, HOOK | {"rate_limit": 1000})["rate_limit"] == 1000


def test_limit(api: Api) -> None:
    """An owner can have up to the limit of endpoints, without the default one."""
    api("POST", "/webhooks/default/rotate-secret")
    first, *_ = [made(api)["webhook_id"] for _ in range(3)]
    refused = problem(api("POST", "/webhooks", HOOK), 409, "conflict")
    assert "3 endpoints" in refused["detail"]
    assert made(api, owner="ben")
    api("DELETE", f"/webhooks/{first}")
    assert made(api)


def test_enumerations_of_the_models() -> None:
    """The models list the formats and statuses of the code."""
    assert get_args(models.Format) == formats.FORMATS
    assert get_args(models.DeliveryStatus) == STATUSES
    assert set(get_args(models.Recoverable)) < set(UNSENT)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_list(api: Api) -> None:
    """All endpoints of the owner are listed, oldest first, with the default one."""
    first = made(api)["webhook_id"]
    api("POST", "/webhooks/default/rotate-secret")
    last = made(api)["webhook_id"]
    made(api, owner="ben")
    listed = api("GET", "/webhooks").json["webhooks"]
    assert [shown["webhook_id"] for shown in listed] == [first, "default", last]
    assert listed[0] == api("GET", f"/webhooks/{first}").json
    assert api("GET", "/webhooks", owner="eve").json == {"webhooks": []}


def test_long_list(api: Api, deployed: Dependencies) -> None:
    """More endpoints than one read of their health can return are listed, each with its counters."""
    for _ in range(101):
        drafted, _ = deployed.endpoints_with_secrets.draft("ana", url=URL, events=("*",))
        deployed.endpoints.create(drafted)
    counted(deployed, drafted.endpoint_id, 1)
    listed = api("GET", "/webhooks").json["webhooks"]
    assert len(listed) == 101
    assert [s["webhook_id"] for s in listed if s["counters"]["attempts"]] == [drafted.endpoint_id]


def counted(deployed: Dependencies, webhook_id: str, failures: int) -> None:
    """Record so many failures, one second apart."""
    outcomes = [AttemptOutcome(time.time() + n, succeeded=False, ended=True) for n in range(failures)]
    deployed.health.record_outcomes(deployed.health.get("ana", webhook_id), outcomes)


def test_health(api: Api, deployed: Dependencies, webhook_id: str, stopped_clock: Any) -> None:
    """An endpoint shows its counters, since when it fails, and the time of the next probe."""
    counted(deployed, webhook_id, 3)
    shown = api("GET", f"/webhooks/{webhook_id}").json
    assert shown["counters"] == {
        "attempts": 3,
        "delivered": 0,
        "failed": 3,
        "consecutive_failures": 3,
        "last_success_at": None,
        "last_failure_at": "2026-11-30T09:00:02.000Z",
    }
    assert shown["failing_since"] == "2026-11-30T09:00:00.000Z"
    assert shown["circuit"]["state"] == "open"
    assert "2026-11-30T09:00:48" <= shown["circuit"]["next_probe_at"] <= "2026-11-30T09:01:12.001Z"


def test_circuit_of_the_host(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """An endpoint shows the circuit of its host. A new URL releases what the circuit of the old host holds."""
    host = host_destination(api("GET", f"/webhooks/{webhook_id}").json["url"])
    outcomes = [AttemptOutcome(time.time(), False, ended=False)] * 5
    deployed.health.record_outcomes(deployed.health.get("ana", host), outcomes)
    shown = api("GET", f"/webhooks/{webhook_id}").json
    assert (shown["circuit"]["state"], shown["host_circuit"]["state"]) == ("closed", "open")
    assert shown["host_circuit"]["next_probe_at"] > timestamp(time.time())
    changed = api("PATCH", f"/webhooks/{webhook_id}", {"url": "https://other.example.com/"}).json
    assert changed["host_circuit"]["state"] == "closed"
    assert deployed.health.get("ana", host).state == "draining"


def test_default(api: Api) -> None:
    """The default endpoint is shown after a job has created it, without URL and counters."""
    refused = problem(api("GET", "/webhooks/default"), 404, "not_found")
    assert "webhook_url" in refused["detail"]
    assert "rotate-secret" in refused["detail"]
    job = {"kind": "document", "input": {"text": "x"}, "webhook_url": URL}
    secret = api("POST", "/jobs", job).json["webhook_secret"]
    shown = api("GET", "/webhooks/default")
    assert [shown.json[name] for name in ("url", "events", "circuit", "counters")] == [None, [], None, None]
    assert shown.json["enabled"] is True
    assert secret not in shown.body


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"url": "https://example.org/"}, {"circuit": {"state": "draining", "next_probe_at": None}}),
    ({"events": ["*", "*.failed"]}, {}),
    ({"filter": {"a": [1]}}, {}),
    ({"filter": None}, {}),
    ({"description": ""}, {}),
    ({"headers": {"X-Key": "k"}}, {"headers": {"x-key": "…"}}),
    ({"headers": None}, {"headers": {}}),
    ({"rate_limit": 7}, {}),
    ({"rate_limit": None}, {}),
    ({"format": "thin"}, {}),
    ({"ordered": False}, {}),
    ({"enabled": True}, {}),
]


@pytest.mark.parametrize(("change", "shown"), CHANGES, ids=[str(change) for change, _ in CHANGES])
def test_change(
    api: Api, deployed: Dependencies, webhook_id: str, change: dict[str, Any], shown: dict[str, Any]
) -> None:
    """A change of one field leaves the others as they are, also secret and headers."""
    before, stored = api("GET", f"/webhooks/{webhook_id}").json, endpoint(deployed, webhook_id)
    after = api("PATCH", f"/webhooks/{webhook_id}", change)
    assert after.status == 200
    assert after.json == before | change | shown | {"updated_at": after.json["updated_at"]}
    assert api("GET", f"/webhooks/{webhook_id}").json == after.json
    written = endpoint(deployed, webhook_id)
    assert (written.keys, written.version) == (stored.keys, stored.version + 1)
    if "headers" not in change:
        assert written.encrypted_headers == stored.encrypted_headers


@pytest.mark.parametrize(
    ("wrong", "field"), [*WRONG, ({"signing": "ed25519"}, "signing"), ({"enabled": None}, "enabled")]
)
def test_invalid_change(
    api: Api, deployed: Dependencies, webhook_id: str, wrong: dict[str, Any], field: str
) -> None:
    """An invalid change is a 422 with the field, and changes nothing."""
    before = endpoint(deployed, webhook_id)
    assert problem(api("PATCH", f"/webhooks/{webhook_id}", wrong), 422, "invalid_request")["field"] == field
    assert endpoint(deployed, webhook_id) == before


def test_no_change(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """An empty change writes nothing."""
    before = endpoint(deployed, webhook_id)
    assert api("PATCH", f"/webhooks/{webhook_id}", {}).status == 200
    assert endpoint(deployed, webhook_id) == before


def test_two_changes_at_once(api: Api, webhook_id: str) -> None:
    """Two concurrent changes of different fields are both applied."""
    calls = Calls(Clock())
    calls.on(
        "dynamodb", "PutItem", lambda call: api("PATCH", f"/webhooks/{webhook_id}", {"description": "second"})
    )
    with calls.intercepted():
        answer = api("PATCH", f"/webhooks/{webhook_id}", {"rate_limit": 9, "headers": {"X-Key": "k"}})
    assert (answer.json["description"], answer.json["rate_limit"]) == ("second", 9)
    assert api("GET", f"/webhooks/{webhook_id}").json == answer.json
    assert len([call for call in calls.log if call.action == "kms:Encrypt"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"), [("PATCH", "", {"rate_limit": 9}), ("POST", "/rotate-secret", {})]
)
def test_deleted_meanwhile(api: Api, webhook_id: str, method: str, path: str, body: Any) -> None:
    """A change of a deleted endpoint is a 404 and does not create it."""
    calls = Calls(Clock())
    calls.on("dynamodb", "PutItem", lambda call: api("DELETE", f"/webhooks/{webhook_id}"))
    with calls.intercepted():
        problem(api(method, f"/webhooks/{webhook_id}{path}", body), 404, "not_found")
    assert api("GET", "/webhooks").json == {"webhooks": []}


def test_disable_and_enable(api: Api, webhook_id: str, stopped_clock: time_machine.Traveller) -> None:
    """A disabled endpoint shows time and reason, an enabled one does not."""
    path = f"/webhooks/{webhook_id}"

    def switched(enabled: bool) -> tuple[Any, ...]:
        shown = api("PATCH", path, {"enabled": enabled}).json
        return shown["enabled"], shown["disabled_reason"], shown["disabled_at"]

    off = (False, "owner", "2026-11-30T09:00:00.000Z")
    assert switched(False) == off
    stopped_clock.shift(60)
    assert switched(False) == off
    assert switched(True) == (True, None, None)


def test_reason_is_kept(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """An endpoint that was disabled for a reason keeps it until it is enabled."""
    deployed.endpoints.disable(endpoint(deployed, webhook_id), reason="gone", also=[])
    shown = api("PATCH", f"/webhooks/{webhook_id}", {"enabled": False, "description": "d"}).json
    assert (shown["disabled_reason"], shown["description"]) == ("gone", "d")
    assert api("PATCH", f"/webhooks/{webhook_id}", {"enabled": True}).json["disabled_reason"] is None


@pytest.mark.parametrize(
    ("change", "is_drained"),
    [
        ({"url": "https://example.org/"}, True),
        ({"enabled": False}, True),
        ({"url": URL, "enabled": True}, False),
        ({"description": "d", "rate_limit": None, "events": ["*"]}, False),
    ],
)
def test_held_deliveries(
    api: Api, deployed: Dependencies, webhook_id: str, change: dict[str, Any], is_drained: bool
) -> None:
    """A change of URL or `enabled` drains an open circuit; other changes do not."""
    counted(deployed, webhook_id, 3)
    shown = api("PATCH", f"/webhooks/{webhook_id}", change).json
    assert shown["circuit"]["state"] == ("draining" if is_drained else "open")
    assert (shown["failing_since"] is None) == is_drained
    assert shown["counters"]["failed"] == 3


def test_change_of_the_default(api: Api) -> None:
    """Description and `enabled` of the default endpoint can be changed, other fields cannot."""
    problem(api("PATCH", "/webhooks/default", {"description": "d"}), 404, "not_found")
    api("POST", "/webhooks/default/rotate-secret")
    shown = api("PATCH", "/webhooks/default", {"description": "d", "enabled": False}).json
    assert (shown["description"], shown["disabled_reason"]) == ("d", "owner")
    for name in ("url", "events", "filter", "headers", "rate_limit", "format", "ordered"):
        refused = problem(api("PATCH", "/webhooks/default", {name: EVERYTHING[name]}), 422, "invalid_request")
        assert refused["field"] == name
        assert "POST /webhooks" in refused["detail"]


def test_delete(api: Api, deployed: Dependencies, webhook_id: str, dynamodb: Any, deliveries_table: str) -> None:
    """A deleted endpoint is a 404, its circuit drains and its health expires."""
    counted(deployed, webhook_id, 3)
    answer = api("DELETE", f"/webhooks/{webhook_id}")
    assert (answer.status, answer.body) == (204, "")
    assert api("GET", "/webhooks").json == {"webhooks": []}
    problem(api("DELETE", f"/webhooks/{webhook_id}"), 404, "not_found")
    assert deployed.health.get("ana", webhook_id).state == "draining"
    (item,) = dynamodb.scan(TableName=deliveries_table)["Items"]
    assert int(item["expires_at"]) == pytest.approx(time.time() + 90 * 86_400, abs=60)


def test_delete_the_default(api: Api, deployed: Dependencies) -> None:
    """After the default endpoint is deleted, the next job with a webhook gets a new secret."""
    job = {"kind": "document", "input": {"text": "x"}, "webhook_url": URL}
    first = api("POST", "/jobs", job).json["webhook_secret"]
    assert api("DELETE", "/webhooks/default").status == 204
    problem(api("GET", "/webhooks/default"), 404, "not_found")
    second = api("POST", "/jobs", job).json["webhook_secret"]
    assert second.startswith("whsec_")
    assert "…" not in second
    assert second != first
    assert deployed.endpoints_with_secrets.secrets(endpoint(deployed, "default")) == [second]


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("grace", "old"), [(0, []), (1, ["2026-11-30T09:00:01.000Z"]), (604_800, ["2026-12-07T09:00:00.000Z"])]
)
def test_grace(api: Api, webhook_id: str, stopped_clock: Any, grace: int, old: list[str]) -> None:
    """The old secret signs for the given seconds, from 0 to a week."""
    shown = api("POST", f"/webhooks/{webhook_id}/rotate-secret", {"grace_seconds": grace}).json
    assert [secret["expires_at"] for secret in shown["old_secrets"]] == old


@pytest.mark.parametrize("grace", [-1, 604_801, 1.5, None, "soon"])
def test_invalid_grace(api: Api, deployed: Dependencies, webhook_id: str, grace: Any) -> None:
    """An invalid grace period is refused with the field, and the secret stays."""
    before = endpoint(deployed, webhook_id)
    refused = api("POST", f"/webhooks/{webhook_id}/rotate-secret", {"grace_seconds": grace})
    assert problem(refused, 422, "invalid_request")["field"] == "grace_seconds"
    assert endpoint(deployed, webhook_id) == before


def test_too_many_old_secrets(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """Ten old secrets can be valid. Another rotation is refused, and the current secret stays."""
    path = f"/webhooks/{webhook_id}/rotate-secret"
    answers = [api("POST", path) for _ in range(MAX_OLD_KEYS)]
    assert len(answers[-1].json["old_secrets"]) == MAX_OLD_KEYS
    problem(api("POST", path), 409, "conflict")
    secrets = deployed.endpoints_with_secrets.secrets(endpoint(deployed, webhook_id))
    assert (secrets[0], len(secrets)) == (answers[-1].json["secret"], MAX_OLD_KEYS + 1)


def test_rotation_of_ed25519(api: Api, stopped_clock: Any) -> None:
    """A rotated pair shows the new public key. Both keys verify until the old one expires."""
    body = made(api, HOOK | {"signing": "ed25519"})
    shown = api("POST", f"/webhooks/{body['webhook_id']}/rotate-secret").json
    assert "secret" not in shown
    assert shown["public_key"] != body["public_key"]
    assert api("GET", f"/webhooks/{body['webhook_id']}/public-key").json["keys"] == [
        {"public_key": shown["public_key"], "current": True, "expires_at": None},
        {"public_key": body["public_key"], "current": False, "expires_at": "2026-12-01T09:00:00.000Z"},
    ]


def test_two_first_secrets_at_once(api: Api, deployed: Dependencies) -> None:
    """Of two concurrent first rotations the second one rotates the secret of the first, and both sign."""
    calls, answers = Calls(Clock()), []
    calls.on("dynamodb", "PutItem", lambda call: answers.append(api("POST", "/webhooks/default/rotate-secret")))
    with calls.intercepted():
        answers.append(api("POST", "/webhooks/default/rotate-secret"))
    faster, slower = (answer.json["secret"] for answer in answers)
    assert deployed.endpoints_with_secrets.secrets(endpoint(deployed, "default")) == [slower, faster]


def test_secrets_are_shown_once(api: Api, dynamodb: Any, jobs_table: str) -> None:
    """Only the response that creates a secret contains it, and the table does not."""
    body = made(api)
    path, secrets = f"/webhooks/{body['webhook_id']}", [body["secret"]]
    secrets.append(api("POST", f"{path}/rotate-secret").json["secret"])
    secrets.append(api("POST", "/webhooks/default/rotate-secret").json["secret"])
    later = [
        api("GET", p) for p in ("/webhooks", path, f"{path}/deliveries", "/webhooks/default", "/webhooks/events")
    ]
    later += [api("PATCH", path, {"description": "d"}), api("POST", f"{path}/recover", {"since": SINCE})]
    later += [api("DELETE", path)]
    assert all(answer.status < 300 for answer in later)
    seen = "".join(answer.body for answer in later) + str(dynamodb.scan(TableName=jobs_table)["Items"])
    assert not [secret for secret in secrets if secret in seen or secret.removeprefix("whsec_") in seen]


def test_body_of_a_rotation(api: Api, webhook_id: str) -> None:
    """A rotation needs no body, and refuses one that is not an object."""
    path = f"/webhooks/{webhook_id}/rotate-secret"
    for body in (None, "", "{}", "null"):
        assert api("POST", path, body).status == 200, json.dumps(body)
    for body in ("[]", "1", "{"):
        problem(api("POST", path, body), 422, "invalid_request")


# ── the owner's events ───────────────────────────────────────────────────────────────────────────────────────


def test_events(api: Api, deployed: Dependencies) -> None:
    """The owner's events are returned as they were written, newest first, page by page."""
    written = [deployed.owner_log.append("ana", "ping", endpoint_id=UNKNOWN, number=n) for n in range(3)]
    deployed.owner_log.append("ben", "ping", endpoint_id=UNKNOWN)
    first = api("GET", "/webhooks/events", query={"limit": "2"}).json
    rest = api("GET", "/webhooks/events", query={"limit": "2", "cursor": first["cursor"]}).json
    assert [event["event_id"] for event in first["events"] + rest["events"]] == written[::-1]
    assert rest["cursor"] is None
    newest = first["events"][0]
    assert (newest["event"], newest["endpoint_id"], newest["number"]) == ("ping", UNKNOWN, 2)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": UNKNOWN}, "cursor"),
    ],
)
def test_invalid_page_of_events(api: Api, query: dict[str, str], field: str) -> None:
    """An invalid page is refused with the parameter."""
    assert problem(api("GET", "/webhooks/events", query=query), 422, "invalid_request")["field"] == field


# ── recover and replay ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("route", "asked", "wanted"),
    [
        ("recover", {}, {"mode": "recover", "statuses": ["failed", "discarded"], "events": []}),
        ("recover", {"status": ["discarded"]}, {"mode": "recover", "statuses": ["discarded"], "events": []}),
        ("replay", {}, {"mode": "replay", "statuses": [], "events": ["document.*"]}),
        ("replay", {"events": ["*"]}, {"mode": "replay", "statuses": [], "events": ["*"]}),
    ],
)
def test_recover_and_replay(
    api: Api, deployed: Dependencies, webhook_id: str, stopped_clock: Any, route: str, asked: Any, wanted: Any
) -> None:
    """The 202 has the location of a job with the request's values, until now."""
    answer = api("POST", f"/webhooks/{webhook_id}/{route}", {"since": SINCE} | asked)
    assert answer.status == 202, answer
    job = deployed.jobs.get(answer.json["job_id"], owner="ana")
    assert answer.headers["location"] == f"../../jobs/{job.job_id}"
    assert (job.kind, answer.json["webhook_id"]) == ("replay", webhook_id)
    assert job.input == {"webhook_id": webhook_id, "since": "2026-11-29T08:00:00.000Z", "until": NOW} | wanted


WRONG_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({}, "since"),
    ({"since": "2026-11-30T09:00:00.001Z"}, "since"),
    ({"since": SINCE, "until": SINCE}, "since"),
    ({"since": SINCE, "until": "2026-11-29T07:00:00Z"}, "since"),
    ({"since": SINCE, "until": "2026-11-30T09:00:00.001Z"}, "until"),
    ({"since": "yesterday"}, "since"),
    ({"since": "2026-11-29"}, "since"),
    ({"since": "2026-11-29T08:00:00"}, "since"),
    ({"since": "2026-02-30T08:00:00Z"}, "since"),
    ({"since": "0001-01-01T00:00:00+23:59"}, "since"),
    ({"since": SINCE, "colour": "red"}, "colour"),
]


@pytest.mark.parametrize("route", ["recover", "replay"])
@pytest.mark.parametrize(("asked", "field"), WRONG_WINDOWS)
def test_invalid_window(
    api: Api,
    deployed: Dependencies,
    webhook_id: str,
    stopped_clock: Any,
    route: str,
    asked: dict[str, Any],
    field: str,
) -> None:
    """An invalid time window is refused with the field, and no job is created."""
    refused = api("POST", f"/webhooks/{webhook_id}/{route}", asked)
    assert problem(refused, 422, "invalid_request")["field"] == field
    assert deployed.jobs.listing.page("ana") == ([], None)


@pytest.mark.parametrize(
    ("route", "asked", "field"),
    [
        ("recover", {"status": []}, "status"),
        ("recover", {"status": ["canceled"]}, "status.0"),
        ("replay", {"events": []}, "events"),
        ("replay", {"events": ["nothing"]}, "events.0"),
    ],
)
def test_invalid_status_or_pattern(
    api: Api, webhook_id: str, route: str, asked: dict[str, Any], field: str
) -> None:
    """An unknown status or pattern is refused with the field."""
    refused = api("POST", f"/webhooks/{webhook_id}/{route}", {"since": SINCE} | asked)
    assert problem(refused, 422, "invalid_request")["field"] == field


@pytest.mark.parametrize("route", ["recover", "replay"])
@pytest.mark.parametrize("until", [{}, {"until": "2026-11-29T09:00:00Z"}], ids=["now", "until"])
def test_idempotency_key(
    api: Api, webhook_id: str, stopped_clock: time_machine.Traveller, route: str, until: dict[str, str]
) -> None:
    """An idempotency key creates one job per request, also later without `until`."""
    path, headers = f"/webhooks/{webhook_id}/{route}", {"Idempotency-Key": "k"}
    first = api("POST", path, {"since": SINCE} | until, headers=headers)
    stopped_clock.shift(60)
    second = api("POST", path, {"since": SINCE} | until, headers=headers)
    assert first.json["job_id"] == second.json["job_id"]
    assert second.headers["idempotent-replayed"] == "true"
    other = api("POST", path, {"since": "2026-11-29T08:00:01Z"}, headers=headers)
    assert problem(other, 422, "invalid_request")["field"] == "Idempotency-Key"


def test_retry_of_a_replay(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """A canceled replay is retried for the same time window."""
    job_id = api("POST", f"/webhooks/{webhook_id}/replay", {"since": SINCE}).json["job_id"]
    api("POST", f"/jobs/{job_id}/cancel")
    again = api("POST", f"/jobs/{job_id}/retry").json
    assert (again["kind"], again["retry_of"], again["webhook_id"]) == ("replay", job_id, webhook_id)
    assert deployed.jobs.get(again["job_id"]).input == deployed.jobs.get(job_id).input
    assert [event.name for event in deployed.jobs.log.read(again["job_id"])] == ["replay.requested"]


@pytest.mark.parametrize("route", ["recover", "replay"])
def test_not_while_disabled(api: Api, deployed: Dependencies, webhook_id: str, route: str) -> None:
    """A disabled endpoint refuses recover and replay."""
    api("PATCH", f"/webhooks/{webhook_id}", {"enabled": False})
    refused = problem(api("POST", f"/webhooks/{webhook_id}/{route}", {"since": SINCE}), 409, "conflict")
    assert "enabled: true" in refused["detail"]
    assert deployed.jobs.listing.page("ana") == ([], None)


def test_recover_the_default(api: Api) -> None:
    """Deliveries of the default endpoint can be recovered; events cannot be replayed to it."""
    api("POST", "/webhooks/default/rotate-secret")
    assert api("POST", "/webhooks/default/recover", {"since": SINCE}).status == 202
    refused = problem(api("POST", "/webhooks/default/replay", {"since": SINCE}), 409, "conflict")
    assert "Recover" in refused["detail"]


MOMENT: TypeAdapter[str] = TypeAdapter(models.Moment)


@given(
    st.datetimes(datetime(1000, 1, 2), datetime(9998, 12, 30)),  # noqa: DTZ001 the offset comes with the text
    st.integers(-1439, 1439),
)
def test_any_offset(moment: datetime, offset: int) -> None:
    """A time in any offset is the same time in UTC, truncated to milliseconds."""
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    text = f"{moment.isoformat(timespec='microseconds')}{sign}{minutes // 60:02}:{minutes % 60:02}"
    kept = datetime.fromisoformat(MOMENT.validate_python(text))
    assert timedelta(0) <= datetime.fromisoformat(text) - kept < timedelta(milliseconds=1)


@given(
    st.text()
    | st.from_regex(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-6]\d:[0-6]\d(\.\d+)?(Z|[+-]\d\d:\d\d)", fullmatch=True)
)
def test_any_text_for_a_time(text: str) -> None:
    """Any text is a time in the form of events, or refused."""
    try:
        kept = MOMENT.validate_python(text)
    except ValidationError:
        return
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", kept)
    assert datetime.fromisoformat(kept)
