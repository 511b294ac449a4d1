"""The authorizer (rest.authorizer)."""

from __future__ import annotations

from typing import Any

import pytest

from core.auth import KeyStore
from core.dependencies import dependencies
from rest.authorizer.handler import handler

ARN = "arn:aws:execute-api:eu-west-1:123456789012:api1/v1/GET/jobs/job_1"


@pytest.fixture
def store(environment: dict[str, str], keys_table: str) -> KeyStore:
    return dependencies.keys


def ask(authorization: str | None, name: str = "Authorization") -> dict[str, Any]:
    headers = {} if authorization is None else {name: authorization}
    return handler({"type": "REQUEST", "methodArn": ARN, "headers": headers}, None)


def test_allow(store: KeyStore) -> None:
    """A valid key allows the whole stage, since the response is cached for other routes, and no other stage."""
    token, key = store.create(owner="ana", scopes=("jobs:read", "search"))
    assert ask(f"Bearer {token}") == {
        "principalId": "ana",
        "policyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Action": "execute-api:Invoke",
                    "Effect": "Allow",
                    "Resource": "arn:aws:execute-api:eu-west-1:123456789012:api1/v1/*",
                }
            ],
        },
        "context": {"owner": "ana", "scopes": "jobs:read search", "key_id": key.key_id},
    }


@pytest.mark.parametrize(
    ("name", "form"),
    [("authorization", "Bearer {}"), ("AUTHORIZATION", "bearer {}"), ("Authorization", "BEARER  {} ")],
)
def test_forms(store: KeyStore, name: str, form: str) -> None:
    """Header names and the scheme are case-insensitive."""
    token, _ = store.create(owner="ana")
    assert ask(form.format(token), name)["principalId"] == "ana"


@pytest.mark.parametrize(
    "form",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "{}",
        "Basic {}",
        "Token {}",
        "Bearer{}",
        "Bearer {}x",
        "Bearer {} {}",
        "Bearer rk_1",
    ],
)
def test_unauthorized(store: KeyStore, form: str | None) -> None:
    """An invalid header raises the exact text for which API Gateway returns 401."""
    token, _ = store.create(owner="ana")
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        ask(form and form.format(token, token))


def test_no_headers(store: KeyStore) -> None:
    """A request without headers is unauthorized."""
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        handler({"methodArn": ARN, "headers": None}, None)
