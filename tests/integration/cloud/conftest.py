"""The sample assembly in a cloud of its own: tests of the in-process cloud itself, one fact each."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from tests.support import sample
from tests.support.cloud import Cloud


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    assembly, source = tmp_path_factory.mktemp("assembly"), tmp_path_factory.mktemp("source")
    sample.write_assembly(assembly, {"SampleStorage": sample.STORAGE, "SampleService": sample.SERVICE})
    yield Cloud(assembly, sample.write_functions(source))
    for name in [name for name in sys.modules if name.startswith(("sample_", "cloud_sample"))]:
        del sys.modules[name]


@pytest.fixture
def it(deployed: Cloud) -> Iterator[sample.Sample]:
    with deployed.running():
        yield sample.Sample(deployed, importlib.import_module("cloud_sample").scripts)
