"""The command `recado`: its arguments, and what its exit code says."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from recado import _commands as do
from recado import _input, config
from recado._api import DEFAULT_KIND
from recado._following import Transport
from recado._screen import Screen, clean
from recado.errors import ApiError, NotConfigured, RecadoError, TimeUp, Unauthorized
from recado.models import JobCanceled, JobFailed

EXIT_CODES = """exit codes:
    0  done
    1  refused, or no connection
    2  wrong usage
    3  the job failed
    4  the job was canceled
    5  the time is up; the job goes on
    6  not logged in, or the key is not accepted
  130  Ctrl-C; a job that was waited for goes on

RECADO_URL and RECADO_API_KEY say where the service is and what opens it; without them, what `recado login` wrote
(to the file that RECADO_CONFIG names, if it is set).
Output that is piped is plain: fields with tabs between, or JSON with --json. NO_COLOR is honoured."""

CODES: Mapping[type[RecadoError], int] = {
    JobFailed: do.FAILED,
    JobCanceled: do.CANCELED,
    TimeUp: do.TIME_UP,
    NotConfigured: do.NO_ACCESS,
    Unauthorized: do.NO_ACCESS,
}
LISTEN_PORT = 8808
Command = Callable[[argparse.Namespace, Screen], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser().parse_args(arguments)
    screen = Screen(as_json=options.json)
    try:
        command: Command = options.command
        return command(options, screen)
    except RecadoError as error:
        return _tell(error, screen)
    except KeyboardInterrupt:
        screen.note("interrupted")
        return do.INTERRUPTED
    except BrokenPipeError:
        # Who reads has seen enough; Python must not complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return do.OK
    except OSError as error:
        screen.note(("recado: ", "red"), clean(f"{error.filename}: {error.strerror}" if error.filename else error))
        return do.REFUSED
    except ValueError as error:
        screen.note(("recado: ", "red"), clean(error))
        return do.USAGE


def _tell(error: RecadoError, screen: Screen) -> int:
    if screen.as_json and isinstance(error, ApiError):
        names = ("status", "type", "title", "detail", "field", "retry_after")
        screen.json({"error": {name: getattr(error, name) for name in names}})
    screen.note(("recado: ", "red"), clean(error))
    if isinstance(error, Unauthorized):
        screen.note("The key is not accepted: `recado login` takes another.")
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), do.REFUSED)


# ── the arguments ────────────────────────────────────────────────────────────────────────────────────────


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="recado",
        description="Slow work, and its end learnt in the way that fits.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _job_commands(commands)
    _document_commands(commands)
    hooks = commands.add_parser("webhooks", help="endpoints, what was sent to them, and a local receiver")
    _webhook_commands(hooks.add_subparsers(title="commands", metavar="COMMAND", required=True))
    _waiting_commands(commands)
    return top


def _add(commands: Any, name: str, command: Command, help: str) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
    added.add_argument("--json", action="store_true", help="JSON, one document a line")
    added.add_argument("--url", help=f"the service, instead of {config.URL}")
    added.set_defaults(command=command)
    return added


def _job_commands(commands: Any) -> None:
    one = _add(commands, "submit", do.submit, "submit a job; prints its id")
    one.set_defaults(refuse=one.error)
    source = one.add_mutually_exclusive_group()
    source.add_argument("file", nargs="?", help="a file to upload, or - for standard input")
    source.add_argument("--text", help="the text itself")
    one.add_argument("--kind", metavar="NAME", default=DEFAULT_KIND, help=f"of the job ({DEFAULT_KIND})")
    one.add_argument(
        "--set",
        action="append",
        type=_input.field,
        metavar="FIELD=VALUE",
        help="a field of the input, again for each; the value is JSON if it can be, else text; a.b=1 sets b in a",
    )
    one.add_argument(
        "--input", type=_input.whole, metavar="JSON", help="the input as a JSON object, or @FILE that has it"
    )
    one.add_argument(
        "--document-id", metavar="NAME", help="your name for the document (the file's name if not given)"
    )
    one.add_argument("--type", metavar="TYPE", help="the file's media type (by its ending if not given)")
    one.add_argument("--metadata", action="append", metavar="NAME=VALUE", help="searches can be narrowed by it")
    one.add_argument("--webhook-url", metavar="URL", help="called when it is over, signed")
    one.add_argument("--webhook-event", action="append", metavar="EVENT", help="called with this instead")
    one.add_argument("--idempotency-key", metavar="KEY", help="the same key and input: the same job")
    _waits(one, optional=True)
    one = _add(commands, "watch", do.watch, "show a job's events as they happen")
    one.add_argument("job")
    one.add_argument("--after", type=int, default=0, metavar="N", help="leave out the first N")
    _waits(one)
    one = _add(commands, "follow", do.follow, "show the events of all your jobs from now on; Ctrl-C ends it")
    one.add_argument("--kind", metavar="NAME", default=DEFAULT_KIND, help=f"of jobs ({DEFAULT_KIND})")
    _add(commands, "status", do.status, "show how a job stands").add_argument("job")
    one = _add(commands, "ls", do.ls, "list jobs, newest first")
    one.add_argument("--status", choices=["queued", "running", "completed", "failed", "canceled"])
    one.add_argument("--kind", metavar="NAME", help="only jobs of this kind")
    _limits(one)
    _add(commands, "cancel", do.cancel, "cancel a job").add_argument("job")
    one = _add(commands, "retry", do.retry, "run a failed or canceled job again, as a new one")
    one.add_argument("job")
    _waits(one, optional=True)


def _document_commands(commands: Any) -> None:
    one = _add(commands, "search", do.search, "find the chunks nearest to a question, in any language")
    one.add_argument("query")
    one.add_argument("-k", "--top-k", type=int, default=5, metavar="N", help="how many (5)")
    one.add_argument("--document", action="append", metavar="NAME", help="only in this document; repeat for more")
    one.add_argument("--metadata", action="append", metavar="NAME=VALUE", help="only where this is so")
    one = _add(commands, "documents", do.documents, "list what can be found")
    one.add_argument("--delete", metavar="NAME", help="remove this one")


def _webhook_commands(commands: Any) -> None:
    one = _add(commands, "add", do.webhooks_add, "have events sent to a URL; prints the secret")
    one.add_argument("endpoint", metavar="URL")
    one.add_argument("--event", action="append", metavar="PATTERN", help="such as document.* (* if not given)")
    one.add_argument("--description")
    one.add_argument("--format", choices=["recado", "cloudevents", "slack", "thin"])
    one.add_argument("--signing", choices=["hmac", "ed25519"])
    one.add_argument("--ordered", action="store_true", default=None, help="a job's events in order")
    one.add_argument("--rate-limit", type=float, metavar="N", help="at most so many a second")
    _add(commands, "ls", do.webhooks_ls, "list endpoints")
    _add(commands, "rm", do.webhooks_rm, "delete an endpoint").add_argument("webhook")
    _add(commands, "test", do.webhooks_test, "send a ping and show the answer").add_argument("webhook")
    one = _add(
        commands, "rotate", do.webhooks_rotate, "make a new secret; the old one signs beside it for a while"
    )
    one.add_argument("webhook")
    one.add_argument("--grace", type=_seconds, metavar="TIME", help="for how long (1 day if not given)")
    one = _add(commands, "deliveries", do.webhooks_deliveries, "list what was sent, newest first")
    one.add_argument("webhook")
    one.add_argument("--status", choices=["pending", "sending", "delivered", "failed", "discarded", "canceled"])
    one.add_argument("--event", metavar="NAME")
    one.add_argument("--since", metavar="TIME", help="RFC 3339, such as 2026-11-29T08:00:00Z")
    _limits(one)
    _add(commands, "redeliver", do.webhooks_redeliver, "send a delivery again, now").add_argument("delivery")
    one = _add(commands, "listen", do.webhooks_listen, "receive webhooks here, verify and print them")
    one.add_argument("--port", type=int, default=LISTEN_PORT, help=f"({LISTEN_PORT})")
    one.add_argument("--event", action="append", metavar="PATTERN", help="only these")
    one.add_argument("--public-url", metavar="URL", help="a tunnel that leads here")
    one.add_argument("--secret", metavar="WHSEC", help=f"make no endpoint, verify with this (or set {do.SECRET})")


def _waiting_commands(commands: Any) -> None:
    one = _add(commands, "advise", do.advise, "say which way of waiting fits, and what it costs")
    one.add_argument("--can-receive-http", action="store_true", help="the service can reach a URL of mine")
    one.add_argument("--needs-updates", action="store_true", help="progress matters, not only the end")
    one.add_argument("--bidirectional", action="store_true", help="I have something to say while it runs")
    one.add_argument("--duration", type=_length, default=7200.0, metavar="TIME", help="of the job (2h)")
    one = _add(commands, "cost", do.show_cost, "show what every way of waiting costs")
    one.add_argument("duration", type=_length, help="of the job, such as 2h, 47m, 90s, 1h30m")
    one.add_argument("--interval", type=_length, default=60.0, metavar="TIME", help="of short polling (60s)")
    one.add_argument("--base", type=_length, default=1.0, metavar="TIME", help="of the backoff (1s)")
    one.add_argument("--cap", type=_length, default=60.0, metavar="TIME", help="of the backoff (60s)")
    one.add_argument("--usual", type=_length, metavar="TIME", help="what such jobs usually take")
    _add(
        commands,
        "login",
        do.login,
        "write down URL and key; the key is asked for, or read from standard input",
    )


def _waits(one: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        one.add_argument("--wait", action="store_true", help="wait for its end; Ctrl-C lets it go on")
    one.add_argument("--timeout", type=_length, metavar="TIME", help="wait no longer than this")
    one.add_argument("--transport", choices=get_args(Transport), default="auto", help="how to wait (auto)")


def _limits(one: argparse.ArgumentParser) -> None:
    one.add_argument("-n", "--limit", type=_positive, default=20, metavar="N", help="at most so many (20)")


def _length(text: str) -> float:
    """`2h`, `47m`, `90s`, `1h30m`, `1d`, or seconds."""
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    parts = [float(part or 0) for part in match.groups()] if match else [0.0]
    total = sum(part * unit for part, unit in zip(parts, (86_400, 3_600, 60, 1), strict=False))
    if total <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time such as 2h, 47m or 90s")
    return total


def _seconds(text: str) -> int:
    return 0 if text.strip() == "0" else int(_length(text))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
