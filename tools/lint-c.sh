#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Static analysis of the C sources: lint-c.sh FILE...
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$#" -gt 0 ] || exit 0
# The generated headers of the contract are needed to understand the sources.
ninja -C build/dataplane -t targets all | awk -F: '/pb-c\.h:/ {print $1}' | head -n 1 | xargs -r ninja -C build/dataplane >/dev/null
cppcheck --quiet --error-exitcode=1 --std=c11 --language=c -j 2 --inline-suppr --suppressions-list=tools/cppcheck.txt \
	--enable=warning,portability --max-configs=1 --include=/usr/include/x86_64-linux-gnu/sys/queue.h -Idataplane -D__x86_64__ -D__SSE4_2__ -DRTE_CACHE_LINE_SIZE=64 "$@"
