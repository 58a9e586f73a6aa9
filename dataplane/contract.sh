#!/bin/sh
# Makes C of the contract: contract.sh API-DIR OUT-DIR PROTO...
# protobuf's own descriptor.proto, which the annotations extend, is made too, and put beside the others.
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
