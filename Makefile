# Leyden in a handful of commands. `make` alone lists them.
PYTHON ?= python3
CONFIG ?= ppo_fast.yaml
ARGS ?=
EXTRAS ?= dev

BIN := .venv/bin
STAMP := .venv/.installed
PARALLEL := -n auto --maxprocesses 8 --dist worksteal
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Empty, also where the environment sets it: otherwise every run compiles all tests anew in each of its processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup mettagrid fit unit test check coverage learn scoreboard fault docs clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Settings: PYTHON=python3.11  CONFIG=ppo_cartpole.yaml  ARGS=\"--seed_everything 1\"  EXTRAS=dev,gpu"

setup: $(STAMP) ## build .venv with the tested releases (again only after pyproject.toml or constraints.txt changed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Leyden needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(INSTALL) torch
	$(INSTALL) -e ".[$(EXTRAS)]"
	@$(INSTALL) -e ".[$(EXTRAS),box2d]" || echo "box2d does not install here: everything but LunarLander and CarRacing works without it."
	@touch $@

mettagrid: ## build .venv-mettagrid, with the package mettagrid, which needs other releases (Python 3.11 or 3.12)
	$(PYTHON) -m venv .venv-mettagrid
	.venv-mettagrid/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-mettagrid.txt torch
	.venv-mettagrid/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-mettagrid.txt -e ".[dev,mettagrid]"

fit: setup ## train: make fit CONFIG=ppo_cartpole.yaml ARGS="--trainer.max_time 00:00:10:00"
	$(BIN)/python -m app fit --config $(CONFIG) $(ARGS)

unit: setup ## run the tests of functions and classes by themselves (about a minute)
	$(BIN)/python -m pytest -m "unit and not slow and not fault" $(PARALLEL) $(ARGS)

test: setup ## run every test but the learning ones and the fault harness
	$(BIN)/python -m pytest -m "not slow and not fault" $(PARALLEL) $(ARGS)

check: setup ## what CI and pre-commit run: format, lint, types, imports, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow and not fault" $(PARALLEL)

coverage: setup ## run every test of make test, and print the share of lines and branches that they reach
	$(BIN)/python -m pytest -m "not slow and not fault" $(PARALLEL) --cov --cov-report=term $(ARGS)

learn: setup ## run the learning tests: agents must reach their references (hours)
	$(BIN)/python -m pytest -m slow --timeout 7200 $(ARGS)

scoreboard: setup ## train configs to their end beside their references, only the runs not yet recorded (hours)
	$(BIN)/python -m tests.scoreboard $(ARGS)

fault: setup ## run the fault harness: kills, races, damaged files and long runs, with their counts
	$(BIN)/python -m pytest -m fault -s --timeout 3600 $(ARGS)

docs: setup ## write the reference pages from the code, and the documentation as a site into site/
	@$(INSTALL) -e ".[docs]"
	$(BIN)/python -m app docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove .venv, caches and build leftovers; runs and checkpoints stay
	rm -rf .venv .venv-mettagrid build site *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
