# The interface for people. Needs make and Python 3.11 or newer; everything else is fetched the first time.
PYTHON ?= python3
RECADO = .venv/bin/python -m local
ARGS ?=
# Tests and functions are compiled once, not with every start of a process.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run up down chat listen dataset test explore test-browser check lock package deploy cdk

help:           ## show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup:          ## fetch what is needed; does nothing when nothing has changed
	@$(PYTHON) -m local.setup

run: setup      ## run it here: deploy to a local engine, send a document through it, show what happens
	@$(RECADO) run $(ARGS)

up: setup       ## start it here and leave it running
	@$(RECADO) up $(ARGS)

down: setup     ## stop what `up` started
	@$(RECADO) down $(ARGS)

chat: setup     ## ask the small model about Python's language reference; starts and indexes what is missing
	@$(RECADO) chat $(ARGS)

listen: setup   ## a webhook receiver that verifies and prints what it gets
	@$(RECADO) listen $(ARGS)

dataset: setup  ## a CSV of ROWS rows (default: ten million, 1.1 GB) through clean, train, predict and export
	@$(RECADO) dataset $(ARGS)

check: setup    ## lint, formatting, types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

test: check     ## all tests (ARGS="-k words", ARGS=tests/unit …)
	.venv/bin/pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

explore: setup  ## property tests with other examples each time; what they find becomes an example of its test
	.venv/bin/pytest -n auto --hypothesis-profile=explore tests/unit $(ARGS)

test-browser: setup  ## pages that follow real jobs, in a real browser; needs Chromium (Debian: apt install chromium)
	@.venv/bin/python -m pip --disable-pip-version-check install --quiet -r tests/browser/requirements.txt
	.venv/bin/pytest tests/browser $(ARGS)

lock: setup     ## lock what deploys, with hashes, after a change in lambdas/requirements
	@.venv/bin/python -m local.lock

package: setup  ## build the layers as AWS gets them, list their packages (SBOM), show the size of every function
	@$(RECADO) package $(ARGS)

deploy: setup   ## deploy to AWS with your credentials (ARGS="--profile name -c key=value")
	@.venv/bin/python -m local.toolchain deploy --all $(ARGS)

cdk: setup      ## the CDK CLI on this app with your credentials (ARGS=bootstrap, ARGS=diff, ARGS="destroy RecadoService" …)
	@.venv/bin/python -m local.toolchain $(ARGS)
