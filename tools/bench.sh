#!/usr/bin/env bash
# Runs the bench with huge pages, and gives them back: bench.sh ONLY-REGEX JSON-FILE (each may be empty). First every
# scenario on one worker, then those that show how two get along, then the control plane's.
set -euo pipefail
cd "$(dirname "$0")/.."
pages=/proc/sys/vm/nr_hugepages
# 2 MiB each. The largest scenarios hold a million routes.
wanted=${HUGE_PAGES:-1536}
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
only=${1-} failed=0
bench() { build/dataplane/bench/sluice-bench ${only:+--only "$only"} "$@" || failed=1; }
bench --json "$results/1.json"
if [ "$(nproc)" -gt 1 ]; then
	bench --workers 2 --scaling --json "$results/2.json"
else
	echo "bench: one processor, so nothing on two workers" >&2
fi
build/reconcile-bench -huge ${only:+-only "$only"} -json "$results/3.json" || failed=1
if [ -n "${2-}" ]; then
	python3 - "$2" "$results"/*.json <<-'END'
		import json, sys
		rows = [row for file in sys.argv[2:] for row in json.load(open(file))]
		json.dump(rows, open(sys.argv[1], "w"), indent=1)
	END
fi
[ "$failed" -eq 0 ]
