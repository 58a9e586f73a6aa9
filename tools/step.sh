#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command as one step of a longer work: step.sh NAME UNIT COMMAND... One line shows the progress of the step
# (UNIT: the counted thing), and at its end the count and the time. The command's output goes to build/logs, and to
# the terminal if the command fails. V=1 shows all of it.
set -uo pipefail
[ -z "${V:-}" ] || exec "${@:3}"
name=$1 unit=$2
shift 2
mkdir -p build/logs
log=build/logs/${name//[ \/]/-}.log
count=0 total='' status=1 last=0
SECONDS=0

show() {
	local text="$name: $count${total:+ of $total} $unit"
	if [ -t 1 ]; then
		printf '\r\033[K%s' "$text"
	elif ((SECONDS >= last + 10)); then
		last=$SECONDS
		printf '%s\n' "$text"
	fi
}

ninja='^\[([0-9]+)/([0-9]+)\] ' apt='^[0-9]+ upgraded, ([0-9]+) newly installed' go='^[a-z0-9][^ :]*$'
: >"$log"
[ ! -t 1 ] || printf '%s: ...' "$name"
# The last line is the command's exit code.
while IFS= read -r line; do
	if [[ $line == "step ended with "* ]]; then
		status=${line##* }
		continue
	fi
	printf '%s\n' "$line" >>"$log"
	if [[ $line =~ $ninja ]]; then
		count=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
	elif [[ $line =~ $apt ]]; then
		total=${BASH_REMATCH[1]}
	elif [[ $line == "Setting up "* || $line == "Collecting "* || $line =~ $go ]]; then
		count=$((count + 1))
	else
		continue
	fi
	show
done < <("$@" 2>&1 </dev/null; printf 'step ended with %s\n' "$?")

[ ! -t 1 ] || printf '\r\033[K'
if [ "$status" -ne 0 ]; then
	grep -vE "$ninja" "$log" | tail -n 100
	printf '%s: failed (all of its output: %s)\n' "$name" "$log"
elif [ "$count" -gt 0 ]; then
	printf '%s: %s %s, %s s\n' "$name" "$count" "$unit" "$SECONDS"
elif [ ! -s "$log" ] || grep -q 'no work to do' "$log"; then
	printf '%s: up to date\n' "$name"
else
	printf '%s: done, %s s\n' "$name" "$SECONDS"
fi
exit "$status"
