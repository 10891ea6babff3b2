# Each target sets up what it needs: Python >= 3.11 and make are all a fresh clone wants.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Most of the tests' time goes into compilers that use one core each. JOBS=0 runs all in
# one process, for a debugger.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage check bench suite-array-api-extra format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## create .venv with everything that development needs

# The package itself is installed in place, so only a change of these two files asks
# for another run of pip.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "xpolicy needs Python 3.11 or newer, and $(PYTHON) is %d.%d: run make PYTHON=/path/to/python3.11" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'  # --group
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[cli,torch,jax]' --group dev
	@touch $@

demo: $(INSTALLED) ## see it work, in a minute
	$(BIN)/python -m benchmarks.demo

test: $(INSTALLED) ## run the tests
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile

coverage: $(INSTALLED) ## run the tests, and show what they don't reach (a third slower)
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --cov --cov-report=term

check: $(INSTALLED) ## style, types, import floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --warnings
	$(BIN)/lint-imports

bench: $(INSTALLED) ## measure what a call costs, beside its peers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group bench
	$(BIN)/python -m benchmarks

suite-array-api-extra: $(INSTALLED) ## run another library's tests in all modes (an hour)
	$(BIN)/python -m benchmarks.suite

format: $(INSTALLED) ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and what the tools leave
	rm -rf $(VENV) .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist htmlcov
