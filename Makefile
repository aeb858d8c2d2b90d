# make demo   set up on a fresh machine, then run the crew that remembers
# make chat   talk to the concierge, who remembers what you tell it
# make lab    open the notebooks
# make test   every test, the notebooks included
# make looks  open every notebook in a browser, run it, and keep screenshots in looks/
# make bench  what every call costs, beside other storages; SIZES=1000,10000,100000 for all of it
#
# Each target sets up .venv by itself when it is missing or requirements.txt has changed.
# PYTHON=/path/to/python3.12 chooses the Python; MONGODB_URI=... chooses the database.

PY := .venv/bin/python
WORKERS ?= 2
SIZES ?= 1000,10000
BENCH := .workbook/bench
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup demo chat lab test lint notebooks looks badges cases bench clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

setup:
	@bash .ci/setup

demo: setup
	@$(PY) -m workbook demo

chat: setup
	@$(PY) -m workbook chat

lab: setup
	@$(PY) -m workbook lab

lint: setup
	$(PY) -m ruff check src tests data
	$(PY) -m ruff format --check src tests data
	$(PY) -m mypy

test: lint
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup tests

notebooks: setup
	@$(PY) -m workbook.notebooks run

looks: setup
	@LOOKS=looks $(PY) -m pytest tests/notebooks/test_in_jupyterlab.py

badges: setup
	@$(PY) -m workbook.notebooks badges $(REPO)

cases: setup
	@$(PY) -m tests.cases

bench: setup
	@mkdir -p $(BENCH)
	@SIZES=$(SIZES) $(PY) -m pytest tests/benchmarks/bench_methods.py -q -s --benchmark-quiet \
		--basetemp=$(BENCH)/data --benchmark-json=$(BENCH)/methods.json
	@rm -rf $(BENCH)/data
	@$(PY) tests/benchmarks/report.py $(BENCH) $(BENCH)/methods.json
	@$(PY) tests/benchmarks/bench_embedded.py

clean:
	@if [ -x $(PY) ]; then $(PY) -m workbook stop >/dev/null 2>&1 || true; fi
	rm -rf .venv .workbook .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
