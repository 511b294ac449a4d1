"""Commands for webhooks: endpoints, their deliveries, and a local receiver."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from email.message import Message
from typing import Any

from recado._cli import receiver
from recado._cli.arguments import add_command, add_limit_option, add_subcommands, open_client, parse_whole_seconds
from recado._cli.exit_codes import ERROR, OK, TIMEOUT
from recado._cli.format import format_fields
from recado._cli.output import Output
from recado._cli.receiver import ReceivedWebhook, WebhookVerifier
from recado._cli.signals import sigterm_as_interrupt
from recado._webhook_keys import parse_keys
from recado.client import Recado
from recado.errors import InvalidRequest, RecadoError
from recado.models import Delivery, Pending, Webhook

SECRET = "RECADO_WEBHOOK_SECRET"  # noqa: S105 the name of a variable
LISTEN_PORT = 8808


def add_commands(commands: Any) -> None:
    group = commands.add_parser("webhooks", help="manage endpoints and deliveries, and receive webhooks locally")
    subcommands = add_subcommands(group)
    _add_endpoint_commands(subcommands)
    _add_delivery_commands(subcommands)
    command = add_command(subcommands, "listen", listen, "receive webhooks on this machine, verify and print them")
    command.add_argument("--port", type=int, default=LISTEN_PORT, help=f"local port (default: {LISTEN_PORT})")
    command.add_argument("--event", action="append", metavar="PATTERN", help="only these events; can be repeated")
    command.add_argument("--public-url", metavar="URL", help="URL of a tunnel to this machine")
    command.add_argument(
        "--secret",
        metavar="WHSEC",
        help=f"secret of an existing endpoint; no endpoint is created (or set {SECRET})",
    )


def _add_endpoint_commands(commands: Any) -> None:
    command = add_command(commands, "add", add, "create an endpoint for events and print its secret")
    command.add_argument("endpoint", metavar="URL")
    command.add_argument(
        "--event", action="append", metavar="PATTERN", help="such as document.*; can be repeated (default: *)"
    )
    command.add_argument("--description")
    command.add_argument("--format", choices=["recado", "cloudevents", "slack", "thin"])
    command.add_argument("--signing", choices=["hmac", "ed25519"])
    command.add_argument("--ordered", action="store_true", default=None, help="send the events of a job in order")
    command.add_argument("--rate-limit", type=float, metavar="N", help="maximum number of requests per second")
    add_command(commands, "ls", ls, "list endpoints")
    add_command(commands, "rm", rm, "delete an endpoint").add_argument("webhook")
    add_command(commands, "test", test, "send a ping and print the response").add_argument("webhook")
    command = add_command(
        commands, "rotate", rotate, "create a new secret; the old one remains valid for a grace period"
    )
    command.add_argument("webhook")
    command.add_argument(
        "--grace", type=parse_whole_seconds, metavar="TIME", help="length of the grace period (default: 1 day)"
    )


def _add_delivery_commands(commands: Any) -> None:
    command = add_command(commands, "deliveries", deliveries, "list deliveries, the newest first")
    command.add_argument("webhook")
    command.add_argument(
        "--status", choices=["pending", "sending", "delivered", "failed", "discarded", "canceled"]
    )
    command.add_argument("--event", metavar="NAME")
    command.add_argument("--since", metavar="TIME", help="RFC 3339, such as 2026-11-29T08:00:00Z")
    add_limit_option(command)
    add_command(commands, "redeliver", redeliver, "send a delivery again, now").add_argument("delivery")


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────


def add(options: argparse.Namespace, output: Output) -> int:
    names = ("description", "format", "ordered", "signing", "rate_limit")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    with open_client(options) as client:
        webhook = client.webhooks.add(options.endpoint, options.event or ["*"], **given)
    return _show_secret(webhook, output)


def _show_secret(webhook: Webhook, output: Output) -> int:
    if output.as_json:
        output.json(webhook.raw)
    elif output.is_for_people:
        output.print((webhook.webhook_id, "bold"), f"  {webhook.url or ''}  {' '.join(webhook.events)}")
        name = "secret" if webhook.secret else "public key"
        output.print(f"{name}: ", (str(webhook.secret or webhook.public_key), "bold"))
        if webhook.secret:
            output.note("Store this secret now. It is not shown again.")
    else:
        output.fields(webhook.webhook_id, webhook.secret or webhook.public_key)
    return OK


def ls(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        webhooks = client.webhooks.list()
    rows = [(w.webhook_id, _state(w), w.url, " ".join(w.events), w.description) for w in webhooks]
    output.records(webhooks, ("webhook", "state", "url", "events", "description"), rows)
    return OK


def _state(webhook: Webhook) -> str:
    """`held`: the circuit breaker of the endpoint or of its host is open, so deliveries wait."""
    if not webhook.enabled:
        return f"disabled {webhook.disabled_reason or ''}".strip()
    circuits = (webhook.circuit, webhook.host_circuit)
    return "held" if any(circuit and circuit.state != "closed" for circuit in circuits) else "enabled"


def rm(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        client.webhooks.delete(options.webhook)
    output.note(f"{options.webhook} is deleted.")
    return OK


def test(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        result = client.webhooks.test(options.webhook)
    if output.as_json:
        output.json(result.raw)
    if isinstance(result, Pending):
        output.note(f"No response yet. Run `recado webhooks deliveries {options.webhook}` to see it later.")
        return TIMEOUT
    if not output.as_json:
        _show_attempt(result, output)
    return OK if result.status == "delivered" else ERROR


def _show_attempt(delivery: Delivery, output: Output) -> None:
    last = delivery.attempts[-1] if delivery.attempts else delivery.last_attempt
    response = f"{last.status or last.error} after {last.duration_ms} ms" if last else "not attempted"
    if output.is_for_people:
        mark = ("✓ ", "green") if delivery.status == "delivered" else ("✗ ", "red")
        message = last.message if last else None
        output.print(mark, delivery.status, f"  {response}  {message or ''}")
    else:
        output.fields(delivery.delivery_id, delivery.status, response)


def rotate(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        webhook = client.webhooks.rotate(options.webhook, grace_seconds=options.grace)
    return _show_secret(webhook, output)


# ── deliveries ───────────────────────────────────────────────────────────────────────────────────────────


def deliveries(options: argparse.Namespace, output: Output) -> int:
    filters = {"status": options.status, "event": options.event, "since": options.since}
    with open_client(options) as client:
        found = list(client.webhooks.deliveries(options.webhook, **filters, limit=options.limit))
    rows = [
        (d.delivery_id, d.status, d.event, d.attempt_count, _last_response(d), output.moment(d.created_at))
        for d in found
    ]
    headings = ("delivery", "status", "event", "attempts", "response", "created")
    output.records(found, headings, rows, right=("attempts",))
    return OK


def _last_response(delivery: Delivery) -> object:
    return (delivery.last_attempt.status or delivery.last_attempt.error) if delivery.last_attempt else ""


def redeliver(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        delivery = client.webhooks.redeliver(options.delivery)
    output.record(delivery, delivery.delivery_id, delivery.status)
    return OK


# ── listen ───────────────────────────────────────────────────────────────────────────────────────────────


def listen(options: argparse.Namespace, output: Output) -> int:
    """Receive until Ctrl-C. Without a secret, an endpoint is created now and deleted at the end."""
    secret = os.environ.get(SECRET) or None if options.secret is None else options.secret
    if secret is not None:
        parse_keys(secret)  # otherwise every request would be refused
    verifier, output_lock = WebhookVerifier([] if secret is None else [secret]), threading.Lock()

    def handle(headers: Message, body: bytes) -> int:
        received = verifier(headers, body)
        with output_lock:
            _show_received(received, output)
        return 204 if received.problem is None else 403

    with receiver.serve(handle, port=options.port) as url, sigterm_as_interrupt():
        if secret is not None:
            output.note("Listening at ", (url, "bold"), ". Press Ctrl-C to stop.")
            return _wait_for_interrupt()
        with open_client(options) as client, _endpoint(client, options.public_url or url, options) as webhook:
            verifier.secrets = [str(webhook.secret)]
            end = f" with the endpoint {webhook.webhook_id}. Press Ctrl-C to stop and delete the endpoint."
            output.note("Listening at ", (url, "bold"), end)
            return _wait_for_interrupt()


@contextmanager
def _endpoint(client: Recado, url: str, options: argparse.Namespace) -> Iterator[Webhook]:
    try:
        webhook = client.webhooks.add(url, options.event or ["*"], description="recado webhooks listen")
    except InvalidRequest as error:
        if error.field != "url":
            raise
        raise RecadoError(
            f"{error.detail} The service cannot call {url}. Pass the URL of a tunnel with --public-url, or the "
            f"secret of an existing endpoint with --secret or {SECRET}."
        ) from None
    try:
        yield webhook
    finally:
        client.webhooks.delete(webhook.webhook_id)


def _wait_for_interrupt() -> int:
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    return OK


def _show_received(received: ReceivedWebhook, output: Output) -> None:
    if output.as_json:
        output.json({"verified": received.problem is None, **asdict(received)})
        return
    mark = ("✓ verified", "green") if received.problem is None else ("✗ not verified", "red")
    again = ("  (received before)", "yellow") if received.again else ""
    problem = f"  {received.problem}" if received.problem else ""
    output.print(mark, "  ", (received.name, "bold"), f"  {received.event_id or ''}", again, problem)
    if isinstance(received.payload, Mapping):
        details = [received.payload.get("job_id"), format_fields(received.payload)]
        output.print("  ", ("  ".join(str(detail) for detail in details if detail), "dim"))
