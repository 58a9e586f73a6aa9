// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestDevicesThatRunProgramsOrReachFilesAreRefused(t *testing.T) {
	r, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	check := func(device string) object.Errors {
		return r.Check(&object.Object{Kind: "Port", Name: "access", Spec: &api.Port{Device: device}})
	}
	for _, device := range append([]string{"03:00.0", "0000:03:00.0,x=1", "net_af_packet0,iface=eth1", "net_memif"}, "net_null_a", "net_null0,size="+strings.Repeat("1", 1000)) {
		if errs := check(device); len(errs) > 0 {
			t.Errorf("%q is refused: %v", device, errs)
		}
	}
	for _, device := range append([]string{"eth0", "net tap", "net_tap0,iface=a b", "; rm",
		"net_failsafe0,exec(id)", "net_bonding0,mode=1,slave=net_null1", "net_ring0", "crypto_null0", "net_null0,", "net_null0,size",
		"net_af_xdp0,iface=x,xdp_prog=/tmp/x.o", "net_tap0,remote=eth0", "net_null0,size=1=2", "net_memif0,socket=/x/bus/y", "03:00.0,x=(y)", "03:00.0,x=/y"}, "net_null0,size="+strings.Repeat("1", 1009), "net_null"+strings.Repeat("0", 56), "") {
		if errs := check(device); len(errs) != 1 || errs[0].Field != "device" {
			t.Errorf("%q: %v", device, errs)
		}
	}
}
