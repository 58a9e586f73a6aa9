#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests, each kind also alone: test.sh [unit-c|unit-go|e2e|replay|race|long|fuzz|soak]... Every kind runs, though one before it failed.
# Without arguments the first four; the others take long.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
kinds=("$@")
[ "$#" -gt 0 ] || kinds=(unit-c unit-go e2e replay)
seconds=${FUZZ_SECONDS:-5}
jobs=${JOBS:-2}
# End-to-end tests wait more than they compute.
processes=${E2E_PROCESSES:-$((2 * jobs))}

unit-c() {
	tools/step.sh 'unit tests' files ninja -C build/dataplane -j"$jobs" || return 1
	meson test --no-rebuild -C build/dataplane --suite unit --num-processes "$jobs" --print-errorlogs
}

unit-go() {
	# `make lint` vets.
	go test -vet=off -p "$jobs" ./...
}

# The same under the race detector.
race() {
	CGO_ENABLED=1 go test -race -vet=off -p "$jobs" ./...
}

# End-to-end tests that are marked long. The program of a CPU level that this CPU lacks cannot run here: it is not compiled.
long() {
	local levels=x86-64-v2,x86-64-v3
	if grep -q avx512vl /proc/cpuinfo; then levels+=,x86-64-v4; fi
	make --no-print-directory levels LEVELS="$levels" || return 1
	.venv/bin/python -m pytest tests -m long -n "$processes"
}

e2e() {
	rm -rf build/tests/pytest
	.venv/bin/python -m pytest tests -m "not long" -n "$processes"
	local status=$? failures=build/tests/pytest/v/cache/lastfailed
	[ "$status" -eq 1 ] && [ -f "$failures" ] || return "$status"
	# A busy machine can stop a process for seconds, which fails a test that waits for it. A few failed tests run again, alone; what fails
	# again has failed. The output names both runs.
	[ "$(.venv/bin/python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$failures")" -le 10 ] || return 1
	printf '\n-- the failed tests again, one at a time\n'
	.venv/bin/python -m pytest tests --last-failed --verbose
}

# Long tests, in turn: crashes under traffic, subscribers at random, more sessions and objects, and the fuzzers.
soak() {
	local failed=0
	seconds=${FUZZ_SECONDS:-60}
	export TEST_SECONDS=1200 CRASH_SECONDS=${CRASH_SECONDS:-300} SCALE_SESSIONS=${SCALE_SESSIONS:-8000} BULK_OBJECTS=${BULK_OBJECTS:-10000}
	export MONKEY_SECONDS=${MONKEY_SECONDS:-600} IKE_TUNNELS=${IKE_TUNNELS:-10000} IKE_SECONDS=${IKE_SECONDS:-300}
	export AGF_LINES=${AGF_LINES:-1000} AGF_SECONDS=${AGF_SECONDS:-300}
	export N3IWF_UES=${N3IWF_UES:-100} N3IWF_SECONDS=${N3IWF_SECONDS:-60} REST_KINDS=all
	.venv/bin/python -m pytest tests/test_crash.py tests/test_monkey.py tests/test_ike_load.py tests/test_n3iwf_load.py tests/test_agf_load.py tests/test_scale.py tests/test_conformance.py tests/test_rest.py -s || failed=1
	fuzz || failed=1
	return $failed
}

# The harnesses in C, over the real nodes, under AddressSanitizer and UBSan, and their corpus of valid packets.
build-harnesses() {
	if [ ! -f build/fuzz/build.ninja ]; then
		CC='ccache clang' meson setup build/fuzz dataplane -Dfuzz=true -Dtests=false -Dbuildtype=debugoptimized \
			-Db_sanitize=address,undefined -Db_lundef=false >/dev/null || return 1
	fi
	tools/step.sh fuzzers files ninja -C build/fuzz -j"$jobs" || return 1
	corpus=build/fuzz/corpus
	rm -rf "$corpus"
	mkdir -p "$corpus"
	.venv/bin/python dataplane/fuzz/seeds.py "$corpus" || return 1
	mapfile -t harnesses < <(find build/fuzz/fuzz -maxdepth 1 -type f -executable -name 'fuzz-*' ! -name fuzz-mutations | sort)
	export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
}

# Each corpus once, and all mutations of the frames. Those of Go run with the unit tests.
replay() {
	local corpus harness harnesses running=0 failed=0
	build-harnesses || return 1
	printf -- '-- fuzz-mutations\n'
	build/fuzz/fuzz/fuzz-mutations "$corpus/frames" || failed=1
	for harness in "${harnesses[@]}"; do
		await-room || failed=1
		fuzz-c "$harness" -runs=0 "$corpus/${harness##*/fuzz-}" &
		running=$((running + 1))
	done
	for ((; running > 0; running--)); do wait -n || failed=1; done
	return $failed
}

# Each harness for a short time, then Go's fuzz targets, always as many at once as there are jobs.
fuzz() {
	local corpus harness harnesses target targets running=0 failed=0
	build-harnesses || return 1
	for harness in "${harnesses[@]}"; do
		mkdir -p "build/fuzz/grown/${harness##*/}"
		await-room || failed=1
		fuzz-c "$harness" -max_total_time="$seconds" "build/fuzz/grown/${harness##*/}" "$corpus/${harness##*/fuzz-}" &
		running=$((running + 1))
	done
	mapfile -t targets <<<"$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' agent | sed 's/func //')"
	for target in "${targets[@]}"; do
		await-room || failed=1
		fuzz-go "./$(dirname "${target%%:*}")" "${target##*:}" &
		running=$((running + 1))
	done
	for ((; running > 0; running--)); do wait -n || failed=1; done
	return $failed
}

# Until one of `running` ends, if there are as many as jobs. Fails if that one failed.
await-room() {
	[ "$running" -ge "$jobs" ] || return 0
	running=$((running - 1))
	wait -n
}

# fuzz-c HARNESS OPTION CORPUS... Its output comes as one piece.
fuzz-c() {
	local output status=0
	output=$("$1" "$2" -timeout=10 -print_final_stats=1 -verbosity=0 -artifact_prefix=build/fuzz/ "${@:3}" 2>&1) || status=1
	printf -- '-- %s %s\n%s\n' "${1##*/}" "$2" "$output"
	return $status
}

# fuzz-go PACKAGE TARGET. Inputs are made smaller for a second at most: without that the time goes there.
fuzz-go() {
	local output status=0
	if ! output=$(go test -vet=off -run='^$' -fuzz="^$2\$" -fuzztime="${seconds}s" -fuzzminimizetime=1s -parallel=1 "$1" 2>&1); then
		if only-the-time-is-over "$output"; then
			output=$(grep '^fuzz:' <<<"$output")
		else
			status=1
		fi
	fi
	printf -- '-- %s %s, %s seconds\n%s\n' "$1" "$2" "$seconds" "$output"
	return $status
}

# only-the-time-is-over OUTPUT. Go's fuzzer sometimes takes the end of its own time for an error: it checks its
# workers a moment before they get the signal to stop. A failing input is always named.
only-the-time-is-over() {
	grep -qx '    context deadline exceeded' <<<"$1" &&
		! grep -qiE 'failing input|minimizing|seed corpus|panic|^ +--- FAIL' <<<"$1" &&
		[ "$(grep -c -- '--- FAIL' <<<"$1")" -eq 1 ]
}

# The output of a kind is kept in build/tests, so that the names of failed tests can be repeated at the end.
mkdir -p build/tests
passed=0 failed=()
for kind in "${kinds[@]}"; do
	printf '\n== %s\n' "$kind"
	TIMEFORMAT="-- $kind took %0R s; CPU: %0U s in programs, %0S s in the kernel"
	if time "$kind" 2>&1 | tee "build/tests/$kind.txt"; then passed=$((passed + 1)); else failed+=("$kind"); fi
done
printf '\n'
[[ " ${kinds[*]} " != *" e2e "* || " ${failed[*]} " == *" e2e "* ]] || grep -sE '^(FAILED|ERROR) ' build/tests/e2e.txt | cut -c1-300 | sed 's/^/Passed only when run again, alone: /'
for kind in "${failed[@]}"; do
	printf 'Failed: %s\n' "$kind"
	grep -E '^(FAILED|ERROR) |^ *--- FAIL|^FAIL|^ *[0-9]+/[0-9]+ .*(FAIL|TIMEOUT)|^SUMMARY: ' "build/tests/$kind.txt" | cut -c1-300 | head -30
done
printf 'kinds: %d passed, %d failed\n' "$passed" "${#failed[@]}"
[ "${#failed[@]}" -eq 0 ]
