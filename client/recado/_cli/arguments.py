"""Options that several commands have, the types of their values, and the client that they configure."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from recado import config
from recado._cli.output import Output
from recado._watcher import Transport
from recado.client import Recado

Command = Callable[[argparse.Namespace, Output], int]
"""Returns the exit code, or raises an error that `recado.cli` translates to one."""


def add_subcommands(parser: argparse.ArgumentParser) -> Any:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(commands: Any, name: str, command: Command, help: str) -> argparse.ArgumentParser:
    """A command with the options that all commands have."""
    added: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
    added.add_argument("--json", action="store_true", help="print JSON, one document per line")
    added.add_argument("--url", help=f"URL of the service (default: {config.URL} or the configuration file)")
    added.set_defaults(command=command)
    return added


@contextmanager
def open_client(options: argparse.Namespace) -> Iterator[Recado]:
    with Recado(options.url) as client:
        yield client


def add_submission_options(command: argparse.ArgumentParser) -> None:
    """`--metadata` and `--idempotency-key`."""
    command.add_argument(
        "--metadata",
        action="append",
        metavar="NAME=VALUE",
        help="metadata of the job; searches can filter documents by it",
    )
    command.add_argument(
        "--idempotency-key", metavar="KEY", help="the same key and input return the same job, not a second one"
    )


def add_wait_options(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        command.add_argument(
            "--wait", action="store_true", help="wait until the job has ended; after Ctrl-C the job continues"
        )
    command.add_argument("--timeout", type=parse_duration, metavar="TIME", help="maximum time to wait")
    command.add_argument(
        "--transport", choices=get_args(Transport), default="auto", help="how to receive events (default: auto)"
    )


def add_limit_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-n",
        "--limit",
        type=parse_positive,
        default=20,
        metavar="N",
        help="maximum number of results (default: 20)",
    )


def parse_duration(text: str) -> float:
    """Seconds of `2h`, `47m`, `90s`, `1h30m`, `1d`, or a number of seconds."""
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    parts = [float(part or 0) for part in match.groups()] if match else [0.0]
    total = sum(part * unit for part, unit in zip(parts, (86_400, 3_600, 60, 1), strict=False))
    if total <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 2h, 47m or 90s")
    return total


def parse_whole_seconds(text: str) -> int:
    """As `parse_duration`, in whole seconds, and 0."""
    return 0 if text.strip() == "0" else int(parse_duration(text))


def parse_positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def parse_amount(text: str) -> float:
    """A finite number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def parse_metadata(texts: Sequence[str] | None) -> dict[str, str] | None:
    """The values of --metadata. Raises ValueError."""
    if not texts:
        return None
    pairs = [text.partition("=") for text in texts]
    invalid = [name for name, equals, _ in pairs if not equals or not name]
    if invalid:
        raise ValueError(f"--metadata must be NAME=VALUE, not {invalid[0]!r}.")
    return {name: value for name, _, value in pairs}
