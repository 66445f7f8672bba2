# Every target installs what it needs: the first call makes a virtual environment, later ones are quick.
#   PYTHON       the interpreter for the environment, 3.11 or later
#   VENV         the folder of the environment
#   QUICK        1: `make demo` trains one benchmark, not three
#   LOGS         a file or folder that `make demo` checks too
#   HPC          a clone of mlcommons/hpc, for `make parity`
#   PARITY       the folder with what the official code needs, for `make parity-env`
#   PYTEST_ARGS  more arguments for pytest, such as tests/compliance
#   BASE         the image that `make image` builds on; IMAGE_ARGS has more arguments for buildah
#   TENTH        which tenth of the exhaustive tests `make test-tenth` runs, 0 to 9
#   TORCH_INDEX  a wheel index for torch. For most Linux machines the default index has the CUDA build, which is
#                gigabytes larger than the CPU build. Without TORCH_INDEX, a Linux machine without an accelerator takes
#                the CPU build from CPU_INDEX if that answers within a second, else the default index's build.

PYTHON ?= python3
VENV ?= .venv
QUICK ?=
LOGS ?=
HPC ?=
PARITY ?= .parity
BASE ?=
IMAGE_ARGS ?=
TENTH ?= 0
PYTEST_ARGS ?=
TORCH_INDEX ?=
CPU_INDEX ?= https://download.pytorch.org/whl/cpu

# The version with which the tests compile kernels: that of torch 2.11. A CUDA build of torch keeps its own.
TRITON := 3.6.0
PY := $(VENV)/bin/python
# Several files of tests at once; a file's tests share what it has made. More processes would need much memory. One that
# is ended by a test that hangs is not started again: it would only hang once more.
PYTEST := $(PY) -m pytest --numprocesses auto --maxprocesses 8 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
# Python counts lines itself from 3.12 on, at a fraction of the time.
COVERAGE_CORE = $(shell $(PY) -c 'import sys; print("COVERAGE_CORE=sysmon" * (sys.version_info >= (3, 12)))')
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt
# Every top-level folder with an __init__.py.
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
REQUIREMENTS := setup.cfg pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-tenth test-all test-cluster lint format docs site bench parity parity-env release image clean

help: ## show this list
	@echo "usage: make TARGET [PYTHON=python3.12] [VENV=.venv] [QUICK=1] [LOGS=path] [PYTEST_ARGS=...]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.training-installed ## check example logs and LOGS=path; train each mini problem (QUICK=1: only CosmoFlow's), make a package and a report
	$(PY) -m submission.demo $(if $(LOGS),"$(LOGS)") $(if $(QUICK),--benchmarks cosmoflow)

test: lint ## lint, and tests that prove each kind of behaviour once
	$(PYTEST) $(PYTEST_ARGS)

test-tenth: $(VENV)/.dev-installed ## a tenth of the exhaustive tests, which `make test` leaves out: TENTH=0 to 9
	$(PYTEST) -m exhaustive --exhaustive $(TENTH) $(PYTEST_ARGS)

test-all: lint ## all tests, with coverage: an hour or more on two cores
	$(COVERAGE_CORE) $(PYTEST) --exhaustive all $(addprefix --cov=,$(PACKAGES)) --cov-report=term-missing:skip-covered --cov-fail-under=95 $(PYTEST_ARGS)

test-cluster: $(VENV)/.dev-installed ## tests on a real Slurm of several nodes, Open MPI and MPICH; needs root on Debian, and installs them
	PYTHON="$(PY)" tests/cluster/install.sh "$(VENV)/cluster"
	MLPERF_HPC_CLUSTER="$(VENV)/cluster" $(PY) -m pytest -rfEsx --durations=10 --exhaustive all tests/cluster $(PYTEST_ARGS)

lint: $(VENV)/.dev-installed ## run ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.dev-installed ## fix what ruff can fix
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(VENV)/.dev-installed ## write the generated pages of docs/reference and docs/performance, and docs/notebooks
	$(PY) bench/reference_pages.py
	$(PY) bench/performance_pages.py
	$(PY) bench/notebooks.py

site: $(VENV)/.dev-installed ## build the site of the documentation in build/site; any warning is an error
	$(PY) bench/site_pages.py
	NO_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --quiet

bench: $(VENV)/.dev-installed ## measure most numbers of docs/performance; a script with --keep keeps its own
	$(PY) bench/checker.py
	$(PY) bench/committee_check.py
	$(PY) bench/data.py
	$(PY) bench/data_checks.py
	$(PY) bench/feed.py
	$(PY) bench/cosmoflow.py
	$(PY) bench/spatial.py
	$(PY) bench/scale.py
	$(PY) bench/deepcam.py
	$(PY) bench/oc20.py
	$(PY) bench/submission.py
	$(PY) bench/measure.py
	$(PY) bench/accept.py

parity: $(VENV)/.training-installed ## run the official code of HPC=path/to/a/clone of mlcommons/hpc beside ours, after `make parity-env`
	@test -n "$(HPC)" || { echo "error: name a clone of mlcommons/hpc: make parity HPC=path" >&2; exit 2; }
	$(PY) bench/parity.py "$(HPC)" --environment "$(PARITY)"

parity-env: $(PARITY)/tensorflow/.installed $(PARITY)/geometric/.installed $(PARITY)/pymatgen/.installed ## install what the official code needs in PARITY=.parity: TensorFlow, torch-geometric 1.7.2, pymatgen (2 GB)

release: $(VENV)/release/.installed ## build the last commit's sdist, wheel, SBOM and SHA256SUMS into dist/, the same bytes each time
	"$(VENV)/release/bin/python" bench/release.py

image: ## build containers/Dockerfile with buildah and try it; as root, on Debian 12 from debootstrap or BASE=image
	BASE="$(BASE)" containers/build.sh $(IMAGE_ARGS)

clean: ## remove .venv, caches and build outputs
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Apart from the suite's environment: what builds a release is locked by hashes.
$(VENV)/release/.installed: .github/release-tools.lock
	"$(PYTHON)" -m venv "$(@D)"
	"$(@D)/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --require-hashes --requirement "$<"
	@touch "$@"

# What the official code needs, apart from the suite's environment: versions that it ran with.
PARITY_PIP := -m pip --quiet --disable-pip-version-check --no-input
$(PARITY)/tensorflow/.installed:
	"$(PYTHON)" -m venv "$(@D)"
	"$(@D)/bin/python" $(PARITY_PIP) install 'tensorflow-cpu==2.21.*' 'tf_keras==2.21.*' h5py
	@touch "$@"

$(PARITY)/geometric/.installed: $(VENV)/.training-installed
	$(PY) $(PARITY_PIP) download --no-deps --no-binary :all: --dest "$(@D)" torch-geometric==1.7.2
	tar -xzf "$(@D)"/torch_geometric-1.7.2.tar.gz -C "$(@D)"
	@touch "$@"

$(PARITY)/pymatgen/.installed: $(VENV)/.training-installed
	$(PY) $(PARITY_PIP) install --target "$(@D)" pymatgen==2026.10.24
	@touch "$@"

# Installs packages that need torch; see TORCH_INDEX.
define INSTALL_WITH_TORCH
@index='$(TORCH_INDEX)'; \
if [ -z "$$index" ] && [ "$$(uname -s)" = Linux ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/kfd ] && ! command -v nvidia-smi >/dev/null; then \
  if timeout 1 $(PY) -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=1)' $(CPU_INDEX)/torch/ 2>/dev/null; \
  then index=$(CPU_INDEX); echo "no accelerator found: installing the CPU build of torch from $$index (TORCH_INDEX overrides)"; \
  else echo "no accelerator found, but $(CPU_INDEX) does not answer: installing torch from the default index"; fi; \
fi; \
$(PIP_INSTALL) $${index:+--extra-index-url $$index} --editable
endef

# The stamps are made only after success, so that an interrupted installation starts again.
$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { echo "error: $(PYTHON) not found; name a Python >= 3.11: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is $$("$(PYTHON)" --version 2>&1), expected Python >= 3.11; name another: make PYTHON=python3.12" >&2; exit 1; }
	"$(PYTHON)" -m venv "$(VENV)"
	@touch $@

$(VENV)/.checker-installed: $(VENV)/.created $(REQUIREMENTS)
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.training-installed: $(VENV)/.created $(REQUIREMENTS)
	$(INSTALL_WITH_TORCH) '.[all]'
	@touch $(VENV)/.checker-installed $@

# The development installation contains the others.
$(VENV)/.dev-installed: $(VENV)/.created $(REQUIREMENTS)
	$(INSTALL_WITH_TORCH) '.[dev,docs,all,mpi,plot,storage]'
	@if [ "$$(uname -s)" = Linux ] && $(PY) -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; \
	then $(PIP_INSTALL) triton==$(TRITON); fi
	@touch $(VENV)/.checker-installed $(VENV)/.training-installed $@
