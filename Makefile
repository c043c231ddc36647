# Everything hangwatch needs on a fresh machine with Python (3.10 or newer), git and a compiler. `make help` says more.
#
#   PYTHON=python3.12      another interpreter for the environment
#   SCENARIO=NAME          another demo than the first
#   ONLY='NAME ...'        for `make scenarios`: what matches, * and ? as in a shell; for `make matrix`: '3.10:2.4.1 ...'
#   KEEP=1                 for `make matrix`: leave its environments in build/matrix
#   FOR=3.12               for `make wheelhouse`: the Python of the machine that it is carried to
#   OPTIONS=...            for `make scenarios`, `make matrix` and `make release`: their options (--help)
#   WORKERS=8              how many processes run the pure tests (2 unless given: one a core)
#   JOB_WORKERS=8          how many run the tests with real jobs (6 unless given: these tests wait more than they compute)
#   TIERS='test long nccl' for `make test`: which of the tiers with real jobs it runs, side by side (test unless given)
#   PYTEST_OPTIONS=...     for `make check`, `make test`, `make test-long`, `make soak` and `make nccl`: options of pytest
#   NVRX=FOLDER            for `make compare`: a checkout of nvidia-resiliency-ext in place of the one that it fetches
#   TORCH_OPTIONS=...      options for pip when it installs PyTorch (an index of CPU-only builds, for example)

PYTHON ?= python3
SCENARIO ?=
ONLY ?=
OPTIONS ?=
WORKERS ?= 2
JOB_WORKERS ?= 6
# In CI a few tests with real jobs may fail once, as on a machine that is too busy; the end of the log has their tracebacks.
RERUNS := $(if $(CI),--reruns 1 --max-suite-reruns 6 --rerun-show-tracebacks)
TIERS ?= test
PYTEST_OPTIONS ?=
TORCH_OPTIONS ?=
KEEP ?=
FOR ?=
NVRX ?= build/nvidia-resiliency-ext

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
NCCL_VENV := .venv-nccl
BIN := $(VENV)/bin
LOG := $(VENV)/install.log
# Where DeepSpeed's operator is compiled, with this environment's PyTorch: others' would be compiled anew at each turn.
export TORCH_EXTENSIONS_DIR := $(abspath $(VENV))/torch_extensions
# Some build machines forbid it, and then every one of the suite's thousands of processes would compile hangwatch anew.
export PYTHONDONTWRITEBYTECODE :=

# For its analyzer, which the release that we pin does not have.
NVRX_SOURCE := https://github.com/NVIDIA/nvidia-resiliency-ext
NVRX_COMMIT := d8686d9c7015c39ce91dd01788c0ab111a24818b

# $(call pip_install,what it is,arguments of pip install): one line of progress; the log's end if it fails.
# Python compiles the modules that are used; pip would compile all, several times as many, on one core.
define pip_install
echo "installing $(1) ..."
if ! $(BIN)/python -m pip install --disable-pip-version-check --no-input --no-compile --quiet $(2) </dev/null >>$(LOG) 2>&1; then
  echo "could not install $(1); the end of $(LOG):" >&2
  tail -n 25 $(LOG) >&2
  exit 1
fi
endef

# $(call debian_package,package,what it is for): as root on Debian or Ubuntu it is installed, else one line says what to do.
define debian_package
if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "installing the Debian package $(1) ($(2)) ..."
  { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(1) ||
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(1); }; } \
    </dev/null >>"$${log:-$(LOG)}" 2>&1 || { echo "apt-get could not install $(1), needed for $(2)" >&2; exit 1; }
else
  echo "$(1) is missing, needed for $(2): install it with 'apt-get install $(1)' or your system's like, then call make again" >&2
  exit 1
fi
endef

.PHONY: help demo check test test-long soak nccl scenarios core calibrate compare matrix wheelhouse site release lint format setup clean

help: ## Show the targets.
	@echo "hangwatch: finds, proves and explains hangs of distributed PyTorch jobs"
	grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' |
	  while IFS=$$'\t' read -r target words; do printf '  make %-10s %s\n' "$$target" "$$words"; done

demo: $(VENV)/.demo ## A real job hangs, is found, named and explained, in under a minute (SCENARIO=NAME for another one).
	@$(BIN)/hangwatch demo $(SCENARIO)

check: $(VENV)/.test ## Lint, types and all pure tests, in three minutes at most.
	@$(MAKE) lint
	echo "running the pure tests ..."
	$(BIN)/python -m pytest --tier check -n $(WORKERS) --dist loadgroup $(PYTEST_OPTIONS)

test: $(VENV)/.test $(if $(filter long,$(TIERS)),$(VENV)/.scenarios) $(if $(filter nccl,$(TIERS)),$(NCCL_VENV)/.device) ## That, and real components and jobs: something real for all that the README promises.
	@$(MAKE) check || { failed=$$?; [ -n "$${CI:-}" ] || exit $$failed; } # CI is to show all that fails
	echo "running real components and jobs ..."
	$(BIN)/python -m pytest $(TIERS:%=--tier %) -n $(JOB_WORKERS) --dist loadgroup $(RERUNS) $(PYTEST_OPTIONS) || failed=$$?
	exit $${failed:-0}

test-long: $(VENV)/.scenarios ## What else CI runs: hosts with networks of their own, Slurm, containers, hangs in many forms.
	@echo "running what takes long ..."
	$(BIN)/python -m pytest --tier long -n $(JOB_WORKERS) --dist loadgroup $(PYTEST_OPTIONS)

soak: $(VENV)/.scenarios $(NCCL_VENV)/.device ## What CI leaves out: the same with other values, every capture, and for longer. Before a release.
	@echo "running what repeats ..."
	$(BIN)/python -m pytest --tier soak -n $(JOB_WORKERS) --dist loadgroup $(PYTEST_OPTIONS)

nccl: $(VENV)/.test $(NCCL_VENV)/.device ## Tests on the real ProcessGroupNCCL, over a simulated device (PyTorch for CUDA: 1.5 GB, once).
	@echo "running jobs on NCCL over the simulated device ..."
	$(BIN)/python -m pytest tests/device --tier nccl -n $(JOB_WORKERS) --dist loadgroup $(PYTEST_OPTIONS)

scenarios: $(VENV)/.scenarios ## Run the catalogue of real hangs and controls (ONLY=NAME for some).
	@set -f; PYTHONPATH=.:tests $(BIN)/python -m scenarios $(OPTIONS) $(ONLY)

core: $(VENV)/.test ## Choose anew which captures `make check` replays: those that go through every branch of the rules three times.
	@PYTHONPATH=.:tests $(BIN)/python -m corpus.choose

calibrate: $(VENV)/.test ## Count how often stated causes are right over the kept captures, and write the package's table.
	@PYTHONPATH=.:tests $(BIN)/python -m scenarios.calibration

compare: $(VENV)/.test ## Score three tools on the dumps that PyTorch wrote of hangs on NCCL (ONLY=NAME for some).
	@if ! [ -d '$(NVRX)/src' ]; then
	  echo "fetching the analyzer of nvidia-resiliency-ext ..."
	  rm -rf '$(NVRX).part'
	  git init -q '$(NVRX).part'
	  git -C '$(NVRX).part' fetch -q --depth 1 $(NVRX_SOURCE) $(NVRX_COMMIT)
	  git -C '$(NVRX).part' -c advice.detachedHead=false checkout -q FETCH_HEAD
	  mv '$(NVRX).part' '$(NVRX)'
	fi
	set -f; for tool in torchfrtrace nvrx dumps; do
	  echo "$$tool:"; PYTHONPATH=. $(BIN)/python -m corpus.score --checkout '$(NVRX)' $$tool $(ONLY)
	done

matrix: $(VENV)/.test ## The wheel on Python 3.10 to 3.14 and PyTorch 2.4 to 2.14: a few GB to load, one at a time on disk (ONLY=, KEEP=1).
	@TORCH_OPTIONS='$(TORCH_OPTIONS)' PYTHONPATH=tests $(BIN)/python -m matrix $(if $(KEEP),--keep) $(OPTIONS) $(ONLY)

wheelhouse: $(VENV)/.test ## The wheel and all it needs but PyTorch in build/wheelhouse, for a machine without a network (FOR=3.12: its Python).
	@rm -rf build/wheelhouse
	$(BIN)/python -m hatchling build -t wheel -d build/wheelhouse >>$(LOG) 2>&1
	$(BIN)/python -m pip download --disable-pip-version-check --no-input --quiet --dest build/wheelhouse --only-binary=:all: \
	  $(if $(FOR),--python-version $(FOR)) --constraint constraints.txt "$$(echo build/wheelhouse/hangwatch-*.whl)[gpu]"
	echo "$$(du --summarize --human-readable build/wheelhouse | cut -f 1) in build/wheelhouse; there:"
	echo "  pip install --no-index --find-links wheelhouse 'hangwatch[gpu]'"

site: $(VENV)/.docs ## Build the documentation as a site into build/site; a broken link or anchor fails it.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	echo "built: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

release: $(VENV)/.test ## Check that this commit is a release, build it into dist/, and say what to upload.
	@$(BIN)/python .ci/release.py $(OPTIONS)

lint: $(VENV)/.lint ## The checks that run nothing: ruff, mypy, import-linter.
	@$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.lint ## Format the code and mend what ruff can mend.
	@$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(VENV)/.test ## Only build the environment, with everything the other targets need.
	@echo "ready: source $(BIN)/activate"

clean: ## Remove the environment and all caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find watchdog tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.base: constraints.txt
	@if ! command -v $(PYTHON) >/dev/null; then
	  echo "$(PYTHON) is not there: install Python 3.10 or newer, or say which one: make PYTHON=/path/to/python" >&2
	  exit 1
	fi
	if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
	  echo "$$($(PYTHON) --version) is too old: hangwatch needs 3.10 or newer (make PYTHON=/path/to/python)" >&2
	  exit 1
	fi
	mkdir -p $(VENV)
	if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then
	  package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
	  $(call debian_package,$$package,Python environments)
	fi
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then
	  echo "creating $(VENV) with $$($(PYTHON) --version) ..."
	  $(PYTHON) -m venv $(VENV) >>$(LOG) 2>&1 || { tail -n 5 $(LOG) >&2; exit 1; }
	fi
	$(call pip_install,pip,-c constraints.txt pip)
	touch $@

# Before anything that depends on it, so that nothing else chooses a build of PyTorch for us.
$(VENV)/.torch: $(VENV)/.base
	@$(call pip_install,$(shell sed -n 's/^torch==/PyTorch /p' constraints.txt) (about 200 MB, several GB with CUDA, once),-c constraints.txt $(TORCH_OPTIONS) torch)
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	@$(call pip_install,hangwatch with transformers and accelerate (about 50 MB, once),-c constraints.txt -e '.[demo]')
	touch $@

$(VENV)/.lint: $(VENV)/.base pyproject.toml
	@$(call pip_install,hangwatch and the linters,-c constraints.txt -e . --group lint)
	touch $@

$(VENV)/.docs: $(VENV)/.base pyproject.toml
	@$(call pip_install,MkDocs with its theme (about 20 MB, once),-c constraints.txt --group docs)
	touch $@

$(VENV)/.test: $(VENV)/.demo $(VENV)/.lint
	@command -v c++ >/dev/null || command -v g++ >/dev/null || { $(call debian_package,g++,the operator that DeepSpeed compiles); }
	command -v promtool >/dev/null || { $(call debian_package,prometheus,the tests of metrics and alert rules); }
	command -v amtool >/dev/null || { $(call debian_package,prometheus-alertmanager,the tests of alerts); }
	command -v systemd-analyze >/dev/null || { $(call debian_package,systemd,the tests of the unit); }
	command -v redis-server >/dev/null || { $(call debian_package,redis-server,the tests of agents on several nodes); }
	PATH="$$PATH:/usr/sbin" command -v slurmctld >/dev/null || { $(call debian_package,slurmctld slurmd slurm-client munge,the tests of the examples for Slurm); }
	command -v chromium >/dev/null || { $(call debian_package,chromium,the browser that shows our page and report); }
	export DS_BUILD_OPS=0
	$(call pip_install,the test tools and DeepSpeed (about 20 MB, once),-c constraints.txt --group test)
	echo "compiling the operator of DeepSpeed (a minute, once) ..."
	rm -f "$$TORCH_EXTENSIONS_DIR"/*/lock # of a compilation that was interrupted: the next one would wait for it for ever
	PATH="$(abspath $(BIN)):$$PATH" DS_ACCELERATOR=cpu $(BIN)/python -c \
	  'from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load(verbose=False)' >>$(LOG) 2>&1 ||
	  { echo "could not compile the operator of DeepSpeed; the end of $(LOG):" >&2; tail -n 25 $(LOG) >&2; exit 1; }
	touch $@

$(VENV)/.scenarios: $(VENV)/.test
	@missing=; for tool in buildah podman runc; do PATH="$$PATH:/usr/sbin" command -v $$tool >/dev/null || missing+=" $$tool"; done
	[ -z "$$missing" ] || { $(call debian_package,$$missing,the test that builds and starts the image); }
	$(call pip_install,Lightning with Ray and torchft for the catalogue (about 90 MB, once),-c constraints.txt --group scenarios)
	# Without what it requires: an empty pynvml, whose warning torch would then print in every program.
	$(call pip_install,the in-process restart of NVIDIA,-c constraints.txt --no-deps 'nvidia-resiliency-ext; python_version < "3.13"')
	touch $@

# The jobs on NCCL have an environment of their own: a build of PyTorch for CUDA without NVIDIA's libraries, and the simulated
# device in their place (tests/device/README.md).
$(NCCL_VENV)/.torch: private BIN := $(NCCL_VENV)/bin
$(NCCL_VENV)/.torch: private LOG := $(NCCL_VENV)/install.log
$(NCCL_VENV)/.torch: tests/device/torch.txt constraints.txt pyproject.toml | $(VENV)/.base
	@mkdir -p $(NCCL_VENV)
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(NCCL_VENV) >>$(LOG) 2>&1 || { tail -n 5 $(LOG) >&2; exit 1; }
	$(call pip_install,pip,-c constraints.txt pip)
	$(call pip_install,PyTorch for CUDA (0.5 GB to load and 1.4 GB on disk, once),--no-deps -r tests/device/torch.txt)
	$(call pip_install,what it imports,-c constraints.txt --group nccl)
	touch $@

$(NCCL_VENV)/.device: $(NCCL_VENV)/.torch tests/device/build.py $(wildcard tests/device/src/*.* tests/device/src/*/*.*)
	@command -v c++ >/dev/null || { log=$(NCCL_VENV)/install.log; $(call debian_package,g++,the simulated device); }
	$(NCCL_VENV)/bin/python tests/device/build.py
	touch $@
