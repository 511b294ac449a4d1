"""The command `recado`: parses the command line, runs the command, and translates errors to exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from recado import config
from recado._cli import cost, documents, exit_codes, jobs, language_models, login, questions, webhooks
from recado._cli.arguments import Command, add_subcommands
from recado._cli.output import Output
from recado.errors import ApiError, NotConfigured, RecadoError, Unauthorized, WaitTimeout
from recado.models import JobCanceled, JobFailed

EXIT_CODES: Mapping[type[RecadoError], int] = {
    JobFailed: exit_codes.JOB_FAILED,
    JobCanceled: exit_codes.JOB_CANCELED,
    WaitTimeout: exit_codes.TIMEOUT,
    NotConfigured: exit_codes.UNAUTHORIZED,
    Unauthorized: exit_codes.UNAUTHORIZED,
}
"""All other errors have the exit code 1."""

EPILOG = f"""{exit_codes.HELP}
{config.URL} and {config.KEY} set the URL of the service and the API key. Without them, the file of
`recado login` is used. {config.FILE} sets another file.
Without a terminal, output is plain: fields separated by tabs, or JSON with --json. NO_COLOR is honored."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    options = parser().parse_args(arguments)
    output = Output(as_json=options.json)
    try:
        command: Command = options.command
        return command(options, output)
    except RecadoError as error:
        return _report(error, output)
    except KeyboardInterrupt:
        output.note("Interrupted.")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Python must not report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except OSError as error:
        _print_error(f"{error.filename}: {error.strerror}" if error.filename else error, output)
        return exit_codes.ERROR
    except ValueError as error:
        _print_error(error, output)
        return exit_codes.USAGE


def _report(error: RecadoError, output: Output) -> int:
    if output.as_json and isinstance(error, ApiError):
        names = ("status", "type", "title", "detail", "field", "retry_after")
        output.json({"error": {name: getattr(error, name) for name in names}})
    _print_error(error, output)
    if isinstance(error, Unauthorized):
        output.note("The API key is missing or invalid. Run `recado login` to enter another one.")
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), exit_codes.ERROR)


def _print_error(error: object, output: Output) -> None:
    output.note(("recado: ", "red"), str(error))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="recado",
        description="Run slow work as jobs and get notified of their end.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = add_subcommands(top)
    for group in (jobs, language_models, questions, documents, webhooks, cost, login):
        group.add_commands(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
