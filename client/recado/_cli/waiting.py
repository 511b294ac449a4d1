"""Waiting for the end of a job."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from recado._cli.output import Output
from recado._cli.progress import StageProgress
from recado.client import Recado
from recado.models import Job


def wait_for_end(client: Recado, job: Job, output: Output, show: Callable[[], None]) -> Job | None:
    """Run `show`, which returns when the job has ended. Returns the job as it is then.

    Returns None after Ctrl-C, which does not end the job: how to watch and cancel it is printed.
    """
    try:
        show()
        return client.job(job.job_id)
    except KeyboardInterrupt:
        output.note("\nThe command has stopped waiting. The job continues.")
        output.note("  watch it    ", (f"recado watch {job.job_id}", "bold"))
        output.note("  cancel it   ", (f"recado cancel {job.job_id}", "bold"))
        return None


def show_stages(client: Recado, job: Job, options: argparse.Namespace, output: Output) -> None:
    """A bar for every stage until the end. Without a terminal, or with --json, a line for every event."""
    events = client.watch(job, timeout=options.timeout, transport=options.transport)
    if not output.can_animate or output.as_json:
        for event in events:
            output.event(event)
        return
    with StageProgress(output.err) as progress:
        for event in events:
            if progress.update(event):
                progress.show_expected_end(client.status(job.job_id))
