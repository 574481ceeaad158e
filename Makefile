# make demo     the whole loop on the built-in model: clips, training, before and after      (installs what it needs)
# make test     every test, with a real browser                                               (installs what it needs)
# make check    ruff, mypy and the tests that catch most, in about a minute                   (installs what it needs)
# make versions the lowest and the newest packages and the newest Python, with chosen tests    (installs what it needs)
# make webui    the page                                                                      (installs what it needs)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What `make check` runs: no training, no browser, few processes.
TRAINING := $(patsubst %,tests/runs/test_%.py,forks model_card_code oom_fallback run_queue several_datasets)
FAST := tests/test_layers.py tests/test_vocabulary.py tests/test_docs.py tests/test_errors.py tests/test_settings.py \
	tests/test_workspace.py tests/clips $(filter-out $(TRAINING),$(wildcard tests/runs/test_*.py)) tests/runs/analysis \
	tests/fit/test_fit.py tests/ui/test_form.py tests/compare/test_axes.py tests/families/test_facts.py \
	tests/families/test_guidance.py tests/families/test_cogvideox_loras.py tests/families/test_contract.py
# More for the page or the demo: make webui ARGS="--port 8000"
ARGS ?=

.PHONY: help demo test check coverage versions browser webui lint format docs notebook clean

help:
	@sed -n 's/^# //p' Makefile
	@echo "make notebook  the notebooks in JupyterLab;  make lint, make format, make docs  for contributors"

$(VENV)/.installed: pyproject.toml scripts/install.py
	@$(PYTHON) scripts/install.py --venv $(VENV)

$(VENV)/.installed-dev: pyproject.toml scripts/install.py
	@$(PYTHON) scripts/install.py --venv $(VENV) --dev

demo: $(VENV)/.installed
	@$(BIN)/workbench demo $(ARGS)

webui: $(VENV)/.installed
	@$(BIN)/python webui.py $(ARGS)

notebook: $(VENV)/.installed
	@$(BIN)/jupyter lab notebooks

test: browser
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadfile $(FAST) $(ARGS)

coverage: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet --cov --cov-report= $(FAST) $(ARGS)
	@$(BIN)/coverage report --skip-covered --format=total

versions: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.versions lowest
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.versions newest

browser: $(VENV)/.installed-dev
	@$(BIN)/python scripts/browser.py

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@if command -v npm >/dev/null; then \
	test node_modules/.package-lock.json -nt package-lock.json || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; \
	node_modules/.bin/eslint --no-warn-ignored assets tests/browser_code; else echo "npm is missing: the browser code was not checked"; fi

format: $(VENV)/.installed-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.installed
	@$(BIN)/python scripts/write_docs.py

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
