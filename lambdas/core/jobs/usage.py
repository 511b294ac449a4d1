"""What a job's calls of models have used, in an item beside the job. Failed and canceled attempts count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core import jobs_table
from core.jobs.job import Job

NANO_USD = 1_000_000_000
"""Costs are stored as whole nano-dollars: sums are exact, and a token may cost less than a micro-dollar."""
MAX_PARTIAL_BYTES = 64 * 1024
"""An item has at most 400 KB: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUsage:
    """What one call has used, or so many `calls` together. `cost_usd`: None if no price is known.

    `estimated`: the provider did not count the tokens, so they are an upper bound. `partial_text`: what came of an
    answer that was interrupted.
    """

    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    estimated: bool = False
    partial_text: str | None = None
    calls: int = 1


class UsageStore:
    """`client` is a resource's client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def add(self, job: Job, call: CallUsage) -> None:
        """Add what was used. The partial text replaces an earlier one."""
        sets: dict[str, Any] = {"entity": "usage", "expires_at": job.expires_at}
        if call.estimated:
            sets["estimated"] = True
        if call.cost_usd is None:
            sets["unpriced"] = True
        if call.partial_text:
            sets["partial_text"] = call.partial_text.encode()[:MAX_PARTIAL_BYTES].decode(errors="ignore")
        adds = {
            "calls": call.calls,
            "input_tokens": call.input_tokens,
            "output_tokens": call.output_tokens,
            "nano_usd": round((call.cost_usd or 0) * NANO_USD),
        }
        self._update(job, sets, adds)

    def count_fault(self, job: Job) -> None:
        """Count a call that failed at the provider."""
        self._update(job, {"entity": "usage", "expires_at": job.expires_at}, {"faults": 1})

    def faults(self, job_id: str) -> int:
        """How many calls have failed (strongly consistent)."""
        key = jobs_table.usage_key(job_id)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return int((item or {}).get("faults", 0))

    def _update(self, job: Job, sets: Mapping[str, Any], adds: Mapping[str, int]) -> None:
        values: dict[str, Any] = {**sets, **adds}
        self._client.update_item(
            TableName=self._table,
            Key=jobs_table.usage_key(job.job_id),
            UpdateExpression=f"SET {', '.join(f'{name} = :{name}' for name in sets)} "
            f"ADD {', '.join(f'{name} :{name}' for name in adds)}",
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )


def usage_view(item: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The usage as the API shows it, None for a job that has called no model."""
    if item is None or "calls" not in item:
        return None
    cost = None if item.get("unpriced") else int(item["nano_usd"]) / NANO_USD
    view: dict[str, Any] = {name: int(item[name]) for name in ("calls", "input_tokens", "output_tokens")}
    view |= {"cost_usd": cost, "cost_estimated": bool(item.get("estimated"))}
    return view | ({"partial_text": item["partial_text"]} if "partial_text" in item else {})
