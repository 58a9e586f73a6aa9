#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the data plane's includes: lint-includes.sh FILE...
# dataplane/includes.txt, or the file that INCLUDES names, is the table of permitted includes. Tests, and the fuzz.c of a concept, may include everything.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$#" -gt 0 ] || exit 0
awk -v folders="$(cd dataplane && echo */)" '
function fail(at, text) {
	print at ": " text
	wrong = 1
}
function folder(path) {
	sub(/\/.*/, "", path)
	return path
}
# The table.
FNR == NR {
	at = FILENAME ":" FNR
	if (/^#/ || NF == 0)
		next
	name = $1
	if (!sub(/:$/, "", name)) {
		fail(at, "a line is NAME: FOLDER...")
		next
	}
	if (name in known)
		fail(at, name " has a line already")
	for (i = 2; i <= NF; i++) {
		if (!($i in known))
			fail(at, name " may not include " $i ": no line above has it; move the line, or register what is needed from above")
		may[name, $i] = 1
	}
	known[name] = 1
	next
}
!complete {
	complete = 1
	count = split(folders, there, "/ *")
	for (i = 1; i < count; i++) {
		if (!(there[i] in known))
			fail(ARGV[1], "dataplane/" there[i] " has no line")
		exists[there[i]] = 1
	}
	for (name in known)
		if (!(name in exists))
			fail(ARGV[1], name ": there is no folder dataplane/" name)
}
FNR == 1 {
	file = FILENAME
	sub(/^dataplane\//, "", file)
	from = folder(file)
	checked = file ~ /\// && file !~ /(_test|\/fuzz)\.c$/
}
checked && /^#include "[^"]*\// {
	split($0, quoted, "\"")
	to = folder(quoted[2])
	if (to != from && !((from, to) in may))
		fail(FILENAME ":" FNR, from " may not include " quoted[2] " (" ARGV[1] ")")
}
END { exit wrong }
' "${INCLUDES:-dataplane/includes.txt}" "$@"
