# Needs only make, git and a Python >= 3.11; everything else goes into .venv.

PYTHONS ?= python3.13 python3.12 python3.11 python3
CPUS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
# Tests mostly wait, so a small machine has five test processes per core, and at most ten.
WORKERS ?= $(shell few=$$((5 * $(CPUS))); [ $$few -gt 10 ] && few=10; [ $(CPUS) -gt $$few ] && few=$(CPUS); echo $$few)

# Tests start hundreds of processes. If Python may not keep its bytecode, each of them compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := .docs
# A process without tests takes over some of another one: slow tests follow each other.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_FLAGS)
# The number of times that `make test-stress` runs all tests, and the fault tests.
STRESS_ALL ?= 2
STRESS_FAULTS ?= 10
LINTERS := types-of-tests types house-rules style
# The length and the seed of `make chaos`.
SECONDS ?= 60
SEED ?= 1
# The script of `make assembled`.
NAME ?= settle

.DEFAULT_GOAL := help
.PHONY: help demo test tests-on-one-server tests-on-other-servers test-clients test-large test-redis-py sync test-servers test-stress check lint $(LINTERS) assembled faults chaos chaos-broken bench bench-quick probe docs docs-serve screenshots clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s%s\n", $$1, $$2 }' Makefile

demo: $(READY) ## run the demo, with the dashboard; at a terminal until Ctrl-C
	$(BIN)/python examples/demo.py --web

# Side by side: the second of them has ended long before the first one does.
test: $(READY) ## run every test, fault tests included, and some of them on other servers
	@$(MAKE) --no-print-directory -k -j 2 tests-on-one-server tests-on-other-servers

# In a new checkout one process compiles the tests first: otherwise all test processes compile them.
tests-on-one-server:
	@[ -d tests/__pycache__ ] || $(BIN)/python -m pytest -n 0 --collect-only -q >/dev/null
	$(PYTEST) -m "not large"
tests-on-other-servers:
	bash tests/servers.sh some $(PYTEST)

sync: $(READY) ## write the verbs of docket.sync from those of the async docket
	$(BIN)/python -m lint.sync_verbs

test-servers: $(READY) ## run the tests of behaviours and of the contract on every kind of server
	bash tests/servers.sh all $(PYTEST)

test-clients: $(READY) ## run FastMCP and Prefect on docket, each in its own environment
	$(BIN)/python -m compat.clients

test-large: $(READY) ## run the tests with large numbers of tasks
	$(BIN)/python -m pytest -n 0 --timeout 7200 -m large -s

test-redis-py: $(READY) ## run the tests that depend on redis-py with its oldest and its newest release
	bash tests/redis_py.sh $(abspath $(BIN)/python) -n $(WORKERS) $(PYTEST_FLAGS)

test-stress: $(READY) ## run all tests twice and the fault tests ten times, next to two busy loops
	STRESS_ALL=$(STRESS_ALL) STRESS_FAULTS=$(STRESS_FAULTS) bash tests/stress.sh $(PYTEST)

check: lint ## format, lint, types, layers and the fast tests
	$(PYTEST) -m "not faults and not slow and not large"

lint: $(READY) ## format, lint, types, layers and house rules
	@$(MAKE) --no-print-directory -k -j 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(LINTERS)

# The longest first: two run at a time.
types-of-tests:
	$(BIN)/basedpyright -p tests
types:
	$(BIN)/basedpyright
house-rules:
	$(BIN)/python -m lint
style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

assembled: $(READY) ## print the Lua of a script as the server runs it (NAME=settle)
	@$(BIN)/python -m docket.storage.scripts $(NAME)

faults: $(READY) ## run only the slow fault tests
	$(PYTEST) -m "faults and not large"

chaos: $(READY) ## run workers under faults and check their histories (SECONDS=60 SEED=1)
	$(BIN)/python -m chaos --seconds $(SECONDS) --seed $(SEED)

chaos-broken: $(READY) ## check the checker: each build that is broken on purpose must be caught
	$(BIN)/python -m chaos --all-broken --seed $(SEED)

bench: $(READY) ## run the full benchmark
	$(BIN)/python -m bench

bench-quick: $(READY) ## run the benchmark in its short form
	$(BIN)/python -m bench --quick

probe: $(READY) ## make the same calls on pydocket and on docket, and list the differences
	$(BIN)/python -m compat.probe

docs: $(DOCS)/.ready ## build the documentation into build/docs; a warning or a broken link is an error
	@$(DOCS)/bin/python docs/check_links.py
	@if ! said=$$(NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict 2>&1); then echo "$$said" >&2; exit 1; fi
	@echo "build/docs/index.html"

docs-serve: $(DOCS)/.ready ## show the documentation on http://127.0.0.1:8000, and every change of it
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs serve --watch src/docket --watch examples

screenshots: $(READY) ## take the pictures of docket top and the dashboard (needs a Chromium; takes minutes)
	$(BIN)/python docs/top_picture.py
	$(BIN)/python docs/screenshots.py

clean: ## remove everything that the other targets created
	rm -rf $(VENV) $(DOCS) .redis-py .bench .clients build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A name on PATH may be a shim that cannot run, and a Python may lack venv: try each before choosing.
$(READY): pyproject.toml
	@set -eu; \
	uv=; if uv --version >/dev/null 2>&1; then uv=uv; fi; \
	if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		python=; \
		for name in $(PYTHONS); do \
			if $$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
			then python=$$(command -v $$name); break; fi; \
		done; \
		rm -rf $(VENV); \
		if [ -n "$$uv" ]; then uv venv --quiet --seed --python "$${python:->=3.11}" $(VENV); \
		elif [ -n "$$python" ]; then "$$python" -m venv $(VENV); \
		else echo "No working Python >= 3.11 with venv among: $(PYTHONS)" >&2; exit 1; fi; \
	fi; \
	echo "Installing docket and its development tools into $(VENV) ..."; \
	if [ -n "$$uv" ]; then uv pip install --quiet --python $(BIN)/python -e '.[dev]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'; fi; \
	touch $@

# The site needs a few packages and nothing of the project: the reference is read from the sources.
$(DOCS)/.ready: docs/requirements.txt
	@set -eu; \
	if ! $(DOCS)/bin/python -c 'import pip' >/dev/null 2>&1; then \
		python=; \
		for name in $(PYTHONS); do \
			if $$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
			then python=$$name; break; fi; \
		done; \
		if [ -z "$$python" ]; then echo "No working Python >= 3.11 with venv among: $(PYTHONS)" >&2; exit 1; fi; \
		rm -rf $(DOCS); $$python -m venv $(DOCS); \
	fi; \
	echo "Installing the tools of the documentation into $(DOCS) ..."; \
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt; \
	touch $@
