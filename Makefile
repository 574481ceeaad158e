# make demo     the whole loop on the built-in model: clips, training, before and after      (installs what it needs)
# make test     every test, with a real browser                                               (installs what it needs)
# make versions the lowest and the newest packages and the newest Python, with chosen tests    (installs what it needs)
# make webui    the page                                                                      (installs what it needs)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# More for the page or the demo: make webui ARGS="--port 8000"
ARGS ?=

.PHONY: help demo test versions browser webui lint format docs notebook clean

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

versions: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.versions lowest
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.versions newest

browser: $(VENV)/.installed-dev
	@$(BIN)/python scripts/browser.py

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

format: $(VENV)/.installed-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.installed
	@$(BIN)/python scripts/write_docs.py

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
