# Two commands: `make run` and `make test`. Both make .venv themselves.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: run help demo install test test-engines test-clients check explore bench screenshots lock clean

run: install  ## the whole product with a demo policy and simulated engines; PORT=9999 moves it; Ctrl-C stops it
	@$(PY) -m fairlane.quickstart

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' Makefile

demo: install  ## three minutes of mixed traffic against the `make run` of another terminal
	@$(PY) manage.py demo

install: $(VENV)/.run  ## only .venv, with what a run needs

test: $(VENV)/.test  ## everything, with its own PostgreSQL, Redis and browser
	@PYTHON=$(PY) tests/run.sh

check: $(VENV)/.test  ## lint, types, import rules, migrations: what CI runs before the tests
	@PYTHON=$(PY) tests/run.sh check

test-engines: $(VENV)/.test  ## against real vLLM and llama.cpp on the CPU; ENGINES="vllm" for one; docs/engines.md
	@$(PY) -m tests.engines.install $(ENGINES)
	@FAIRLANE_REAL_ENGINES=1 $(PY) -m pytest -q tests/engines $(if $(ENGINES),-k "$(subst $(eval) , or ,$(strip $(ENGINES)))")

test-clients: $(VENV)/.test  ## unchanged clients against `serve`, each installed apart; CLIENTS="llm node" for some; docs/clients.md
	@$(PY) -m tests.clients.install $(CLIENTS)
	@FAIRLANE_REAL_CLIENTS="$(CLIENTS)" $(PY) -m pytest -q tests/clients

explore: $(VENV)/.test  ## the tests that make up their own input, with new input each time
	HYPOTHESIS_PROFILE=explore $(PY) -m pytest -q -n 2 tests/unit tests/integration/api/test_made_up_calls.py tests/acceptance/gateway/test_fuzz.py

bench: $(VENV)/.test  ## prints figures; docs/benchmarks.md says what they mean
	@$(PY) -m tests.bench

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairlane needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt | $(PY)
	@echo "Fetching packages into $(VENV), once; it takes a minute or two."
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements/run.txt
	@touch $@

$(VENV)/.test: requirements/test.txt | $(PY)
	@echo "Fetching packages into $(VENV), once; it takes some minutes."
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements/test.txt
	@touch $@ $(VENV)/.run

screenshots: $(VENV)/.test  ## every page of the console under the demo's traffic, into docs/; takes some minutes
	@$(PY) -m tests.screenshots

lock: $(VENV)/.test  ## after a change of pyproject.toml
	$(PY) -m pip install --quiet uv
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 pyproject.toml -o requirements/run.txt
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 pyproject.toml --group test --group care -o requirements/test.txt

clean:  ## removes .venv and var, with all that a run kept there
	rm -rf $(VENV) var
