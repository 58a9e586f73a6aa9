// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
)

func TestARequestThatDoesNotComeIsGivenUpAndOneThatTakesLongIsNot(t *testing.T) {
	var path string
	client, _, _ := serve(t, func(c *Config) { c.ReadTime, path = 200*time.Millisecond, c.Listen })
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	events, err := client.Watch(t.Context(), &api.ObjectsQuery{Kinds: []string{"Vrf"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}
	// The head of a request, and nothing of its message.
	for _, method := range []string{api.Agent_Get_FullMethodName, api.Agent_Watch_FullMethodName} {
		stream, err := connection.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&api.IntentPage{}); status.Code(err) != codes.Canceled {
			t.Errorf("%s: error %v", method, err)
		}
	}
	if _, err := client.Apply(t.Context(), &api.Changes{Put: vrfs(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Recv(); err != nil {
		t.Errorf("what was asked for before: %v", err)
	}
}
