"""`make dataset`: a large CSV through all stages of a dataset job, watched live. `ROWS` says how many rows."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from local import commands, engine, orders, toolchain
from local.receiver import Received, listening
from recado import Recado

FOLDER = toolchain.WORKSPACE / "dataset"
ROWS = 10_000_000
TARGET, STAGES = "returned", ("cleaned", "trained", "predicted", "exported")
MINUTES = {"cleaned": 5, "trained": 30, "predicted": 10, "exported": 2}
"""What the exercise gives each stage: 47 minutes in all."""
TIMEOUT_SECONDS = 3600


def run(options: argparse.Namespace, console: Console) -> int:
    """Make the file, deploy to an engine of its own, run the job, and stop."""
    rows = int(os.environ.get("ROWS", ROWS))
    with TemporaryDirectory(prefix="recado-orders-") as folder, engine.running(FOLDER) as running:
        file = Path(folder) / "orders.csv"
        with console.status(f"making a CSV of {rows:,} rows …"):
            orders.write(rows, file)
        console.print(f"  {file.stat().st_size / 1e6:,.0f} MB of CSV")
        api = commands.deployed(running, console)
        return _follow(Recado(api.url, api.key), file, console)


def _follow(client: Recado, file: Path, console: Console) -> int:
    received: dict[str, tuple[float, dict[str, Any]]] = {}
    began = time.monotonic()

    def take(webhook: Received) -> int:
        event = webhook.event
        received[event["event"].partition(".")[2]] = time.monotonic() - began, event
        progress = f"  {event['done'] / event['total']:.0%}" if "done" in event else ""
        console.print(f"  {time.monotonic() - began:7.1f} s  {event['event']}{progress}", highlight=False)
        return 204

    with listening(take) as url:
        key = client.upload(file, kind="dataset")
        console.print(f"  uploaded in parts in {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        job = client.submit(
            kind="dataset",
            input={"s3_key": key, "target": TARGET, "id_column": "order_id"},
            webhook_url=url,
            webhook_events=[f"dataset.{verb}" for verb in (*STAGES, "progressed", "failed")],
        )
        job = client.wait(job, timeout=TIMEOUT_SECONDS)
        _wait_for(received, job.status)
    if job.status != "completed":
        console.print(f"[red]the job {job.status}:[/] {job.error}")
        return 1
    _print(received, console)
    return 0


def _wait_for(received: dict[str, Any], status: str) -> None:
    last = {"completed": "exported"}.get(status, status)
    for _ in range(100):
        if last in received:
            return
        time.sleep(0.1)


def _print(received: dict[str, tuple[float, dict[str, Any]]], console: Console) -> None:
    table = Table("stage", "seconds", "of the exercise", "what came of it")
    before = 0.0
    for verb in STAGES:
        at, event = received[verb]
        table.add_row(verb, f"{at - before:.1f}", f"{MINUTES[verb]} min", _said(verb, event))
        before = at
    table.add_row("all", f"{before:.1f}", f"{sum(MINUTES.values())} min", f"{47 * 60 / before:.0f} times as fast")
    console.print(table)


def _said(verb: str, event: dict[str, Any]) -> str:
    match verb:
        case "cleaned":
            rejected = sum(event["rejected"].values())
            return f"{event['rows_out']:,} rows, {rejected:,} rejected, {event['duplicates']:,} repeated"
        case "trained":
            return f"AUC {event['metrics']['auc']:.4f} from {event['rows_used']:,} rows"
        case "predicted":
            return f"{event['rows']:,} rows"
        case _:
            return f"{len(event['exported'])} files, {sum(f['bytes'] for f in event['exported']) / 1e6:,.0f} MB"
