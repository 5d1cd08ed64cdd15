# One environment in .venv, always installed against constraints.txt (plain `torch` would pull gigabytes of CUDA).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: env env-dev demo test lint types bench table1 figure1 clean

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
	$(PIP) -e '.[dev,torch,bert,onnx,report]'
	touch $@ $(VENV)/.core

demo: env
	$(BIN)/provenformer demo

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: env-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: env-dev
	$(BIN)/mypy

bench: env-dev
	$(BIN)/python -m benchmarks

# The small studies: `make table1 DATA=folder` with wiki/, books/, mnli/ and squad/ in it (experiments/table1/README.md).
# Each goes on where it stopped. Hours of CPU time.
table1 figure1: env-dev
	$(if $(DATA),,$(error set DATA to the folder of wiki/, books/, mnli/ and squad/))
	$(BIN)/provenformer bert prepare $(sort $(wildcard $(DATA)/wiki/train-*.txt.gz $(DATA)/books/train-*.txt.gz)) \
		--output runs/small/data --vocabulary-size 4096 --seq-len 64
	$(BIN)/provenformer bert prepare $(DATA)/wiki/valid.txt.gz $(DATA)/books/valid.txt.gz \
		--output runs/small/valid --vocabulary runs/small/data/vocab.txt --seq-len 64
	$(BIN)/provenformer bert study experiments/$@/small.toml --data runs/small/data --valid runs/small/valid \
		--mnli $(DATA)/mnli/train.jsonl.gz $(DATA)/mnli/dev_matched.jsonl.gz \
		--squad $(DATA)/squad/train-v1.1.json.gz $(DATA)/squad/dev-v1.1.json.gz \
		--runs runs/small/$@ --results experiments/$@/results --figure

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
