#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes C of the contract: contract.sh API-DIR OUT-DIR PROTO...
# protobuf's own descriptor.proto, which the annotations extend, is made too, and put beside the others. The annotations become tables
# and constants in contract_checks.c and contract_limits.h (contract.py).
set -eu
api=$1
out=$2
shift 2
names=
for proto in "$@"; do
	names="$names $(basename "$proto")"
done
include=$(pkg-config --variable=includedir protobuf 2>/dev/null || echo /usr/include)
# The names have no spaces.
# shellcheck disable=SC2086
protoc -I"$api" -I"$include" --c_out="$out" $names google/protobuf/descriptor.proto
cp "$out/google/protobuf/descriptor.pb-c.c" "$out/descriptor.pb-c.c"
# shellcheck disable=SC2086
protoc -I"$api" -I"$include" --include_imports --descriptor_set_out="$out/contract.binpb" $names
# shellcheck disable=SC2046,SC2086
protoc -I"$api" -I"$include" --decode=google.protobuf.FileDescriptorSet schema.proto google/protobuf/descriptor.proto \
	<"$out/contract.binpb" | python3 "$(dirname "$0")/contract.py" "$out/contract_limits.h" $(printf '%s\n' $names | sed 's/[.]proto$//') >"$out/contract_checks.c"
