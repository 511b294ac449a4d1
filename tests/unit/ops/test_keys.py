"""`ops keys`: a token is printed once, and nothing secret ever again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.auth import SCOPES, KeyStore
from tests.unit.ops.conftest import Answer

Ops = Callable[..., Answer]


def test_the_token_alone_goes_to_standard_output(ops: Ops, keys: KeyStore) -> None:
    """`TOKEN=$(python -m ops keys create …)` has the token and nothing else, and the token works."""
    answer = ops("keys", "create", "--owner", "ana", "--note", "laptop")
    token = answer.out.removesuffix("\n")
    assert (answer.status, answer.out.count("\n")) == (0, 1)
    key = keys.authenticate(token)
    assert key is not None
    assert (key.owner, key.scopes, key.note) == ("ana", SCOPES, "laptop")
    assert token not in answer.err
    assert key.key_id in answer.err


def test_scopes_can_be_chosen(ops: Ops, keys: KeyStore) -> None:
    """`--scope` may be repeated, and then the key has those scopes and no more."""
    token = ops("keys", "create", "--owner", "ana", "--scope", "search", "--scope", "jobs:read").out.strip()
    key = keys.authenticate(token)
    assert key is not None
    assert key.scopes == ("search", "jobs:read")


def test_an_unknown_scope_is_refused(ops: Ops, keys: KeyStore) -> None:
    """The usage says which scopes there are, and no key is made."""
    answer = ops("keys", "create", "--owner", "ana", "--scope", "admin")
    assert (answer.status, answer.out) == (2, "")
    assert all(scope in answer.err for scope in SCOPES)
    assert list(keys.list()) == []


@pytest.mark.parametrize("owner", ["Ana", "", "a b", "a" * 65, "ana#1"])
def test_a_bad_owner_is_refused(ops: Ops, keys: KeyStore, owner: str) -> None:
    """An owner is part of keys and paths, so it has a narrow form; nothing is printed that could be a token."""
    answer = ops("keys", "create", "--owner", owner)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("ops: owner: ")
    assert list(keys.list()) == []


def test_ls_shows_every_key_and_no_secret(ops: Ops, keys: KeyStore) -> None:
    """Id, owner, scopes, age, state and note, oldest first; neither a secret nor its digest."""
    tokens = [
        ops("keys", "create", "--owner", owner, "--note", f"of {owner}").out.strip() for owner in ("ana", "bo")
    ]
    ids = [token.split("_")[1] for token in tokens]
    ops("keys", "revoke", ids[1])
    answer = ops("keys", "ls")
    first, second = answer.out.splitlines()
    assert answer.status == 0
    assert first.startswith(f"{ids[0]}  ana  {','.join(SCOPES)}  ")
    assert first.endswith("  active  of ana")
    assert second.startswith(f"{ids[1]}  bo  ")
    assert "  revoked 20" in second
    assert not any(token.split("_")[2] in answer.out for token in tokens)
    assert not any(len(word) > 30 for word in answer.out.replace(",", " ").split())


def test_ls_of_nothing_prints_nothing(ops: Ops, keys: KeyStore) -> None:
    """Without keys there are no lines."""
    assert ops("keys", "ls") == Answer(0, "", "")


def test_a_revoked_key_opens_nothing(ops: Ops, keys: KeyStore) -> None:
    """After `revoke` the token is refused, for good, and revoking again keeps the first time."""
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


def test_revoking_what_does_not_exist_fails(ops: Ops, keys: KeyStore) -> None:
    """A script notices that it revoked nothing, and no key comes to be."""
    assert ops("keys", "revoke", "0123456789abcdef") == Answer(1, "", "there is no key 0123456789abcdef\n")
    assert list(keys.list()) == []
