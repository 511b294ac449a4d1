"""`python -m ops`: what an operator runs with AWS credentials, here and on AWS alike."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lambdas"))

from botocore.exceptions import BotoCoreError, ClientError

from ops import keys, republish, stack
from ops.stack import StackNotFound


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ops", description=__doc__)
    parser.add_argument("--stack", default="RecadoService", help="the deployed stack (default: %(default)s)")
    parser.add_argument("--profile", help="a profile of your AWS configuration (default: AWS_PROFILE)")
    parser.add_argument("--region", help="the stack's region (default: AWS_REGION, or that of the profile)")
    commands = parser.add_subparsers(required=True)
    for module in (keys, republish):
        module.add_commands(commands)
    options = parser.parse_args(arguments)
    try:
        stack.use(profile=options.profile, region=options.region)
        return int(options.run(options))
    except (StackNotFound, ValueError, BotoCoreError, ClientError) as error:
        print(f"ops: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
