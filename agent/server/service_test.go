// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// dialer is a service that makes a session for each sender of a packet, on the port that a Vrf's description names.
type dialer struct {
	service.Environment

	mu     sync.Mutex
	port   string
	synced chan struct{}
	once   sync.Once
}

func (d *dialer) Follow(c service.Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.port = ""
	if c.Object != nil {
		d.port = c.Object.Spec.(*api.Vrf).GetDescription()
	}
}

func (d *dialer) Synced() { d.once.Do(func() { close(d.synced) }) }

func (d *dialer) Receive(packets []service.Packet) {
	<-d.synced
	d.mu.Lock()
	port := d.port
	d.mu.Unlock()
	for _, p := range packets {
		name := string(p.Frame)
		d.Objects.Put(&object.Object{Kind: "Session", Name: name, Spec: &api.Session{Access: &api.Access{Port: port}}}, func(r service.Result) {
			answer := "welcome " + name
			if r.Err != nil {
				answer = r.Err.Error()
			}
			if err := d.Packets.Send(p.Dataplane, service.Frame(p.Port, []byte(answer))); err != nil {
				d.Log.Error("sending", "error", err)
			}
		})
	}
}

func (d *dialer) NotReady(_ string, kept *object.StoredObject) intent.NotReady {
	if kept.KindName() == "Port" {
		return intent.NotReady{Reason: "Quiet", Message: "no peer has called yet"}
	}
	return intent.NotReady{}
}

func (d *dialer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// dialing gives an agent the service, which may report at once that it has no session.
func dialing(complete bool) func(*Config) {
	definition := service.Definition{Name: "dialer", Kinds: []string{"Vrf"}, Punts: []string{"pppoe-discovery"},
		New: func(e service.Environment) (service.Service, error) {
			d := &dialer{Environment: e, synced: make(chan struct{})}
			if complete {
				go func() { _ = e.Objects.Complete(context.Background()) }()
			}
			return d, nil
		}}
	return func(c *Config) { c.Services, c.BeginAnew = []service.Definition{definition}, true }
}

func eventually(t *testing.T, sentence string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + sentence)
		}
	}
}

// call passes a packet to the service, after the data plane has its receiver.
func call(t *testing.T, fake *dataplanetest.Fake, frame string) {
	t.Helper()
	eventually(t, "the service waits for packets", func() bool {
		return slices.ContainsFunc(fake.Streams(), func(r *api.Request) bool { return slices.Contains(r.GetWatch().GetPunts(), "pppoe-discovery") })
	})
	fake.Emit(&api.Event{Event: &api.Event_PacketIn{PacketIn: &api.PacketIn{Reason: "pppoe-discovery", Port: "access", Frame: []byte(frame)}}}, false)
}

func TestAServiceMakesASessionOfAPacketAndAnswersIt(t *testing.T) {
	fake := dataplanetest.New(t)
	client, end := serveFor(t, fake, dialing(false))
	apply(t, client, &api.Vrf{Description: "access"}, "dial")
	apply(t, client, &api.Port{Device: "net_null0"}, "access")
	port := object.Key{Kind: "Port", Name: "access"}
	eventually(t, "a service's judgement is the object's condition", func() bool {
		return strings.Contains(describe(t, client, port), "no peer has called yet")
	})
	call(t, fake, "alice")
	eventually(t, "the answer is sent", func() bool {
		return slices.Contains(fake.Log(), `packet out of port "access": "welcome alice"`)
	})
	alice := object.Key{Kind: "Session", Name: "alice"}
	if got := describe(t, client, alice); !strings.Contains(got, "dialer") {
		t.Errorf("the session is %s", got)
	}

	// Another agent, whose service does not have the session yet.
	end()
	client, end = serveFor(t, fake, dialing(false))
	apply(t, client, &api.Port{Device: "net_null0"}, "access")
	eventually(t, "the session is the service's", func() bool { return strings.Contains(describe(t, client, alice), "dialer") })
	if fake.Object("Session", "alice") == nil {
		t.Error("the session is gone")
	}
	end()

	// A service that reports an unknown session.
	client, _ = serveFor(t, fake, dialing(true))
	apply(t, client, &api.Port{Device: "net_null0"}, "access")
	eventually(t, "the session is deleted", func() bool { return fake.Object("Session", "alice") == nil })
}

func apply(t *testing.T, client api.AgentClient, spec proto.Message, name string) {
	t.Helper()
	packed, err := object.Pack(spec)
	if err != nil {
		t.Fatal(err)
	}
	kind := string(spec.ProtoReflect().Descriptor().Name())
	if _, err := client.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: kind, Name: name, Spec: packed}}}); err != nil {
		t.Fatal(err)
	}
}

// describe returns the agent's description of an object, or "" if it does not exist.
func describe(t *testing.T, client api.AgentClient, k object.Key) string {
	t.Helper()
	d, err := client.Describe(t.Context(), &api.ObjectName{Kind: k.Kind, Name: k.Name})
	if err != nil {
		return ""
	}
	return prototext.Format(d)
}

func TestAServiceAnswersQuestionsAboutItsState(t *testing.T) {
	client, _ := serveFor(t, dataplanetest.New(t), func(c *Config) {
		c.Services = []service.Definition{{Name: "dialer", New: func(e service.Environment) (service.Service, error) {
			service.Provide(e, func(_ context.Context, q *api.SubscribersQuery) (*api.SubscriberStates, error) {
				return &api.SubscriberStates{Subscribers: []*api.SubscriberState{{Session: "alice", Profile: "home"}, {Session: "bob", Profile: "office"}}}, nil
			})
			return &dialer{Environment: e, synced: make(chan struct{})}, nil
		}}}
	})
	var found *api.SubscriberStates
	eventually(t, "the service answers", func() (answers bool) {
		var err error
		found, err = read[*api.SubscriberStates](t.Context(), client, &api.SubscribersQuery{Profile: "office"})
		return err == nil
	})
	if all := found.GetSubscribers(); len(all) != 1 || all[0].GetSession() != "bob" {
		t.Errorf("%v", all)
	}
	if _, err := read[*api.IkeSas](t.Context(), client, &api.IkeSasQuery{}); status.Code(err) != codes.Unavailable {
		t.Errorf("what no service answers: %v", err)
	}
	if _, err := read[*api.IkeSas](t.Context(), client, &api.Vrf{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what is no question: %v", err)
	}
}
