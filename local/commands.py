"""What `make run`, `up`, `down` and `listen` do."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable

from rich.console import Console

from local import deploy, engine, showcase, showcase_models, toolchain
from local.api import Api
from local.engine import Engine
from local.model import process as model
from local.model.process import ModelServer
from local.model.upstreams import LOADING
from local.receiver import Received, is_genuine, listening
from recado import config

OWNER = "local"
UP, RUN = toolchain.WORKSPACE / "up", toolchain.WORKSPACE / "run"
ENV_FILE, CONFIG_FILE = toolchain.WORKSPACE / "env", toolchain.WORKSPACE / "recado.toml"
LISTEN_PORT = 8808
LISTEN_HELP = (
    "Receives webhooks, verifies and prints them. It knows the secrets of jobs and endpoints that were made with "
    "the key of `make up`; for others, put theirs into RECADO_WEBHOOK_SECRET, with spaces between them. It cannot "
    "verify ed25519 signatures."
)


def run(options: argparse.Namespace, console: Console) -> int:
    """Deploy to an engine of its own, show the main job, and stop."""
    begin = time.monotonic()
    with (
        model.running(RUN) as model_server,
        engine.running(RUN, environment=model_server.environment()) as running,
    ):
        api = deployed(running, console)
        console.print(f"  ready after {time.monotonic() - begin:.1f} s\n")
        try:
            showcase.show(api, console)
            showcase_models.show(api, model_server, console)
        except showcase.CheckFailed as failure:
            console.print(f"[red]This did not hold:[/] {failure}\nThe engine's log: {running.log}")
            return 1
    console.print(_WHAT_NEXT)
    return 0


_WHAT_NEXT = """
[bold]What next[/]
  make up       leave it running, with lines to paste for `recado` and for curl
  make listen   a webhook receiver that verifies and prints what it gets
  make test     prove all of it
  make deploy   send the same app to your AWS account (see README)
"""


def up(options: argparse.Namespace, console: Console) -> int:
    """Start, deploy, and leave it running; a second time, deploy what has changed."""
    start(console)
    names = {"env": os.path.relpath(ENV_FILE), "config": shlex.quote(str(CONFIG_FILE)), "port": LISTEN_PORT}
    console.print(_PASTE.format(**names), highlight=False, soft_wrap=True)
    return 0


def start(console: Console) -> config.Settings:
    """Start and deploy what `up` leaves running. Returns its URL and a key, which are also in CONFIG_FILE."""
    model_server = model.start(UP, outlive_us=True)
    running = engine.attach(UP) or engine.start(UP, environment=model_server.environment(), outlive_us=True)
    api = deployed(running, console)
    _say_if_there_is_no_model(model_server, console)
    lines = {"RECADO_URL": api.url, "RECADO_API_KEY": api.key}
    ENV_FILE.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in lines.items()))
    ENV_FILE.chmod(0o600)
    # Not where `recado login` writes: that may be somebody's way to their own service.
    settings = config.Settings(api.url, api.key)
    config.save(settings, CONFIG_FILE)
    return settings


def running_settings() -> config.Settings | None:
    """The URL and the key of what `up` started. None if any part of it does not run."""
    if not (engine.attach(UP) and model.attach(UP) and CONFIG_FILE.exists()):
        return None
    return config.load(environment={config.FILE: str(CONFIG_FILE)})


_PASTE = """
It runs; `make listen` in another terminal shows the webhooks. With the command (it leaves your own login alone):

export RECADO_CONFIG={config}
.venv/bin/recado submit README.md --wait
.venv/bin/recado complete "What is a lighthouse for?"
.venv/bin/recado summarize README.md
.venv/bin/recado ask "What does README say about webhooks?"

Or with curl, the URL and a key being in [bold]{env}[/] too:

source {env}

curl -sS "$RECADO_URL/jobs" -H "Authorization: Bearer $RECADO_API_KEY" -H "Content-Type: application/json" \\
  -d '{{"kind": "document", "input": {{"document_id": "notes", "text": "The cellar key hangs behind the door."}},
       "webhook_url": "http://127.0.0.1:{port}/webhooks"}}'

curl -sS "$RECADO_URL/jobs?limit=3" -H "Authorization: Bearer $RECADO_API_KEY"

curl -sS "$RECADO_URL/search" -H "Authorization: Bearer $RECADO_API_KEY" -H "Content-Type: application/json" \\
  -d '{{"query": "¿Dónde está la llave del sótano?", "top_k": 1}}'
"""


def down(options: argparse.Namespace, console: Console) -> int:
    running = [server for server in (engine.attach(UP), model.attach(UP)) if server]
    if not running:
        console.print("Nothing is running.")
        return 0
    for server in running:
        server.stop()
    for file in (ENV_FILE, CONFIG_FILE):
        file.unlink(missing_ok=True)
    console.print("Stopped.")
    return 0


def listen(options: argparse.Namespace, console: Console) -> int:
    """Receive until Ctrl-C."""
    running = engine.attach(UP)
    secrets = _secrets_reader(running)

    def take(received: Received) -> int:
        genuine = any(is_genuine(received, secret) for secret in secrets())
        mark = "[green]✓ verified[/]" if genuine else "[red]✗ not verified[/]"
        console.print(f"{mark}  [bold]{received.event.get('event')}[/]  {received.headers.get('webhook-id')}")
        console.print_json(received.body.decode())
        return 204 if genuine else 403

    with listening(take, port=options.port) as url:
        console.print(f"Listening at [bold]{url}[/]. Ctrl-C ends it.")
        while True:
            time.sleep(3600)


def _secrets_reader(running: Engine | None) -> Callable[[], list[str]]:
    """From RECADO_WEBHOOK_SECRET, or those of all of the owner's endpoints on the engine that `up` started."""
    given = os.environ.get("RECADO_WEBHOOK_SECRET", "").split()
    if given or running is None:
        return lambda: given

    def read() -> list[str]:
        _act_on(running)
        from core.aws import clients
        from core.webhooks.endpoints.cipher import SecretCipher
        from core.webhooks.endpoints.store import Endpoints
        from ops import stack

        parts = stack.outputs("RecadoService")
        endpoints = Endpoints(
            clients.dynamodb(), parts["JobsTable"], SecretCipher(clients.client("kms"), parts["SecretsKey"])
        )
        found = endpoints.of(OWNER)
        return [key for endpoint in found if endpoint.signing == "hmac" for key in endpoints.secrets(endpoint)]

    return read


def deployed(running: Engine, console: Console) -> Api:
    """The app on this engine, and a key for it."""
    with console.status("synthesising and deploying with the CDK CLI …"):
        started = time.monotonic()
        outputs = deploy.synthesise_and_deploy(running)
    console.print(f"  deployed to {running.endpoint} in {time.monotonic() - started:.1f} s")
    return Api(api_url(running, outputs), make_key(running, outputs))


def _say_if_there_is_no_model(server: ModelServer, console: Console) -> None:
    problem = server.problem()
    if problem and problem != LOADING:  # calls wait for that
        console.print(f"  [yellow]no model answers, so jobs that call one will fail:[/] {problem}")


def api_url(running: Engine, outputs: dict[str, str]) -> str:
    """The output is AWS's address; the API's id is its first label."""
    api_id = outputs["ApiUrl"].removeprefix("https://").partition(".")[0]
    return running.api_url(api_id, "v1")


def make_key(running: Engine, outputs: dict[str, str]) -> str:
    _act_on(running)
    from core.auth import KeyStore
    from core.aws import clients

    token, _ = KeyStore(clients.dynamodb(), outputs["KeysTable"]).create(owner=OWNER, note="made by local")
    return token


def _act_on(running: Engine) -> None:
    """From now on, AWS is this engine."""
    os.environ |= running.credentials()
