from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.errors import Conflict, Contended, NotFound
from core.webhooks.endpoints.cipher import SecretCipher
from core.webhooks.endpoints.model import DEFAULT, MAX_OLD_KEYS, Endpoint, Key, rotated
from core.webhooks.endpoints.store import Endpoints
from core.webhooks.transport import signing
from tests.simulated_cloud.calls import Calls, transaction_canceled
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import NOW, FakeClock

URL = "https://example.com/hook"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cipher(kms: Any, secrets_key: str) -> SecretCipher:
    return SecretCipher(kms, secrets_key)


@pytest.fixture
def endpoints(dynamodb: Any, jobs_table: str, cipher: SecretCipher, clock: FakeClock) -> Endpoints:
    return Endpoints(dynamodb, jobs_table, cipher, clock=clock)


@pytest.fixture
def calls() -> Any:
    calls = Calls(Clock())
    with calls.intercepted():
        yield calls


def drafted(endpoints: Endpoints, owner: str = "ana", **facts: Any) -> tuple[Endpoint, str | None]:
    endpoint, secret = endpoints.draft(owner, **{"url": URL, "events": ("document.*",)} | facts)
    endpoints.create(endpoint)
    return endpoint, secret


def created(endpoints: Endpoints, owner: str = "ana", **facts: Any) -> Endpoint:
    return drafted(endpoints, owner, **facts)[0]


def now(endpoints: Endpoints, endpoint: Endpoint) -> Endpoint:
    return endpoints.get(endpoint.owner, endpoint.endpoint_id)


def key(**facts: Any) -> Key:
    return Key(**{"encrypted": b"encrypted"} | facts)


def endpoint(*keys: Key) -> Endpoint:
    return Endpoint(endpoint_id="wh_1", owner="ana", keys=keys, created_at="", updated_at="")


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_round_trip(endpoints: Endpoints) -> None:
    """An endpoint is read as it was written, with floats, order and empty fields."""
    facts: dict[str, Any] = {
        "events": ("document.failed", "*.canceled"),
        "filter": {"chunks": [{"numeric": [">=", 1.5]}], "error": {"code": [None, True, ""]}},
        "description": "",
        "rate_limit": 0.1,
        "format": "cloudevents",
        "signing": "hmac",
        "ordered": True,
        "headers": {"x-b": "2", "authorization": "Bearer token"},
    }
    made = created(endpoints, **facts)
    found = now(endpoints, made)
    assert found == made
    assert found.headers == ("x-b", "authorization")
    assert (found.version, found.enabled, found.created_at) == (1, True, events.timestamp(NOW))
    bare = created(endpoints)
    assert now(endpoints, bare) == bare


def test_all_of_an_owner(endpoints: Endpoints, dynamodb: Any, jobs_table: str) -> None:
    """An owner's endpoints are listed in the order of their creation, with the default one."""
    made = [created(endpoints) for _ in range(3)]
    created(endpoints, "ben")
    _, operation = endpoints.draft_default("ana")
    dynamodb.put_item(**operation["Put"])
    dynamodb.put_item(TableName=jobs_table, Item={"pk": "OWNER#ana", "sk": "EVENT#evt_1"})
    found = endpoints.of("ana")
    assert [each for each in found if not each.is_default] == made
    assert [each.endpoint_id for each in found if each.is_default] == [DEFAULT]


@pytest.mark.parametrize("endpoint_id", ["", "wh_1", "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C", "default", "EVENT#1"])
def test_missing(endpoints: Endpoints, endpoint_id: str) -> None:
    """An unknown or malformed id is NotFound, with what to do."""
    with pytest.raises(NotFound, match=r"GET /webhooks|POST /webhooks/default"):
        endpoints.get("ana", endpoint_id)


def test_of_another_owner(endpoints: Endpoints) -> None:
    """Another owner's endpoint is NotFound."""
    made = created(endpoints)
    with pytest.raises(NotFound):
        endpoints.get("ben", made.endpoint_id)
    assert not endpoints.delete("ben", made.endpoint_id)


def test_create_twice(endpoints: Endpoints) -> None:
    """An existing endpoint cannot be created again."""
    made = created(endpoints)
    with pytest.raises(Conflict):
        endpoints.create(made)


def test_delete(endpoints: Endpoints) -> None:
    """A deleted endpoint does not exist, and cannot be deleted again."""
    made = created(endpoints)
    assert endpoints.delete("ana", made.endpoint_id)
    assert endpoints.find("ana", made.endpoint_id) is None
    assert not endpoints.delete("ana", made.endpoint_id)


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_change(endpoints: Endpoints, clock: FakeClock) -> None:
    """A change is written as the next version, with its time."""
    made = created(endpoints)
    clock.now += 5
    changed = endpoints.change("ana", made.endpoint_id, lambda each: replace(each, description="new"))
    assert changed == now(endpoints, made)
    assert changed == replace(made, description="new", version=2, updated_at=events.timestamp(NOW + 5))


def test_change_a_deleted_endpoint(endpoints: Endpoints) -> None:
    """A change of a deleted endpoint returns None and creates nothing."""
    made = created(endpoints)

    def deleting(each: Endpoint) -> Endpoint:
        endpoints.delete("ana", made.endpoint_id)
        return each

    assert endpoints.change("ana", made.endpoint_id, deleting) is None
    assert endpoints.find("ana", made.endpoint_id) is None


def test_two_changes_at_once(endpoints: Endpoints) -> None:
    """Two concurrent changes are both applied."""
    made = created(endpoints)
    first = True

    def slow(each: Endpoint) -> Endpoint:
        nonlocal first
        if first:
            first = False
            endpoints.change("ana", made.endpoint_id, lambda it: replace(it, description="theirs"))
        return replace(each, rate_limit=2.0)

    endpoints.change("ana", made.endpoint_id, slow)
    found = now(endpoints, made)
    assert (found.description, found.rate_limit, found.version) == ("theirs", 2.0, 3)


def test_many_changes_at_once(endpoints: Endpoints, calls: Calls) -> None:
    """Concurrent rotations keep each key once."""
    made = created(endpoints)

    def rotate(number: int) -> None:
        for _ in range(10):
            try:
                endpoints.change("ana", made.endpoint_id, with_key(number))
                return
            except Contended:
                continue
        raise AssertionError("never written")

    def with_key(number: int) -> Callable[[Endpoint], Endpoint]:
        new = Key(encrypted=str(number).encode())
        return lambda each: rotated(each, new, grace_seconds=60, now=NOW)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(rotate, range(8)))
    found = now(endpoints, made)
    assert sorted(each.encrypted for each in found.keys if each.encrypted != made.keys[0].encrypted) == [
        str(number).encode() for number in range(8)
    ]
    assert found.version == 9


def test_a_change_while_it_is_being_disabled(endpoints: Endpoints, calls: Calls) -> None:
    """A change that conflicts with a transaction is applied after it."""
    made = created(endpoints)
    calls.fail("dynamodb", "PutItem", "TransactionConflictException", times=2)
    assert endpoints.change("ana", made.endpoint_id, lambda each: replace(each, description="new"))
    assert now(endpoints, made).description == "new"


def test_too_many_changes(endpoints: Endpoints, calls: Calls) -> None:
    """After too many conflicts a change raises Contended, and can be retried."""
    made = created(endpoints)
    calls.fail("dynamodb", "PutItem", "ConditionalCheckFailedException", times=None)
    with pytest.raises(Contended):
        endpoints.change("ana", made.endpoint_id, lambda each: each)


# ── disabling ────────────────────────────────────────────────────────────────────────────────────────────────


def note(table: str, sk: str = "EVENT#evt_1") -> dict[str, Any]:
    return {"Put": {"TableName": table, "Item": {"pk": "OWNER#ana", "sk": sk}}}


def test_disable(endpoints: Endpoints, clock: FakeClock, dynamodb: Any, jobs_table: str) -> None:
    """Disabling an endpoint stores reason and time, and the caller's writes in the same transaction."""
    made = created(endpoints)
    clock.now += 5
    assert endpoints.disable(made, reason="gone", also=[note(jobs_table)])
    found = now(endpoints, made)
    at = events.timestamp(NOW + 5)
    assert found == replace(made, enabled=False, disabled_reason="gone", disabled_at=at, updated_at=at, version=2)
    assert "Item" in dynamodb.get_item(TableName=jobs_table, Key={"pk": "OWNER#ana", "sk": "EVENT#evt_1"})


def test_disable_once(endpoints: Endpoints, dynamodb: Any, jobs_table: str, calls: Calls) -> None:
    """Of 20 concurrent calls one disables the endpoint, and one event is written."""
    made = created(endpoints)

    def disable(number: int) -> bool:
        return endpoints.disable(made, reason="failing", also=[note(jobs_table, f"EVENT#evt_{number}")])

    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(disable, range(20))) == [False] * 19 + [True]
    items = dynamodb.scan(TableName=jobs_table)["Items"]
    assert len([item for item in items if item["sk"].startswith("EVENT#")]) == 1


def test_disable_a_changed_endpoint(endpoints: Endpoints, jobs_table: str) -> None:
    """An endpoint that has changed since it was read is not disabled."""
    made = created(endpoints)
    endpoints.change("ana", made.endpoint_id, lambda each: replace(each, url=URL + "2"))
    assert not endpoints.disable(made, reason="gone", also=[note(jobs_table)])
    assert now(endpoints, made).enabled


def test_disable_a_deleted_endpoint(endpoints: Endpoints, jobs_table: str) -> None:
    """Disabling a deleted endpoint does not create it again."""
    made = created(endpoints)
    endpoints.delete("ana", made.endpoint_id)
    assert not endpoints.disable(made, reason="gone", also=[note(jobs_table)])
    assert endpoints.find("ana", made.endpoint_id) is None


def test_disable_during_a_transaction(endpoints: Endpoints, jobs_table: str, calls: Calls) -> None:
    """During another transaction disabling raises Contended, and can be retried."""
    made = created(endpoints)
    calls.fail("dynamodb", "TransactWriteItems", transaction_canceled("TransactionConflict"))
    with pytest.raises(Contended):
        endpoints.disable(made, reason="gone", also=[note(jobs_table)])
    assert endpoints.disable(made, reason="gone", also=[note(jobs_table)])


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────


@given(grace=st.integers(1, 604_800), moment=st.floats(0, 10**9))
def test_expiry_is_exact(grace: int, moment: float) -> None:
    """An old key is valid until its expiry and not at it. The grace period is exact to the second."""
    first, second = key(), key(encrypted=b"second")
    found = rotated(endpoint(first), second, grace_seconds=grace, now=moment)
    (current, old) = found.keys
    assert current == second
    assert old.expires_at is not None
    assert moment + grace - 1 < old.expires_at <= moment + grace
    assert found.valid_keys(old.expires_at - 0.001) == [current, old]
    assert found.valid_keys(old.expires_at) == [current]


def test_no_grace() -> None:
    """Without grace the key before is invalid at once. Older keys keep their expiry."""
    first = rotated(endpoint(key()), key(encrypted=b"2"), grace_seconds=60, now=0)
    second = rotated(first, key(encrypted=b"3"), grace_seconds=0, now=1)
    assert [each.encrypted for each in second.valid_keys(2)] == [b"3", b"encrypted"]
    assert [each.encrypted for each in second.valid_keys(60)] == [b"3"]


def test_ten_old_keys() -> None:
    """Ten old keys can be valid. Another one needs no grace, or an expired key."""
    found = endpoint(key())
    for number in range(MAX_OLD_KEYS):
        found = rotated(found, key(encrypted=str(number).encode()), grace_seconds=60 + number, now=0)
    assert len(found.valid_keys(0)) == 1 + MAX_OLD_KEYS
    with pytest.raises(Conflict, match="expires"):
        rotated(found, key(encrypted=b"new"), grace_seconds=1, now=59)
    assert rotated(found, key(encrypted=b"new"), grace_seconds=0, now=59).keys[0].encrypted == b"new"
    assert len(rotated(found, key(encrypted=b"new"), grace_seconds=1, now=60).keys) == 1 + MAX_OLD_KEYS


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=40))
def test_rotations(steps: list[tuple[int, int]]) -> None:
    """After any rotations the newest key is the current one, followed by at most ten old ones, newest first."""
    found, clock, made = endpoint(key(encrypted=b"0")), 0.0, 0
    promised = {}
    for pause, grace in steps:
        clock += pause
        old = {each.encrypted: each.expires_at for each in found.valid_keys(clock)[1:]}
        assert old == {encrypted: expiry for encrypted, expiry in promised.items() if expiry > clock}
        current = found.keys[0].encrypted
        try:
            found = rotated(found, key(encrypted=str(made + 1).encode()), grace_seconds=grace, now=clock)
        except Conflict:
            assert len(old) == MAX_OLD_KEYS
            assert grace > 0
            continue
        made += 1
        if grace:
            promised[current] = int(clock) + grace
        numbers = [int(each.encrypted) for each in found.keys]
        assert numbers[0] == made
        assert numbers == sorted(numbers, reverse=True)
        assert len(numbers) <= 1 + MAX_OLD_KEYS


def test_secrets(endpoints: Endpoints, clock: FakeClock) -> None:
    """Decrypted secrets are those that were shown, the current one first, an old one until its expiry."""
    made, first = drafted(endpoints)
    new, second = endpoints.make_key("ana", made.endpoint_id, signing_kind="hmac")
    changed = endpoints.change(
        "ana", made.endpoint_id, lambda each: rotated(each, new, grace_seconds=60, now=clock.now)
    )
    assert changed is not None
    assert endpoints.secrets(changed) == [second, first]
    clock.now += 60
    assert endpoints.secrets(changed) == [second]


def test_own_secret(endpoints: Endpoints) -> None:
    """The caller's own secret signs."""
    own = signing.make_secret()
    made, shown = drafted(endpoints, secret=own)
    assert shown == own
    assert endpoints.secrets(now(endpoints, made)) == [own]


def test_ed25519(endpoints: Endpoints) -> None:
    """An ed25519 private key is never returned. Its public key verifies its signatures."""
    made, shown = drafted(endpoints, signing="ed25519")
    assert shown is None
    found = now(endpoints, made)
    public = found.keys[0].public
    assert public is not None
    headers = signing.sign(endpoints.secrets(found), event_id="evt_1", timestamp=1, body=b"{}")
    signing.verify(public, headers, b"{}", now=1)


def test_headers(endpoints: Endpoints, dynamodb: Any, jobs_table: str) -> None:
    """The values of custom headers can be decrypted, and are not in the table."""
    made = created(endpoints, headers={"authorization": "Bearer topsecret"})
    found = now(endpoints, made)
    assert endpoints.own_headers(found) == {"authorization": "Bearer topsecret"}
    assert endpoints.own_headers(created(endpoints)) == {}
    assert "topsecret" not in str(dynamodb.scan(TableName=jobs_table))
    assert endpoints.with_headers(found, {}) == replace(found, headers=(), encrypted_headers=None)


def test_the_table_has_no_secret(endpoints: Endpoints, dynamodb: Any, jobs_table: str) -> None:
    """The table contains only encrypted secrets."""
    _, secret = drafted(endpoints)
    assert secret is not None
    (item,) = dynamodb.scan(TableName=jobs_table)["Items"]
    encrypted = bytes(item["keys"][0]["encrypted"])
    assert secret.removeprefix("whsec_").encode() not in encrypted
    assert secret.removeprefix("whsec_") not in str(item)


@pytest.mark.parametrize("change", [{"owner": "ben"}, {"endpoint_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"}])
def test_encryption_context(endpoints: Endpoints, change: dict[str, Any]) -> None:
    """A secret cannot be decrypted for another endpoint or owner, even if its item is copied there."""
    made = created(endpoints, headers={"x-a": "1"})
    with pytest.raises(ClientError):
        endpoints.secrets(replace(made, **change))
    with pytest.raises(ClientError):
        endpoints.own_headers(replace(made, **change))


def test_decrypted_once(endpoints: Endpoints, calls: Calls, secrets_key: str) -> None:
    """Each secret is decrypted once, with the configured key."""
    made = created(endpoints, headers={"x-a": "1"})
    other = created(endpoints)
    for _ in range(3):
        found = now(endpoints, made)
        endpoints.secrets(found)
        endpoints.own_headers(found)
        endpoints.secrets(other)
    named = [(call.operation, call.params["KeyId"]) for call in calls.log if call.service == "kms"]
    assert named.count(("Decrypt", secrets_key)) == 3
    assert set(named) == {("Decrypt", secrets_key), ("Encrypt", secrets_key)}


def test_a_failed_decryption_is_not_cached(endpoints: Endpoints, calls: Calls) -> None:
    """A secret that could not be decrypted is decrypted again."""
    made, secret = drafted(endpoints)
    calls.fail("kms", "Decrypt", "KMSInternalException")
    with pytest.raises(ClientError):
        endpoints.secrets(made)
    assert endpoints.secrets(made) == [secret]


def test_without_a_cipher(dynamodb: Any, jobs_table: str, endpoints: Endpoints) -> None:
    """Without a cipher, endpoints can be read, but not their secrets."""
    made = created(endpoints)
    reader = Endpoints(dynamodb, jobs_table)
    assert reader.find("ana", made.endpoint_id) == made
    with pytest.raises(RuntimeError, match="cipher"):
        reader.secrets(made)


# ── the default endpoint ─────────────────────────────────────────────────────────────────────────────────────


def test_the_first_default_stays(endpoints: Endpoints, dynamodb: Any) -> None:
    """Of two concurrent drafts the first one that is written is the owner's; the other is refused."""
    assert endpoints.find("ana") is None
    (first, one), (_, two) = endpoints.draft_default("ana"), endpoints.draft_default("ana")
    dynamodb.put_item(**one["Put"])
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(**two["Put"])
    found = endpoints.get("ana", DEFAULT)
    assert (found.is_default, found.url) == (True, None)
    assert endpoints.secrets(found) == [first]
