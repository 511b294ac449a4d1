"""What a cold start pays for code: CPU seconds to import each function's handler, beside importing boto3 alone.

    .venv/bin/python bench/imports.py [--quick]

Each in a fresh interpreter, the best of five, with compiled files warm. Exits 1 if a handler takes over a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LAMBDAS = Path(__file__).resolve().parent.parent / "lambdas"
QUICK = "--quick" in sys.argv
RUNS, LIMIT_SECONDS = (1, 10.0) if QUICK else (5, 1.0)
SCRIPT = """
import time, importlib, sys
begin = time.process_time()
importlib.import_module(sys.argv[1])
print(time.process_time() - begin)
"""


def cost(module: str) -> float:
    """The least CPU seconds of several imports: what is above it is the machine's."""
    command = [sys.executable, "-c", SCRIPT, module]
    environment = {**os.environ, "PYTHONPATH": str(LAMBDAS), "AWS_DEFAULT_REGION": "eu-west-1"}
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(RUNS)
    ]
    return min(map(float, runs))


def main() -> int:
    files = (path.relative_to(LAMBDAS).with_suffix("") for path in LAMBDAS.rglob("handler.py"))
    handlers = sorted(".".join(file.parts) for file in files)
    base = cost("boto3")
    handlers = handlers[:2] if QUICK else handlers
    costs = {module: cost(module) for module in handlers}
    print(f"{'module':<42}  CPU s   of boto3's")
    print(f"{'boto3':<42}  {base:5.2f}")
    for module, seconds in sorted(costs.items(), key=lambda item: item[1]):
        print(f"{module:<42}  {seconds:5.2f}   {seconds / base:5.1f}x")
    return int(max(costs.values()) > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
