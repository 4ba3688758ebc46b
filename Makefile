# `make demo` shows spotd at work; `make test` is what continuous integration runs. Nothing is installed outside this directory.

MAKEFLAGS += --no-builtin-rules
.SHELLFLAGS := -euc
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

# The interpreter to build .venv with, for those whose python3 is not the one they want: make venv PYTHON=python3.13
PYTHON ?=
SEEDS ?= 1-200
PYTEST = .venv/bin/python -m pytest
# One worker per core; what takes minutes is marked slow and left to `make test-full`.
WORKERS ?= auto

# One lock for every platform and every Python from 3.11 on; no address of an index is in it.
LOCK_OPTIONS = --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Shell words that set $$python to an interpreter that can build the environment, or stop with a sentence that helps.
define find_python
python=; \
for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$candidate; break; fi; \
done; \
if [ -z "$$python" ]; then \
  echo "spotd needs Python 3.11 or newer with its venv module, and found none as: $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python)." >&2; \
  echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or name yours: make PYTHON=/path/to/python3" >&2; \
  exit 1; \
fi
endef

# $(call build_venv,DIRECTORY,LOCK): a fresh environment that holds exactly what the lock names, each file checked by its hash.
define build_venv
if command -v uv >/dev/null; then \
  uv venv --quiet --clear --python "$(or $(PYTHON),>=3.11)" $(1); \
  uv pip install --quiet --python $(1)/bin/python --require-hashes -r $(2); \
else \
  $(find_python); \
  "$$python" -m venv --clear $(1); \
  $(1)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $(2); \
fi
endef

# $(call install_into,DIRECTORY,WHAT): the project itself, whose dependencies the lock has brought already.
define install_into
if command -v uv >/dev/null; then \
  uv pip install --quiet --python $(1)/bin/python --no-deps --no-build-isolation $(2); \
else \
  $(1)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation $(2); \
fi
endef

.PHONY: help
help:
	@echo "make demo           spotd at work on this machine: local market, real reclaims, a job that survives them"
	@echo "make test           linters and the fixed sample of tests, in less than ten minutes on two cores"
	@echo "make test-full      every test, the slow ones included"
	@echo "make soak SEEDS=..  the simulated world under faults, seed by seed (a range such as 1-200)"
	@echo "make lint           ruff, mypy, import-linter"
	@echo "make bench          the benchmarks"
	@echo "make wheel-test     the tests against an installed wheel, away from this directory"
	@echo "make venv           .venv with everything that the lock names, and .venv/bin/spotd"
	@echo "make lock           write requirements/*.txt anew (needs uv)"
	@echo "make clean          remove all of the above"

# Two stamps: a changed lock rebuilds the environment, a changed project file only installs the project again.
.venv/.locked: requirements/dev.txt
	@$(call build_venv,.venv,requirements/dev.txt)
	@touch $@

.venv/.installed: .venv/.locked pyproject.toml
	@$(call install_into,.venv,-e .)
	@touch $@

.PHONY: venv
venv: .venv/.installed

.PHONY: demo
demo: venv
	.venv/bin/spotd demo

.PHONY: lint
lint: venv
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
# The agent runs on Python 3.9; the oldest version that mypy knows comes close, and ruff checks the syntax of 3.9 itself.
	.venv/bin/mypy --python-version 3.10 spotd/node spotd/training
	.venv/bin/lint-imports

.PHONY: test
test: lint
	$(PYTEST) -n $(WORKERS) -m "not slow"

.PHONY: test-full
test-full: lint
	$(PYTEST) -n $(WORKERS) --hypothesis-profile full

.PHONY: soak
soak: venv
	.venv/bin/python -m spotd.sim.soak --seeds $(SEEDS)

.PHONY: bench
bench: venv
	.venv/bin/python -m bench

# Builds the wheel and runs the tests against it in an environment and a directory of their own, where no checkout can be imported.
.PHONY: wheel-test
wheel-test: venv
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	.venv/bin/python -m hatchling build -t wheel -d "$$scratch/dist"; \
	$(call build_venv,"$$scratch/venv",requirements/dev.txt); \
	$(call install_into,"$$scratch/venv","$$scratch"/dist/spotd-*.whl); \
	mkdir "$$scratch/run"; \
	cp -R $(wildcard tests pyproject.toml docs examples) "$$scratch/run"; \
	cd "$$scratch/run"; \
	"$$scratch/venv/bin/python" -c 'import spotd, spotd_local, sys; print(*sorted({p for m in (spotd, spotd_local) for p in m.__path__}), sep="\n")'; \
	"$$scratch/venv/bin/python" -m pytest -n $(WORKERS) -m "not slow"

.PHONY: lock
lock:
	uv pip compile $(LOCK_OPTIONS) --extra demo --extra aws --extra fake-aws -o requirements/run.txt pyproject.toml
	uv pip compile $(LOCK_OPTIONS) --extra demo --extra aws --extra fake-aws --group dev -c requirements/run.txt -o requirements/dev.txt pyproject.toml

.PHONY: clean
clean:
	rm -rf .venv build dist .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
