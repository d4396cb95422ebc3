# lakegate: `make help` lists what can be made. Only Python >= 3.11, make and git are needed.
PYTHON ?= python3
UV_VERSION := 0.9.30
CYCLONEDX_VERSION := 7.5.0
MUTMUT_VERSION := 3.8.1
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What `make bench-audits` measures beside lakegate, in an environment of their own.
PEERS := $(VENV)/peers
# Else hundreds of processes that start at once would compile changed modules again each. Files of tests are pytest's.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/test_' src tests
# pytest keeps the tests as it rewrote them, whatever the environment says: five seconds of each of its processes.
export PYTHONDONTWRITEBYTECODE :=
# How many stacks test-jvm runs at once, besides one on S3: each takes half a processor, as its tests wait in between,
# and 2 to 5 GB.
MEMORY_GB = $(shell $(PYTHON) -c 'import os; print((os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 30)')
STACKS ?= $(shell test "$(MEMORY_GB)" -ge 22 && echo 4 || echo 2)
# A worker takes whole files; which come first, tests/conftest.py says.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Groups of files that share a server count as one. As many as are processors, and one more: tests wait, too.
BY_GROUP := -n auto --dist loadgroup --no-loadscope-reorder
# Tests that read or write files in ways of their own run with tables on S3, beside all others; shown at the end.
STORAGE = $(shell grep -rl --include='test_*.py' mark.storage tests)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-aws check test test-unit test-jvm prove lint format coverage mutants reference docs dist bench bench-audits lock clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

$(PEERS)/.ready: $(READY) benchmarks/peers.txt
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(PEERS)
	@$(BIN)/uv pip install --quiet --python $(PEERS)/bin/python --requirement benchmarks/peers.txt
	@touch $@

setup: $(READY) ## Install everything, JVM parts included, into .venv and the user's cache
	@$(BIN)/lakegate up --prepare-only

demo: $(READY) ## From nothing to a published and a rejected batch
	@$(BIN)/lakegate demo
	@echo; echo "To type these commands yourself: source $(BIN)/activate"

demo-aws: $(READY) ## From an upload to S3 to a published table; no account and no Docker
	@PYTHONPATH=tests $(BIN)/python -m support.aws_demo

check: lint test-unit ## What to run before a commit: lint and the quick tests

test: test-unit test-jvm ## Run every test

test-unit: $(READY) ## Run the quick tests: no JVM, no browser, no AWS (3 minutes)
	@$(COMPILE)
	$(BIN)/pytest -m "not jvm and not system" $(BY_GROUP)

test-jvm: $(READY) ## Run the tests on real Spark and Nessie, in a browser, on AWS's stand-in; STACKS=N workers
	@$(COMPILE)
	@said=$$(mktemp); \
	LAKEGATE_TEST_WAREHOUSE=s3 $(BIN)/pytest -p no:cacheprovider -m storage -n 1 $(BY_FILE) $(STORAGE) >"$$said" 2>&1 & on_s3=$$!; \
	$(BIN)/pytest -m "(jvm or system) and not storage" -n $(STACKS) $(BY_FILE) $(addprefix tests/,contract e2e integration); \
	code=$$?; wait $$on_s3 || code=$$?; cat "$$said"; rm -f "$$said"; exit $$code

prove: $(READY) ## Run the long forms of the proofs (up to two hours); PROVE_SEED=N repeats a run
	LAKEGATE_TEST_EXAMPLES=6 $(BIN)/pytest -q -m hypothesis -n auto tests/unit
	@PYTHONPATH=tests $(BIN)/python -m proofs $(if $(PROVE_SEED),--seed $(PROVE_SEED))

lint: $(READY) ## Check style, types, the import rules, and the template of AWS
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cfn-lint deploy/aws/template.yaml

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(READY) ## Show which lines of src/ the tests without a JVM reach
	@$(COMPILE)
	$(BIN)/pytest -q -m "not jvm" $(BY_GROUP) --cov --cov-report=term:skip-covered --cov-report=html

mutants: $(READY) ## Break the code that publishes, place by place, and list what no unit test notices (hours); ONLY=GLOB
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv run --no-project --python $(BIN)/python \
		--with mutmut==$(MUTMUT_VERSION) mutmut run $(if $(ONLY),'$(ONLY)')
	@$(BIN)/python tests/mutation_score.py

reference: $(READY) ## Regenerate the reference pages: checks, commands, settings, Python API, errors
	@for page in checks neighbours cli settings api; do $(BIN)/python tests/e2e/docs_$$page.py || exit; done

docs: $(READY) ## Build the docs site into site/
	@$(BIN)/zensical build --clean --strict
	@cp -R deploy action.yml site/
	@find site -name '*.html' -exec sed -i.bak -E 's#"\.\./\.\./\.\./(deploy/|action\.yml)#"../../\1#g' {} +
	@find site -name '*.bak' -delete

dist: $(READY) ## Build the wheel, the sdist and their SBOM (CycloneDX) into dist/
	@rm -rf dist && mkdir dist
	@$(BIN)/uv build --quiet --out-dir dist
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header \
		--constraint requirements.lock pyproject.toml | \
		$(BIN)/uvx --from cyclonedx-bom==$(CYCLONEDX_VERSION) cyclonedx-py requirements --pyproject pyproject.toml \
		--output-file dist/sbom.cdx.json -
	@ls -l dist

bench: $(READY) ## Measure: one line a figure, name, ratio, limit, ok or over
	@$(COMPILE)
	$(BIN)/python -m benchmarks

bench-audits: $(READY) $(PEERS)/.ready ## Measure audits beside cuallee and Great Expectations, on the same 10 million rows
	@$(COMPILE)
	$(BIN)/python -m benchmarks.audits --peers $(PEERS)/bin/python

lock: $(READY) ## Resolve the dependencies anew into requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--group dev --upgrade --quiet pyproject.toml --output-file requirements.lock

clean: ## Stop the local stack and remove what was built; keeps the JVM parts in the user's cache
	@test ! -x $(BIN)/lakegate || $(BIN)/lakegate down || true
	rm -rf $(VENV) .lakegate .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site .cache htmlcov .coverage mutants
