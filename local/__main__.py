"""`python -m local run|up|down|chat|listen|dataset|package`; the Makefile calls it."""

from __future__ import annotations

import argparse
import sys

from local import toolchain

sys.path.insert(0, str(toolchain.ROOT / "lambdas"))

from rich.console import Console

from local import chat, commands, dataset, package
from local.deploy import DeployFailed
from local.engine import EngineFailed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    subparsers = parser.add_subparsers(required=True)
    for name in ("run", "up", "down"):
        subparsers.add_parser(name).set_defaults(command=getattr(commands, name))
    listen = subparsers.add_parser("listen", description=commands.LISTEN_HELP)
    listen.add_argument("--port", type=int, default=commands.LISTEN_PORT)
    listen.set_defaults(command=commands.listen)
    talk = subparsers.add_parser("chat", description=chat.__doc__)
    talk.add_argument("arguments", nargs=argparse.REMAINDER, help="options and question of `recado ask`")
    talk.set_defaults(command=chat.chat)
    subparsers.add_parser("dataset").set_defaults(command=dataset.run)
    subparsers.add_parser("package").set_defaults(command=package.package)
    options = parser.parse_args()
    try:
        return int(options.command(options, Console()))
    except (DeployFailed, EngineFailed, toolchain.NotSetUp) as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
