"""The notebook in `examples`, run from its first cell to its last against the deployed system."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from recado import Recado
from tests.conftest import ROOT
from tests.e2e.conftest import System

NOTEBOOK = ROOT / "examples" / "client.ipynb"
DOCUMENTS = 3


@pytest.fixture
def key(system: System, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """What the kernel finds: where the service is and what opens it, and nothing of this user's."""
    key = system.caller("notebook").key
    monkeypatch.setenv("RECADO_URL", system.url)
    monkeypatch.setenv("RECADO_API_KEY", key)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    # Kept for the next run: matplotlib takes seconds to look at all fonts.
    monkeypatch.setenv("MPLCONFIGDIR", str(pytestconfig.cache.mkdir("matplotlib")))
    return key


def test_it_runs_through(system: System, key: str) -> None:
    """Every cell runs, every job completes, every way of waiting is counted, and a picture comes of it."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=90, kernel_name="python3", resources=folder).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "completed after" in said
    assert "come back in" in said
    assert "document.indexed" in said
    assert "121 requests, 119 of them wasted: 98.3 %" in said
    for way in ("backoff", "Retry-After", "long poll", "server-sent events", "WebSocket"):
        assert f"\n{way} " in said
    pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 1
    with Recado(system.url, key) as client:
        assert [job.status for job in client.jobs()] == ["completed"] * DOCUMENTS


def test_it_is_kept_without_its_outputs() -> None:
    """In git there is what it does, and nothing of what it did somewhere: no output, no count, no URL."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
