"""Commands that calculate what waiting costs: advise, cost."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from recado import cost
from recado._cli.arguments import add_command, parse_duration
from recado._cli.exit_codes import OK
from recado._cli.format import format_duration
from recado._cli.output import Output


def add_commands(commands: Any) -> None:
    command = add_command(commands, "advise", advise, "recommend how to wait for a job, with the cost")
    command.add_argument("--can-receive-http", action="store_true", help="the service can reach a URL of yours")
    command.add_argument("--needs-updates", action="store_true", help="you need progress, not only the end")
    command.add_argument("--bidirectional", action="store_true", help="you also send messages while the job runs")
    command.add_argument(
        "--duration", type=parse_duration, default=7200.0, metavar="TIME", help="duration of the job (default: 2h)"
    )
    command = add_command(commands, "cost", compare, "compare the costs of all strategies to wait for a job")
    command.add_argument("duration", type=parse_duration, help="duration of the job, such as 2h, 47m, 90s, 1h30m")
    for name, default, help in (
        ("--interval", 60.0, "interval of short polling (default: 60s)"),
        ("--base", 1.0, "first interval of the backoff (default: 1s)"),
        ("--cap", 60.0, "longest interval of the backoff (default: 60s)"),
        ("--usual", None, "usual duration of jobs of this kind (default: the duration)"),
    ):
        command.add_argument(name, type=parse_duration, default=default, metavar="TIME", help=help)


def advise(options: argparse.Namespace, output: Output) -> int:
    advice = cost.advise(options.can_receive_http, options.needs_updates, options.bidirectional, options.duration)
    if output.as_json:
        recommendation = {"method": advice.method, "reason": advice.reason, "how": advice.how}
        output.json({**recommendation, "cost": _as_dict(advice.cost), "naive": _as_dict(advice.naive)})
        return OK
    if not output.is_for_people:
        output.fields(advice.method, advice.cost.requests, advice.reason)
        return OK
    output.print((advice.method, "bold green"), f": {advice.reason}.")
    output.print(("how: ", "dim"), advice.how)
    output.print(("cost: ", "dim"), f"{_summary(advice.cost)}. Polling once a minute: {_summary(advice.naive)}.")
    return OK


def _summary(known: cost.Cost) -> str:
    requests = "1 request" if known.requests == 1 else f"{known.requests} requests"
    return f"{requests}, the end is known within {format_duration(known.delay_max)}"


def compare(options: argparse.Namespace, output: Output) -> int:
    costs = cost.compare(
        options.duration, interval=options.interval, base=options.base, cap=options.cap, usual=options.usual
    )
    if output.as_json:
        for known in costs:
            output.json(_as_dict(known))
        return OK
    rows = [(c.strategy, c.requests, c.wasted, f"{c.percent} %", format_duration(c.delay_max)) for c in costs]
    headings = ("strategy", "requests", "wasted", "share", "maximum delay")
    output.table(headings, rows, right=headings[1:])
    return OK


def _as_dict(known: cost.Cost) -> dict[str, Any]:
    counts = {name: getattr(known, name) for name in ("requests", "useful", "wasted", "percent")}
    return asdict(known) | counts
