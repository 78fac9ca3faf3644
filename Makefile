# foldlog: one target per task. `make` alone lists them.
# Needs git, make and Python 3.11 or newer. `make setup` installs foldlog[all] from requirements.lock;
# the targets that test or change the checkout add requirements-dev.lock.
# To choose the interpreter: make setup PYTHON=python3.12. To pass arguments: make quick ARGS="-k wake".

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.foldlog-setup
ARGS ?=

# Every locked package is a wheel on Linux x86-64 and on macOS arm64 (Python 3.11 to 3.14);
# elsewhere pip builds the missing ones (faust-streaming on Linux arm64) and needs a C compiler.
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check
# A lock is complete, so pip resolves nothing. It would compile on one core; compileall follows.
INSTALL_LOCK := $(PIP_INSTALL) --no-compile --no-deps --require-hashes -r

# The optional compiled decoder of events, in the checkout. Nothing fails without it.
BUILT_LOG := build/decoder/log
define BUILD_DECODER
@rm -rf build/decoder schemas/_decoder.*.so schemas/_decoder.*.pyd && mkdir -p build/decoder
@$(PY) setup.py --quiet build_ext --inplace --build-lib build/decoder --build-temp build/decoder \
  >$(BUILT_LOG) 2>&1 || true
@if $(PY) -c 'import sys; sys.path.insert(0, "schemas"); import _decoder' >>$(BUILT_LOG) 2>&1; \
then echo "decoder: compiled"; \
else echo "decoder: not compiled, Python decodes, more slowly (a C compiler and Python's headers are needed; output: $(BUILT_LOG))"; fi
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMP) ## create .venv with the pinned packages and the `foldlog` command

# A second run is instant: the stamp is newer than the lock and the project file, and contains this
# directory's path. A checkout moved or copied with its .venv would import the old directory.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
$(STAMP): requirements.lock pyproject.toml $(wildcard setup.py schemas/_decoder.c)
	@set -e; \
	if [ -f $@ ] && [ "$$(cat $@)" != "$(CURDIR)" ]; then \
	  echo "setup: $(VENV) was created for $$(cat $@); creating a new one"; rm -rf $(VENV); \
	elif [ -d $(VENV) ] && ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  echo "setup: $(VENV) is broken (interrupted, or its Python was removed); creating a new one"; \
	  rm -rf $(VENV); \
	fi; \
	if [ ! -d $(VENV) ]; then \
	  found=; \
	  for p in $(if $(PYTHON),$(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	    if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      found=$$p; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "setup: no Python 3.11 or newer found (looked for: $(if $(PYTHON),$(PYTHON),python3, python3.14 ... python3.11))." >&2; \
	    echo "       Nothing was installed. Install one, or give its path: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	  fi; \
	  if ! "$$found" -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "setup: $$found cannot make virtual environments: its venv or ensurepip module is missing." >&2; \
	    echo "       On Debian and Ubuntu: apt install python3-venv. Then run make setup again." >&2; exit 1; \
	  fi; \
	  echo "setup: creating $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv $(VENV); \
	fi
	@echo "setup: downloading and installing the packages of requirements.lock, 1 to 5 minutes"
	@$(INSTALL_LOCK) requirements.lock
	@echo "setup: compiling them"
	@$(PY) -m compileall -q -j 0 $(VENV)/lib >/dev/null || true  # some fail
	@FOLDLOG_COMPILED=no $(PIP_INSTALL) --quiet --no-deps --no-build-isolation --editable .
	$(BUILD_DECODER)
	@echo "setup: downloading a local Kafka, about 10 s"
	@$(VENV)/bin/foldlog up --prepare || \
	  echo "setup: Kafka was not downloaded; foldlog up tries again, everything else works" >&2
	@echo '$(CURDIR)' > $@
	@echo "setup: done, the command is $(VENV)/bin/foldlog"

# After each setup, which may have replaced the environment.
DEV := $(VENV)/.foldlog-dev
$(DEV): $(STAMP) requirements-dev.lock
	@echo "setup: adding the tools of requirements-dev.lock"
	@$(INSTALL_LOCK) requirements-dev.lock
	@find $(VENV)/lib -name '*.py' -newer $(STAMP) -print0 | \
	  xargs -0 -n 100 -P 4 $(PY) -m compileall -q >/dev/null || true
	@touch $@

.PHONY: tools
tools: setup $(DEV)

.PHONY: accelerate
accelerate: setup ## build the optional compiled decoder of events again
	$(BUILD_DECODER)

CHECK_TYPES = mkdir -p .mypy_cache/root && ln -sfn ../.. .mypy_cache/root/foldlog && $(VENV)/bin/mypy

# One process compiles all files before four import them. The tests start hundreds of processes more,
# which read the compiled files, also where the environment (a container's) asks for none.
.PHONY: test
test: tools ## run every test, with a real broker of its own, and the type checker (the gate)
	@unset PYTHONDONTWRITEBYTECODE; \
	mkdir -p build; { $(CHECK_TYPES); } >build/types.log 2>&1 & types=$$!; \
	$(PY) -m pytest --collect-only -qq -n 0 $(ARGS) >/dev/null & compiled=$$!; \
	$(PY) -m foldlog.tests.kit.downloads; wait $$compiled; \
	$(PY) -m pytest -ra -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 \
	  $(ARGS); tests=$$?; \
	wait $$types || { echo "types: the type checker failed"; cat build/types.log; exit 1; }; \
	exit $$tests

.PHONY: quick
quick: tools ## run the fast tests: no broker, no killed processes, seconds
	$(PY) -m pytest -m "not broker and not crash" $(ARGS)

.PHONY: run
run: setup ## run the demo: a real agent on a real broker, killed twice, nothing lost
	$(VENV)/bin/foldlog demo $(ARGS)

# The peers of some benches, in an environment of their own: the product never needs them.
PEERS := bench/.venv/.peers
$(PEERS): bench/peers.lock | setup
	@echo "bench: installing the peers (bench/peers.lock)"
	@rm -rf bench/.venv && $(PY) -m venv bench/.venv
	@bench/.venv/bin/python -m pip install --disable-pip-version-check --quiet \
	  --require-hashes -r bench/peers.lock
	@touch $@

# Without the peers (no network) the other benches still run, and these report what is missing.
.PHONY: bench
bench: tools ## measure ratios to baselines: short sizes, or ARGS="--full" to publish figures
	@$(MAKE) --no-print-directory $(PEERS) || \
	  echo "bench: the peers were not installed, their figures are omitted; make bench tries again" >&2
	$(PY) -m foldlog.bench $(ARGS)

.PHONY: search
search: tools ## run seeded simulations; prints how often each row and fault was exercised
	$(PY) -m foldlog.tests.simulation $(ARGS)

.PHONY: states
states: tools ## search every state of a small system; prints their number and what is violated
	$(PY) -m foldlog.tests.states $(ARGS)

.PHONY: soak
soak: tools ## kill -9 at every named crash point, repeatedly, on a real broker
	$(PY) -m foldlog.tests.soak $(ARGS)

# Packages for other projects' tests, in addition to the product's packages, never replacing them.
SDK := $(VENV)/.sdk
$(SDK): tests/adapters/sdk.lock | setup
	@rm -rf $@
	@$(PIP_INSTALL) --require-hashes --target $@ -r $<
	@touch $@

.PHONY: adapter
adapter: tools $(SDK) ## run the OpenAI Agents SDK's own tests with our session instead of theirs
	PYTHONPATH=$(CURDIR)/$(SDK) $(PY) -m foldlog.tests.adapters $(ARGS)

.PHONY: docs
docs: tools ## write the generated tables into docs/
	$(PY) -m foldlog.docs $(ARGS)

.PHONY: recording
recording: tools ## record the killed worker of the README from a real run
	$(PY) -m foldlog.docs.recording

.PHONY: screenshot
screenshot: tools ## photograph the inspector for README and docs, in a real browser
	$(PY) -m foldlog.docs.screenshot

.PHONY: pictures
pictures: tools ## photograph every state of the inspector into build/pictures, to review them
	$(PY) -m foldlog.tests.web.inspector.pictures $(ARGS)

.PHONY: lint
lint: tools ## ruff and mypy
	$(VENV)/bin/ruff check . $(ARGS)
	$(CHECK_TYPES)

# Maintainers only. uv keeps the pins that still fit; `make lock ARGS=--upgrade` upgrades them.
LOCK = UV_CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m uv pip compile --quiet --universal \
  --generate-hashes --python-version 3.11 $(ARGS)
.PHONY: lock
lock: setup ## resolve pyproject.toml into requirements.lock and requirements-dev.lock again
	@$(PY) -m uv --version >/dev/null 2>&1 || $(PIP_INSTALL) uv
	$(LOCK) --extra all --group build --output-file requirements.lock pyproject.toml
	$(LOCK) --group dev --constraints requirements.lock --output-file requirements-dev.lock

.PHONY: lock-peers
lock-peers: setup ## resolve bench/peers.in into bench/peers.lock again
	@$(PY) -m uv --version >/dev/null 2>&1 || $(PIP_INSTALL) uv
	UV_CUSTOM_COMPILE_COMMAND="make lock-peers" $(PY) -m uv pip compile --quiet --universal \
	  --generate-hashes --python-version 3.11 $(ARGS) --output-file bench/peers.lock bench/peers.in

.PHONY: lock-adapter
lock-adapter: setup ## resolve tests/adapters/sdk.in into tests/adapters/sdk.lock again
	@$(PY) -m uv --version >/dev/null 2>&1 || $(PIP_INSTALL) uv
	UV_CUSTOM_COMPILE_COMMAND="make lock-adapter" $(PY) -m uv pip compile --quiet --universal \
	  --generate-hashes --python-version 3.11 --constraints requirements.lock $(ARGS) \
	  --output-file tests/adapters/sdk.lock tests/adapters/sdk.in

.PHONY: clean
clean: ## remove caches and build output (keeps .venv and every session)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name .venv -prune -o -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +
