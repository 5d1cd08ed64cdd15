# One environment in .venv, always installed against constraints.txt (plain `torch` would pull gigabytes of CUDA).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: env env-dev demo test lint types bench clean

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
	$(PIP) -e '.[dev,torch,bert,onnx]'
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

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
