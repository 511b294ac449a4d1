"""A service on loopback that keeps connections open and answers about the job that was asked for."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST = "127.0.0.1"
DELAY_SECONDS = 0.003
"""Before each answer, so that the requests of several processes are open at the same time."""


@dataclass
class EchoService:
    """`connections`: the jobs that were asked for on each connection, in order of the connections."""

    url: str = ""
    connections: list[list[str]] = field(default_factory=list)


@contextmanager
def echoing(certificate: Path | None = None) -> Iterator[EchoService]:
    """Serves `GET /v1/jobs/{id}`, over TLS if a certificate with its key is given."""
    service = EchoService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def setup(self) -> None:
            super().setup()
            self.jobs: list[str] = []
            service.connections.append(self.jobs)

        def do_GET(self) -> None:
            self.jobs.append(self.path.rpartition("/")[2])
            time.sleep(DELAY_SECONDS)
            job = {"job_id": self.jobs[-1], "kind": "document", "status": "running", "stage": "embed"}
            body = json.dumps(job).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The tests read `connections`."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    service.url = f"{'https' if certificate else 'http'}://{HOST}:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def write_certificate(file: Path) -> Path:
    """A self-signed certificate of this machine and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + certificate.public_bytes(pem))
    return file
