#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libreswan.sh FOLDER: leaves libreswan, a peer of tests, in a folder, with the libraries and programs that this machine does not have. Nothing is
# installed: Debian's package excludes strongSwan. tools/setup.sh runs this.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/archives/partial"
apt-get -q -y --no-install-recommends --download-only -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o "Dir::Cache::archives=$work/archives" \
	install libreswan libnss3-tools >"$work/log" 2>&1 || {
	tail -n 5 "$work/log" >&2
	exit 1
}
# certutil and pk12util may be there.
(cd "$work" && apt-get -q download libnss3-tools >>log 2>&1)
for package in "$work"/archives/*.deb "$work"/*.deb; do dpkg-deb -x "$package" "$work/root"; done
mkdir -p "$1/ipsec" "$1/lib" "$1/bin"
mv "$work"/root/usr/libexec/ipsec/* "$1/ipsec/"
mv "$work/root/usr/bin/certutil" "$work/root/usr/bin/pk12util" "$1/bin/"
find "$work/root/usr/lib" -name '*.so.*' -exec mv -t "$1/lib" {} +
