"""Deploys the CDK app to a local engine with the real CDK CLI: the app of AWS, but for `OVERRIDES`."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local import toolchain
from local.engine import ACCOUNT, REGION, Engine
from local.processes import HOST

OVERRIDES: dict[str, str] = {
    "runtime": "provided.al2023",  # AWS's own runtime client, started by `bootstrap`
    "code_directory": ".local/code",  # lambdas/ and that bootstrap
    "layers": "false",  # the functions run in the project's environment
    "embedding": "local",
    "embedding_model": "universal-sentence-encoder-multilingual-3",
    "embedding_dimensions": "512",
    "models": '{"bedrock/smollm2-135m-instruct": {}}',  # `local.model` answers in Bedrock's place
    "summary_part_tokens": "1000",  # its context has 4096 tokens, instructions and answer included
    "agent_context_tokens": "400",  # one passage, seldom two: half the time of three, and no more wrong answers
    "agent_answer_tokens": "60",  # it seldom says more that is right
    "fine_tune_models": "amazon.nova-micro-v1:0:128k",  # `local.model` has such jobs, and trains nothing
    "cors_origins": "*",  # pages of this machine, and those opened from a file, may follow a job by its links
    "account_concurrency": "1000",  # this machine has no quota, so an owner gets all of its limits
    "max_model_calls_per_owner": "2",  # all workers: whoever uses this machine is alone
    "allow_private_cidrs": "127.0.0.0/8",  # webhooks may go to this machine
    "webhook_allow_http": "true",
    "removal_policy": "destroy",
    "name": "Recado",  # whatever cdk.json calls the deployment to AWS
}
"""The whole difference to a deployment on AWS, as context of the CDK CLI (`-c key=value`)."""

_NOT_CODE = shutil.ignore_patterns("__pycache__", "*.pyc", "requirements")
_QUIET = ["--no-notices", "--ci", "--no-color", "--no-version-reporting"]


class DeployFailed(RuntimeError):
    """The CDK CLI ended with an error; the message is what it printed last."""


def overrides(code: Path | None = None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """`OVERRIDES`, with the code in `code` and the caller's own on top."""
    return OVERRIDES | ({"code_directory": str(code)} if code else {}) | dict(extra or {})


def own_hosts(engine: Engine) -> dict[str, str]:
    """The engine serves the API, and AWS's own services, at one port. Webhooks never go there."""
    return {"own_hosts": f"{HOST}:{engine.port}"}


def as_options(context: Mapping[str, str]) -> list[str]:
    """Context as options of the CDK CLI."""
    return [part for key, value in context.items() for part in ("-c", f"{key}={value}")]


def build_code(directory: Path) -> Path:
    """Copy lambdas/ to `directory`, with the `bootstrap` that starts a handler in the project's Python.

    The engine's own Python worker reports every exception under one name, so no `Catch` by name would ever fire;
    on a `provided` runtime AWS's runtime client runs the handler, and errors, logs and timeouts are the real ones.
    """
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(toolchain.ROOT / "lambdas", directory, ignore=_NOT_CODE)
    bootstrap = directory / "bootstrap"
    python = shlex.quote(str(toolchain.project_python()))
    bootstrap.write_text(f'#!/bin/sh\nexec {python} -m awslambdaric "$_HANDLER"\n')
    bootstrap.chmod(0o755)
    if not _has_native_runtime_client():
        shutil.copy(Path(__file__).with_name("runtime_client.py"), directory)
    return directory


def synthesise(workspace: Path, *, context: Mapping[str, str] | None = None) -> Path:
    """Build the code and run the CDK app; returns the cloud assembly's directory, which any engine can take.

    Needs no engine. `context` are further overrides, like `-c` of the CLI.
    """
    workspace = workspace.resolve()
    assembly = workspace / "cdk.out"
    shutil.rmtree(assembly, ignore_errors=True)  # assets of earlier code would pile up
    context = overrides(build_code(workspace / "code"), context)
    options = [*toolchain.app(), "--output", str(assembly), *as_options(context)]
    _cdk(["synth", "--quiet", *options], workspace, cwd=toolchain.ROOT)
    return assembly


def synthesise_for_aws(workspace: Path) -> Path:
    """Run the CDK app as it goes to AWS: no override, layers built by pip, and CDK's own validation on."""
    workspace = workspace.resolve()
    assembly = workspace / "cdk.out"
    options = ["--quiet", *toolchain.app(), "--output", str(assembly)]
    _cdk(["synth", *options], workspace, extra={"CDK_VALIDATION": "true"}, cwd=toolchain.ROOT)
    return assembly


def deploy(engine: Engine, assembly: Path) -> dict[str, str]:
    """Deploy all stacks of `assembly`, again or for the first time; returns the outputs of all of them."""
    outputs = engine.workspace / "outputs.json"
    options = ["--all", "--require-approval", "never", "--method", "direct", "--outputs-file", str(outputs)]
    _cdk(["deploy", "--app", str(assembly), *options], engine.workspace, extra=engine.credentials())
    by_stack: dict[str, dict[str, str]] = json.loads(outputs.read_text())
    return {key: value for stack in by_stack.values() for key, value in stack.items()}


def bootstrap(engine: Engine) -> None:
    """Make the bucket and roles that the CDK CLI needs in an account, once per engine."""
    _cdk(["bootstrap", f"aws://{ACCOUNT}/{REGION}"], engine.workspace, extra=engine.credentials())


def synthesise_and_deploy(engine: Engine, *, context: Mapping[str, str] | None = None) -> dict[str, str]:
    """Everything from the sources to the outputs on a fresh engine; bootstraps while the app is synthesised."""
    with ThreadPoolExecutor(1) as pool:
        bootstrapped = pool.submit(bootstrap, engine)
        assembly = synthesise(engine.workspace, context=own_hosts(engine) | dict(context or {}))
        bootstrapped.result()
    return deploy(engine, assembly)


def _cdk(
    arguments: list[str],
    workspace: Path,
    *,
    extra: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run the CDK CLI, by default from a directory without a cdk.json, where it has nothing to synthesise."""
    (workspace / "home").mkdir(parents=True, exist_ok=True)
    log = workspace / f"cdk-{arguments[0]}.log"
    with log.open("w") as output:
        done = subprocess.run(
            [*toolchain.cdk(), *arguments, *_QUIET],
            env=_environment(workspace) | dict(extra or {}),
            cwd=cwd or workspace,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise DeployFailed(f"cdk {arguments[0]} failed ({log}):\n{_last_words(log)}")


def _environment(workspace: Path) -> dict[str, str]:
    """Nothing of the caller's but PATH: no profile, credential, proxy or home can send this anywhere else."""
    return {
        "PATH": toolchain.path_with_node(),
        "LANG": "C.UTF-8",
        "HOME": str(workspace / "home"),
        "CDK_HOME": str(workspace / "home"),
        "CDK_DEFAULT_ACCOUNT": ACCOUNT,
        "CDK_DEFAULT_REGION": REGION,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "true",
        "CDK_VALIDATION": "false",  # 11 of the 14 CPU seconds of a synthesis; a deployment to AWS leaves it on
        "AWS_EC2_METADATA_DISABLED": "true",
        # 200 MB of the CDK library are unpacked once, not for every workspace.
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(toolchain.WORKSPACE / "cache" / "jsii"),
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    }


def _has_native_runtime_client() -> bool:
    """awslambdaric builds its client for Linux only."""
    site_packages = toolchain.node().parents[2]
    return any(site_packages.glob("runtime_client.*.so"))


def _last_words(log: Path, lines: int = 30) -> str:
    text = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(text[-lines:])
