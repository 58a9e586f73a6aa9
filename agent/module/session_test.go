// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func TestPacketsForAModuleThatDoesNotReadAreDroppedAndCounted(t *testing.T) {
	a := newSession(&module{}, &api.ModuleHello{Punts: []string{"local"}}, nil)
	dropped := 0
	a.e.Dropped = func(packets int) { dropped += packets }
	const more = 100
	for i := range packetsLimit + more {
		a.Receive([]service.Packet{{Dataplane: "default", Reason: "local", Frame: fmt.Append(nil, i)}, {Dataplane: "default", Reason: "dhcp4"}})
	}
	if dropped != more {
		t.Errorf("%d were dropped", dropped)
	}
	drops, got := uint64(0), 0
	for one := a.next(); one != nil; one = a.next() {
		drops += one.GetPackets().GetDropped()
		for _, p := range one.GetPackets().GetPackets() {
			if string(p.GetFrame()) != fmt.Sprint(got) || p.GetReason() != "local" {
				t.Fatalf("packet %d is %v", got, p)
			}
			got++
		}
	}
	if got != packetsLimit || drops != more || a.packetCount != 0 || a.packetBytes != 0 {
		t.Errorf("%d packets, %d told as dropped, %d still counted", got, drops, a.packetCount)
	}
	long := make([]byte, 9000)
	for range packetsLimit {
		a.Receive([]service.Packet{{Dataplane: "default", Reason: "local", Frame: long}})
	}
	if a.packetBytes > packetBytesLimit || a.packetBytes < packetBytesLimit-len(long) {
		t.Errorf("%d bytes wait", a.packetBytes)
	}
}

func TestAQuestionIsAnsweredOnce(t *testing.T) {
	a := newSession(&module{name: "lab"}, &api.ModuleHello{}, nil)
	st := registry(t).StateOf("sluice.v1.AclHitsQuery")
	ask := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			reply, err := a.ask(ctx, st, &api.AclHitsQuery{Acl: "web"})
			if err == nil && reply.(*api.AclHits).GetOtherwise() != 7 {
				err = fmt.Errorf("the reply is %v", reply)
			}
			done <- err
		}()
		return done
	}
	question := func() *api.StateQuestion {
		for {
			<-a.wake
			if q := a.next().GetQuestion(); q != nil {
				return q
			}
		}
	}
	right, err := proto.Marshal(&api.AclHits{Otherwise: 7})
	if err != nil {
		t.Fatal(err)
	}
	control, err := proto.Marshal(&api.PortCountersList{Ports: []*api.PortCounters{{Port: "\033[2J"}}})
	if err != nil {
		t.Fatal(err)
	}
	for about, c := range map[string]struct {
		answer *api.StateAnswer
		code   codes.Code
	}{
		"an answer":           {&api.StateAnswer{Reply: right}, codes.OK},
		"a problem":           {&api.StateAnswer{Problem: "the cache is being read"}, codes.Unavailable},
		"a problem in colour": {&api.StateAnswer{Problem: "\033[2J"}, codes.Unavailable},
		"no message":          {&api.StateAnswer{Reply: []byte{0xff}}, codes.Internal},
		"a truncated message": {&api.StateAnswer{Reply: []byte{8}}, codes.Internal},
		"a long message":      {&api.StateAnswer{Reply: append(bytes.Repeat([]byte{8, 0}, answerLimit/2), right...)}, codes.Internal},
	} {
		done := ask(t.Context())
		q := question()
		if q.GetType() != "sluice.v1.AclHitsQuery" || string(q.GetQuery()) != "\n\x03web" {
			t.Errorf("%s: the question is %v", about, q)
		}
		c.answer.Id = q.GetId()
		if err := a.receive(&api.FromModule{Message: &api.FromModule_Answer{Answer: c.answer}}); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		if err := <-done; status.Code(err) != c.code || strings.Contains(fmt.Sprint(err), "\033") {
			t.Errorf("%s: %v", about, err)
		}
		// The same again is for nobody.
		if err := a.receive(&api.FromModule{Message: &api.FromModule_Answer{Answer: c.answer}}); err != nil {
			t.Errorf("%s: again: %v", about, err)
		}
	}
	withDNS := registry(t)
	if err := AddKinds(withDNS, "dns", descriptors(t, stateFile())); err != nil {
		t.Fatal(err)
	}
	for problem, c := range map[string]struct {
		query protoreflect.FullName
		reply []byte
	}{
		"control characters": {"sluice.v1.PortCountersQuery", control},
		"10 elements":        {"dns.v1.AnswersQuery", bytes.Repeat([]byte{10, 0}, 10)},
	} {
		st = withDNS.StateOf(c.query)
		done := ask(t.Context())
		if err := a.answer(&api.StateAnswer{Id: question().GetId(), Reply: c.reply}); err != nil {
			t.Error(err)
		}
		if err := <-done; status.Code(err) != codes.Internal || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	done := ask(gone)
	question()
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
	if err := a.answer(&api.StateAnswer{Id: 1000}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an answer without a question: %v", err)
	}
}

func TestQuestionsOfAModuleThatDoesNotAnswerAreBoundedAndEnd(t *testing.T) {
	a := newSession(&module{name: "lab"}, &api.ModuleHello{}, nil)
	st := registry(t).StateOf("sluice.v1.AclHitsQuery")
	ended := make(chan error, questionsLimit)
	for range questionsLimit {
		go func() {
			_, err := a.ask(context.Background(), st, &api.AclHitsQuery{})
			ended <- err
		}()
	}
	for waiting := 0; waiting < questionsLimit; {
		<-a.wake
		a.mu.Lock()
		waiting = len(a.questions)
		a.mu.Unlock()
	}
	if _, err := a.ask(t.Context(), st, &api.AclHitsQuery{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	a.leave()
	for range questionsLimit {
		if err := <-ended; status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	}
	if len(a.questions)+len(a.toAsk) != 0 {
		t.Errorf("%d questions and %d to send are left", len(a.questions), len(a.toAsk))
	}
}

func TestAnObjectThatChangesOftenIsSentOnceInItsLastState(t *testing.T) {
	a := newSession(&module{}, &api.ModuleHello{}, nil)
	a.e.Registry = registry(t)
	for i := range 1000 {
		for _, name := range []string{"one", "two"} {
			a.Follow(service.Change{Key: object.Key{Kind: "Vrf", Name: name}, Object: &object.Object{Kind: "Vrf", Name: name, Spec: &api.Vrf{Description: fmt.Sprint(i)}}})
		}
	}
	a.Follow(service.Change{Key: object.Key{Kind: "Vrf", Name: "two"}})
	a.Synced()
	f := a.next().GetFollowed()
	if len(f.GetObjects()) != 2 || string(f.GetObjects()[0].GetIntent().GetSpec()) != "\n\x03999" || !f.GetObjects()[1].GetDeleted() || !f.GetSynced() {
		t.Errorf("told %v", f)
	}
	if one := a.next(); one != nil {
		t.Errorf("then %v", one)
	}
}
