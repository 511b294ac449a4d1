"""A hostile file that has taken over the parser's process gets neither credentials nor a way out."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kinds.document.reading import parse, sandbox
from kinds.document.reading.parse import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is of Linux, as Lambda is")

SANDBOX = Path(sandbox.__file__).read_text()
NOBODY = 65534
USERS = [os.geteuid(), NOBODY] if os.geteuid() == 0 else [os.geteuid()]
filtered = pytest.mark.skipif(platform.machine() not in sandbox._SYSTEM_CALLS, reason="unknown system calls")

PARENT = """
import json, os, socket, sys
user, protected = int(sys.argv[1]), sys.argv[2] == "protected"
os.setgroups([]) if user else None
os.setresgid(user, user, user)
os.setresuid(user, user, user)
_prctl(_SET_DUMPABLE, 1)  # a change of the user hides the process, and a new program would show it again
if protected:
    hide_process()
if os.fork():
    os.wait()
    os._exit(0)
if protected:
    enter()
"""
ATTEMPT = """
parent = os.getppid()
attempts = {
    "environment": lambda: open(f"/proc/{parent}/environ").read().count("s3cret"),
    "memory": lambda: open(f"/proc/{parent}/mem", "rb").read(0),
    "maps": lambda: open(f"/proc/{parent}/maps").read(1),
    "files": lambda: os.readlink(f"/proc/{parent}/fd/0"),
    "tcp": lambda: socket.socket(),
    "ipv6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    "unix": lambda: socket.socket(socket.AF_UNIX),
    "pair": lambda: socket.socketpair(),
    "program": lambda: os.execv("/bin/true", ["true"]),
    "root": lambda: os.setuid(0) if os.getuid() else os.setuid(65534),
    "capability": lambda: os.chroot("/"),
}
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"
"""
LAST = "print(json.dumps({name: outcome(attempts[name]) for name in attempts if name not in %r}), flush=True)"


def attack(user: int, *, protected: bool, without: tuple[str, ...] = ()) -> dict[str, str]:
    """The outcome of each attempt in a child of a process with a secret in its environment."""
    code = SANDBOX + PARENT + ATTEMPT + LAST % (without,)
    mode = "protected" if protected else "open"
    command = [sys.executable, "-I", "-S", "-c", code, str(user), mode]
    environment = {"AWS_SECRET_ACCESS_KEY": "s3cret"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip(), done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("user", USERS)
def test_nothing_is_within_reach(user: int) -> None:
    """As root and as another user, the child reads nothing of its parent and opens no socket or program."""
    without = () if platform.machine() in sandbox._SYSTEM_CALLS else ("tcp", "ipv6", "unix", "pair", "program")
    assert set(attack(user, protected=True, without=without).values()) == {"PermissionError"}


@pytest.mark.parametrize("user", USERS)
def test_it_would_be(user: int) -> None:
    """Without the sandbox the same attempts succeed, so they are real."""
    found = attack(user, protected=False, without=("program", "root", "capability"))
    assert found["environment"] == found["files"] == found["tcp"] == found["pair"] == "done"


def test_capabilities_do_not_come_back() -> None:
    """The capability sets of the child are empty, the one for later programs included."""
    code = SANDBOX + "\nenter()\nprint(open('/proc/self/status').read())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if os.geteuid() == 0 else [])]
    assert {name: int(status[name], 16) for name in sets} == dict.fromkeys(sets, 0)
    assert status["NoNewPrivs"].strip() == "1"


@filtered
def test_the_other_numbering_is_refused() -> None:
    """System calls cannot be made by other numbers: those of x32 are refused."""
    code = SANDBOX + (
        "\nenter()\nlibc = _libc()\n"
        "for number in (_X32 | 41, _X32 | 59, 425):\n"
        "    print(libc.syscall(number, 2, 1, 0), ctypes.get_errno())"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-1 1"] * 3


HOSTILE = """
import json, os, sys
sys.path[:] = {path!r}
del sys.argv[1:]
import kinds.document.reading.extract as child

def attempt(path, mode):
    try:
        with open(path, mode) as file:
            return file.read() if mode == "r" else file.write("x")
    except OSError as error:
        return type(error).__name__

def extract(data, **_):
    parent = f"/proc/{{os.getppid()}}/environ"
    return json.dumps([attempt(parent, "r"), attempt({target!r}, "w")]), None

child.extract = extract
child.main("text/html", 10**6, 20, 1024)
os._exit(0)
"""


def test_the_real_child_is_in_the_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process that reads documents can neither read the function's environment nor write to a file."""
    code = HOSTILE.format(path=[path for path in sys.path if path], target=str(tmp_path / "file"))
    monkeypatch.setattr(parse, "CHILD", (sys.executable, "-I", "-S", "-c", code))
    limits = Limits(max_bytes=10**6, max_characters=10**6, timeout_seconds=20, memory_mb=1024)
    seen = json.loads(parse.parse(b"<html>page", limits=limits).text)
    assert seen == ["PermissionError", "OSError"]  # the second is EFBIG
