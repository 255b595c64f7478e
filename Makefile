# rocketray: every verb makes .venv when it must, and needs nothing but Python 3.11 to 3.13.
#
#   make demo        run the main job on 336,776 real flights     (options: DEMO_ARGS="--limit 20000")
#   make check       check a change: style, types, and the tests of what differs from main
#   make test        run all tests but the long ones              (options: PYTEST_ARGS="-k filters")
#   make test-slow   run the long ones, with one verdict
#   make test-rough  run make test as on other people's machines  (options: ROUGH="loops proxy")
#   make sim         simulate nodes under power failures, kills and faults, for an hour
#                                                                 (options: SIM_ARGS="--seconds 60")
#   make lint        check style, formatting and types
#   make docs        build the documentation site and run its examples; make site only builds it
#   make bench       measure, one question at a time             (options: BENCH_ARGS="acks --quick")
#   make corpus      write the directories of this release, which later ones must open
#   make interop     exchange stores with a real RocketMQ broker  (needs Java, and Maven or ROCKETMQ_HOME)
#   make kafka       measure the Spark source beside Spark's Kafka source  (needs Java and Maven)
#   make rocketmq    measure the same on rocketray and RocketMQ, in turns  (needs Java and Maven)
#   make peers       measure rocketray beside Kafka's clients for Python   (needs Java and Maven)
#   make clean       remove .venv
#
# Tests run against the installed wheel, never the source tree, so a stamp in .venv follows the
# sources. PYTHON=/path/to/python chooses the interpreter of a new .venv;
# VENV=.venv-other makes and uses another one.

DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
KAFKA_ARGS ?=
ROCKETMQ_ARGS ?=
PEERS_ARGS ?=
SIM_ARGS ?= --seconds 3600
ROUGH ?=
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --constraint requirements.lock
# Numba notices a change of a kernel's own file only, so all are compiled again when one changed.
KERNEL_CACHE := $(VENV)/lib/python3.*/site-packages/rocketray/kernels/__pycache__
SOURCES := pyproject.toml requirements.lock README.md \
	$(shell find rocketray rocketray_bench rocketray_demo pyspark_rocketray -name __pycache__ -prune -o -print)

# A name on the path may be a shim that fails, or a Debian Python without venv: so each is run.
USABLE := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3 python; do \
	$$name -c '$(USABLE)' >/dev/null 2>&1 && { command -v $$name; break; }; done)

.PHONY: demo check test test-slow test-rough sim lint docs site bench corpus interop kafka rocketmq peers clean
.NOTPARALLEL:

demo: $(VENV)/.demo
	$(BIN)/rocketray demo $(DEMO_ARGS)

# Four at a time, since many wait: tests/support/harness/spread.py.
SPREAD := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# Without it, each process of a run would compile all tests again, and rewrite their asserts.
check test test-slow sim docs: export PYTHONDONTWRITEBYTECODE :=

# The order of sets of texts is part of what a random test does: a seed repeats it only with this.
check test test-slow: export PYTHONHASHSEED := $(or $(PYTHONHASHSEED),$(shell shuf -i 0-4294967295 -n 1))

check: lint
	@tests=$$(PYTHONPATH=tests $(BIN)/python -m support.harness.check) && \
		$(BIN)/pytest -m "not slow and not lint" --numprocesses 2 --dist loadfile $$tests

# It begins with what this machine lacks, and ends before the tests where they cannot pass.
test: $(VENV)/.dev $(VENV)/spark_classes.jsa
	@PYTHONPATH=tests $(BIN)/python -P -m support.harness.machine
	$(BIN)/pytest -m "not slow and not lint" $(SPREAD) $(PYTEST_ARGS)

test-slow: $(VENV)/.dev $(VENV)/spark_classes.jsa
	@PYTHONPATH=tests $(BIN)/python -P -m support.harness.machine
	@PYTHONPATH=tests $(BIN)/python -P -m support.harness.long_run $(PYTEST_ARGS)

test-rough:
	@PYTHONPATH=tests '$(PYTHON)' -P -m support.harness.rough $(ROUGH)

sim: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -P -m support.sim $(SIM_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -m lint tests/test_typing.py

# A dead link fails the build. The pages of the tutorial and the how-to, and the examples, are tests.
docs: site $(VENV)/.dev
	$(BIN)/pytest tests/docs tests/test_docs.py $(PYTEST_ARGS)

site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "The site is in site/; to search in it, serve it: $(BIN)/python -m http.server --directory site"

bench: $(VENV)/.demo
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

corpus: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m support.harness.release_corpus

interop: $(VENV)/.dev
	$(BIN)/pytest tests/interop $(PYTEST_ARGS)

kafka: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -P benchmarks/kafka.py $(KAFKA_ARGS)

rocketmq: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -P benchmarks/against_rocketmq.py $(ROCKETMQ_ARGS)

peers: $(VENV)/.dev $(VENV)-peers/.made
	PYTHONPATH=tests $(BIN)/python -P benchmarks/python_peers.py --peers $(VENV)-peers $(PEERS_ARGS)

# A client that cannot be installed is no error here: its rows say why they are skipped.
$(VENV)-peers/.made: benchmarks/peers_requirements.txt | $(VENV)/.made
	@echo "Making $(VENV)-peers with Kafka's clients for Python: a minute, once"
	@$(BIN)/python -m venv --clear $(VENV)-peers
	@$(VENV)-peers/bin/python -m pip --disable-pip-version-check install --quiet --requirement $< \
		&& touch $@ || true

$(VENV)/spark_classes.jsa: | $(VENV)/.dev
	@echo "Compiling Spark for the tests: 30 seconds, once"
	@PYTHONPATH=tests $(BIN)/python -P -m support.spark.quick_spark $@

clean:
	rm -rf .venv .venv-* site

$(VENV)/.made: requirements.lock
	@'$(PYTHON)' -c '$(USABLE)' 2>/dev/null || { \
		echo "rocketray needs Python 3.11, 3.12 or 3.13 with its venv module: $(or $(PYTHON),what is on the path) is not that."; \
		echo "Install it (on Debian and Ubuntu: apt install python3-venv), or name it:"; \
		echo "    make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; } >&2
	@echo "[1/3] Making $(VENV) with $$('$(PYTHON)' -V): about 15 seconds"
	@'$(PYTHON)' -m venv --clear $(VENV)
	@$(INSTALL) --quiet pip setuptools hatchling
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@$(INSTALL) --quiet --group docs
	@touch $@

$(VENV)/.demo: EXTRAS := demo
$(VENV)/.dev: EXTRAS := demo,dev,delta,register,rocksdb
$(VENV)/.demo $(VENV)/.dev: $(VENV)/.made $(SOURCES)
	@echo "[2/3] Installing rocketray[$(EXTRAS)]: $(if $(wildcard $@),seconds,the first time 800 MB and 1 to 5 minutes)"
	@$(INSTALL) $(if $(wildcard $@),--quiet) --no-build-isolation ".[$(EXTRAS)]"
	@echo "[3/3] Compiling kernels: about 30 seconds when they changed"
	@$(if $(filter rocketray/kernels/%,$?),rm -rf $(KERNEL_CACHE))
	@$(BIN)/python -P -c "from rocketray.kernels import compile_once; compile_once()"
	@touch $(VENV)/.demo $@
