#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the data plane in a Debian 13 root (DPDK 24.11) and runs its unit tests there. No traffic, nothing installed outside. Without
# precompiled headers, so that a source that forgets an include is found.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/debian13

if ! command -v debootstrap >/dev/null; then
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap
fi
mounted() { awk -v under="$root/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r; }
unmount() { mounted | xargs -r umount; }
trap unmount EXIT

if [ ! -e "$root/.installed" ]; then
	rm -rf "$root"
	mkdir -p "$root"
	debootstrap --variant=minbase \
		--include=ca-certificates,gcc,libc6-dev,meson,ninja-build,pkg-config,libdpdk-dev,libipsec-mb-dev,libpcap-dev,libssl-dev,libcmocka-dev,libprotobuf-c-dev,libprotobuf-dev,protobuf-compiler,protobuf-c-compiler,libnuma-dev,libbpf-dev \
		trixie "$root"
	touch "$root/.installed"
fi
mkdir -p "$root/src"
mount -t proc proc "$root/proc"
# DPDK reads there which cores and which memory there are.
mount -t sysfs -o ro sysfs "$root/sys"
mount --bind "$PWD" "$root/src"
mount -o remount,ro,bind "$root/src"
mkdir -p "$root/dev/shm" "$root/build"
chroot "$root" bash -euc '
	[ -f /build/build.ninja ] || meson setup /build /src/dataplane -Dbuildtype=release -Db_pch=false
	ninja -C /build -j2
	meson test -C /build --suite unit --print-errorlogs'
