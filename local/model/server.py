"""The model's HTTP server on loopback: `python -m local.model.server --port N`. Prints no prompt and no answer.

RECADO_MODEL_URL: answers come from there instead of from the small model. It is the base URL of a server of
OpenAI's protocol, such as http://localhost:11434/v1 for Ollama, or `fake`.
RECADO_MODEL_NAME, RECADO_MODEL_KEY: that server's model, and its API key.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from local import toolchain
from local.model.events import Caller, CallerGone, ConnectionCut
from local.model.service import Response, Service
from local.model.upstreams import Fake, HttpUpstream, Llama, Upstream

HOST = "127.0.0.1"
MAX_BODY_BYTES = 25_000_000


def server(service: Service, port: int = 0) -> ThreadingHTTPServer:
    """It listens already; its `serve_forever` answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if length > MAX_BODY_BYTES:
                self.close_connection = True
                self.send_error(413)
                return
            body = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            caller = Caller()
            try:
                with _watched(self.connection, caller):
                    self._send(service.handle(self.command, self.path, headers, body, caller))
            except (CallerGone, ConnectionCut, ConnectionError):
                self.close_connection = True
            finally:
                caller.leave()  # ends a call of the model that nobody reads to its end

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

        def _send(self, response: Response) -> None:
            is_chunked = "content-length" not in response.headers
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if is_chunked:
                self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in response.body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            if is_chunked:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    return Server((HOST, port), Handler)


@contextlib.contextmanager
def _watched(connection: socket.socket, caller: Caller) -> Iterator[None]:
    """See it when the caller closes its connection, also while the model is silent."""
    is_done = threading.Event()

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):  # it has been closed here
            while not is_done.is_set():
                if select.select([connection], [], [], 0.1)[0]:
                    if not connection.recv(1, socket.MSG_PEEK):
                        caller.leave()
                    return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_done.set()


def upstream(environment: Mapping[str, str]) -> Upstream:
    url = environment.get("RECADO_MODEL_URL", "")
    if url == "fake":
        return Fake()
    if url:
        name, key = environment.get("RECADO_MODEL_NAME", ""), environment.get("RECADO_MODEL_KEY", "")
        return HttpUpstream(lambda: url, name=name, key=key)
    return Llama(toolchain.MODEL_VENV / "bin" / "python", toolchain.MODEL_FILE)


def _end_with_parent() -> None:
    """End with the parent process, however it ends: its end closes the pipe that is our standard input."""

    def wait() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m local.model.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--end-with-parent", action="store_true")
    options = parser.parse_args()
    if options.end_with_parent:
        _end_with_parent()
    listening = server(Service(upstream(os.environ)), options.port)
    listening.serve_forever()
