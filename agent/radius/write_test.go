// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

const insideNamespace = "SLUICE_RADIUS_TEST_NAMESPACE"

// inNamespace runs the test again in a network namespace of its own. It reports whether this is that run.
func inNamespace(t *testing.T) bool {
	if os.Getenv(insideNamespace) != "" {
		return true
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), insideNamespace+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := c.CombinedOutput()
	switch {
	case err != nil && c.ProcessState == nil:
		t.Skip("no network namespaces: ", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skip(string(out))
	}
	return false
}

// configureHost runs commands of iproute2.
func configureHost(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", command, err, out)
		}
	}
}

// A path of 1 kbit/s fills the buffer of its socket.
func TestACongestedPathToAServerDelaysNoOtherServer(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	configureHost(t, "ip link set lo up", "ip link add path type veth peer name far", "ip link set far up", "ip link set path up", "ip addr add 192.0.2.1/24 dev path",
		"ip neigh add 192.0.2.10 lladdr 02:00:00:00:00:0a dev path", "tc qdisc add dev path root tbf rate 1kbit burst 2000 limit 10000000")
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(responder(t)), Secret: "testing123"},
		&api.RadiusPolicy{Authentication: choices}, nil)
	a.set("RadiusServer", "far", &api.RadiusServer{Address: "192.0.2.10", Secret: "testing123", Timeout: 100e6, Transmissions: 16, MaxOutstanding: 4096})
	a.set("RadiusPolicy", "far", &api.RadiusPolicy{Profiles: []string{"far"}, Authentication: []*api.RadiusChoice{{Server: "far"}}})
	// More than any socket buffer holds.
	go func() {
		for i := range 4096 {
			a.Authenticate(subscriber.Request{ID: fmt.Sprint("f-", i), Profile: "far"}, func(subscriber.Answer) {})
		}
	}()
	drops := func() (notSent, retransmissions uint64) {
		all, err := a.serverCounters(t.Context(), &api.RadiusServerCountersQuery{Server: "far"})
		if err != nil || len(all.Servers) == 0 {
			return 0, 0
		}
		for _, d := range all.Servers[0].Drops {
			if d.Reason == "not-sent" {
				notSent = d.Packets
			}
		}
		return notSent, all.Servers[0].Retransmissions
	}
	comesThough(t, "packets that have no room are counted and repeated", func() bool {
		notSent, retransmissions := drops()
		return notSent > 0 && retransmissions > 0
	})
	comesThough(t, "another server's answer", func() bool {
		answer := a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("wonderland")}, 1)
		return answer.Reject == nil
	})
}

// comesThough waits for what a held lock would delay for ever.
func comesThough(t *testing.T, what string, is func() bool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !is() {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not come: ", what)
	}
}
