"""Parsing documents in a child process (kinds.document.reading.parse)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import errors
from kinds.document.reading import parse as module
from kinds.document.reading.parse import Limits, ParsedDocument, parse
from kinds.document.reading.text import is_blank
from tests.support import pdfs

LAMBDAS = Path(module.__file__).parents[3]
LIMITS = Limits(max_bytes=10_000_000, max_characters=1_000_000, timeout_seconds=30, memory_mb=512)
PAGE = b"<!doctype html><p>page"
TWO_PAGES = pdfs.document(pdfs.show("hello"), pdfs.show("world"))
WHOLE = pdfs.write(TWO_PAGES)
READ_ALL = "import sys, os, json; data = sys.stdin.buffer.read()\n"
ANSWER = """
def answer(body, **header):
    header = {"ok": True, "pages": None, "size": len(body), **header}
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\\n" + body)
    sys.stdout.buffer.flush()
"""


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No process, zombie or open file is left after any test."""
    before = children(), open_files()
    yield
    assert children() <= before[0]
    assert open_files() <= before[1]


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
            found |= set(task.read_text().split())
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def use_child(patch: pytest.MonkeyPatch, code: str) -> None:
    """Runs this code in place of the parser process."""
    patch.setattr(module, "CHILD", (sys.executable, "-c", code))


@pytest.mark.parametrize(
    ("data", "document"),
    [
        (WHOLE, ParsedDocument("hello\n\nworld", "application/pdf", 2)),
        ("<html><h2>Año</h2><p>😀".encode(), ParsedDocument("## Año\n\n😀", "text/html", None)),
        ("# Título\r\n\r\n中文".encode(), ParsedDocument("# Título\n\n中文", "text/markdown", None)),
        (b"\xef\xbb\xbf%PDF is a format", ParsedDocument("%PDF is a format", "text/plain", None)),
        (b"\xff\xfe" + "olé 🎉".encode("utf-16-le"), ParsedDocument("olé 🎉", "text/plain", None)),
    ],
)
def test_documents(data: bytes, document: ParsedDocument) -> None:
    """PDF, HTML, Markdown and plain text are read. Their type is detected by content."""
    assert parse(data, limits=LIMITS) == document


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b" \n", errors.EmptyDocument),
        (pdfs.write(pdfs.document()), errors.EmptyDocument),
        (b"PK\x03\x04", errors.UnsupportedType),
        ("año".encode("latin-1"), errors.UnsupportedType),
        (b"<html>caf\xe9", errors.UnsupportedType),
        (WHOLE[:-9], errors.TruncatedDocument),
        (pdfs.write(TWO_PAGES | {6: b"null"}), errors.TruncatedDocument),
        (pdfs.write(pdfs.document(b"0 0 9 9 re f")), errors.NoText),
        (b"<html><script>x</script>", errors.NoText),
        (pdfs.write(TWO_PAGES | {40: b"<< /Filter /X >>"}, trailer=b"/Encrypt 40 0 R "), errors.EncryptedDocument),
    ],
)
def test_failures(data: bytes, error: type[errors.InvalidDocument]) -> None:
    """Each kind of unreadable document has its own error."""
    with pytest.raises(error) as caught:
        parse(data, limits=LIMITS)
    assert caught.type is error
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("data", [b"12345678", b"<p>1234</p>", pdfs.write(pdfs.document(pdfs.show("12345678")))])
def test_sizes(data: bytes) -> None:
    """Bytes and characters up to the limits are read, and one more is refused."""
    characters = len(parse(data, limits=LIMITS).text)
    exact = replace(LIMITS, max_bytes=len(data), max_characters=characters)
    assert len(parse(data, limits=exact).text) == characters
    for short in (
        replace(exact, max_bytes=len(data) - 1),
        replace(exact, max_characters=characters - 1),
    ):
        with pytest.raises(errors.DocumentTooLarge):
            parse(data, limits=short)


def test_large_documents() -> None:
    """Documents and texts larger than a pipe's buffer are read."""
    text = "palabra 中文 " * 200_000
    document = parse(f"<html><p>{text}".encode(), limits=replace(LIMITS, max_characters=3_000_000))
    assert document.text == text.strip()


def test_slow_document() -> None:
    """A page that takes minutes to parse times out."""
    started = time.monotonic()
    with pytest.raises(errors.ParseTimeout, match="within 1 seconds"):
        parse(b"<html>" + b"<div>" * 200_000 + b"x", limits=replace(LIMITS, timeout_seconds=1))
    assert time.monotonic() - started < 5


def test_greedy_document() -> None:
    """A small PDF that unpacks to tens of megabytes exceeds the memory limit."""
    content = zlib.compress(zlib.compress(b"q " * 30_000_000, 1), 9)
    bomb = pdfs.stream(content, entries=b"/Filter [/FlateDecode /FlateDecode] ")
    data = pdfs.write(TWO_PAGES | {7: bomb})
    assert len(data) < 3000
    with pytest.raises(errors.TooComplex):
        parse(data, limits=replace(LIMITS, memory_mb=128))


def test_recursive_document() -> None:
    """A PDF form that draws itself exceeds the time or memory limit."""
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 30 0 R >> >> "
    objects = pdfs.document(b"/X Do") | {30: pdfs.stream(b"/X Do /X Do", entries=form)}
    objects[4] = objects[4].replace(b"/Font", b"/XObject << /X 30 0 R >> /Font")
    with pytest.raises((errors.ParseTimeout, errors.TooComplex)):
        parse(pdfs.write(objects), limits=replace(LIMITS, timeout_seconds=2, memory_mb=256))


def test_concurrent_documents() -> None:
    """While one document times out, others are read."""
    hostile = b"<html>" + b"<div>" * 200_000 + b"x"

    def outcome(data: bytes) -> str:
        try:
            return parse(data, limits=replace(LIMITS, timeout_seconds=2)).text
        except errors.InvalidDocument as error:
            return error.code

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(outcome, [hostile, PAGE, WHOLE])) == ["timeout", "page", "hello\n\nworld"]


def test_sleeping_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that reads and writes nothing is killed, with its own children."""
    use_child(
        monkeypatch,
        "import os, subprocess, time; os.read(0, 8192); subprocess.Popen(['sleep', '60']); time.sleep(60)",
    )
    started = time.monotonic()
    with pytest.raises(errors.ParseTimeout):
        parse(PAGE + b"x" * 5_000_000, limits=replace(LIMITS, timeout_seconds=0.5))
    assert time.monotonic() - started < 10


def test_closed_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that closes its output and continues is killed."""
    use_child(monkeypatch, "import os, time; os.close(1); time.sleep(60)")
    with pytest.raises(errors.ParseTimeout):
        parse(PAGE, limits=replace(LIMITS, timeout_seconds=0.5))


def test_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a child leaves running are killed, even if the child succeeds."""
    code = "import subprocess as s; p = s.Popen(['sleep', '60'], stdin=0, stdout=s.DEVNULL); answer(b'%d' % p.pid)"
    use_child(monkeypatch, READ_ALL + ANSWER + code.replace("stdin=0", "stdin=s.DEVNULL"))
    pid = int(parse(PAGE, limits=LIMITS).text)
    deadline = time.monotonic() + 5
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_flooding_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that writes without end is stopped at the limit of the output."""
    use_child(monkeypatch, "import os\nwhile True: os.write(1, b'x' * 65536)")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(errors.TooComplex):
        parse(PAGE, limits=replace(LIMITS, max_characters=1000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KB


def test_unread_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is accepted even if the child did not read all of its input."""
    early = "import sys, os, json, time\nos.close(0); time.sleep(0.2)\n"
    use_child(monkeypatch, early + ANSWER + "answer(b'early', pages=7)")
    assert parse(PAGE + b"x" * 5_000_000, limits=LIMITS).pages == 7


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGXCPU"])
def test_killed_child(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    """A child that was killed by a signal raises TooComplex."""
    use_child(
        monkeypatch,
        READ_ALL + f"import resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"os.kill(os.getpid(), signal.{number})",
    )
    with pytest.raises(errors.TooComplex, match="Split it"):
        parse(PAGE, limits=LIMITS)


def test_broken_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that cannot start raises an internal error, which is retried."""
    use_child(monkeypatch, "raise SystemExit(3)")
    with pytest.raises(errors.RecadoError, match="exit status 3") as caught:
        parse(PAGE, limits=LIMITS)
    assert not isinstance(caught.value, errors.JobFailure)


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"\n",
        b"not json\n",
        b"[" * 100_000,
        b"[]\n",
        b"{}\n",
        b'{"ok": true, "size": 9, "pages": null}\nshort',
        b'{"ok": true, "size": 1, "pages": null}\n\xff',
        b'{"ok": false, "error": "NoSuchError", "message": ""}\n',
        b'{"ok": false, "error": "JobClosed", "message": ""}\n',
        b'{"ok": false, "error": ["NoText"], "message": ""}\n',
    ],
)
def test_malformed_output(monkeypatch: pytest.MonkeyPatch, output: bytes) -> None:
    """Malformed output fails the document."""
    use_child(monkeypatch, READ_ALL + f"os.write(1, {output!r})")
    with pytest.raises(errors.TooComplex):
        parse(PAGE, limits=LIMITS)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's environment has only paths of programs, modules and libraries."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_LAMBDA_RUNTIME_API",
        "TABLE",
    ):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/var/lang/lib")
    use_child(monkeypatch, READ_ALL + ANSWER + "answer(json.dumps(dict(os.environ)).encode())")
    seen = json.loads(parse(PAGE, limits=LIMITS).text)
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "LD_LIBRARY_PATH", "LANG", "PYTHONPATH"}
    assert seen["LD_LIBRARY_PATH"] == "/var/lang/lib"
    assert "secret" not in seen.values()


def test_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has its own session and another working directory."""
    use_child(
        monkeypatch, READ_ALL + ANSWER + "answer(json.dumps([os.getsid(0), os.getpid(), os.getcwd()]).encode())"
    )
    session, pid, directory = json.loads(parse(PAGE, limits=LIMITS).text)
    assert session == pid != os.getsid(0)
    assert directory == "/"


def test_module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child finds its modules without PYTHONPATH and with relative entries in the path."""
    for name in ("core", "kinds"):
        (tmp_path / name).symlink_to(LAMBDAS / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    lambdas = str(LAMBDAS)
    monkeypatch.setattr(sys, "path", ["", *(entry for entry in sys.path if entry != lambdas)])
    assert parse(PAGE, limits=LIMITS).text == "page"


def test_module_path_of_lambda() -> None:
    """The child finds its modules if the path was set at run time, as in Lambda."""
    lambdas = str(LAMBDAS)
    packages = next(entry for entry in sys.path if entry.endswith("site-packages"))
    code = (
        f"import sys; sys.path[:0] = [{lambdas!r}]; sys.path.append({packages!r})\n"
        "from kinds.document.reading.parse import Limits, parse\n"
        f"print(parse(sys.stdin.buffer.read(), limits={LIMITS!r}).text)"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, input=WHOLE, capture_output=True, check=True, cwd="/", env={}, timeout=60)
    assert done.stdout == b"hello\n\nworld\n"


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """`data` with some bytes overwritten and its end kept."""
    edits = st.lists(
        st.tuples(st.integers(0, len(data) - 1), st.binary(min_size=1, max_size=6)), min_size=1, max_size=8
    )

    def edit(changes: list[tuple[int, bytes]]) -> bytes:
        out = bytearray(data)
        for position, piece in changes:
            out[position : position + len(piece)] = piece
        return bytes(out)

    return edits.map(edit)


@settings(max_examples=20, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        mutated(WHOLE),
        mutated(pdfs.write_compressed(TWO_PAGES)),
        st.binary(max_size=300).map(b"<html><meta charset=windows-1251>".__add__),
    )
)
def test_any_bytes(data: bytes) -> None:
    """Any bytes, damaged PDFs included, give a text that is not blank, or an InvalidDocument."""
    try:
        text = parse(data, limits=LIMITS).text
    except errors.InvalidDocument as error:
        text = str(error)
    assert not is_blank(text)
    assert text.encode()
