"""The command `recado` with the stub service."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recado import cli
from recado._cli.output import Output
from tests.unit.client.stub_service import StubService

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def configured(
    service: StubService, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> StubService:
    """The service that the environment names. There is no configuration file."""
    monkeypatch.setenv("RECADO_URL", service.url)
    monkeypatch.setenv("RECADO_API_KEY", "rk_test")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    for variable in ("FORCE_COLOR", "RECADO_CONFIG", "RECADO_WEBHOOK_SECRET", "TTY_INTERACTIVE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    return service


@pytest.fixture
def run(configured: StubService, capsys: pytest.CaptureFixture[str], short_delays: None) -> Run:
    """Runs the command. Returns exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(arguments)
        except SystemExit as exit_:
            code = int(str(exit_.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal."""
    monkeypatch.setattr(Output, "is_for_people", property(lambda self: not self.as_json))
