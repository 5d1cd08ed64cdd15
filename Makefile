# One environment in .venv, always installed against constraints.txt (plain `torch` would pull gigabytes of CUDA).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: env env-dev demo test coverage lint types bench docs table1 figure1 longer clean

env: $(VENV)/.core
env-dev: $(VENV)/.dev

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "provenformer needs Python >= 3.11; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

# The core alone: enough for the demo, and free of torch.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[dev,torch,bert,hub,onnx,report,explore,docs]'
	touch $@ $(VENV)/.core

demo: env
	$(BIN)/provenformer demo

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The same with a table of what no test runs.
coverage: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov=provenformer --cov-report=term:skip-covered

# Random functions and forgeries for MINUTES; findings are kept in tests/fuzz/found and tested from then on.
.PHONY: fuzz
MINUTES ?= 60
fuzz: env-dev
	PYTHONPATH=tests/support $(BIN)/python -m fuzz --minutes $(MINUTES)

# The explorer in a real browser; installs Debian's chromium when it is missing.
.PHONY: test-browser
test-browser: env-dev
	@if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=$$(command -v sudo); \
		{ [ "$$(id -u)" = 0 ] || [ -n "$$sudo" ]; } && command -v apt-get >/dev/null && $$sudo apt-get update -qq \
			&& $$sudo apt-get install -qqy chromium chromium-driver \
			|| { echo "error: cannot install the browser; install chromium and chromedriver by hand and try again." >&2; exit 2; }; \
	fi
	$(BIN)/python -m pytest tests/explore/test_browser.py

lint: env-dev
	$(BIN)/ruff check src tests benchmarks experiments docs
	$(BIN)/ruff format --check src tests benchmarks experiments docs/*.py
	$(BIN)/lint-imports

types: env-dev
	$(BIN)/mypy

bench: env-dev
	$(BIN)/python -m benchmarks

# A warning is an error. Pictures are made by the pages' own code; open build/docs/index.html.
docs: env-dev
	$(BIN)/python -m sphinx -q -W --keep-going -n -d build/doctrees docs build/docs

# The small studies: `make table1 DATA=folder` with wiki/, books/, mnli/ and squad/ in it (experiments/table1/README.md).
# Each goes on where it stopped. Hours of CPU time.
table1 figure1: RUNS = runs/small/models
longer: RUNS = runs/small/longer
table1 figure1 longer: env-dev
	$(if $(DATA),,$(error set DATA to the folder of wiki/, books/, mnli/ and squad/))
	$(BIN)/provenformer bert prepare $(sort $(wildcard $(DATA)/wiki/train-*.txt.gz)) $(sort $(wildcard $(DATA)/books/train-*.txt.gz)) \
		--output runs/small/data --vocabulary-size 4096 --seq-len 64
	$(BIN)/provenformer bert prepare $(DATA)/wiki/valid.txt.gz $(DATA)/books/valid.txt.gz \
		--output runs/small/valid --vocabulary runs/small/data/vocab.txt --seq-len 64
	$(BIN)/provenformer bert study experiments/$@/small.toml --data runs/small/data --valid runs/small/valid \
		--mnli $(DATA)/mnli/train.jsonl.gz $(DATA)/mnli/dev_matched.jsonl.gz \
		--squad $(DATA)/squad/train-v1.1.json.gz $(DATA)/squad/dev-v1.1.json.gz \
		--runs $(RUNS) --results experiments/$@/results --figure

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
