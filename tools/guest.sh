#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# guest.sh FOLDER: leaves Debian's kernel with its modules, pppd, and a DHCPv6 client that knows PPP (WIDE's dhcp6c) in a folder: tests boot them in QEMU, as the
# host's kernel need not know PPPoE, 802.1Q or SCTP. Nothing is installed. tools/setup.sh runs this.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
(cd "$work" && apt-get -q download "$kernel" ppp wide-dhcpv6-client libfl2 >log 2>&1) || {
	tail -n 5 "$work/log" >&2
	exit 1
}
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/root"; done
mkdir -p "$1/modules"
mv "$work"/root/boot/vmlinuz-* "$1/vmlinuz"
# Only the modules that networks need.
for folder in drivers/net/ppp drivers/net/slip drivers/net/virtio_net.ko drivers/net/net_failover.ko drivers/virtio net/8021q net/802 net/core \
	net/llc net/sctp net/ipv4/udp_tunnel.ko net/ipv6/ip6_udp_tunnel.ko crypto/crc32c_generic.ko lib; do
	find "$work"/root/lib/modules/*/kernel/"$folder" -name '*.ko' -exec cp {} "$1/modules/" \; 2>/dev/null || true
done
mv "$work/root/usr/sbin/pppd" "$1/"
mv "$work/root/usr/sbin/dhcp6c" "$1/"
cp -L "$work"/root/usr/lib/*/libfl.so.2 "$1/"
version=$(basename "$work"/root/usr/lib/pppd/*)
mkdir -p "$1/plugins/$version"
cp -L "$work/root/usr/lib/pppd/$version/rp-pppoe.so" "$1/plugins/$version/"
