# Every target does its own set-up. 'make' alone tells what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: conformance help setup build test test-matrix race fuzz bench lint docs demo demo-bulk

# go build records the commit where git can be asked. Where it cannot (no git, a tarball, a clone that belongs to
# somebody else) the build goes on without it.
BUILDVCS = $(shell git rev-parse --git-dir >/dev/null 2>&1 && git status --porcelain >/dev/null 2>&1 && echo true || echo false)

# The binary is static. Tests are built the same way, so that nothing is compiled twice; the race detector needs cgo.
export CGO_ENABLED ?= 0
race: export CGO_ENABLED = 1

help: ## tell the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make this machine able to run everything: PostgreSQL's programs, kinesis-local
	@scripts/setup

build: ## build bin/synctl
	go build -buildvcs=$(BUILDVCS) -o bin/synctl ./cmd/synctl

test: setup ## run all tests (TESTFLAGS="-run Zoo" for some)
	@scripts/gotest -timeout 15m $(TESTFLAGS) ./...

test-matrix: setup ## run the tests that use PostgreSQL on versions 14, 16, 17 and 18, too
	@scripts/pg-matrix/run

race: setup ## run all tests under the race detector
	@scripts/gotest -race -timeout 30m $(TESTFLAGS) ./...

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@scripts/fuzz

conformance: ## load other people's Parquet and CSV files below DIR and compare with second readings
	@test -n "$(DIR)" || { echo "usage: make conformance DIR=path"; exit 2; }
	SYNCTL_CONFORMANCE_DIR=$(abspath $(DIR)) go test -count=1 -v -run '^TestConformance$$' ./internal/bulk/parquet ./internal/bulk/csv

bench: ## time whole commands against others', then the code (BENCH=Tail for some, SYNCTL_BENCH_ROWS=100000 for a quick look)
	@scripts/setup bench
	go test ./cmd/synctl -run '^$$' -bench '$(or $(BENCH),.)' -benchtime 1x -timeout 120m
	go test ./internal/... -run '^$$' -bench '$(or $(BENCH),.)' -benchmem

lint: ## gofmt, go vet, staticcheck, govulncheck
	@scripts/lint

docs: ## write docs/cli, docs/man and docs/exit-codes.md anew from the commands
	go test ./cmd/synctl -count=1 -run '^TestDocsAreCurrent$$' -update-docs

demo: build ## a tour on a throwaway server, under a minute (KINESIS=1: through kinesis-local)
	@scripts/setup $(if $(filter 1,$(KINESIS)),kinesis)
	@KINESIS=$(KINESIS) scripts/demo.sh

demo-bulk: build ## a million rows loaded and brought live under an application that goes on working
	@scripts/setup
	@scripts/demo-bulk.sh
