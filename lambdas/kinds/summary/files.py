"""The files of a summary in its work folder: the parts of its text, the plan, the answers, and the result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.aws.blobs import Blobs, work_folder
from core.llm import answers


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of parts, and how many tokens each has at most. It stays the same if a setting is changed."""

    parts: int
    part_tokens: int


def write_parts(blobs: Blobs, job_id: str, parts: Sequence[str], *, part_tokens: int) -> None:
    for number, part in enumerate(parts):
        _put(blobs, _part_key(job_id, number), {"text": part})
    _put(blobs, _plan_key(job_id), asdict(Plan(len(parts), part_tokens)))


def read_plan(blobs: Blobs, job_id: str) -> Plan:
    return Plan(**json.loads(blobs.get(_plan_key(job_id))))


def read_part(blobs: Blobs, job_id: str, number: int) -> str:
    return str(json.loads(blobs.get(_part_key(job_id, number)))["text"])


def result_key(job_id: str) -> str:
    """The key of the result, until the job has completed."""
    return f"{work_folder(job_id)}summary.json"


def write_result(blobs: Blobs, job_id: str, result: Mapping[str, Any]) -> None:
    _put(blobs, result_key(job_id), result)


def totals(blobs: Blobs, job_id: str) -> dict[str, Any]:
    """What all recorded answers of the job together took."""
    prefix = answers.answer_key(job_id, "").removesuffix(".json")
    names = [key.removeprefix(prefix).removesuffix(".json") for key in blobs.keys(prefix)]
    made = [answer for name in names if (answer := answers.recorded(blobs, job_id, name))]
    known = [answer.cost_usd for answer in made if answer.cost_usd is not None]
    return {
        "calls": len(made),
        "usage": {
            "input_tokens": sum(answer.usage.input_tokens for answer in made),
            "output_tokens": sum(answer.usage.output_tokens for answer in made),
        },
        "cost_usd": round(math.fsum(known), 9) if len(known) == len(made) else None,
        "cost_estimated": any(answer.cost_estimated for answer in made),
    }


def _part_key(job_id: str, number: int) -> str:
    return f"{work_folder(job_id)}parts/{number:04d}.json"


def _plan_key(job_id: str) -> str:
    return f"{work_folder(job_id)}plan.json"


def _put(blobs: Blobs, key: str, value: Mapping[str, Any]) -> None:
    blobs.put(key, json.dumps(value).encode(), content_type="application/json")
