"""Lists of the API, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, TypeVar

from recado._http import HttpApi
from recado.errors import BadAnswer
from recado.models import Record

R = TypeVar("R", bound=Record)
PAGE_SIZE = 100


async def pages(
    api: HttpApi,
    path: str,
    name: str,
    record: type[R],
    query: Mapping[str, Any],
    limit: int | None,
    **expected: str,
) -> AsyncGenerator[R, None]:
    """The records under `name` of all pages, or the first `limit`. A page is requested when it is needed."""
    cursor, left = None, limit
    while left is None or left > 0:
        page = await api.json(
            "GET", path, query={**query, "cursor": cursor, "limit": min(PAGE_SIZE, left or PAGE_SIZE)}
        )
        for item in items(page, name, record, **expected):
            yield item
            left = None if left is None else left - 1
        cursor = page.get("cursor")
        if cursor is None:
            return


def items(page: Any, name: str, record: type[R], **expected: str) -> tuple[R, ...]:
    """The records under `name` of one response. Raises BadAnswer if there are none; see `Record.of`."""
    found = page.get(name) if isinstance(page, Mapping) else None
    if not isinstance(found, Iterable):
        raise BadAnswer(f"The response has no {name}.")
    return tuple(record.of(item, **expected) for item in found)
