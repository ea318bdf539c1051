# Two commands do all the set-up on a machine with Python 3.11 or newer, git and make:
#   make chaos    make the environment, install, run the crash campaign of CI
#   make test     likewise; the whole test suite on all cores
#   make syscalls likewise; kills in system calls, where there is strace
# Nothing outside .venv is touched. Another interpreter: make test PYTHON=/path/to/python3

SHELL := /bin/sh
RUNS = "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for candidate in python3.11 python3 python3.12 python3.13 python3.14; do \
	if $(RUNS); then echo "$$candidate"; exit; fi; done; echo python3)

VENV := .venv
READY := $(VENV)/ready

.PHONY: chaos test syscalls clean

chaos: $(READY)
	@$(VENV)/bin/chaos --mode ci

syscalls: $(READY)
	@$(VENV)/bin/chaos --level syscall --seed 1

test: $(READY)
	@$(VENV)/bin/python -m pytest -n auto

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

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
