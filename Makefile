# Everything a person needs, on a machine with Python 3.11+ and make. Each target sets up what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLEET ?= embedded
ONCE ?=
ONLY ?=
STATE ?= .fleet

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-oldest test-long test-fast bench lint types fleet-up fleet-down fleet-status schema lock clean

help:            ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## virtual environment with the locked dependencies

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)   ## the daemon on a fleet, with 22 jobs: FLEET=embedded|local|kind, ONCE=1 to run to the end
	$(BIN)/python -m demo --fleet $(FLEET) $(if $(ONCE),--once)

test: $(READY)   ## every test, the real fleet included
	$(BIN)/python -m pytest

test-oldest: $(READY) ## the contract suite on the oldest pair, Kueue 0.17.0 on Kubernetes 1.35.4; compiles them the first time
	ENTREPOT_FLEET=oldest $(BIN)/python -m pytest tests/contract -m local

test-long: $(READY) ## fifty kills, twelve of leaders, five hundred jobs to their end, on the real fleet: half an hour
	ENTREPOT_LONG=1 $(BIN)/python -m pytest -s tests/local/test_kills_for_real.py \
	  tests/local/test_replica_kills_for_real.py tests/local/test_crowd_for_real.py

test-fast: $(READY) ## what a minute is enough for: no real fleet, no network
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m 'not local and not slow' --hypothesis-profile=fast -n 2 --dist loadfile

bench: $(READY)  ## figures beside their peers, into bench/results.json; ONLY=NAME for one (bench/README.md)
	$(BIN)/python -m bench $(ONLY)

lint: $(READY)   ## ruff, format, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)  ## mypy --strict
	$(BIN)/mypy dispatcher connectors residency tests/fleet demo bench

fleet-up: $(READY)     ## a real fleet to play with: hub and three workers as plain processes
	$(BIN)/python -m tests.fleet up --dir $(STATE) --blueprint config

fleet-down: $(READY)   ## end that fleet
	$(BIN)/python -m tests.fleet down --dir $(STATE)

fleet-status: $(READY) ## what of it runs, and where its kubeconfigs lie
	$(BIN)/python -m tests.fleet status --dir $(STATE)

schema: $(READY) ## write the JSON Schemas of the blueprint and the OpenAPI document anew
	$(BIN)/entrepot blueprint schema config

lock: $(READY)   ## resolve the dependencies anew
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -q -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --constraint requirements.lock --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -o deploy/requirements.lock
	$(BIN)/uv pip compile deploy/build.in --constraint requirements.lock --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -o deploy/build.lock

clean:           ## remove what the targets above made, the fleet's caches excepted
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
