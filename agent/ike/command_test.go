// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/command"
)

// line is a command line whose agent finds SAs.
type line struct {
	command.Line
	grpc.ClientConnInterface
	bytes.Buffer
	count  uint32
	method string
	query  *api.IkeQuery
}

func (l *line) Connect() (grpc.ClientConnInterface, error) { return l, nil }
func (l *line) Out() io.Writer                             { return &l.Buffer }
func (l *line) Invoke(_ context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	l.method, l.query = method, request.(*api.IkeQuery)
	reply.(*api.IkeCount).Count = l.count
	return nil
}

func TestOperatorsInitiateRekeyAndTerminate(t *testing.T) {
	for _, c := range []struct {
		words         []string
		count         uint32
		method, child string
		out, err      string
	}{
		{[]string{"rekey", "office"}, 1, api.Ike_RekeyIke_FullMethodName, "", "Rekeying 1 IKE SA.\n", ""},
		{[]string{"rekey", "office", "--child", "net"}, 1, api.Ike_RekeyIke_FullMethodName, "net", "Rekeying 1 child SA.\n", ""},
		{[]string{"initiate", "office"}, 2, api.Ike_InitiateIke_FullMethodName, "", "Initiating 2 child SAs.\n", ""},
		{[]string{"initiate", "office", "--child", "net"}, 0, api.Ike_InitiateIke_FullMethodName, "net", "", "IkeConnection/office has all of its children already"},
		{[]string{"terminate", "office", "--child", "*"}, 3, api.Ike_TerminateIke_FullMethodName, "*", "Terminating 3 child SAs.\n", ""},
		{[]string{"terminate", "office"}, 0, api.Ike_TerminateIke_FullMethodName, "", "", "IkeConnection/office has no such SA"},
	} {
		l := &line{count: c.count}
		command := commands(l)[0]
		command.SilenceErrors, command.SilenceUsage = true, true
		command.SetArgs(c.words)
		problem := ""
		if err := command.Execute(); err != nil {
			problem = err.Error()
		}
		if problem != c.err || l.String() != c.out || l.method != c.method || l.query.GetConnection() != "office" || l.query.GetChild() != c.child {
			t.Errorf("%v: %q, %q, %s, %v", c.words, l.String(), problem, l.method, l.query)
		}
	}
}

func TestTheAuditLogNamesTheConnection(t *testing.T) {
	var e audit.Entry
	rpc.Methods["RekeyIke"].Entry(&e, &api.IkeQuery{Connection: "office"}, (*api.IkeCount)(nil))
	if e.Count != 0 || len(e.Objects) != 1 || e.Objects[0] != (audit.Change{Kind: "IkeConnection", Name: "office", Step: "rekey"}) {
		t.Errorf("%+v", e)
	}
	rpc.Methods["TerminateIke"].Entry(&e, &api.IkeQuery{Connection: "office"}, &api.IkeCount{Count: 2})
	if e.Count != 2 || e.Objects[0].Step != "terminate" {
		t.Errorf("%+v", e)
	}
}
