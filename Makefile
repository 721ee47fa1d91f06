# `make` says what there is to make. Everything is idempotent; what is done already takes no time.

PYTHON ?= python3
# `make test TORCH=2.11.0`: with another PyTorch than the one of requirements-dev.txt, each release in an environment and a
# target folder of its own. The package holds a library for each release, and loads the one for the PyTorch at hand.
# A variable TORCH of the environment is somebody else's.
USUAL_TORCH := $(shell sed -n 's/^torch==//p' requirements-dev.txt)
TORCH := $(USUAL_TORCH)
# A release alone, 2.11, means its first version, but for the usual one.
override TORCH := $(or $(patsubst $(basename $(USUAL_TORCH)),$(USUAL_TORCH),$(strip $(TORCH))),$(USUAL_TORCH))
override TORCH := $(TORCH)$(if $(word 3,$(subst ., ,$(TORCH))),,.0)
RELEASE := $(shell echo '$(TORCH)' | cut -d. -f1,2)
supported = $(shell sed -n '/^\[package.metadata.torch\]/,/^$$/s/^$(1) = "\(.*\)"/\1/p' Cargo.toml)
ifneq ($(shell printf '%s\n' $(call supported,oldest) '$(RELEASE)' $(call supported,newest) | sort -VC && echo yes),yes)
$(error TORCH=$(TORCH): this builds against torch $(call supported,oldest) to $(call supported,newest))
endif
ifeq ($(TORCH),$(USUAL_TORCH))
VENV := .venv
else
VENV := .venv-$(RELEASE)
export CARGO_TARGET_DIR := $(CURDIR)/target/torch-$(RELEASE)
endif
RUN := $(VENV)/bin/python

# The build, and the torch-sys crate, ask the first `python` in PATH where PyTorch is.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export TORCH_OPENCL_PYTHON := $(CURDIR)/$(VENV)/bin/python
export LIBTORCH_USE_PYTORCH := 1
# Without it PyTorch's idle CPU threads spin, and take the processor from an OpenCL driver that runs on it.
export OMP_WAIT_POLICY := passive

# One place for cargo's profile: clippy, the tests and the build share what they compile.
CARGO_FLAGS := --release
PYTEST_FLAGS ?= -n $(shell nproc)
# DRIVER=rusticl and the like run the tests with another OpenCL driver.
WITH := $(if $(DRIVER),env RUN=$(CURDIR)/$(RUN) $(CURDIR)/scripts/driver.sh $(DRIVER))
SECONDS ?= 60
SEED ?= 0

# By what cargo runs the test programs.
RUNNER := CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER

# Where the test programs find PyTorch's libraries; in Python they are loaded already.
TORCH_LIB := import importlib.util, os; print(os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib"))

# The one release of torch that the oracle of the Rust tests is for.
TCH_RELEASE := $(shell sed -n 's/^torch = "\(.*\)"/\1/p' tests/rust/Cargo.toml)
# They are a package of their own.
ORACLE := $(if $(filter $(RELEASE),$(TCH_RELEASE)),torch-opencl-oracle)

# What differs between releases of PyTorch: operators and their signatures, dispatch, hooks, autocast, optimizers.
SMOKE := $(patsubst %,tests/python/ops/test_%.py,ops_explicit normalisation blas optim)
SMOKE += $(patsubst %,tests/python/runtime/test_%.py,amp autograd accelerator compile_loops device distributed) tests/python/tools/test_install.py

# Installs what a target needs besides requirements-dev.txt, where that has not been done: $(call install,lint).
install = @cmp -s requirements-$(1).txt $(VENV)/requirements-$(1).txt || { \
	echo "==> installing the packages of requirements-$(1).txt into $(VENV)" && \
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-$(1).txt && \
	cp requirements-$(1).txt $(VENV)/requirements-$(1).txt; }

.DEFAULT_GOAL := help
.PHONY: help setup build wheel train smoke test test-rust test-python fuzz sweep upstream-tests inductor-tests gpu-compile coalescing gpu-kit lint house fmt bench speed bench-growth bench-first-use bench-constants docs info kernels-list clean models libraries bench-ulp site figures

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  ... TORCH=2.11.0      the same with another PyTorch, in an environment of its own"

setup: ## Install what is missing: build tools, an OpenCL driver, the Python environment .venv
	@PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH="$(TORCH)" scripts/setup.sh

build: setup ## Compile the native library and install the package into .venv, editable
	@echo "==> building the native library"
	@$(RUN) -m build_support.native
	@cmp -s pyproject.toml $(VENV)/pyproject-installed.toml || { \
		$(RUN) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e . && \
		cp pyproject.toml $(VENV)/pyproject-installed.toml; }

wheel: build ## Make the wheel for this PyTorch in dist, for all Linux distributions that its symbols allow
	$(call install,wheel)
	@RUN="$(RUN)" scripts/wheel.sh

train: build ## Train a small CNN on scikit-learn's digits on the OpenCL device
	@$(RUN) examples/train_digits.py
	@echo "==> To use this Python yourself: . $(VENV)/bin/activate"

test: test-rust test-python ## Run all tests (DRIVER=intel, pocl6 or rusticl: with that OpenCL driver)

test-rust: build ## Run the tests of the Rust code and of the code generator
	@echo "==> cargo test"
	@LD_LIBRARY_PATH="$$($(RUN) -c '$(TORCH_LIB)')" $(if $(WITH),$(RUNNER)="$(WITH)") cargo test $(CARGO_FLAGS)
ifdef ORACLE
	@LD_LIBRARY_PATH="$$($(RUN) -c '$(TORCH_LIB)')" $(if $(WITH),$(RUNNER)="$(WITH)") cargo test $(CARGO_FLAGS) --package $(ORACLE)
else
	@echo "==> without tests/rust: its release of tch is for torch $(TCH_RELEASE)"
endif

smoke: build ## Run a part of the tests that tells most of how the package fits this PyTorch
	@$(RUN) -m torch_opencl.info
	@$(RUN) -m pytest $(PYTEST_FLAGS) $(SMOKE)

test-python: build ## Run the tests of the operators and of torch.opencl (PYTEST_FLAGS="-k add")
	@echo "==> pytest"
	@$(WITH) $(RUN) -m pytest $(PYTEST_FLAGS)

fuzz: build ## Compare random calls with PyTorch's CPU backend (SECONDS=600 SEED=1; CASES=300 at most; CASE=17 for one)
	@$(RUN) tests/fuzz --seconds $(SECONDS) --seed $(SEED) $(if $(CASES),--cases $(CASES)) $(if $(CASE),--case $(CASE))

sweep: build ## Check every operator of PyTorch's test databases (WORDS="linalg.* float32 --findings"; SAMPLE=60; JOBS=2)
	@$(RUN) tests/sweep $(if $(SAMPLE),--sample $(SAMPLE) --seed $(SEED),--page) $(if $(JOBS),--jobs $(JOBS)) $(WORDS)

upstream-tests: build ## Run PyTorch's own tests on the device (PYTORCH=checkout FILES="test_torch nn/*"; SAMPLE=500; JOBS=2)
	@$(RUN) tests/upstream "$(PYTORCH)" $(if $(SAMPLE),--sample $(SAMPLE) --seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) $(FILES)

inductor-tests: FILES := --hang 900 $(or $(FILES),$(addprefix inductor/test_torchinductor,.py _dynamic_shapes _opinfo))
inductor-tests: upstream-tests ## Run PyTorch's own tests of Inductor on the device (PYTORCH=checkout SAMPLE=150; JOBS=2)

models: build ## Compare models of torchvision, transformers, timm, diffusers and torch_geometric with the CPU (CASES="timm/*")
	@cmp -s requirements-models.txt .venv-models/requirements.txt || { echo "==> installing models into .venv-models" && \
		$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-models -r requirements-models.txt && \
		cp requirements-models.txt .venv-models/requirements.txt; }
	@$(RUN) tests/models $(CASES)

libraries: build ## Try accelerate, transformers, lightning and other libraries on the device (PYTEST_FLAGS="-k trainer")
	$(call install,bench)
	@cmp -s requirements-libraries.txt .venv-libraries/requirements.txt || { \
		echo "==> installing libraries into .venv-libraries" && \
		$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-libraries \
			-r requirements-libraries.txt && cp requirements-libraries.txt .venv-libraries/requirements.txt; }
	@$(WITH) $(RUN) -m pytest $(PYTEST_FLAGS) tests/libraries

gpu-compile: build ## Compile for GPUs, without one, all that they are asked to run (CASES="gemm_local"; SAMPLE=1)
	@RUN="$(RUN)" scripts/setup_gpu_compile.sh
	@$(RUN) tests/gpu_compile $(if $(SAMPLE),--sample) $(CASES)
coalescing: build ## Measure under Oclgrind how kernels for GPUs touch memory (CASES="pointwise copies")
	@$(RUN) tests/coalescing $(CASES)

lint: setup ## Check format and lints of all languages, and build the documentation's site
	$(call install,lint)
	@scripts/lint.sh check $(ORACLE)
	@$(MAKE) --no-print-directory site

house: setup ## Count what the code costs to change
	@$(RUN) scripts/house.py

fmt: setup ## Format all languages
	$(call install,lint)
	@scripts/lint.sh fix

bench: build ## Measure against PyTorch's CPU backend and the device's limits (CASES="--quick gemm 'add *'")
	$(call install,bench)
	@$(RUN) -m benchmarks $(CASES)

speed: build ## Measure groups of operators and every seventh model, and write docs/performance.md's table of groups and the README's picture
	@rm -f target/speed-*.jsonl
	@# A wrong row or model fails at the end: the table has what was measured.
	@$(RUN) -m benchmarks --quick --rows target/speed-rows.jsonl || failed=1; \
	$(MAKE) --no-print-directory models CASES="--every 7 --results target/speed-models.jsonl" || failed=1; \
	$(RUN) scripts/speed_table.py target/speed-rows.jsonl target/speed-models.jsonl && \
	$(RUN) scripts/figures.py && exit $${failed:-0}

bench-growth: build ## Measure time against size, and name the cliffs
	$(call install,bench)
	@$(RUN) -m benchmarks growth

bench-first-use: build ## Measure what new processes wait for, with and without compiled kernels
	@$(RUN) -m benchmarks first-use

bench-ulp: build ## Measure the greatest error of a function over all float32 (OP="special.erfcx --stride 101")
	@$(RUN) -m benchmarks.ulp $(OP)

bench-constants: build ## Repeat the measurements that constants were chosen by (CASES="LAUNCH_BATCH")
	@$(RUN) -m benchmarks constants $(CASES)

docs: build ## Write the rows' part of docs/coverage.md, the site, and the documentation of the Rust code into target/doc
ifeq ($(TORCH),$(USUAL_TORCH))
	@$(RUN) tests/sweep --table "$${CARGO_TARGET_DIR:-target}/release/coverage.md"
endif
	@cargo doc $(CARGO_FLAGS) --no-deps --document-private-items
	@$(MAKE) --no-print-directory figures site

site: setup ## Build the documentation's site into target/site; a warning is an error
	@cmp -s requirements-docs.txt .venv-docs/requirements.txt || { echo "==> installing MkDocs into .venv-docs" && \
		$(RUN) -m venv .venv-docs && \
		.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt && \
		cp requirements-docs.txt .venv-docs/requirements.txt; }
	@echo "==> mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

figures: setup ## Draw the README's pictures again, from the tables of docs/coverage.md and docs/performance.md
	@$(RUN) scripts/figures.py

info: build ## Say which OpenCL devices there are and whether they work
	@$(RUN) -m torch_opencl.info

kernels-list: ## List the kernels' entry points, by family
	@scripts/kernels_list.sh

gpu-kit: build ## Write dist/gpu-kit-*: what a machine with a GPU needs to check and measure this (TORCH=2.11.0)
	@$(RUN) -m gpu_kit.build $(if $(TORCH),--torch $(TORCH))

clean: ## Remove what has been built, but not .venv
	rm -rf target python/torch_opencl/lib python/*.egg-info benchmarks/results
