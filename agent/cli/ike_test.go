// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

const sitesYAML = `
apiVersion: sluice.dev/v1
kind: IpsecPolicy
metadata: {name: quick}
---
apiVersion: sluice.dev/v1
kind: IkePeer
metadata: {name: site}
spec: {localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, remoteIdentity: east.example, credential: sites, remoteNetworks: [10.2.0.0/16], policy: quick}
`

func TestTheHistoryHasOnePolicyInTheSingular(t *testing.T) {
	s := newSite(t)
	s.ok("apply", "-f", written(t, s, "sites.yaml", sitesYAML))
	if out := s.ok("history"); strings.Contains(out, "policie ") || !strings.Contains(out, "1 ipsec-policy") {
		t.Error(out)
	}
}

func TestTheTableOfIKESAs(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_000_000, 0)
	at := func(d time.Duration) int64 { return now.Add(d).UnixNano() }
	reply := &api.IkeSas{Sas: []*api.IkeSaState{
		{Connection: "branch", State: "connecting", Remote: "192.0.2.3:500", Since: at(-time.Second), FailedAttempts: 3, LocalAddress: "192.0.2.1:500", LocalIdentity: "west.example"},
		{Connection: "office", State: "established", RemoteIdentity: "east.example", Remote: "192.0.2.2:4500", Child: "net", Algorithms: "aes256gcm16-prfsha256-x25519", ChildAlgorithms: "aes256gcm16-esn",
			Local: []string{"10.1.0.0/16"}, RemoteNetworks: []string{"10.2.0.0/16"}, Since: at(-time.Minute), ChildSince: at(-time.Minute), Connected: at(-5 * time.Hour), Heard: at(-4 * time.Second),
			IkeRekey: at(3 * time.Hour), ChildRekey: at(40 * time.Minute), NextRekey: at(40 * time.Minute), SpiIn: 0x1001, SpiOut: 0xc0de, LocalAddress: "192.0.2.1:4500", LocalIdentity: "west.example"},
	}}
	st := registry.StateOf((&api.IkeSasQuery{}).ProtoReflect().Descriptor().FullName())
	var b bytes.Buffer
	p := &program{registry: registry, now: func() time.Time { return now }}
	for _, one := range []*object.State{st, widened(st)} {
		if err := p.stateTable(&b, "", one, reply.ProtoReflect(), nil); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "ike-list", b.String())
}

func written(t *testing.T, s *site, name, text string) string {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
