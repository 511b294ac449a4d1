from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.webhooks import signing
from core.webhooks.endpoints import DEFAULT, Endpoints, Vault
from tests.support.calls import Calls
from tests.support.clock import Clock


@pytest.fixture
def vault(kms: Any, secrets_key: str) -> Vault:
    return Vault(kms, secrets_key)


@pytest.fixture
def endpoints(dynamodb: Any, jobs_table: str, vault: Vault) -> Endpoints:
    return Endpoints(dynamodb, jobs_table, vault)


def written(endpoints: Endpoints, dynamodb: Any, owner: str) -> str:
    secret, operation = endpoints.draft_default(owner)
    dynamodb.put_item(**operation["Put"])
    return secret


def test_the_secret_comes_back(endpoints: Endpoints, dynamodb: Any) -> None:
    """A drafted secret, once written, is what the endpoint opens to, and it signs what verifies."""
    secret = written(endpoints, dynamodb, "ana")
    found = endpoints.find("ana")
    assert found is not None
    assert (found.endpoint_id, found.owner) == (DEFAULT, "ana")
    assert endpoints.secret(found) == secret
    assert signing.sign(secret, event_id="evt_1", timestamp=1, body=b"{}")


def test_the_table_has_no_secret(endpoints: Endpoints, dynamodb: Any, jobs_table: str) -> None:
    """What the table holds is sealed: the secret is in none of its attributes."""
    secret = written(endpoints, dynamodb, "ana")
    (item,) = dynamodb.scan(TableName=jobs_table)["Items"]
    values = [bytes(value) if hasattr(value, "value") else str(value).encode() for value in item.values()]
    assert item["sk"] == "ENDPOINT#default"
    assert not any(secret.encode() in value or secret.removeprefix("whsec_").encode() in value for value in values)


def test_the_first_secret_stays(endpoints: Endpoints, dynamodb: Any) -> None:
    """Of two drafts, the one that is written first is the owner's, and the other is refused."""
    (first, one), (_, two) = endpoints.draft_default("ana"), endpoints.draft_default("ana")
    dynamodb.put_item(**one["Put"])
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(**two["Put"])
    found = endpoints.find("ana")
    assert found is not None
    assert endpoints.secret(found) == first


def test_secrets_differ(endpoints: Endpoints) -> None:
    """No two drafts have the same secret."""
    assert len({endpoints.draft_default("ana")[0] for _ in range(20)}) == 20


def test_none_yet(endpoints: Endpoints) -> None:
    """An owner without an endpoint has none, and a draft alone makes none."""
    endpoints.draft_default("ana")
    assert endpoints.find("ana") is None


@pytest.mark.parametrize("change", [{"owner": "ben"}, {"endpoint_id": "other"}])
def test_sealed_to_its_endpoint(endpoints: Endpoints, dynamodb: Any, change: dict[str, Any]) -> None:
    """A sealed secret that is moved to another owner or endpoint does not open."""
    written(endpoints, dynamodb, "ana")
    found = endpoints.find("ana")
    assert found is not None
    with pytest.raises(ClientError):
        endpoints.secret(replace(found, **change))


def test_only_the_configured_key(endpoints: Endpoints, dynamodb: Any, secrets_key: str) -> None:
    """Sealing and opening name the key, so that KMS refuses what another key has sealed."""
    calls = Calls(Clock())
    with calls.intercepted():
        written(endpoints, dynamodb, "ana")
        found = endpoints.find("ana")
        assert found is not None
        endpoints.secret(found)
    named = {call.operation: call.params["KeyId"] for call in calls.log if call.service == "kms"}
    assert named == {"Encrypt": secrets_key, "Decrypt": secrets_key}
