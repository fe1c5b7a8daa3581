# Verbs for people and CI. Each is a thin line over CMake's presets (CMakePresets.json) or a script
# of deploy/; `make PRESET=debug test` uses another preset.
PRESET ?= release
PYTHON ?= /usr/bin/python3
CLANG_FORMAT ?= clang-format
PREFIX ?= /usr/local
IMAGE ?= attend-server
BASE ?= debian:bookworm-slim
SECONDS ?= 60

# A folder with conformance cases from outside, if there is one beside the repository.
export ATTEND_TEST_SHARED_DIR ?= $(if $(wildcard ../shared),$(abspath ../shared))
# What ccache needs to keep objects that use precompiled headers. These name the folder that they were
# made in, so another folder's must not be found: no CCACHE_BASEDIR here.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime

sources = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cc')

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps configure build test test-slow demo bench bench-serve bench-peers format format-check lint \
        layering wire-check wire-baseline sanitize asan tsan fuzz install image clean

help: ## print this list
	@echo 'make VERB, where VERB is'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

deps: ## install what building and testing need (Debian 12 or 13; root or sudo)
	@deploy/install-deps.sh

configure:
	@cmake --preset $(PRESET)

build: configure ## compile everything (PRESET=release)
	@cmake --build --preset $(PRESET)

test: deps build ## build, then run all tests but the slow ones
	@ctest --preset $(PRESET)

test-slow: deps ## build, then run the slow tests
	@$(MAKE) --no-print-directory PRESET=release build
	@ctest --preset slow

demo: deps ## build server and client, start them, compute, show results and the server's metrics
	@$(MAKE) --no-print-directory PRESET=release configure
	@cmake --build --preset release --target attend-server attend
	@deploy/demo.sh build/release

bench: deps ## measure the kernel against this machine's peak, into build/bench/core.json
	@$(MAKE) --no-print-directory PRESET=release build
	@mkdir -p build/bench
	@build/release/tests/bench/attend-bench --json build/bench/core.json

bench-serve: deps ## measure the server against echo and kernel, into build/bench/serve.json (ONLY=part,part)
	@$(MAKE) --no-print-directory PRESET=release build
	@mkdir -p build/bench
	@build/release/tests/bench/attend-serve-bench --json build/bench/serve.json $(if $(ONLY),--only $(ONLY))

bench-peers: deps ## the same work on PyTorch and ONNX Runtime, where PYTHON can import them
	@$(MAKE) --no-print-directory PRESET=release build
	@$(PYTHON) -B tests/bench/peers.py --bench build/release/tests/bench/attend-bench

format: ## rewrite the sources in the house style
	@deploy/install-deps.sh --only format
	@$(CLANG_FORMAT) -i $(sources)

format-check: ## fail if `make format` would change anything
	@deploy/install-deps.sh --only format
	@$(CLANG_FORMAT) --dry-run -Werror $(sources)
	@echo 'format-check: $(words $(sources)) files are in the house style'

lint: layering wire-check ## clang-tidy, layers, wire compatibility (FILES=regex: only those files)
	@deploy/install-deps.sh --only build,test,lint
	@cmake --preset lint
	@cmake --build --preset lint
	@deploy/lint.sh build/lint $(FILES)

layering: ## check that every include points down the layers
	@$(PYTHON) -B tests/checks/layering_check.py .

wire-check: ## check the .proto files against the agreed API
	@deploy/install-deps.sh --only build,test
	@$(PYTHON) -B tests/checks/wire_check.py proto proto/wire-baseline.json

wire-baseline: ## take the .proto files as they are for the agreed API
	@deploy/install-deps.sh --only build,test
	@$(PYTHON) -B tests/checks/wire_check.py proto proto/wire-baseline.json --update

sanitize: asan tsan ## unit and integration tests under asan with ubsan, then tsan

asan tsan: deps
	@cmake --workflow --preset $@

fuzz: ## look for requests that are computed or read wrongly (SECONDS=60), corpora in build/fuzz
	@deploy/install-deps.sh --only build,fuzz
	@cmake --preset fuzz
	@cmake --build --preset fuzz
	@deploy/fuzz.sh build/fuzz $(SECONDS)

install: ## install what is built (PREFIX=/usr/local)
	@cmake --install build/$(PRESET) --prefix $(PREFIX)

image: ## build the container image of the server (IMAGE, BASE)
	@docker build --build-arg BASE=$(BASE) -t $(IMAGE) .

clean: ## remove every build
	@rm -rf build
