"""The sample assembly, deployed in a simulated cloud."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.tests.sample import SERVICE, STORAGE, Sample, write_assembly, write_functions


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    assembly, source = tmp_path_factory.mktemp("assembly"), tmp_path_factory.mktemp("source")
    write_assembly(assembly, {"SampleStorage": STORAGE, "SampleService": SERVICE})
    answers = {"bedrock-runtime:InvokeModel": lambda params: {"body": params["modelId"].encode()}}
    yield Cloud(assembly, write_functions(source), answers=answers)
    for name in [name for name in sys.modules if name.startswith(("sample_", "cloud_sample"))]:
        del sys.modules[name]


@pytest.fixture
def sample(deployed: Cloud) -> Iterator[Sample]:
    with deployed.running():
        yield Sample(deployed, importlib.import_module("cloud_sample").scripts)
