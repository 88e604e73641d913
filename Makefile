# Two commands on a fresh machine: make demo, make test. Both set themselves up in .venv.
# While working: make check (a minute or so), make fix.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# LOCKED=1: the versions of requirements.lock instead of the newest
PINNED := $(if $(LOCKED),-c requirements.lock)

# two more than cores: tests that wait for servers leave them idle
JOBS := $(shell $(PYTHON) -c "import os; print(min((os.cpu_count() or 1) + 2, 8))")
QUICK := not slow and not service and not browser

.PHONY: bench benchmark-public cover demo docs packages paper tutorials test check fix lint clean attack

demo: $(VENV)/.demo
	$(BIN)/veil demo -o out/demo

# the site, into out/site: strict, and nothing in it is loaded from elsewhere
docs: $(VENV)/.docs
	$(BIN)/python tools/docs_site.py

# everything
test: $(VENV)/.dev services lint
	$(BIN)/python -m pytest -n $(JOBS) --durations 10

# the same, a third slower: coverage of src, at least 90 %, also of the Python processes that tests start
cover: $(VENV)/.dev services
	$(BIN)/python -m pytest -n $(JOBS) --cov --cov-report term

check: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n $(JOBS) -m "$(QUICK)"

# runs every command of README and tutorials and writes what it prints; CHECK=1 only says what is out of date
tutorials: $(VENV)/.dev
	$(BIN)/python tools/console.py $(if $(CHECK),--check)

# sdist and wheel, twice the same bytes; every extra installed alone and used: minutes, with a package index
packages: $(VENV)/.dev
	$(BIN)/python tools/packages.py

# the benchmarks, as ratios in one run; ONLY="core limits" some of them; VEIL_DATA names recorded data
bench: $(VENV)/.dev services
	$(BIN)/python -m benchmarks $(ONLY)

# mechanisms of others on what ships and on everybody in VEIL_DATA (docs/judge.md), into out/public.json and as a table
benchmark-public: $(VENV)/.dev
	@mkdir -p out
	$(BIN)/python -m benchmarks judge --full --table -o out/public.json

# every figure and table of the paper beside its own numbers, into out/paper; ONLY=fig-idc,toy; GEOLIFE=folder
paper: $(VENV)/.dev
	$(BIN)/python -m reproduce -o out/paper $(if $(ONLY),--only "$(ONLY)") $(if $(GEOLIFE),--geolife "$(GEOLIFE)")

# tries to break the promises (docs/security.md): 10 minutes; LONG=1 an hour; SEED=... [DRILL=... [TRIAL=...]] the same again
attack: $(VENV)/.dev services
	PYTHONPATH=tests:tests/kit $(BIN)/python -m attack --json out/attack.json $(if $(LONG),--long) \
	  $(if $(SEED),--seed "$(SEED)") $(if $(DRILL),--drill "$(DRILL)") $(if $(TRIAL),--trial $(TRIAL))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.demo: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[demo]' $(PINNED)
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[docs]' $(PINNED)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]' $(PINNED)
	@touch $@

# mosquitto and chromium for the gateway's tests: installed where that is possible, skipped with a word where not
.PHONY: services
services:
	@./.ci/services

clean:
	rm -rf $(VENV) out build dist .coverage .coverage.*

# versions of everything (LOCKED=1), and by hash what the container installs: run it to take newer ones on purpose
PIN := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate
LOCK := $(PIN) --generate-hashes
.PHONY: lock
lock: $(BIN)/uv
	$(PIN) --extra dev pyproject.toml -o requirements.lock
	$(LOCK) --extra gateway pyproject.toml -o examples/gateway/requirements.lock
	$(LOCK) examples/gateway/build.in -o examples/gateway/build.lock
