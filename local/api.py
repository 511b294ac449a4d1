"""A caller of the HTTP API, as a user would write one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3

_POOL = urllib3.PoolManager(maxsize=16, retries=False, timeout=60)


class ApiError(RuntimeError):
    """An answer that was not a success; the message holds status and problem document."""


@dataclass(frozen=True, slots=True)
class Api:
    """The API at `url`, called with `key`."""

    url: str
    key: str

    def get(self, path: str, **query: object) -> Any:
        return self._call("GET", path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        return self._call("POST", path, body, headers)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, body)

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def upload(self, filename: str, data: bytes, content_type: str) -> str:
        """Put a file where POST /uploads says, and return its key."""
        slot = self.post("/uploads", {"filename": filename, "content_type": content_type, "size": len(data)})
        answer = _POOL.request("PUT", slot["url"], body=data, headers=slot["headers"])
        if answer.status != 200:
            raise ApiError(f"PUT {filename}: {answer.status} {answer.data[:500].decode(errors='replace')}")
        return str(slot["s3_key"])

    def _call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        all_headers = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        answer = _POOL.request(method, self.url + path, body=data, headers=all_headers)
        if not 200 <= answer.status < 300:
            raise ApiError(f"{method} {path}: {answer.status} {answer.data[:500].decode(errors='replace')}")
        return json.loads(answer.data or b"null")
