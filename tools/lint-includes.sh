#!/usr/bin/env bash
# Which concept of the data plane may include whose headers: lint-includes.sh FILE...
# A concept knows those before it in the order below and none that stands with it or behind it. A policy's face, the one header
# by which others put its nodes into their chains, is open to all, and knows the core alone. Tests may see everything.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$#" -gt 0 ] || exit 0
awk '
BEGIN {
	split("core 0 port 1 ether 2 ip 3 dispatch 4 session 4 pppoe 5 gtpu 5 acl 5 meter 5 hqos 5 flow 6", order, " ")
	for (i = 1; i in order; i += 2)
		level[order[i]] = order[i + 1]
	face["acl/acl.h"] = face["meter/meter.h"] = face["flow/flow.h"] = face["hqos/hqos.h"] = 1
}
function concept(path) {
	sub(/\/.*/, "", path)
	return path
}
FNR == 1 {
	file = FILENAME
	sub(/^dataplane\//, "", file)
	checked = (concept(file) in level) && file !~ /_test\.c$/
}
checked && /^#include "/ {
	split($0, quoted, "\"")
	from = concept(file)
	to = concept(quoted[2])
	if (!(to in level) || quoted[2] !~ /\// || from == to && !(file in face))
		next
	if (file in face ? to == "core" : level[to] < level[from] || quoted[2] in face)
		next
	printf "%s:%d: %s may not include %s\n", FILENAME, FNR, from, quoted[2]
	wrong = 1
}
END { exit wrong }
' "$@"
