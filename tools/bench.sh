#!/usr/bin/env bash
# Runs the bench with huge pages, and gives them back: bench.sh ONLY-REGEX JSON-FILE (each may be empty).
set -euo pipefail
cd "$(dirname "$0")/.."
pages=/proc/sys/vm/nr_hugepages
# 2 MiB each. The largest scenarios hold a million routes.
wanted=${HUGE_PAGES:-1536}
before=$(cat $pages)
give_back() { echo "$before" >$pages; }
trap give_back EXIT

if [ "$before" -lt "$wanted" ]; then echo "$wanted" >$pages; fi
if [ "$(cat $pages)" -lt "$wanted" ]; then
	echo "bench: only $(cat $pages) huge pages of $wanted could be had" >&2
	exit 1
fi
arguments=()
if [ -n "${1-}" ]; then arguments+=(--only "$1"); fi
if [ -n "${2-}" ]; then arguments+=(--json "$2"); fi
build/dataplane/bench/sluice-bench "${arguments[@]}"
