# The two commands of the README are `make serve` and `make test`; each sets up everything it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
UV     := $(or $(shell command -v uv),$(BIN)/uv)
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(VENV)/.runtime ## set up, write ctx.toml if there is none, index docs/, serve on 127.0.0.1:7331
	@test -f ctx.toml || test -f .ctx/config.toml || $(BIN)/ctx init --root ./docs --config ctx.toml
	@$(BIN)/ctx index --no-embed || [ $$? = 1 ]  # 1: a source failed; the others are served
	@echo "Starting on http://127.0.0.1:7331/ (or [server] bind of ctx.toml); connect an agent: $(BIN)/ctx connect cursor; stop: Ctrl-C"
	@exec $(BIN)/ctx serve mcp --log-level warning

test: $(VENV)/.ci dist ## set up and run everything that CI runs
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	@$(PYTEST) -m "not full" --durations=15

full: $(VENV)/.ci dist ## run what takes minutes, too: hundreds of kills, the soak; before a release
	@$(PYTEST) --durations=15

check: $(VENV)/.dev ## the quick suite: format, lint, types, fast tests
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	@$(PYTEST) -m "not slow and not full and not clients and not cluster" -q --in-memory -p no:schemathesis -o tmp_path_retention_policy=failed

dist: $(VENV)/.ci ## build the site, the manual page, the wheel and the sdist, and check them
	@rm -rf site build/pages && mkdir -p build/pages && cp -r docs .ci/zensical.toml build/pages
	@$(BIN)/zensical build --clean --strict -f build/pages/zensical.toml && mv build/pages/site .
	@$(BIN)/python .ci/manual.py build/man/ctx.1
	@rm -rf dist && $(BIN)/python -m build --no-isolation --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BIN)/twine check --strict dist/*

size: dist ## print what the base install weighs
	@$(UV) venv --quiet --clear build/size && $(UV) pip install --quiet --link-mode copy --python build/size/bin/python dist/*.whl
	@find build/size -name '*.py[co]' -delete; du -sm build/size

audit: $(VENV)/.ci ## ask a vulnerability database about every locked dependency
	@$(BIN)/pip-audit --require-hashes --disable-pip -r requirements/runtime.txt

lock: ## resolve the dependencies again
	@UV="$(UV)" bash .ci/lock

$(VENV)/.runtime $(VENV)/.dev $(VENV)/.ci: $(VENV)/.%: requirements/%.txt pyproject.toml .ci/setup
	@PYTHON="$(PYTHON)" bash .ci/setup $* $(VENV) && touch $@

.PHONY: help serve test full check dist size audit lock
