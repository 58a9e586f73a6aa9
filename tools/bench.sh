#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the bench with huge pages, and gives them back: bench.sh all|ndr ONLY-REGEX JSON-FILE (each of the two may be empty).
# all: every scenario inside one process, on one worker, then those that show how two get along, then the control plane's.
# ndr: whole gateways with a traffic generator beside them. bench.sh paper: both, and docs/performance.md from them.
set -euo pipefail
cd "$(dirname "$0")/.."
pages=/proc/sys/vm/nr_hugepages
# 2 MiB each. The largest scenarios hold a million routes.
wanted=${HUGE_PAGES:-1536}
# One bench at a time: the pages that one gives back may be another's.
exec 9>/run/lock/sluice-bench
flock -n 9 || { echo "bench: waiting for another one on this machine to end" >&2 && flock 9; }
before=$(cat $pages)
results=$(mktemp -d)
end() {
	echo "$before" >"$pages"
	rm -rf "$results"
}
trap end EXIT

if [ "$before" -lt "$wanted" ]; then echo "$wanted" >$pages; fi
if [ "$(cat $pages)" -lt "$wanted" ]; then
	echo "bench: only $(cat $pages) huge pages of $wanted could be had" >&2
	exit 1
fi
kind=$1 only=${2-} json=${3-} failed=0

nodes() {
	local bench=build/dataplane/bench/sluice-bench
	$bench ${only:+--only "$only"} --json "$results/1.json" || failed=1
	if [ "$(nproc)" -gt 1 ]; then
		$bench ${only:+--only "$only"} --workers 2 --scaling --json "$results/2.json" || failed=1
	else
		echo "bench: one processor, so nothing on two workers" >&2
	fi
}

# Workers that never sleep, and programs that wait for others, do without a real-time priority.
control() { chrt -o 0 build/reconcile-bench -huge ${only:+-only "$only"} -json "$results/3.json" || failed=1; }

# ndr JSON-FILE SECONDS-OF-PLRSEARCH (each may be empty).
ndr() { .venv/bin/python bench/ndr.py ${only:+--only "$only"} ${1:+--json "$1"} ${2:+--soak "$2"} || failed=1; }

# The rows of all parts, in one file.
together() {
	[ -n "$1" ] || return 0
	python3 - "$1" "$results"/*.json <<-'END'
		import json, sys
		rows = [row for file in sys.argv[2:] for row in json.load(open(file))]
		json.dump(rows, open(sys.argv[1], "w"), indent=1)
	END
}

case $kind in
all)
	nodes
	control
	together "$json"
	;;
ndr) ndr "$json" "${SOAK-}" ;;
paper)
	mkdir -p build/bench
	nodes
	control
	together build/bench/nodes.json
	only='ip4|metric-hqos|symmetric$|bng-192k'
	ndr build/bench/ndr.json "${SOAK-}"
	only='ndr-ipsec-'
	ndr build/bench/tunnels.json "${SOAK:-120}"
	chrt -o 0 .venv/bin/python bench/setup.py --json build/bench/setup.json || failed=1
	chrt -o 0 .venv/bin/python bench/setup.py --planes 2 --json build/bench/setup-planes.json || failed=1
	chrt -o 0 .venv/bin/python bench/latency.py --pings 200 --turns 3 --json build/bench/latency.json || failed=1
	printf '{"date": "%s", "seconds": %s, "huge_pages": %s}\n' "$(date -u +%F)" "$SECONDS" "$wanted" >build/bench/run.json
	if [ "$failed" -eq 0 ]; then
		.venv/bin/python bench/report.py build/bench docs
	else
		echo "bench: not everything was measured, so docs/performance.md stays as it was" >&2
	fi
	;;
*)
	echo "bench: accepted: all, ndr, paper, not $kind" >&2
	exit 2
	;;
esac
[ "$failed" -eq 0 ]
