"""`ops keys` creates, lists and revokes API keys."""

from __future__ import annotations

import pytest

from core.auth import SCOPES, KeyStore
from tests.unit.ops.conftest import Ops, Result


def test_create_prints_only_the_token_on_standard_output(ops: Ops, keys: KeyStore) -> None:
    """`TOKEN=$(python -m ops keys create …)` gets a token that authenticates."""
    result = ops("keys", "create", "--owner", "ana", "--note", "laptop")
    token = result.out.removesuffix("\n")
    assert (result.status, result.out.count("\n")) == (0, 1)
    key = keys.authenticate(token)
    assert key is not None
    assert (key.owner, key.scopes, key.note) == ("ana", SCOPES, "laptop")
    assert token not in result.err
    assert key.key_id in result.err


def test_scopes_can_be_chosen(ops: Ops, keys: KeyStore) -> None:
    """`--scope` can be repeated. The key has only these scopes."""
    token = ops("keys", "create", "--owner", "ana", "--scope", "search", "--scope", "jobs:read").out.strip()
    key = keys.authenticate(token)
    assert key is not None
    assert key.scopes == ("search", "jobs:read")


def test_an_unknown_scope_is_refused(ops: Ops, keys: KeyStore) -> None:
    """The error lists the scopes, and no key is created."""
    result = ops("keys", "create", "--owner", "ana", "--scope", "admin")
    assert (result.status, result.out) == (2, "")
    assert all(scope in result.err for scope in SCOPES)
    assert list(keys.list()) == []


@pytest.mark.parametrize("owner", ["Ana", "", "a b", "a" * 65, "ana#1"])
def test_an_invalid_owner_is_refused(ops: Ops, keys: KeyStore, owner: str) -> None:
    """The error names the owner, and no key is created."""
    result = ops("keys", "create", "--owner", owner)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("ops: owner: ")
    assert list(keys.list()) == []


def test_ls_prints_all_keys_without_secrets(ops: Ops, keys: KeyStore) -> None:
    """A line has id, owner, scopes, creation time, state and note. The oldest key is first."""
    tokens = [
        ops("keys", "create", "--owner", owner, "--note", f"of {owner}").out.strip() for owner in ("ana", "bo")
    ]
    ids = [token.split("_")[1] for token in tokens]
    ops("keys", "revoke", ids[1])
    result = ops("keys", "ls")
    first, second = result.out.splitlines()
    assert result.status == 0
    assert first.startswith(f"{ids[0]}  ana  {','.join(SCOPES)}  ")
    assert first.endswith("  active  of ana")
    assert second.startswith(f"{ids[1]}  bo  ")
    assert "  revoked 20" in second
    assert not any(token.split("_")[2] in result.out for token in tokens)
    assert not any(len(word) > 30 for word in result.out.replace(",", " ").split())


def test_a_revoked_key_is_refused(ops: Ops, keys: KeyStore) -> None:
    """If a key is revoked twice, the time of the first revocation is kept."""
    token = ops("keys", "create", "--owner", "ana").out.strip()
    key_id = token.split("_")[1]
    answer = ops("keys", "revoke", key_id)
    assert (answer.status, answer.out) == (0, "")
    assert answer.err.startswith(f"revoked {key_id} of ana. This ends:\n")
    assert "within authorizer_cache_seconds" in answer.err
    assert keys.authenticate(token) is None
    (before,) = keys.list()
    assert ops("keys", "revoke", key_id).status == 0
    assert list(keys.list()) == [before]


def test_revoking_an_unknown_key_fails(ops: Ops, keys: KeyStore) -> None:
    """The exit status is 1, and no key is created."""
    assert ops("keys", "revoke", "0123456789abcdef") == Result(1, "", "there is no key 0123456789abcdef\n")
    assert list(keys.list()) == []
