// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func TestATunnelOfAGrantIsTheSessionsAndIsKept(t *testing.T) {
	tunnel := &api.Gtpu{LocalAddress: "192.0.2.1", LocalTeid: 1, RemoteAddress: "192.0.2.2", RemoteTeid: 2, Qfi: 5}
	s := &session{connection: Connection{Request: Request{ID: "1"}, Access: &api.Access{Port: "access"}, Grant: Grant{Core: tunnel}}, lease: Lease{Session: "s"}}
	p := newPacker()
	s, err := p.unpack(p.pack(s))
	if err != nil || !proto.Equal(s.connection.Grant.Core, tunnel) {
		t.Fatal(err, s)
	}
	a := allowedBy(&s.connection.Grant, nil)
	if spec := s.object(&a, false, false).Spec.(*api.Session); !proto.Equal(spec.GetGtpu(), tunnel) {
		t.Error(spec)
	}
}
