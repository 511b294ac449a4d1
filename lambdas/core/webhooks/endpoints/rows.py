"""Endpoints as items of the jobs table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from core.jobs_table import endpoint_key
from core.webhooks.endpoints.model import Endpoint, Key

_AS_JSON = ("events", "filter", "headers", "rate_limit")  # DynamoDB has no floats, and JSON keeps the order


def endpoint_item(endpoint: Endpoint) -> dict[str, Any]:
    values = {f.name: getattr(endpoint, f.name) for f in fields(Endpoint)}
    values |= {name: json.dumps(values[name]) for name in _AS_JSON}
    values["keys"] = [{f.name: getattr(key, f.name) for f in fields(Key)} for key in endpoint.keys]
    return endpoint_key(endpoint.owner, endpoint.endpoint_id) | {"entity": "endpoint"} | values


def read_endpoint(item: Mapping[str, Any]) -> Endpoint:
    """The endpoint in an item of the table."""
    values = {f.name: item[f.name] for f in fields(Endpoint)}
    values |= {name: json.loads(values[name]) for name in _AS_JSON}
    values |= {name: tuple(values[name]) for name in ("events", "headers")}
    values |= {"version": int(values["version"]), "keys": tuple(map(_read_key, values["keys"]))}
    if values["encrypted_headers"] is not None:
        values["encrypted_headers"] = bytes(values["encrypted_headers"])
    return Endpoint(**values)


def _read_key(item: Mapping[str, Any]) -> Key:
    expires_at = item["expires_at"]
    return Key(
        encrypted=bytes(item["encrypted"]),
        public=item["public"],
        expires_at=None if expires_at is None else int(expires_at),
    )
