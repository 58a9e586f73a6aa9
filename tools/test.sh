#!/usr/bin/env bash
# Runs the tests, each kind also alone: test.sh [unit-c|unit-go|e2e|fuzz]... Every kind runs, though one before it failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
kinds=("$@")
[ "$#" -gt 0 ] || kinds=(unit-c unit-go e2e fuzz)
seconds=${FUZZ_SECONDS:-20}
jobs=${JOBS:-2}

unit-c() {
	meson test -C build/dataplane --suite unit --num-processes 2 --print-errorlogs
}

unit-go() {
	CGO_ENABLED=1 go test -race -p "$jobs" ./...
}

e2e() {
	make --no-print-directory levels || return 1
	.venv/bin/python -m pytest tests -n "$jobs"
}

# Each harness, over the real nodes, under AddressSanitizer and UBSan: all mutations of a corpus of valid packets, then
# libFuzzer for a short time, as many harnesses at once as there are jobs; then Go's fuzz targets.
fuzz() {
	local harness corpus running=0 failed=0
	if [ ! -f build/fuzz/build.ninja ]; then
		CC=clang meson setup build/fuzz dataplane -Dfuzz=true -Dtests=false -Dbuildtype=debugoptimized \
			-Db_sanitize=address,undefined -Db_lundef=false >/dev/null || return 1
	fi
	ninja -C build/fuzz -j"$jobs" || return 1
	corpus=build/fuzz/corpus
	rm -rf "$corpus"
	mkdir -p "$corpus"
	.venv/bin/python dataplane/fuzz/seeds.py "$corpus" || return 1
	export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
	printf -- '-- fuzz-mutations\n'
	build/fuzz/fuzz/fuzz-mutations "$corpus/frames" || failed=1
	for harness in build/fuzz/fuzz/fuzz-*; do
		if [ ! -x "$harness" ] || [ -d "$harness" ] || [ "${harness##*/}" = fuzz-mutations ]; then continue; fi
		if [ "$running" -eq "$jobs" ]; then
			wait -n || failed=1
			running=$((running - 1))
		fi
		fuzz-c "$harness" "$corpus/${harness##*/fuzz-}" &
		running=$((running + 1))
	done
	for ((; running > 0; running--)); do wait -n || failed=1; done
	fuzz-go || failed=1
	return $failed
}

# fuzz-c HARNESS CORPUS. What it says comes as one piece.
fuzz-c() {
	local name=${1##*/} output status=0
	mkdir -p "build/fuzz/grown/$name"
	output=$("$1" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 -verbosity=0 \
		-artifact_prefix=build/fuzz/ "build/fuzz/grown/$name" "$2" 2>&1) || status=1
	printf -- '-- %s, %s seconds\n%s\n' "$name" "$seconds" "$output"
	return $status
}

# Each target by itself, as `go test` wants it. Inputs are made smaller for a second at most: without that the time goes there.
fuzz-go() {
	local file package target output failed=0
	while IFS=: read -r file target; do
		package=./$(dirname "$file")
		printf -- '-- %s %s\n' "$package" "$target"
		if output=$(go test -run='^$' -fuzz="^$target\$" -fuzztime=10s -fuzzminimizetime=1s -parallel=2 "$package" 2>&1); then
			printf '%s\n' "$output"
		elif only-the-time-is-over "$output"; then
			printf '%s\n' "$output" | grep '^fuzz:'
		else
			printf '%s\n' "$output"
			failed=1
		fi
	done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' agent | sed 's/func //')
	return $failed
}

# only-the-time-is-over OUTPUT. Go's fuzzer sometimes takes the end of its own time for an error: it asks whether its workers
# were told to stop a moment before they are. An input that fails is always named.
only-the-time-is-over() {
	grep -qx '    context deadline exceeded' <<<"$1" &&
		! grep -qiE 'failing input|minimizing|seed corpus|panic|^ +--- FAIL' <<<"$1" &&
		[ "$(grep -c -- '--- FAIL' <<<"$1")" -eq 1 ]
}

passed=0 failed=()
for kind in "${kinds[@]}"; do
	printf '\n== %s\n' "$kind"
	SECONDS=0
	if "$kind"; then passed=$((passed + 1)); else failed+=("$kind"); fi
	printf -- '-- %s took %d s\n' "$kind" "$SECONDS"
done
printf '\n'
if [ "${#failed[@]}" -gt 0 ]; then printf 'These kinds of tests failed: %s\n' "${failed[*]}"; fi
printf 'kinds: %d passed, %d failed\n' "$passed" "${#failed[@]}"
[ "${#failed[@]}" -eq 0 ]
