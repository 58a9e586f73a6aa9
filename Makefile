# Everything that people do with the tree. Each target installs first what it needs and is missing (tools/setup.sh).
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
export PATH := $(CURDIR)/build/tools:$(PATH)
export GOTOOLCHAIN := local
export GOFLAGS := -buildvcs=false

JOBS ?= 2
ROLE ?= bng
# Both programs are of one release; it is written down in the data plane's build file.
RELEASE := $(shell awk -F"'" '/version:/ {print $$6; exit}' dataplane/meson.build)
PROTOS := $(sort $(wildcard api/*.proto))
C_FILES = $(shell git ls-files -co --exclude-standard -- 'dataplane/*.[ch]')
BUILD_AGENT = go build -p $(JOBS) -ldflags '-X sluice.dev/sluice/agent/cli.release=$(RELEASE)' -o build/sluice ./agent/cmd/sluice
SHELL_FILES := .ci/run dataplane/contract.sh $(wildcard tools/*.sh)

.PHONY: setup generate build levels run test unit-c unit-go e2e fuzz crash bench bench-ndr bench-paper latency lint fmt docs test-debian13 clean

setup: build/.setup-test
# For building and running, and for everything.
build/.setup: tools/setup.sh requirements.txt
	tools/setup.sh run
build/.setup-test: tools/setup.sh requirements.txt tools/kafka/pom.xml tools/fluent-bit.sh
	tools/setup.sh

# Go code of the contract, made again when a .proto changes.
generate: build/.generated
build/.generated: build/.setup $(PROTOS)
	mkdir -p agent/api
	protoc -Iapi --go_out=agent/api --go_opt=module=sluice.dev/sluice/agent/api \
		--go-grpc_out=agent/api --go-grpc_opt=module=sluice.dev/sluice/agent/api $(PROTOS)
	touch $@

build: build/.generated
	[ -f build/dataplane/build.ninja ] || meson setup build/dataplane dataplane -Dbuildtype=release
	ninja -C build/dataplane -j$(JOBS)
	$(BUILD_AGENT)

# For other machines than this one: in build/levels a data plane for each level of x86-64, and one that becomes the best that
# the machine runs.
LEVELS ?= x86-64-v2,x86-64-v3,x86-64-v4
levels: build/.generated
	[ -f build/levels/build.ninja ] || meson setup build/levels dataplane -Dbuildtype=release
	meson configure build/levels -Dlevels=$(LEVELS)
	ninja -C build/levels -j$(JOBS)
	$(BUILD_AGENT)

run: build
	exec .venv/bin/python examples/run $(ROLE)

test: build/.setup-test build
	tools/test.sh
unit-c unit-go e2e fuzz: build/.setup-test build
	tools/test.sh $@

# For five minutes, agent, data plane and store are killed at random under traffic.
crash: build/.setup-test build
	CRASH_SECONDS=300 .venv/bin/python -m pytest tests/test_crash.py -s

# Cycles a packet inside one process, and the control plane's times; rates without loss and latencies of whole gateways; all
# of it beside the papers' tables.
bench: build
	go build -p $(JOBS) -o build/reconcile-bench ./bench/reconcile
	tools/bench.sh all '$(ONLY)' '$(JSON)'
bench-ndr: build
	tools/bench.sh ndr '$(ONLY)' '$(JSON)'
bench-paper: build
	go build -p $(JOBS) -o build/reconcile-bench ./bench/reconcile
	tools/bench.sh paper

latency: build
	.venv/bin/python bench/latency.py $(if $(JSON),--json '$(JSON)')

lint: build/.setup-test build/.generated build/reference.md
	@clang-format --dry-run -Werror $(C_FILES)
	[ -f build/dataplane/build.ninja ] || meson setup build/dataplane dataplane -Dbuildtype=release
	@tools/lint-includes.sh $(C_FILES)
	@tools/lint-c.sh $(C_FILES)
	test -z "$$(gofmt -l agent bench)" || { gofmt -d agent bench; exit 1; }
	go vet ./...
	staticcheck ./...
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	shellcheck $(SHELL_FILES)
	diff -u docs/reference.md build/reference.md || { echo 'api/ says something else: make docs'; exit 1; }

fmt: build/.setup-test
	@clang-format -i $(C_FILES)
	gofmt -w agent bench
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

# The reference of objects, from the comments and annotations in api/. `make lint` checks that it is up to date.
docs: build/reference.md
	cp build/reference.md docs/reference.md
build/reference.md: build/.generated $(wildcard agent/docgen/* agent/example/* agent/object/*.go)
	protoc -Iapi --include_imports --include_source_info --descriptor_set_out=build/api.binpb $(PROTOS)
	go run ./agent/docgen build/api.binpb > $@.new
	mv $@.new $@

test-debian13: build/.setup-test
	tools/debian13.sh

clean:
	rm -rf build .venv agent/api
