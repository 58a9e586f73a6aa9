#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lists sources without the line of their licence (https://spdx.dev): lint-license.sh FILE... It is the first line, or
# the second behind `#!`. It examines files in languages with comments: C, Go, Python, protobuf, JavaScript, CSS,
# shell, Meson, make and Docker.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$#" -gt 0 ] || exit 0
wrong=0
for file in "$@"; do
	[ -f "$file" ] || continue
	read -r first <"$file" || true
	case ${file##*/} in
	*.c | *.h | *.go | *.proto | *.js) expected='// SPDX-License-Identifier: Apache-2.0' ;;
	*.css) expected='/* SPDX-License-Identifier: Apache-2.0 */' ;;
	*.py | *.sh | meson.build | meson_options.txt | Makefile | Dockerfile) expected='# SPDX-License-Identifier: Apache-2.0' ;;
	*)
		[[ $first == '#!'* ]] || continue
		expected='# SPDX-License-Identifier: Apache-2.0'
		;;
	esac
	[[ $first != '#!'* ]] || first=$(sed -n 2p "$file")
	if [ "$first" != "$expected" ]; then
		printf '%s: the first line (behind #!) has to be: %s\n' "$file" "$expected"
		wrong=1
	fi
done
exit $wrong
