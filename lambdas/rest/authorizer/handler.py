"""Authenticates the bearer key of a request, and adds the key's owner and scopes to the request.

API Gateway caches the response for some minutes, so it allows the whole stage. Functions check the scopes.
"""

from __future__ import annotations

from typing import Any

from core.auth import Key
from core.dependencies import dependencies


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    scheme, _, token = headers.get("authorization", "").partition(" ")
    key = dependencies.keys.authenticate(token.strip() if scheme.lower() == "bearer" else "")
    if key is None:
        raise Exception("Unauthorized")  # API Gateway returns 401 for exactly this text
    return _allow(key, event["methodArn"])


def _allow(key: Key, method_arn: str) -> dict[str, Any]:
    api, stage, *_ = method_arn.split("/")
    statement = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{api}/{stage}/*"}
    return {
        "principalId": key.owner,
        "policyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "context": {"owner": key.owner, "scopes": " ".join(key.scopes), "key_id": key.key_id},
    }
