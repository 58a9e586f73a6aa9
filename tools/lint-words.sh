#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lists words and forms of sentences that texts do not use, with the ones to use: tools/words.txt has a regular expression (egrep) and
# the plain word in each line, with a tab between. docs/glossary.md has the words to use.
set -euo pipefail
cd "$(dirname "$0")/.."
wrong=0
while IFS=$'\t' read -r pattern plain; do
	found=$(git grep -nEI "$pattern" -- '*.c' '*.h' '*.go' '*.proto' '*.py' '*.md' '*.yaml' '*.sh' ':!tools/lint-words.sh') || {
		# 1: there is none. Another status is an error, such as in the expression.
		[ $? = 1 ]
		continue
	}
	printf '%s\n' "$found"
	printf '    write %s\n' "$plain"
	wrong=1
done <tools/words.txt
exit $wrong
