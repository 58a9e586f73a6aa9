# SPDX-License-Identifier: Apache-2.0
# Everything that people do with the tree. Each target installs first what it needs and is missing (tools/setup.sh).
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
export PATH := $(CURDIR)/build/tools:$(PATH)
export GOTOOLCHAIN := local
# Without the clone's path in it, what one clone compiled serves another.
export GOFLAGS := -buildvcs=false -trimpath
# Artefacts that are slow to make, for all clones on the machine (tools/setup.sh).
export SLUICE_CACHE := $(or $(SLUICE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sluice)
export CCACHE_DIR ?= $(SLUICE_CACHE)/ccache
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export CCACHE_SLOPPINESS := pch_defines,time_macros
# Links into a cache that is gone: set-up makes it again.
ifneq ($(shell find -L .venv build build/tools -maxdepth 1 -type l 2>/dev/null),)
$(shell rm -f build/.setup*)
endif
ifeq ($(wildcard .venv/bin/python),)
$(shell rm -f build/.setup-test)
endif

JOBS ?= 2
ROLE ?= bng
# Both programs are of one release; it is written down in the data plane's build file.
RELEASE := $(shell awk -F"'" '/version:/ {print $$6; exit}' dataplane/meson.build)
PROTOS := $(sort $(wildcard api/*.proto))
CONTRACT := agent/reference/contract.binpb
C_FILES = $(shell git ls-files -co --exclude-standard -- 'dataplane/*.[ch]')
SCTP_FILES = $(wildcard agent/sctp/process/*.[ch])
# A step of a build shows one line; with V=1 all of its output.
BUILD_AGENT = @tools/step.sh agent packages go build -v -p $(JOBS) -ldflags '-X sluice.dev/sluice/agent/cli.release=$(RELEASE)' \
	-o build/sluice ./agent/cmd/sluice
# Subscribers that dial in, for examples, tests and the bench.
BUILD_DIAL = go build -p $(JOBS) -o build/sluice-dial ./bench/dial
# SCTP associations without a gateway, for tests in a guest: it needs no library.
BUILD_ASSOCIATE = CGO_ENABLED=0 go build -p $(JOBS) -o build/sluice-associate ./bench/associate
BUILD_DATAPLANE = @tools/step.sh 'data plane' files ninja -C build/dataplane -j$(JOBS)
SHELL_FILES := .ci/run dataplane/contract.sh $(wildcard tools/*.sh)

.PHONY: setup generate build levels run test test-all unit-c unit-go e2e replay race long soak fuzz check repeat harnesses crash bench bench-ndr bench-paper bench-setup bench-ike latency lint lint-c lint-go lint-python lint-texts fmt docs test-debian13 clean clean-cache

setup: build/.setup-test
# For building and running, for running with FreeRADIUS, for measuring, and for everything.
build/.setup: tools/setup.sh requirements.txt
	tools/setup.sh run
build/.setup-radius: tools/setup.sh requirements.txt
	tools/setup.sh radius
build/.setup-bench: tools/setup.sh requirements.txt
	tools/setup.sh bench
build/.setup-test: tools/setup.sh tools/guest.sh tools/libreswan.sh requirements.txt tools/kafka/pom.xml tools/fluent-bit.sh
	tools/setup.sh

# Go code of the contract, made again when a .proto changes.
generate: build/.generated
build/.generated: build/.setup $(PROTOS) $(CONTRACT)
	@mkdir -p agent/api
	@protoc -Iapi --go_out=agent/api --go_opt=module=sluice.dev/sluice/agent/api \
		--go-grpc_out=agent/api --go-grpc_opt=module=sluice.dev/sluice/agent/api $(PROTOS)
	@touch $@

# With their comments, for `sluice explain` and the reference.
$(CONTRACT): $(PROTOS) | build/.setup
	@protoc -Iapi --include_imports --include_source_info --descriptor_set_out=$@ $(PROTOS)

build/dataplane/build.ninja: | build/.setup
	@meson setup build/dataplane dataplane -Dbuildtype=release >build/meson.log || { cat build/meson.log; exit 1; }

# SCTP in a process of its own.
build/sluice-sctp: $(SCTP_FILES) | build/.setup
	@$(CC) -std=c17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@ $(filter %.c,$^) -lusrsctp -lpthread

build: build/.generated build/dataplane/build.ninja build/sluice-sctp
	$(BUILD_DATAPLANE) programs
	$(BUILD_AGENT)
	@$(BUILD_DIAL)
	@$(BUILD_ASSOCIATE)

# For other machines than this one: in build/levels a data plane for each level of x86-64, and one that becomes the best that
# the machine runs.
LEVELS ?= x86-64-v2,x86-64-v3,x86-64-v4
levels: build/.generated build/sluice-sctp
	[ -f build/levels/build.ninja ] || meson setup build/levels dataplane -Dbuildtype=release
	meson configure build/levels -Dlevels=$(LEVELS)
	@tools/step.sh 'CPU levels' files ninja -C build/levels -j$(JOBS)
	$(BUILD_AGENT)

# Without generator and tests: the first run is short.
run: build/.generated build/dataplane/build.ninja build/sluice-sctp $(if $(RADIUS),build/.setup-radius) $(if $(filter agf n3iwf,$(ROLE)),build/.setup-test)
	$(BUILD_DATAPLANE) sluice-dataplane bench/sluice-bench
	$(BUILD_AGENT)
	@$(BUILD_DIAL)
	@exec $(if $(filter agf n3iwf,$(ROLE)),.venv/bin/python,$(firstword $(wildcard /usr/bin/python3) python3)) examples/run $(ROLE) $(if $(RADIUS),--radius)

# The tests of every change. ONLY=NAME: those with a concept's name; TIMES=1: the time of each.
TEST = .venv/bin/python tools/test.py $(if $(ONLY),--only '$(ONLY)') $(if $(TIMES),--times)
SINCE = $(if $(BASE),--base '$(BASE)')
test: build/.setup-test build
	@$(TEST) lint unit-c unit-go replay e2e
# `test`, and the tests that take long.
test-all: export FUZZ_SECONDS ?= 60
test-all: build/.setup-test build
	@$(TEST) lint unit-c unit-go replay e2e race long soak fuzz
unit-c unit-go e2e replay race long soak fuzz: build/.setup-test build
	@$(TEST) $@
# Before a commit: formatters, linters and units of what changed, since BASE or the last commit.
check: build/.setup-test build/.generated build/dataplane/build.ninja
	@.venv/bin/python tools/test.py --changed $(SINCE)
# Before new tests land: each ten times.
repeat: build/.setup-test build
	@.venv/bin/python tools/test.py --repeat $(SINCE)

# The harnesses in C, over the real nodes, under AddressSanitizer and UBSan, and their corpus of valid packets.
build/fuzz/build.ninja: | build/.setup-test
	@CC='ccache clang' meson setup build/fuzz dataplane -Dfuzz=true -Dtests=false -Dbuildtype=debugoptimized \
		-Db_sanitize=address,undefined -Db_lundef=false -Db_pch=false >build/meson.log || { cat build/meson.log; exit 1; }
harnesses: build/fuzz/build.ninja
	@tools/step.sh fuzzers files ninja -C build/fuzz -j$(JOBS)
	@rm -rf build/fuzz/corpus && mkdir build/fuzz/corpus
	@.venv/bin/python dataplane/fuzz/seeds.py build/fuzz/corpus

# For five minutes, agent, data plane and store are killed at random under traffic.
crash: build/.setup-test build
	CRASH_SECONDS=300 .venv/bin/python -m pytest tests/test_crash.py -s

# Cycles a packet inside one process, and the control plane's times; rates without loss and latencies of whole gateways; all
# of it beside the papers' tables.
bench: build/.setup-bench build
	go build -p $(JOBS) -o build/reconcile-bench ./bench/reconcile
	tools/bench.sh all '$(ONLY)' '$(JSON)'
bench-ndr: build/.setup-bench build
	SOAK='$(SOAK)' tools/bench.sh ndr '$(ONLY)' '$(JSON)'
bench-paper: build/.setup-bench build
	go build -p $(JOBS) -o build/reconcile-bench ./bench/reconcile
	tools/bench.sh paper

# Set-ups of PPPoE subscribers with RADIUS, and a restart of the agent with all of them.
bench-setup: build/.setup-bench build
	.venv/bin/python bench/setup.py $(if $(ACCESS),--access $(ACCESS)) $(if $(SESSIONS),--sessions $(SESSIONS)) $(if $(FLOOD),--flood $(FLOOD)) $(if $(JSON),--json '$(JSON)')

# Needs strongSwan, the other responder.
bench-ike: build/.setup-test build
	go build -p $(JOBS) -o build/ike-load ./bench/ike
	.venv/bin/python bench/ike.py $(if $(COUNT),--count $(COUNT)) $(if $(JSON),--json '$(JSON)')

latency: build/.setup-bench build
	.venv/bin/python bench/latency.py $(if $(JSON),--json '$(JSON)')

lint: lint-c lint-go lint-python lint-texts
lint-c: build/.setup-test build/dataplane/build.ninja
	@clang-format --dry-run -Werror $(C_FILES) $(SCTP_FILES)
	@tools/lint-includes.sh $(C_FILES)
	@tools/lint-c.sh $(C_FILES)
lint-go: build/.setup-test build/.generated
	@test -z "$$(gofmt -l agent bench)" || { gofmt -d agent bench; exit 1; }
	@go vet ./...
	@staticcheck ./...
lint-python: build/.setup-test
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
lint-texts: build/.setup-test build/reference.md
	@tools/lint-license.sh $$(git ls-files -co --exclude-standard)
	@tools/lint-words.sh
	@shellcheck $(SHELL_FILES)
	@diff -u docs/reference.md build/reference.md || { echo 'api/ says something else: make docs'; exit 1; }

fmt: build/.setup-test
	@clang-format -i $(C_FILES) $(SCTP_FILES)
	gofmt -w agent bench
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

# The reference of objects, from the comments and annotations in api/. `make lint` checks that it is up to date.
docs: build/reference.md
	cp build/reference.md docs/reference.md
build/reference.md: build/.generated $(wildcard agent/docgen/* agent/example/* agent/object/*.go agent/reference/*.go)
	go run ./agent/docgen > $@.new
	mv $@.new $@

test-debian13: build/.setup-test
	tools/debian13.sh

clean:
	rm -rf build .venv agent/api
# The caches of set-up and of the compiler, for all clones.
clean-cache:
	@tools/setup.sh clean-cache
