# The two commands of the README are `make serve` and `make test`; each sets up everything it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.runtime ## set up, write ctx.toml if there is none, index, serve on 127.0.0.1:7331
	@test -f ctx.toml || test -f .ctx/config.toml || $(BIN)/ctx init --root ./docs --config ctx.toml
	@exec $(BIN)/ctx serve mcp

test: setup clients ## set up and run everything that CI runs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --durations=15

check: setup ## the quick suite: format, lint, types, the tests that take seconds
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -m "not slow and not clients" -q

bench: setup ## every benchmark, with its yardstick
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

setup: $(VENV)/.dev ## the virtual environment with everything for development

clients: $(VENV)/.clients ## the real clients that the tests drive: a browser, Node, the MCP tools

lock: ## resolve the dependencies anew
	@$(BIN)/python -m pip --quiet install uv
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  pyproject.toml .ci/build.in -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group dev --extra metrics pyproject.toml .ci/build.in -o requirements-dev.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --constraint requirements-dev.lock --group clients -o requirements-clients.lock

clean: ## remove the virtual environment and the caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("ctx needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.runtime: $(BIN)/python requirements.lock pyproject.toml
	@echo "Setting up $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q ctx  # pip compiles what it installs, but not what it only links to; the first search would
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.clients: $(VENV)/.dev .ci/clients requirements-clients.lock tests/clients/package-lock.json
	@bash .ci/clients $(VENV)
	@touch $@

.PHONY: help serve test check bench setup clients lock clean
