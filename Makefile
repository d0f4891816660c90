# Two commands: `make run` and `make test`. Both make .venv themselves.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: run install test check explore bench screenshots lock clean

run: install
	@$(PY) -m fairlane.quickstart

install: $(VENV)/.run

test: $(VENV)/.test
	@PYTHON=$(PY) tests/run.sh

check: $(VENV)/.test  ## lint, types, import rules, migrations: what CI runs before the tests
	@PYTHON=$(PY) tests/run.sh check

explore: $(VENV)/.test  ## the tests that make up their own input, with new input each time
	HYPOTHESIS_PROFILE=explore $(PY) -m pytest -q -n 2 tests/unit

bench: $(VENV)/.test  ## prints figures; docs/benchmarks.md says what they mean
	@$(PY) -m tests.bench

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairlane needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements/run.txt
	@touch $@

$(VENV)/.test: requirements/test.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements/test.txt
	@touch $@ $(VENV)/.run

screenshots: $(VENV)/.test  ## every page of the console under the demo's traffic, into docs/; takes some minutes
	@$(PY) -m tests.screenshots

lock: $(VENV)/.test  ## after a change of pyproject.toml
	$(PY) -m pip install --quiet uv
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 pyproject.toml -o requirements/run.txt
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 pyproject.toml --group test --group care -o requirements/test.txt

clean:
	rm -rf $(VENV) var
