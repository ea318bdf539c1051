# Two commands do all the set-up on a machine with Python 3.11 or newer, git and make:
#   make chaos    make the environment, install, run the crash campaign of CI
#   make test     likewise; the whole test suite on all cores
#   make soak     likewise; the long tests: all pairs of trees, 2 GiB, 100,000 files, every kill of the table, 1,000 of each race
#   make soak-sim N=1000000 likewise; so many simulated trials, SEED=7 for another seed
#   make syscalls likewise; kills in system calls, where there is strace
#   make powerloss likewise; the power is lost at every operation on the disk, every state of it recovered from (an hour on 2 cores); SEED=7
#   make planted  likewise; known bugs in copies of the packages, which the campaigns must find: the quick ones
#   make release-check likewise; suite, planted bugs, every campaign, soak, simulation, whatever each says, then a table (hours); OPTIONS='--list'
#   make bench-image workspace images beside a bare walk, git, restic and borg; make bench-peers (as root) installs the last two
#   make bench-space keyed commands beside a bare spawn and cua-spacesd, in the same environment as bench-log
#   make bench-recovery from a driver's death to the next one's first step, the decision for a long session
#   make bench-chaos kill trials from a warm zygote beside a bare loop of fork, kill and bash
#   make bench-log the event log beside a bare insert and its peers, in an environment of its own (.venv-bench)
#   make compare  other people's drivers (DBOS, LangGraph, in .venv-peers) and this engine, killed at the same instants; writes a page of docs
# Nothing outside .venv, .venv-bench and .venv-peers is touched. Another interpreter: make test PYTHON=/path/to/python3

SHELL := /bin/sh
RUNS = "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for candidate in python3.11 python3 python3.12 python3.13 python3.14; do \
	if $(RUNS); then echo "$$candidate"; exit; fi; done; echo python3)

VENV := .venv
READY := $(VENV)/ready
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/ready

PEERS_VENV := .venv-peers
PEERS_READY := $(PEERS_VENV)/ready

.PHONY: peers-target compare chaos bench-chaos test soak soak-sim syscalls powerloss bench-log bench-image bench-space bench-recovery bench-peers clean planted release-check

chaos: $(READY)
	@$(VENV)/bin/chaos --mode ci --require-coverage

syscalls: $(READY)
	@$(VENV)/bin/chaos --level syscall --seed 1

powerloss: $(READY)
	@$(VENV)/bin/chaos --mode powerloss --seed $(SEED)

# Does the gate notice? The few that are quick; all of them with `chaos planted` and `chaos planted --harness`.
planted: $(READY)
	@$(VENV)/bin/chaos planted --fast
	@$(VENV)/bin/chaos planted --fast --harness

# Everything, each to its end whatever the others say; its output lies in release-check/. OPTIONS='--only planted --out DIR'.
release-check: $(READY)
	@$(VENV)/bin/python .ci/release_check.py $(OPTIONS)

test: $(READY)
	@$(VENV)/bin/python -m pytest -n auto

N ?= 1000000
SEED ?= 1
soak-sim: $(READY)
	@$(VENV)/bin/chaos --backend sim --runs $(N) --seed $(SEED)

soak: $(READY)
	@$(VENV)/bin/python -m pytest -m soak -s tests

# The stamp is written last, so that an environment cut half way is made again. It holds the directory it was made in:
# an environment does not survive being moved.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif
$(READY): pyproject.toml
	@"$(PYTHON)" -c 'pass' 2>/dev/null || { \
		echo "make: $(PYTHON) does not run; install Python 3.11 or newer, or say make PYTHON=/path/to/python3"; exit 1; }
	@candidate="$(PYTHON)"; $(RUNS) || { \
		echo "make: $(PYTHON) is older than Python 3.11; say make PYTHON=/path/to/a/newer/python3"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) has no venv or pip module; install it (on Debian: apt-get install python3-venv)"; exit 1; }
	@echo "making the environment in $(VENV)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@printf '%s\n' "$(CURDIR)" > $@

# The peers that are measured beside the log never come into the environment of the tests. `make bench-log OPTIONS='--json found.json'`.
bench-log: $(BENCH_READY)
	@$(BENCH_VENV)/bin/python -m benchmarks.log $(OPTIONS)

# Workspace images. `make bench-image OPTIONS='--where DIR --docs docs'`.
bench-image: $(BENCH_READY)
	@$(BENCH_VENV)/bin/python -m benchmarks.image $(OPTIONS)

# Keyed commands. `make bench-space OPTIONS='--quick --json found.json'`.
bench-space: $(BENCH_READY)
	@$(BENCH_VENV)/bin/python -m benchmarks.space $(OPTIONS)

# Redriver and decisions. `make bench-recovery OPTIONS='--quick --where DIR --json found.json'`.
bench-recovery: $(BENCH_READY)
	@$(BENCH_VENV)/bin/python -m benchmarks.recovery $(OPTIONS)

# Other people's drivers, crash-tested beside this engine. `make compare OPTIONS='--driver dbos'`.
compare: $(READY) $(PEERS_READY)
	@rm -rf chaos-runs/compare
	@$(VENV)/bin/chaos compare --page docs/drivers-side-by-side.md $(OPTIONS)

peers-target: $(PEERS_READY)

$(PEERS_READY): docs/examples/targets/requirements.txt
	@candidate="$(PYTHON)"; $(RUNS) || { \
		echo "make: $(PYTHON) is older than Python 3.11; say make PYTHON=/path/to/a/newer/python3"; exit 1; }
	@echo "making the environment in $(PEERS_VENV)"
	@"$(PYTHON)" -m venv --clear $(PEERS_VENV)
	@$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $< || \
		echo "make: the peers could not be installed; chaos compare names them as unavailable"
	@printf '%s\n' "$(CURDIR)" > $@

# Kill trials. `make bench-chaos OPTIONS='--quick --json found.json'`.
bench-chaos: $(BENCH_READY)
	@$(BENCH_VENV)/bin/python -m benchmarks.chaos $(OPTIONS)

bench-peers:
	@for peer in restic borgbackup; do apt-get install --yes --quiet $$peer || \
		echo "make: $$peer could not be installed; the benchmark names it as unavailable"; done

ifneq ($(shell cat $(BENCH_READY) 2>/dev/null),$(CURDIR))
.PHONY: $(BENCH_READY)
endif
$(BENCH_READY): pyproject.toml benchmarks/requirements-log.txt benchmarks/requirements-space.txt benchmarks/requirements-recovery.txt
	@candidate="$(PYTHON)"; $(RUNS) || { \
		echo "make: $(PYTHON) is older than Python 3.11; say make PYTHON=/path/to/a/newer/python3"; exit 1; }
	@echo "making the environment in $(BENCH_VENV)"
	@"$(PYTHON)" -m venv --clear $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@for part in log space recovery; do \
		$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements-$$part.txt || \
		echo "make: the peers of bench-$$part could not be installed; the benchmark names them as unavailable"; done
	@printf '%s\n' "$(CURDIR)" > $@

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(PEERS_VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
