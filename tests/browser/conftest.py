"""One engine with the deployed app, one browser, and one site whose pages may call the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local import corpus, deploy, engine
from recado import Recado
from recado.models import Job
from tests.browser import chromium, pages
from tests.browser.chromium import Chromium, Page
from tests.browser.pages import Web
from tests.e2e.conftest import System


@pytest.fixture(scope="session")
def web() -> Iterator[Web]:
    with pages.serving() as web:
        yield web


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory, web: Web) -> Iterator[System]:
    """The app as it is deployed for one site's pages; nothing else differs."""
    with engine.running(tmp_path_factory.mktemp("engine")) as running:
        outputs = deploy.synthesise_and_deploy(running, context={"cors_origins": json.dumps([web.origin])})
        yield System(running, outputs, running.workspace / "cdk.out")


@pytest.fixture(scope="session")
def client(system: System) -> Iterator[Recado]:
    """Who submits: a key never belongs into a page."""
    with Recado(system.url, system.caller("browser").key) as client:
        yield client


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.running(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def opened(browser: Chromium) -> Iterator[Callable[[str], Page]]:
    """Opens a page, and closes it after the test."""
    made: list[Page] = []

    def open_page(url: str) -> Page:
        page = browser.page()
        made.append(page)
        page.open(url)
        return page

    yield open_page
    for page in made:
        page.close()


@pytest.fixture
def submit(client: Recado) -> Callable[[], Job]:
    """A job of some seconds, with several batches, so that there is progress to see."""
    return lambda: client.submit(text=corpus.reference()["compound"])


@pytest.fixture(scope="session")
def ended(client: Recado) -> Job:
    """A job that is over."""
    return client.wait(client.submit(text="The cellar key hangs behind the door."))


@pytest.fixture(scope="session")
def album(pytestconfig: pytest.Config) -> Path:
    """Where the pictures of pages are kept, to be looked at."""
    folder = pytestconfig.rootpath / ".local" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
