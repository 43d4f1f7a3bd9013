# From a fresh clone with Python 3.11 or newer: `make demo` shows onnxq at work, `make test` checks it.
# Everything is installed into .venv; files in it remember what is done, so that a second call starts at once.

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Name another interpreter with: make PYTHON=/path/to/python demo
PYTHON ?=

.PHONY: help demo test quick test-all test-readers test-page wheel zoo docs lint format clean

help:
	@echo "make demo          install onnxq and quantize the bundled model"
	@echo "make test          install the development tools and run the tests"
	@echo "make quick         what belongs to the files touched since the last commit, in about a minute"
	@echo "make test-all      the same with the slow tests"
	@echo "make test-readers  install the readers of docs/readers.md and let them read what onnxq writes"
	@echo "make test-page     open report.html in Chromium and look at every view (needs node, npm and chromium)"
	@echo "make wheel         build the wheel into dist/, install it into empty environments and run the demo there"
	@echo "make zoo           quantize real models out of packages for every target, and write the tables of docs/zoo.md; hours"
	@echo "make docs          build the documentation as a site in site/, with the reports of a few runs; minutes"
	@echo "make lint          ruff, mypy and the import table"
	@echo "make format        let ruff format the code"
	@echo "make clean         remove .venv and the caches"

demo: $(VENV)/installed
	$(BIN)/onnxq demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal

quick: $(VENV)/installed-dev
	$(BIN)/python tools/quick.py

test-all: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not readers and not browser"

test-readers: $(VENV)/installed-dev
	$(BIN)/python -m tools.readers install --all
	$(BIN)/python -m pytest -q -m readers -rs

test-page: $(VENV)/installed-dev
	npm install --silent --no-save --prefix .browser playwright-core@1.65 axe-core@4.14
	ONNXQ_BROWSER=.browser $(BIN)/python -m pytest -q -m browser -rs

wheel: $(VENV)/installed-dev
	$(BIN)/python -m tools.wheel build
	$(BIN)/python -m tools.wheel check

# Another run goes on where this one ended. More at once: make zoo ZOO="--jobs 2"
ZOO ?=
zoo: $(VENV)/installed-dev
	$(BIN)/python -m tools.zoo --efforts 0 1 --page docs/zoo.md $(ZOO)

# The runs of the gallery take most of the time; those of the build before: make docs DOCS=--keep-gallery
DOCS ?=
docs: $(VENV)/installed-docs
	$(BIN)/python -m tools.site $(DOCS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_texts.py

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/created:
	@for candidate in $(or $(PYTHON),python3.11 python3 python); do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "creating $(VENV) with $$candidate"; \
	        $$candidate -m venv $(VENV) && touch $@ && exit 0; \
	        echo "'$$candidate -m venv' failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; \
	    fi; \
	done; \
	echo "onnxq needs Python 3.11 or newer; none of these is: $(or $(PYTHON),python3.11 python3 python)." >&2; \
	echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1

PARTS_IN_C = $(shell find onnxq -name '*.[ch]')

$(VENV)/installed: $(VENV)/created pyproject.toml setup.py constraints.txt $(PARTS_IN_C)
	$(INSTALL) -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/created pyproject.toml setup.py constraints.txt $(PARTS_IN_C)
	$(INSTALL) -e ".[dev]"
	@touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/created pyproject.toml setup.py constraints.txt $(PARTS_IN_C)
	$(INSTALL) -e ".[docs]"
	@touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find onnxq tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
