# The two commands of the README are `make serve` and `make test`; each sets up everything it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# What builds, checks and audits the package; in an environment of its own, so that it decides no version of ctx's.
TOOLS  ?= $(VENV)/tools
# Two at a time, the tests of a file in one process, in the order of tests/conftest.py.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# What real clients need is not loaded, and what passed is not kept.
QUICK := --in-memory -p no:schemathesis -p no:langsmith_plugin -o tmp_path_retention_policy=failed

.DEFAULT_GOAL := help

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.runtime ## set up, write ctx.toml if there is none, index, serve on 127.0.0.1:7331
	@test -f ctx.toml || test -f .ctx/config.toml || $(BIN)/ctx init --root ./docs --config ctx.toml
	@$(BIN)/ctx index --no-embed || [ $$? = 1 ]  # a source that fails is told, and the others are served
	@echo "Starting the server; it follows the files and embeds in the background. Ctrl-C stops it. When it listens:"
	@echo "  search page:       http://127.0.0.1:7331/   (or what [server] bind in ctx.toml says)"
	@echo "  connect an agent:  $(BIN)/ctx connect cursor   ($(BIN)/ctx connect --help lists the others)"
	@exec $(BIN)/ctx serve mcp --log-level warning

test: setup clients cluster dist ## set up and run everything that CI runs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(PYTEST) --durations=15

check: setup ## the quick suite: format, lint, types, the tests that take no second each
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(PYTEST) -m "not slow and not clients and not cluster" -q $(QUICK)

bench: setup ## every benchmark, with its yardstick (but reach.py, which fetches 450 MB of packages, and what makes sets)
	@for file in $(filter-out benchmarks/reach.py %_set.py,$(wildcard benchmarks/[a-z]*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: $(TOOLS)/.ready ## build the documentation as a site into site/, every link checked
	@$(TOOLS)/bin/zensical build --clean --strict
	@rm -rf site/assets/stylesheets/classic  # of another theme: nothing refers to it

dist: docs $(VENV)/.dev ## build the wheel and the sdist into dist/, and check what an index will show
	@rm -rf dist
	@$(BIN)/python scripts/manual.py build/man/ctx.1
	@$(TOOLS)/bin/python -m build --no-isolation --outdir dist . >dist.log 2>&1 || { cat dist.log; rm -f dist.log; exit 1; }
	@rm -f dist.log
	@$(TOOLS)/bin/twine check --strict dist/*
	@ls -l dist | awk 'NR > 1 {printf "%8.1f MB  %s\n", $$5 / 1000000, $$NF}'

size: dist ## print what the base install weighs
	@$(TOOLS)/bin/uv venv --quiet --clear $(TOOLS)/size
	@$(TOOLS)/bin/uv pip install --quiet --python $(TOOLS)/size/bin/python dist/*.whl
	@$(BIN)/python scripts/size.py $(TOOLS)/size

audit: $(TOOLS)/.ready ## ask a vulnerability database about every locked dependency
	@$(TOOLS)/bin/python scripts/audit.py requirements.lock --program $(TOOLS)/bin/pip-audit || [ $$? = 3 ]

setup: $(VENV)/.dev ## the virtual environment with everything for development

clients: $(VENV)/.clients ## the real clients that the tests drive: a browser, Node, the MCP tools

cluster: $(VENV)/.cluster ## a PostgreSQL and an OpenSearch for the tests of several machines

tools: $(TOOLS)/.ready ## what builds the package and the documentation

lock: $(TOOLS)/.ready ## resolve the dependencies anew
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  pyproject.toml .ci/build.in -o requirements.lock
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group dev --extra metrics --extra cluster pyproject.toml .ci/build.in -o requirements-dev.lock
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --constraint requirements-dev.lock --group clients -o requirements-clients.lock
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group memory-clients -o requirements-memory-clients.lock
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group source-peers -o requirements-source-peers.lock
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group document-readers -o requirements-document-readers.lock
	@$(TOOLS)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  .ci/tools.in -o requirements-tools.lock

clean: ## remove the virtual environment, the caches and what was built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .cache dist site

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("ctx needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.runtime: $(BIN)/python requirements.lock pyproject.toml
	@echo "Setting up $(VENV): once, a few seconds with uv on PATH, minutes with pip"
	@$(BIN)/python scripts/install.py $(VENV) requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q ctx  # pip compiles what it installs, but not what it only links to; the first search would
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@$(BIN)/python scripts/install.py $(VENV) requirements-dev.lock
	@touch $@

$(VENV)/.clients: $(VENV)/.dev .ci/clients requirements-clients.lock requirements-memory-clients.lock requirements-source-peers.lock tests/clients/package-lock.json
	@bash .ci/clients $(VENV)
	@touch $@

# Programs and no library: unpacked beside the environment's packages, not among them.
$(VENV)/.cluster: $(VENV)/.dev requirements-cluster.lock scripts/fetch_opensearch.py .ci/opensearch.xml
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then \
	  $(PIP) install --require-hashes --no-deps --upgrade --target $(VENV)/cluster -r requirements-cluster.lock && chmod -R a+rX $(VENV)/cluster; \
	else echo "No PostgreSQL is pinned for this platform: the tests of several machines are left out"; fi
	@$(BIN)/python scripts/fetch_opensearch.py $(VENV)/cluster/opensearch
	@touch $@

$(TOOLS)/.ready: requirements-tools.lock
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python scripts/install.py $(TOOLS) requirements-tools.lock
	@touch $@

.PHONY: help serve test check bench docs dist size audit setup clients cluster tools lock clean
