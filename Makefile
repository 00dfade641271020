# What a developer does here. `make` alone lists it.
# VENV=dir: another virtual environment; PYTHON=program: that interpreter as it is, no environment.

VENV ?= $(or $(VIRTUAL_ENV),.venv)
ifdef PYTHON
  RUN := $(PYTHON)
  STAMP := build/setup.stamp
else
  RUN := $(VENV)/bin/python
  STAMP := $(VENV)/setup.stamp
endif
FUZZ_SECONDS ?= 60
# Without compiled files each node, service and worker that a test starts compiles all of brokerweave again.
unexport PYTHONDONTWRITEBYTECODE

define MAKE_VENV
for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        exec "$$each" -m venv $(VENV); \
	    fi; \
	done; \
	echo "brokerweave needs Python 3.11 or newer: install it, or run make PYTHON=/path/to/it" >&2; exit 1
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test stress test-slow test-kafka million check docs bench bench-parts scale fuzz clean

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## install everything into .venv (quick when nothing changed)

# The compiled modules, those with a .pxd, are rebuilt when their sources change.
COMPILED := $(wildcard src/brokerweave/*/*.pxd)
$(STAMP): pyproject.toml constraints.txt setup.py $(COMPILED:.pxd=.py) $(COMPILED)
	@if test -f scripts/install-debian; then bash scripts/install-debian; fi
ifndef PYTHON
	@test -x $(RUN) || { $(MAKE_VENV); }
endif
	$(RUN) -m pip install --quiet -c constraints.txt setuptools Cython
	$(RUN) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[check]'
	@java -version >/dev/null 2>&1 || $(RUN) -m pip install --quiet -c constraints.txt -e '.[java]' --no-build-isolation
	@mkdir -p $(@D) && touch $@
	@$(RUN) -m brokerweave --version

demo: setup ## three to five sites with different brokers, then a mesh behind HAProxy; two minutes
	$(RUN) -m brokerweave demo

# Java's own picture of Spark's classes, so that tests start it in about half of the time.
build/spark.jsa: $(STAMP)
	@$(RUN) -m tests.support.java_archive $@

quick: setup ## unit tests, import rules and 100 simulated runs; a few minutes
	$(RUN) -m pytest -q -n 2 -m "not thorough" tests/unit
	$(RUN) -m brokerweave sim --strategy sf --seeds 34
	$(RUN) -m brokerweave sim --strategy pf --seeds 33
	$(RUN) -m brokerweave sim --strategy mesh --seeds 33

# A test with real processes that fails is run once more, alone: tests/support/run_tests.py.
TESTS := -m tests.support.run_tests --workers 3 -m "not slow and not kafka"

test: setup build/spark.jsa ## unit and integration tests, 11 minutes on two cores
	$(RUN) $(TESTS)

stress: setup build/spark.jsa ## the same tests beside four busy loops
	$(RUN) $(TESTS) --busy 4

test-slow: setup build/spark.jsa ## the tests that take long
	$(RUN) -m pytest -m "slow and not million" --timeout 1800

# Long enough for Java's second compiler, which other tests do without.
million: setup ## a million messages through the pipeline, under fire
	SPARK_SUBMIT_OPTS= $(RUN) -m pytest -m million --timeout 7200 -s

test-kafka: setup ## against a real Kafka (mvn fetches it, and Spark's connector, into .tools)
	scripts/install-brokers kafka spark-kafka
	$(RUN) -m pytest -m kafka --timeout 600

check: setup ## style, types, import rules
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/unit/test_layers.py

docs: setup ## write the pages that are made from code
	$(RUN) -m brokerweave.config.reference > docs/configuration.md
	$(RUN) -m brokerweave.config.controller_reference > docs/controller.md
	$(RUN) -m brokerweave.config.gateway_reference > docs/gateway.md
	$(RUN) -m tests.support.module_table

bench: setup ## find the limits of the paper's patterns beside single brokers and bridges, with a report
	to=bench-runs/patterns-$$(date +%Y%m%d-%H%M%S) && \
	{ $(RUN) -m brokerweave bench patterns --to $$to; code=$$?; $(RUN) -m brokerweave bench report $$to; exit $$code; }

bench-parts: setup ## scanner, listeners, stamps, topic trie, edge log, relay, delivery, churn, failover, placement and the load tool, on this machine
	$(RUN) -m benchmarks.scanner
	$(RUN) -m benchmarks.listening
	$(RUN) -m benchmarks.stamps
	$(RUN) -m benchmarks.trie
	$(RUN) -m benchmarks.edgelog
	$(RUN) -m benchmarks.freshness
	$(RUN) -m benchmarks.idle
	$(RUN) -m benchmarks.relay
	$(RUN) -m benchmarks.delivery
	$(RUN) -m benchmarks.churn
	$(RUN) -m benchmarks.failover
	$(RUN) -m benchmarks.placement
	$(RUN) -m benchmarks.load_tool

scale: setup ## the runs, plots and tables of docs/scale.md that are not there yet, up to an hour
	$(RUN) -m benchmarks.scale

fuzz: setup ## feed mutated bytes to codec and scanner (FUZZ_SECONDS=60)
	$(RUN) -m pip install --quiet -c constraints.txt atheris
	$(RUN) -m tests.fuzz.fuzz_codec -max_total_time=$(FUZZ_SECONDS) -max_len=256

clean: ## remove what was built, but not .venv
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	rm -f $(COMPILED:.pxd=.*.so) $(STAMP)
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
