# Everything needs only Python 3.11 or later and make; each target sets up what it uses.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# Every package of the development environment, with the hashes of its files.
LOCK := requirements/dev.txt
# Workers, and the processes that tests start, share what Python compiles, whatever the environment
# says of that.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest
# Three workers for two cores, as tests also wait. The tests of a file share tables and servers, so
# they stay in one worker. The order is that of tests/conftest.py.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help install demo test test-long lint format docs site bench bench-full lock audit clean
.DEFAULT_GOAL := help

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.ready: pyproject.toml $(LOCK)
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --upgrade 'pip>=25.1'
	@$(PY) -m pip install --quiet --require-hashes --requirement $(LOCK)
	@$(PY) -m pip install --quiet --no-deps --editable .
	@touch $@

install: $(VENV)/.ready ## create .venv with the package and its development tools

demo: install ## show what it does, on data made here
	@$(PY) -m indextables.demo

test: install ## run the linters and every test of the ordinary run
	@# mypy takes one core; the other one compiles the tests meanwhile, once for all workers.
	@$(PYTEST) --collect-only -qq >/dev/null 2>&1 & $(MAKE) --no-print-directory lint
	@$(PYTEST) $(WORKERS)

test-long: install ## run the tests with many more random examples
	@$(PYTEST) $(WORKERS) --long

lint: install ## ruff and mypy --strict
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

format: install ## let ruff fix and format
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

docs: install ## generate the pages that come from code
	@$(PY) docs/generate.py

site: docs ## build the documentation into site/
	@$(PY) -m mkdocs build --strict --quiet

bench: install ## measure every speed claim at a small scale, in six minutes
	@$(PY) -m pip install --quiet --group bench
	@$(PY) -m benchmarks --scale 0.1 --output benchmarks.md

bench-full: install ## the same at the size of the claims, in about an hour
	@$(PY) -m pip install --quiet --group bench
	@$(PY) -m benchmarks --output benchmarks.md

lock: install ## resolve the development environment anew, within the ranges of pyproject.toml
	@$(PY) -m pip install --quiet 'uv>=0.9'
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-header --no-emit-index-url --group dev --output-file $(LOCK) pyproject.toml

audit: install ## look the locked packages up in a database of vulnerabilities
	@$(PY) -m pip install --quiet 'pip-audit>=2.9,<3'
	@$(PY) -m pip_audit --require-hashes --disable-pip --requirement $(LOCK)

clean: ## remove what the other targets made
	@rm -rf $(VENV) .demo site
