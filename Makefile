# Two commands on a fresh machine: make demo, make test. Both set themselves up in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check clean

demo: $(VENV)/.demo
	$(BIN)/veil demo -o out/demo

test: $(VENV)/.dev services
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format . ; $(BIN)/mypy

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.demo: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]'
	@touch $@

# mosquitto and chromium for the gateway's tests: installed where that is possible, skipped with a word where not
.PHONY: services
services:
	@./.ci/services

clean:
	rm -rf $(VENV) out build dist
