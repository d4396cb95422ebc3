# lakegate: `make help` lists what can be made. Only Python >= 3.11, make and git are needed.
PYTHON ?= python3
UV_VERSION := 0.9.30
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# How many stacks test-jvm runs at once: each takes a processor and 5 GB.
STACKS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-aws test test-unit test-jvm prove lint format bench lock clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "lakegate needs Python >= 3.11; name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "Installing from requirements.lock"
	@$(BIN)/uv pip sync --python $(BIN)/python --require-hashes --compile-bytecode \
		$$(test -t 2 || echo --quiet) requirements.lock
	@$(BIN)/uv pip install --python $(BIN)/python --no-deps --quiet uv==$(UV_VERSION) --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

setup: $(READY) ## Install everything, JVM parts included, into .venv and the user's cache
	@$(BIN)/lakegate up --prepare-only

demo: $(READY) ## From nothing to a published and a rejected batch
	@$(BIN)/lakegate demo
	@echo; echo "To type these commands yourself: source $(BIN)/activate"

demo-aws: $(READY) ## From an upload to S3 to a published table; no account and no Docker
	@$(BIN)/lakegate demo --aws

test: test-unit test-jvm ## Run every test

test-unit: $(READY) ## Run the tests that need no JVM (minutes)
	$(BIN)/pytest -m "not jvm" -n auto --dist loadgroup

test-jvm: $(READY) ## Run the tests on real Spark and Nessie (minutes); STACKS=N of each at once
	$(BIN)/pytest -m jvm -n $(STACKS) --dist loadfile tests
	LAKEGATE_TEST_WAREHOUSE=s3 $(BIN)/pytest -m jvm -n $(STACKS) --dist loadfile \
		$(addprefix tests/integration/test_,$(addsuffix .py,ingest undo replay engine_transaction))

prove: $(READY) ## Run the long forms of the proofs (up to two hours); PROVE_SEED=N repeats a run
	@PYTHONPATH=tests $(BIN)/python -m proofs $(if $(PROVE_SEED),--seed $(PROVE_SEED))

lint: $(READY) ## Check style, types and the rules between rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## Measure: one line a figure, name, ratio, limit, ok or over
	$(BIN)/python -m benchmarks

lock: $(READY) ## Resolve the dependencies anew into requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--group dev --upgrade --quiet pyproject.toml --output-file requirements.lock

clean: ## Stop the local stack and remove what was built; keeps the JVM parts in the user's cache
	@test ! -x $(BIN)/lakegate || $(BIN)/lakegate down || true
	rm -rf $(VENV) .lakegate .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
