# SPDX-License-Identifier: Apache-2.0
# The commands a person remembers. `make` alone lists them.
JOBS ?= $(shell nproc)
LAUNCHER := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
configure = cmake --preset $(1) $(LAUNCHER) --log-level=WARNING
compile = $(call configure,$(1)) && cmake --build build/$(1) -j $(JOBS)
.DEFAULT_GOAL := help
.PHONY: help build test test-asan test-tsan check quickstart bench soak clean

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

build: ## install what is missing and build everything (release)
	@scripts/install-packages.sh build test
	@$(call compile,release)

test: ## build and run all tests; the last line reads "N passed, M failed"
	@scripts/install-packages.sh build test
	@$(call compile,release) --target planalto_tests
	@scripts/run-tests.sh build/release

test-asan: ## the tests under AddressSanitizer and UBSan
	@scripts/install-packages.sh build test
	@$(call compile,asan) --target planalto_tests
	@scripts/run-tests.sh build/asan

test-tsan: ## the tests under ThreadSanitizer
	@scripts/install-packages.sh build test
	@$(call compile,tsan) --target planalto_tests
	@scripts/run-tests.sh build/tsan

check: ## clang-format, clang-tidy and the structure rules
	@scripts/install-packages.sh build test check
	@$(call configure,release)
	@scripts/check.sh build/release

# A target exists from the day its script does.
ifneq ($(wildcard scripts/quickstart.sh),)
quickstart: ## build the program alone and train a small model on the King James Bible
	@scripts/install-packages.sh build quickstart
	@$(call compile,quick)
	@scripts/quickstart.sh build/quick
endif
ifneq ($(wildcard scripts/bench.sh),)
bench: ## measure the kernels and a training step on this machine
	@scripts/install-packages.sh build test
	@$(call compile,release)
	@scripts/bench.sh build/release
endif
ifneq ($(wildcard scripts/soak.sh),)
soak: ## the long tests: kills, disk limits, big tensors
	@scripts/install-packages.sh build test
	@$(call compile,release)
	@scripts/soak.sh build/release
endif

clean: ## remove build/
	@rm -rf build
