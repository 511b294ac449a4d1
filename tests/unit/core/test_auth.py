"""API keys (core.auth)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import events
from core.auth import OWNER, RECHECK_SECONDS, REVOKED_EPOCH, SCOPES, Epoch, Epochs, Key, KeyStore
from tests.unit.examples import NOW, FakeClock


class Table:
    """A fake of the keys table that counts reads."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.reads: list[str] = []

    def put_item(self, *, TableName: str, Item: dict[str, Any], ConditionExpression: str) -> None:
        self.items[Item["pk"]] = Item

    def get_item(self, *, TableName: str, Key: dict[str, str]) -> dict[str, Any]:
        self.reads.append(Key["pk"])
        return {"Item": self.items[Key["pk"]]} if Key["pk"] in self.items else {}


@pytest.fixture
def store(dynamodb: Any, keys_table: str) -> KeyStore:
    return KeyStore(dynamodb, keys_table, clock=FakeClock())


def test_create_and_authenticate(store: KeyStore) -> None:
    """The token that `create` returns authenticates the key, with its owner and scopes."""
    token, key = store.create(owner="ana", scopes=("jobs:read",), note="laptop")
    assert store.authenticate(token) == key
    assert key == Key(
        key_id=key.key_id, owner="ana", scopes=("jobs:read",), created_at=events.timestamp(NOW), note="laptop"
    )


def test_secret_is_hashed(store: KeyStore, dynamodb: Any, keys_table: str) -> None:
    """The table contains the hash of the secret only."""
    token, key = store.create(owner="ana")
    secret = token.rpartition("_")[2]
    (item,) = dynamodb.scan(TableName=keys_table)["Items"]
    assert secret not in str(item)
    assert item["secret_sha256"] == hashlib.sha256(secret.encode()).hexdigest()
    assert item["pk"] == key.key_id


def test_tokens_differ(store: KeyStore) -> None:
    """Two keys have different ids and secrets, which cannot be exchanged."""
    (one, _), (two, _) = store.create(owner="ana"), store.create(owner="ana")
    head, _, secret = one.rpartition("_")
    other_head, _, other_secret = two.rpartition("_")
    assert head != other_head
    assert secret != other_secret
    assert store.authenticate(f"{head}_{other_secret}") is None


@pytest.mark.parametrize("owner", ["", "Ana", "a_b", "a b", "a" * 65, "ana\n", "añа", "a/b", "a#b"])
def test_invalid_owner(store: KeyStore, owner: str) -> None:
    """An owner with other characters is refused."""
    with pytest.raises(ValueError, match="owner"):
        store.create(owner=owner)


@pytest.mark.parametrize("scopes", [(), ("jobs:read", "admin")])
def test_invalid_scopes(store: KeyStore, scopes: tuple[str, ...]) -> None:
    """A key has at least one scope, and only existing ones."""
    with pytest.raises(ValueError, match="choose from jobs:read, jobs:write, search"):
        store.create(owner="ana", scopes=scopes)


def test_revoke(store: KeyStore) -> None:
    """A revoked key is refused, and the time of the first revocation is kept."""
    clock = FakeClock()
    store = KeyStore(store._client, store._table, clock=clock)
    token, key = store.create(owner="ana")
    other, _ = store.create(owner="ana")
    clock.now += 60
    assert store.revoke(key.key_id)
    clock.now += 60
    assert store.revoke(key.key_id)
    assert store.authenticate(token) is None
    assert store.authenticate(other) is not None
    revoked = {k.key_id: k.revoked_at for k in store.list()}
    assert revoked[key.key_id] == events.timestamp(NOW + 60)


def test_revoke_unknown_key(store: KeyStore) -> None:
    """Revoking an unknown id returns False and creates no key."""
    assert not store.revoke("0" * 16)
    assert list(store.list()) == []


def test_epochs(store: KeyStore) -> None:
    """Each revocation raises the epoch of the key's owner by one, and of nobody else. Epochs are not listed."""
    (_, first), (_, second), (_, other) = (store.create(owner=owner) for owner in ("ana", "ana", "ben"))
    assert store.epoch("ana") == Epoch()
    store.revoke(first.key_id)
    store.revoke(second.key_id)
    store.revoke(first.key_id)
    assert store.epoch("ana") == Epoch(3, frozenset({first.key_id, second.key_id}))
    assert store.epoch("ben") == Epoch()
    assert {key.key_id for key in store.list()} == {first.key_id, second.key_id, other.key_id}


@pytest.mark.parametrize("text", ["", "owner#ana", "owner#", "0" * 15, "0" * 17, "A" * 16, "0" * 16 + "\n"])
def test_revoke_what_is_no_key_id(store: KeyStore, text: str) -> None:
    """Only an id can be revoked: not an epoch, and nothing else in the table."""
    store.revoke(store.create(owner="ana")[1].key_id)
    assert store.revoke(text) is None
    assert store.epoch("ana").number == 1


class TestEpochs:
    """`Epochs` caches epochs for 60 seconds here."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock(0)

    @pytest.fixture
    def epochs(self, store: KeyStore, clock: FakeClock) -> Epochs:
        return Epochs(store, seconds=60, clock=clock)

    def test_cache(self, store: KeyStore, epochs: Epochs, clock: FakeClock) -> None:
        """A link from before a revocation is verified for less than the cache's time after it."""
        key = store.create(owner="ana")[1]
        assert next(epochs.to_verify("ana")) == 0
        store.revoke(key.key_id)
        clock.now = 59.9
        assert next(epochs.to_verify("ana")) == 0
        clock.now = 60
        assert set(epochs.to_verify("ana")) == {1}

    def test_new_link(self, store: KeyStore, epochs: Epochs, clock: FakeClock) -> None:
        """A link from after a revocation is verified where the old epoch is cached, a second after that read."""
        key = store.create(owner="ana")[1]
        assert list(epochs.to_verify("ana")) == [0, 0]
        store.revoke(key.key_id)
        clock.now = RECHECK_SECONDS
        assert list(epochs.to_verify("ana")) == [0, 1]

    def test_reads_of_wrong_links(self, epochs: Epochs, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrong links of one owner cost a read a second, however many there are."""
        reads: list[str] = []
        monkeypatch.setattr(epochs._keys, "epoch", lambda owner: reads.append(owner) or Epoch())
        for _ in range(100):
            assert list(epochs.to_verify("ana")) == [0, 0]
            clock.now += 0.01
        assert len(reads) <= 2

    def test_revoked_key(self, store: KeyStore, epochs: Epochs, clock: FakeClock) -> None:
        """What a revoked key signs is never verified; before the cache's end it signs with the old epoch."""
        keys = [store.create(owner="ana")[1] for _ in range(2)]
        assert epochs.to_sign("ana", keys[0].key_id) == 0
        store.revoke(keys[0].key_id)
        assert epochs.to_sign("ana", keys[0].key_id) == 0
        clock.now = 60
        assert epochs.to_sign("ana", keys[0].key_id) == REVOKED_EPOCH
        assert epochs.to_sign("ana", keys[1].key_id) == 1


TABLE = Table()
TOKEN, KEY = KeyStore(TABLE, "keys").create(owner="ana")
REVOKED_TOKEN, REVOKED = KeyStore(TABLE, "keys").create(owner="ana")
TABLE.items[REVOKED.key_id]["revoked_at"] = "2026-01-01T00:00:00.000Z"
PATHS = {
    "right": TOKEN,
    "wrong secret": TOKEN[:-1] + ("0" if TOKEN[-1] != "0" else "1"),
    "revoked": REVOKED_TOKEN,
    "revoked and wrong": REVOKED_TOKEN[:-1] + ("0" if REVOKED_TOKEN[-1] != "0" else "1"),
    "unknown": f"rk_{'f' * 16}_{'f' * 64}",
    "malformed": "rk_nonsense",
    "empty": "",
    "not ASCII": TOKEN[:-1] + "é",
    "upper case": TOKEN.upper(),
    "with a line end": TOKEN + "\n",
    "very long": TOKEN * 1000,
    "the stand-in": f"rk_{'0' * 16}_{'0' * 64}",
}


@pytest.mark.parametrize("token", PATHS.values(), ids=PATHS.keys())
def test_constant_cost(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token, valid or not, takes one read and one comparison of hashes."""
    compared = []

    def compare(a: str, b: str) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    TABLE.reads.clear()
    key = KeyStore(TABLE, "keys").authenticate(token)
    assert len(TABLE.reads) == 1
    assert compared == [(64, 64)]
    assert (key == KEY) == (token == TOKEN)
    assert key is None or token == TOKEN


@settings(max_examples=50)
@given(st.text() | st.from_regex(r"rk_[a-z0-9]{16}_[a-f0-9]{64}", fullmatch=True))
def test_other_tokens(token: str) -> None:
    """Only the token itself is accepted."""
    assert KeyStore(TABLE, "keys").authenticate(token) is None or token == TOKEN


@given(st.text(max_size=70))
def test_characters_of_owners(owner: str) -> None:
    """An owner contains no separator of table keys or object keys."""
    if OWNER.fullmatch(owner):
        assert not set(owner) & set("#/_. %\n")


def test_list(store: KeyStore) -> None:
    """All keys are listed, without their secrets."""
    token, key = store.create(owner="ana", note="one")
    _, other = store.create(owner="ben", scopes=SCOPES[:1])
    listed = sorted(store.list(), key=lambda k: k.owner)
    assert listed == [key, other]
    assert token.rpartition("_")[2] not in str(listed)
