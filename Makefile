# `make` lists the targets. All targets are idempotent; what is up to date is skipped.

PYTHON ?= python3
# `make test TORCH=2.11.0`: with another PyTorch than the one in requirements-dev.txt, each release in a separate
# environment and target folder. The package contains a library for each release, and loads the one for the installed
# PyTorch. A variable TORCH of the environment is ignored.
USUAL_TORCH := $(shell sed -n 's/^torch==//p' requirements-dev.txt)
TORCH := $(USUAL_TORCH)
# A minor version, such as 2.11, means its first patch release, except for the usual one.
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

# The build, and the torch-sys crate, ask the first `python` in PATH for the location of PyTorch.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export TORCH_OPENCL_PYTHON := $(CURDIR)/$(VENV)/bin/python
export LIBTORCH_USE_PYTORCH := 1
# Otherwise PyTorch's idle CPU threads spin, and take cores from an OpenCL driver that runs on the CPU.
export OMP_WAIT_POLICY := passive

# One profile of cargo for all: clippy, the tests and the build share compiled code.
CARGO_FLAGS := --release
PYTEST_FLAGS ?= -n $(shell nproc)
# DRIVER=rusticl and similar run the tests with another OpenCL driver.
WITH := $(if $(DRIVER),env RUN=$(CURDIR)/$(RUN) $(CURDIR)/scripts/driver.sh $(DRIVER))
SECONDS ?= 60
SEED ?= 0

# The variable for the command with which cargo runs the test programs.
RUNNER := CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER

# The folder of PyTorch's libraries, for the test programs; in Python they are already loaded.
TORCH_LIB := import importlib.util, os; print(os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib"))

# The only release of torch that the oracle of the Rust tests supports.
TCH_RELEASE := $(shell sed -n 's/^torch = "\(.*\)"/\1/p' tests/rust/Cargo.toml)
# These tests are in a separate package.
ORACLE := $(if $(filter $(RELEASE),$(TCH_RELEASE)),torch-opencl-oracle)

# Tests of what differs between releases of PyTorch: operators and their signatures, dispatch, hooks, autocast,
# optimizers.
SMOKE := $(patsubst %,tests/python/ops/test_%.py,ops_explicit normalisation blas optim)
SMOKE += $(patsubst %,tests/python/runtime/test_%.py,amp autograd accelerator compile_loops device distributed) tests/python/tools/test_install.py

# Installs the packages that a target needs besides requirements-dev.txt, if they are missing: $(call install,lint).
install = @cmp -s requirements-$(1).txt $(VENV)/requirements-$(1).txt || { \
	echo "==> installing the packages of requirements-$(1).txt into $(VENV)" && \
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-$(1).txt && \
	cp requirements-$(1).txt $(VENV)/requirements-$(1).txt; }

.DEFAULT_GOAL := help
# What `make smoke ARCH=aarch64` runs: a case of each test that depends on the processor. Emulation is ten times slower.
SMOKE_AARCH64 := $(patsubst %,tests/python/ops/test_%.py,corners dtypes narrow_integers scalars special_values)
SMOKE_AARCH64 += $(patsubst %,tests/python/runtime/test_%.py,fork interop kernel_cache)
AARCH64 := RUN="$(CURDIR)/$(RUN)" scripts/aarch64.sh run

.PHONY: help setup build wheel train smoke test test-all test-rust test-oracle test-python fuzz sweep upstream-tests inductor-tests gpu-compile coalescing gpu-kit lint house fmt bench speed bench-growth bench-first-use bench-constants docs info kernels-list clean models libraries bench-ulp site figures

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  ... TORCH=2.11.0      with another PyTorch, in a separate environment"

setup: ## Install what is missing: build tools, an OpenCL driver, the Python environment .venv
	@PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH="$(TORCH)" scripts/setup.sh

build: setup ## Compile the native library and install the package into .venv, editable
	@echo "==> building the native library"
	@$(RUN) -m build_support.native
	@cmp -s pyproject.toml $(VENV)/pyproject-installed.toml || { \
		$(RUN) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e . && \
		cp pyproject.toml $(VENV)/pyproject-installed.toml; }

wheel: build ## Build the wheel for this PyTorch in dist, for all Linux distributions that its symbols allow (ARCH=aarch64)
	$(call install,wheel)
	@RUN="$(CURDIR)/$(RUN)" $(if $(filter aarch64,$(ARCH)),scripts/aarch64.sh wheel,scripts/wheel.sh)

train: build ## Train a small CNN on scikit-learn's digits on the OpenCL device
	@$(RUN) examples/train_digits.py
	@echo "==> To use this Python yourself: . $(VENV)/bin/activate"

# How many parameter sets of each test `make test` runs.
CASES_OF_TESTS := 2

test: test-rust ## Run every test not marked slow, with at most two of its cases (DRIVER=intel, fpga, pocl6 or rusticl: with that OpenCL driver)
	@$(MAKE) --no-print-directory test-python PYTEST_FLAGS="-n $(shell nproc) $(PYTEST_FLAGS) --sample $(CASES_OF_TESTS) tests/python"

test-all: test-rust test-oracle test-python ## Run all tests

test-rust: build ## Run the tests of the Rust code and of the code generator
	@echo "==> cargo test"
	@LD_LIBRARY_PATH="$$($(RUN) -c '$(TORCH_LIB)')" $(if $(WITH),$(RUNNER)="$(WITH)") cargo test $(CARGO_FLAGS)

test-oracle: build ## Compare launchers in Rust with PyTorch through the crate tch
ifdef ORACLE
	@echo "==> cargo test, tests/rust"
	@LD_LIBRARY_PATH="$$($(RUN) -c '$(TORCH_LIB)')" $(if $(WITH),$(RUNNER)="$(WITH)") cargo test $(CARGO_FLAGS) --package $(ORACLE)
else
	@echo "==> without tests/rust: its release of tch is for torch $(TCH_RELEASE)"
endif

smoke: $(if $(filter aarch64,$(ARCH)),wheel,build) ## Run a subset of the tests that checks compatibility with this PyTorch (ARCH=aarch64: under emulation)
ifeq ($(ARCH),aarch64)
	@$(AARCH64) python3 -m torch_opencl.info
	@$(AARCH64) python3 -m pytest $(PYTEST_FLAGS) --sample 1 $(SMOKE_AARCH64)
else
	@$(RUN) -m torch_opencl.info
	@$(RUN) -m pytest $(PYTEST_FLAGS) $(SMOKE)
endif

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

libraries: build ## Try accelerate, transformers, lightning and other libraries on the device (PYTEST_FLAGS="-k trainer"; BITSANDBYTES=checkout: its own tests)
	$(call install,bench)
	@cmp -s requirements-libraries.txt .venv-libraries/requirements.txt || { \
		echo "==> installing libraries into .venv-libraries" && \
		$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-libraries \
			-r requirements-libraries.txt && cp requirements-libraries.txt .venv-libraries/requirements.txt; }
ifdef BITSANDBYTES
	@cd "$(BITSANDBYTES)" && BNB_TEST_DEVICE=opencl PYTHONPATH="$(CURDIR)/.venv-libraries" \
		PATH="$(CURDIR)/$(dir $(RUN)):$$PATH" "$(CURDIR)/$(RUN)" -m pytest $(PYTEST_FLAGS) \
		$(patsubst %,tests/test_%.py,ops functional linear4bit linear8bitlt optim)
else
	@$(WITH) $(RUN) -m pytest $(PYTEST_FLAGS) tests/libraries
endif

gpu-compile: build ## Compile all kernels for GPUs, without having one (CASES="gemm_local"; SAMPLE=1)
	@RUN="$(RUN)" scripts/setup_gpu_compile.sh
	@$(RUN) tests/gpu_compile $(if $(SAMPLE),--sample) $(CASES)
coalescing: build ## Measure memory accesses of kernels for GPUs under Oclgrind (CASES="pointwise copies")
	@$(RUN) tests/coalescing $(CASES)

lint: setup ## Check format and lints of all languages, and build the documentation's site
	$(call install,lint)
	@scripts/lint.sh check $(ORACLE)
	@$(MAKE) --no-print-directory site

house: setup ## Measure how hard the code is to change
	@$(RUN) scripts/house.py

fmt: setup ## Format all languages
	$(call install,lint)
	@scripts/lint.sh fix

bench: build ## Measure against PyTorch's CPU backend and the device's limits (CASES="--quick gemm 'add *'")
	$(call install,bench)
	@$(RUN) -m benchmarks $(CASES)

speed: build ## Measure groups of operators and every seventh model, and write docs/performance.md's table of groups and the README's picture
	@rm -f target/speed-*.jsonl
	@# A wrong row or model fails at the end, so that the table is written first.
	@$(RUN) -m benchmarks --quick --rows target/speed-rows.jsonl || failed=1; \
	$(MAKE) --no-print-directory models CASES="--every 7 --results target/speed-models.jsonl" || failed=1; \
	$(RUN) scripts/speed_table.py target/speed-rows.jsonl target/speed-models.jsonl && \
	$(RUN) scripts/figures.py && exit $${failed:-0}

bench-growth: build ## Measure time against size, and report jumps
	$(call install,bench)
	@$(RUN) -m benchmarks growth

bench-first-use: build ## Measure the start-up waits of new processes, with and without compiled kernels
	@$(RUN) -m benchmarks first-use

bench-ulp: build ## Measure the largest error of a function over all float32 (OP="special.erfcx --stride 101")
	@$(RUN) -m benchmarks.ulp $(OP)

bench-constants: build ## Repeat the measurements with which constants were chosen (CASES="LAUNCH_BATCH")
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

info: build ## List the OpenCL devices and check that they work
	@$(RUN) -m torch_opencl.info

kernels-list: ## List the kernels' entry points, by family
	@scripts/kernels_list.sh

gpu-kit: build ## Write dist/gpu-kit-*: files to test and measure this package on a machine with a GPU (TORCH=2.11.0)
	@$(RUN) -m gpu_kit.build $(if $(TORCH),--torch $(TORCH))

clean: ## Remove all build results, but not .venv
	rm -rf target python/torch_opencl/lib python/*.egg-info benchmarks/results
