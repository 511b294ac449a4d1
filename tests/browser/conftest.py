"""An engine with the deployed app, a browser, and a web site whose pages may call the API."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from local import corpus, deploy, engine
from recado import Recado
from recado.models import Job
from tests.browser import pages
from tests.browser.pages import Web
from tests.e2e.conftest import System

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--disable-gpu", "--disable-quic", "--disable-sync", "--no-proxy-server")
PATIENCE_MS = 90_000


@pytest.fixture(scope="session")
def web() -> Iterator[Web]:
    with pages.serving() as web:
        yield web


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory, web: Web) -> Iterator[System]:
    """The deployed app, with the origin of the site in `cors_origins`."""
    with engine.running(tmp_path_factory.mktemp("engine")) as running:
        outputs = deploy.synthesise_and_deploy(running, context={"cors_origins": json.dumps([web.origin])})
        yield System(running, outputs, running.workspace / "cdk.out")


@pytest.fixture(scope="session")
def client(system: System) -> Iterator[Recado]:
    """The client that submits jobs. Pages have no key."""
    with Recado(system.url, system.caller("browser").key) as client:
        yield client


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium of this machine, without a sandbox, because root cannot use one."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.fail("there is no Chromium. On Debian and Ubuntu: apt install chromium", pytrace=False)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=FLAGS, chromium_sandbox=False) as browser,
    ):
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page with its own cache, connections and storage."""
    with browser.new_page(viewport={"width": 760, "height": 900}, device_scale_factor=2) as page:
        page.set_default_timeout(PATIENCE_MS)
        yield page


@pytest.fixture
def sockets(page: Page) -> list[str]:
    """The URLs of all WebSockets that the page has opened or tried to open."""
    urls: list[str] = []
    page.on("websocket", lambda socket: urls.append(socket.url))
    return urls


@pytest.fixture
def preflights(page: Page) -> list[str]:
    """The URLs of preflight requests, which Playwright does not list."""
    urls: list[str] = []

    def note(sent: dict[str, Any]) -> None:
        if sent["request"]["method"] == "OPTIONS":
            urls.append(sent["request"]["url"])

    network = page.context.new_cdp_session(page)
    network.on("Network.requestWillBeSent", note)
    network.send("Network.enable")
    return urls


@pytest.fixture
def submit(client: Recado) -> Callable[[], Job]:
    """Submits a job that takes some seconds and reports progress."""
    return lambda: client.submit(text=corpus.reference()["compound"])


@pytest.fixture(scope="session")
def ended(client: Recado) -> Job:
    """A completed job."""
    return client.wait(client.submit(text="The cellar key hangs behind the door."))


@pytest.fixture(scope="session")
def screenshots(pytestconfig: pytest.Config) -> Path:
    """The folder for screenshots of the pages."""
    folder = pytestconfig.rootpath / ".local" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
