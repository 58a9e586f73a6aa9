// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
)

// run returns a connected client, and channels of its connections and disconnections.
func run(t *testing.T, endpoint dataplane.Endpoint, change func(*dataplane.Config)) (*dataplane.Client, <-chan uint64, <-chan error) {
	t.Helper()
	up, down := make(chan uint64, 100), make(chan error, 100)
	config := dataplane.Config{
		Endpoint:   endpoint,
		MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond,
		Connected:    func(_ context.Context, _ *dataplane.Client, g *api.Greeting) { up <- g.GetBoot() },
		Disconnected: func(err error) { down <- err },
	}
	if change != nil {
		change(&config)
	}
	client := dataplane.New(config)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		client.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return client, up, down
}

func unix(t *testing.T, path string) dataplane.Endpoint {
	t.Helper()
	e, err := dataplane.ParseEndpoint("unix://"+path, dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func vrf(t *testing.T, name, description string) *api.Object {
	t.Helper()
	spec, err := proto.Marshal(&api.Vrf{Description: description})
	if err != nil {
		t.Fatal(err)
	}
	return &api.Object{Kind: "Vrf", Name: name, Spec: spec}
}

// put waits for the results.
func put(c *dataplane.Client, objects ...*api.Object) ([]*api.Result, error) {
	packed := make([]dataplane.Packed, len(objects))
	for i, o := range objects {
		packed[i] = dataplane.Packed{Kind: o.Kind, Name: o.Name, Spec: string(o.Spec), Owner: o.Owner}
	}
	return results(func(answered func([]dataplane.Result, error)) { c.Put(packed, answered) })
}

func remove(c *dataplane.Client, names []*api.ObjectName) ([]*api.Result, error) {
	packed := make([]dataplane.Packed, len(names))
	for i, n := range names {
		packed[i] = dataplane.Packed{Kind: n.Kind, Name: n.Name}
	}
	return results(func(answered func([]dataplane.Result, error)) { c.Delete(packed, answered) })
}

func results(ask func(func([]dataplane.Result, error))) (results []*api.Result, err error) {
	done := make(chan struct{})
	ask(func(all []dataplane.Result, e error) {
		for _, r := range all {
			results = append(results, &api.Result{Code: r.Code, Message: r.Message, Final: r.Final})
		}
		err = e
		close(done)
	})
	<-done
	return results, err
}

func TestMoreObjectsThanFitOneRequestAreSplitAndEachGetsItsResult(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	fake.Refuse(func(_, _, name string) *api.Result {
		if name == "vrf-7001" {
			return &api.Result{Code: int32(syscall.ENOSPC), Message: "no room"}
		}
		return nil
	})
	var objects []*api.Object
	var names []*api.ObjectName
	for i := range 12000 {
		objects = append(objects, vrf(t, fmt.Sprintf("vrf-%d", i), ""))
		names = append(names, &api.ObjectName{Kind: "Vrf", Name: objects[i].Name})
	}
	// These two together are more than a chunk, and alone one is more than a frame.
	objects = append(objects, vrf(t, "long", strings.Repeat("x", 3<<20)), vrf(t, "longer", strings.Repeat("x", 3<<20)),
		vrf(t, "too-long", strings.Repeat("x", dataplane.MaxFrame)), vrf(t, "after", ""))
	results, err := put(client, objects...)
	if err != nil || len(results) != len(objects) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		want := error(nil)
		switch objects[i].Name {
		case "vrf-7001":
			want = syscall.ENOSPC
		case "too-long":
			want = syscall.EMSGSIZE
		}
		if !errors.Is(dataplane.Refused(r), want) {
			t.Errorf("%s: %v", objects[i].Name, r)
		}
	}
	listed, err := client.List(t.Context(), "Vrf")
	if err != nil || len(listed) != len(objects)-2 {
		t.Fatalf("%d are listed, %v", len(listed), err)
	}
	if !proto.Equal(listed[0], objects[0]) {
		t.Errorf("listed as %v, put as %v", listed[0], objects[0])
	}
	fake.Refuse(nil)
	results, err = remove(client, names)
	if err != nil || len(results) != len(names) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if left := fake.Objects(); !slices.Equal(left, []string{"Vrf after", "Vrf long", "Vrf longer"}) {
		t.Errorf("left: %v", left)
	}
}

func TestARefusalIsFoundByItsErrno(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	spec, _ := proto.Marshal(&api.Route{Prefix: "192.0.2.0/24", Vrf: "red"})
	results, err := put(client, &api.Object{Kind: "Route", Name: "r", Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	if err := dataplane.Refused(results[0]); !errors.Is(err, syscall.ENOENT) || err.Error() != "Route r: vrf: there is no Vrf red" {
		t.Errorf("got %v", err)
	}
}

func TestStateIsReadByTheTypeOfTheQuery(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	fake.Count(&api.PortCountersList{Ports: []*api.PortCounters{{Port: "core", RxPackets: 5}}})
	reply, err := client.Read(t.Context(), &api.PortCountersQuery{}, (*api.PortCountersList)(nil).ProtoReflect().Type())
	if list, _ := reply.(*api.PortCountersList); err != nil || len(list.GetPorts()) != 1 || list.Ports[0].RxPackets != 5 {
		t.Errorf("got %v, %v", reply, err)
	}
	// The filters come along, and an answer may be empty.
	paths, err := dataplane.Ask[*api.GtpuPaths](t.Context(), client, &api.GtpuPathsQuery{Limit: 3, Page: "7"})
	if err != nil || len(paths.GetPaths()) != 0 {
		t.Errorf("got %v, %v", paths, err)
	}
	if q, _ := fake.Asked("GtpuPathsQuery").(*api.GtpuPathsQuery); q.GetLimit() != 3 || q.GetPage() != "7" {
		t.Errorf("asked %v", q)
	}
	// A service answers this one.
	_, err = dataplane.Ask[*api.Tunnels](t.Context(), client, &api.TunnelsQuery{})
	if !errors.Is(err, syscall.EOPNOTSUPP) || !strings.Contains(err.Error(), "TunnelsQuery") {
		t.Errorf("got %v", err)
	}
	if dataplane.Answers((&api.TunnelsQuery{}).ProtoReflect().Descriptor()) || !dataplane.Answers((&api.GtpuPathsQuery{}).ProtoReflect().Descriptor()) {
		t.Error("the wrong queries are for data planes")
	}
}

func TestWithoutAConnectionARequestFailsAtOnce(t *testing.T) {
	client := dataplane.New(dataplane.Config{Endpoint: unix(t, "/nonexistent/socket")})
	if _, err := client.List(t.Context(), ""); !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("got %v", err)
	}
	if link := client.Link(); link.Connected || link.Error == "" {
		t.Errorf("got %v", link)
	}
}

func TestARestartedDataPlaneIsConnectedAgainWithAnotherBootNumber(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, down := run(t, unix(t, fake.Path), nil)
	first := <-up
	fake.Disconnect()
	<-down
	if again := <-up; again != first {
		t.Errorf("boot %d after a broken connection, before it %d", again, first)
	}
	fake.Kill()
	if err := <-down; !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("lost because %v", err)
	}
	fake.Start(t)
	if again := <-up; again == first {
		t.Errorf("boot %d again after a restart", again)
	}
	if link := client.Link(); !link.Connected || link.Greeting.GetRelease() != "fake" {
		t.Errorf("got %v", link)
	}
}

func TestADataPlaneThatDoesNotAnswerIsDisconnected(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, down := run(t, unix(t, fake.Path), func(c *dataplane.Config) { c.CallTimeout = 20 * time.Millisecond })
	<-up
	fake.Deafen(true)
	if _, err := client.List(t.Context(), ""); !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("got %v", err)
	}
	<-down
	fake.Deafen(false)
	<-up
}

func TestADataPlaneThatSaysItIsStillAtItIsWaitedFor(t *testing.T) {
	l, endpoint := listen(t)
	ready := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { l.Close() })
	running.Add(1)
	go func() {
		defer running.Done()
		socket, err := l.Accept()
		if err != nil {
			return
		}
		defer socket.Close()
		dataplanetest.ReadRequest(socket)
		dataplanetest.WriteReply(socket, &api.Reply{Id: 1, Last: true,
			Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: dataplane.Version, Boot: 1}}})
		dataplanetest.ReadRequest(socket)
		for range 25 {
			time.Sleep(100 * time.Millisecond)
			dataplanetest.WriteReply(socket, &api.Reply{Id: 2})
		}
		dataplanetest.WriteReply(socket, &api.Reply{Id: 2, Last: true,
			Answer: &api.Reply_Results{Results: &api.Results{Results: []*api.Result{{}}}}})
		<-ready
	}()
	client, up, _ := run(t, endpoint, func(c *dataplane.Config) { c.CallTimeout = 2 * time.Second })
	<-up
	results, err := put(client, &api.Object{Kind: "Acl", Name: "large"})
	close(ready)
	if err != nil || len(results) != 1 {
		t.Errorf("got %v, %v", results, err)
	}
}

func TestACallerWhoGivesUpDoesNotDisturbTheNext(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	fake.Deafen(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := client.List(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	fake.Deafen(false)
	if _, err := client.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

func TestAStreamEndsWhenItsCallerOrTheDataPlaneEndsIt(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	trace, err := client.Trace(t.Context(), &api.Trace{Filter: "vlan 100"})
	if err != nil {
		t.Fatal(err)
	}
	capture, err := client.Capture(t.Context(), &api.Capture{Node: "ip4-lookup"})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client.Watch(t.Context(), &api.Watch{Punts: []string{"dhcp4"}})
	if err != nil {
		t.Fatal(err)
	}
	fake.Emit(&api.TracedPacket{End: "port core"}, false)
	fake.Emit(&api.TracedPacket{End: "ttl-expired"}, true)
	fake.Emit(&api.CapturedPacket{Bytes: []byte{1}}, false)
	fake.Emit(&api.Event{Event: &api.Event_PortLink{PortLink: &api.PortLink{Port: "access", Up: true}}}, false)
	for _, want := range []string{"port core", "ttl-expired"} {
		if r, err := trace.Next(t.Context()); err != nil || r.GetTraced().GetEnd() != want {
			t.Errorf("got %v, %v; want %s", r, err, want)
		}
	}
	if _, err := trace.Next(t.Context()); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
	if r, err := watch.Next(t.Context()); err != nil || !r.GetEvent().GetPortLink().GetUp() {
		t.Errorf("got %v, %v", r, err)
	}
	capture.Close()
	capture.Close()
	trace.Close()
	// Requests are carried out in order: once this is answered, so is the cancellation before it.
	if _, err := client.List(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if open := fake.Streams(); len(open) != 1 || open[0].GetWatch() == nil {
		t.Errorf("open: %v", open)
	}
	fake.Disconnect()
	if _, err := watch.Next(t.Context()); !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("after the connection: %v", err)
	}
}

func TestPacketsAreQueuedInOrderUntilTheStreamEnds(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	stream, err := client.Punts(t.Context(), []string{"dhcp4", "local"})
	if err != nil {
		t.Fatal(err)
	}
	packet := func(n int) *api.Event {
		return &api.Event{Event: &api.Event_PacketIn{PacketIn: &api.PacketIn{Reason: "dhcp4", Port: "access", Frame: fmt.Append(nil, n)}}}
	}
	const count = 1000
	fake.Emit(&api.Event{Event: &api.Event_PortLink{PortLink: &api.PortLink{Port: "access"}}}, false)
	for n := range count {
		fake.Emit(packet(n), n == count-1)
	}
	n := 0
	for {
		packets, err := stream.Packets(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packets {
			if string(p.Frame) != fmt.Sprint(n) || p.Reason != "dhcp4" || p.Port != "access" {
				t.Fatalf("packet %d is %v", n, p)
			}
			n++
		}
	}
	if n != count || stream.Lost() != 0 {
		t.Errorf("%d packets of %d, %d lost", n, count, stream.Lost())
	}

	// Packets that no reader takes are bounded.
	stream, err = client.Punts(t.Context(), []string{"dhcp4"})
	if err != nil {
		t.Fatal(err)
	}
	const most = 8192
	for n := range most + 3 {
		fake.Emit(packet(n), false)
	}
	for end := time.Now().Add(20 * time.Second); stream.Lost() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d lost", stream.Lost())
		}
	}
	if packets, err := stream.Packets(t.Context()); err != nil || len(packets) != most || stream.Lost() != 3 {
		t.Errorf("%d packets, %v, %d lost", len(packets), err, stream.Lost())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stream.Packets(over); err != context.Canceled {
		t.Errorf("without packets: %v", err)
	}
	fake.Disconnect()
	if _, err := stream.Packets(t.Context()); !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("after the connection: %v", err)
	}
}

func TestAFilterThatCannotBeCompiledIsRefusedBeforeTheStreamBegins(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	if _, err := client.Trace(t.Context(), &api.Trace{Filter: "nonsense"}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %v", err)
	}
}

func TestASlowReaderLosesCountedRepliesAndHoldsUpNobody(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	s, err := client.Capture(t.Context(), &api.Capture{})
	if err != nil {
		t.Fatal(err)
	}
	const sent = 10000
	for range sent {
		fake.Emit(&api.CapturedPacket{}, false)
	}
	if _, err := client.List(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	fake.Emit(&api.CapturedPacket{}, true)
	var got uint64
	for err == nil {
		if _, err = s.Next(t.Context()); err == nil {
			got++
		}
	}
	if err != io.EOF || got == 0 || got+s.Lost() != sent+1 {
		t.Errorf("%d received, %d lost of %d; %v", got, s.Lost(), sent+1, err)
	}
}

// answer plays a data plane that answers the requests of each connection, after the greeting, with the given replies.
func answer(t *testing.T, l net.Listener, version uint32, replies ...*api.Reply) {
	var running sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			socket, err := l.Accept()
			if err != nil {
				return
			}
			greeting := &api.Reply{Last: true, Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: version, Boot: 1}}}
			for id, reply := range append([]*api.Reply{greeting}, replies...) {
				dataplanetest.ReadRequest(socket)
				reply = proto.CloneOf(reply)
				reply.Id = uint64(id + 1)
				dataplanetest.WriteReply(socket, reply)
			}
			dataplanetest.ReadRequest(socket)
			socket.Close()
		}
	}()
}

func listen(t *testing.T) (net.Listener, dataplane.Endpoint) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	return l, unix(t, dir+"/s")
}

func TestAnswersThatMakeNoSenseAreErrorsAndEndTheConnection(t *testing.T) {
	read := func(ctx context.Context, c *dataplane.Client) error {
		_, err := dataplane.Ask[*api.PortCountersList](ctx, c, &api.PortCountersQuery{})
		return err
	}
	endless := &api.Reply{Answer: &api.Reply_Objects{Objects: &api.Objects{NextPage: "again"}}}
	for name, test := range map[string]struct {
		replies []*api.Reply
		ask     func(context.Context, *dataplane.Client) error
	}{
		"too few results": {
			replies: []*api.Reply{{Last: true}},
			ask: func(ctx context.Context, c *dataplane.Client) error {
				_, err := put(c, &api.Object{Kind: "Vrf", Name: "red"})
				return err
			},
		},
		"state that is no such message": {replies: []*api.Reply{{Last: true, Answer: &api.Reply_State{State: []byte{0xff}}}}, ask: read},
		"pages without an end": {
			replies: []*api.Reply{endless, endless},
			ask: func(ctx context.Context, c *dataplane.Client) error {
				_, err := c.List(ctx, "")
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, endpoint := listen(t)
			answer(t, l, dataplane.Version, test.replies...)
			client, up, down := run(t, endpoint, nil)
			<-up
			if err := test.ask(t.Context(), client); err == nil || !strings.Contains(err.Error(), "makes no sense") {
				t.Errorf("got %v", err)
			}
			<-down
		})
	}
}

func TestADataPlaneOfAnotherVersionIsNotConnected(t *testing.T) {
	l, endpoint := listen(t)
	answer(t, l, 3)
	client, _, _ := run(t, endpoint, nil)
	for !strings.Contains(client.Link().Error, "it speaks version 3 of the contract, not 2") {
		time.Sleep(time.Millisecond)
	}
}

func TestAnEndpointThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{"", "/run/s", "unix://", "unix://host/path", "tcp://host", "tcp://192.0.2.1:7", "http://a:1", "unix://\x00"} {
		if _, err := dataplane.ParseEndpoint(text, dataplane.Credentials{}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestAFrameThatStopsInTheMiddleEndsTheConnection(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "dp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The greeting, and then the length of a frame and some of it.
	greeting, err := proto.Marshal(&api.Reply{Id: 1, Last: true, Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: dataplane.Version}}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// On a busy machine a handshake may take longer than the client waits: then it connects again.
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = s.Write(append(append(binary.BigEndian.AppendUint32(nil, uint32(len(greeting))), greeting...), 0, 0, 1, 0, 1, 2))
			_, _ = io.Copy(io.Discard, s)
			s.Close()
		}
	}()
	endpoint, err := dataplane.ParseEndpoint("unix://"+l.Addr().String(), dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	client := dataplane.New(dataplane.Config{Endpoint: endpoint, Log: slog.New(slog.DiscardHandler), CallTimeout: 50 * time.Millisecond,
		Disconnected: func(err error) {
			select {
			case gone <- err:
			default:
			}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { client.Run(ctx); close(done) }()
	if err := <-gone; !strings.Contains(err.Error(), "part of a frame came, and not the rest in 50ms") {
		t.Errorf("error %v", err)
	}
	cancel()
	<-done
	l.Close()
	<-ended
}

func TestOverTCPBothSidesMustShowACertificateOfTheCA(t *testing.T) {
	dir := t.TempDir()
	good := makeCredentials(t, dir, "good")
	other := makeCredentials(t, dir, "other")
	pair, err := tls.LoadX509KeyPair(good.Certificate, good.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(good.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	answer(t, l, dataplane.Version)

	endpoint, err := dataplane.ParseEndpoint("tcp://"+l.Addr().String(), other)
	if err != nil {
		t.Fatal(err)
	}
	stranger, _, _ := run(t, endpoint, nil)
	for !strings.Contains(stranger.Link().Error, "certificate") {
		time.Sleep(time.Millisecond)
	}
	unsigned := good
	unsigned.Certificate, unsigned.Key = other.Certificate, other.Key
	if endpoint, err = dataplane.ParseEndpoint("tcp://"+l.Addr().String(), unsigned); err != nil {
		t.Fatal(err)
	}
	unknown, _, _ := run(t, endpoint, nil)
	for !strings.Contains(unknown.Link().Error, "the data plane refuses the agent's certificate") {
		time.Sleep(time.Millisecond)
	}
	good.Names = []string{"dp-*"}
	if endpoint, err = dataplane.ParseEndpoint("tcp://"+l.Addr().String(), good); err != nil {
		t.Fatal(err)
	}
	wary, _, _ := run(t, endpoint, nil)
	for !strings.Contains(wary.Link().Error, "serverNames: no name of the certificate (good) is accepted; accepted: dp-*") {
		time.Sleep(time.Millisecond)
	}
	good.Names = []string{"other", "GO*"}
	if endpoint, err = dataplane.ParseEndpoint("tcp://"+l.Addr().String(), good); err != nil {
		t.Fatal(err)
	}
	client, up, _ := run(t, endpoint, nil)
	<-up
	if !client.Link().Connected {
		t.Error("not connected")
	}
}

// alert is an alert of TLS, with another text than the one of crypto/tls.
type alert uint8

func (a alert) Error() string { return fmt.Sprintf("alert %d", a) }

func TestAnAlertAboutACertificateIsFoundByItsNumber(t *testing.T) {
	for err, is := range map[error]bool{
		alert(42): true, alert(46): true, alert(48): true, alert(116): true,
		alert(40): false, alert(80): false, errors.New("no certificate"): false,
	} {
		cause := dataplane.Cause(&net.OpError{Op: "remote error", Err: err})
		if strings.Contains(cause, "the data plane refuses the agent's certificate") != is {
			t.Errorf("%v: %s", err, cause)
		}
	}
}

// makeCredentials makes a CA and a certificate for 127.0.0.1 from it.
func makeCredentials(t *testing.T, dir, name string) dataplane.Credentials {
	t.Helper()
	file := func(suffix, kind string, der []byte) string {
		path := filepath.Join(dir, name+suffix)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := file(".crt", "CERTIFICATE", der)
	return dataplane.Credentials{Certificate: certificate, Key: file(".key", "EC PRIVATE KEY", private), CA: certificate}
}

func TestAClientOfALowerTermLearnsThatAnotherHasTakenOver(t *testing.T) {
	fake := dataplanetest.New(t)
	of := func(term uint64) func(*dataplane.Config) {
		return func(c *dataplane.Config) { c.Term = func() uint64 { return term } }
	}
	old, up, down := run(t, unix(t, fake.Path), of(7))
	<-up
	if _, err := put(old, vrf(t, "red", "")); err != nil {
		t.Fatal(err)
	}
	_, newUp, _ := run(t, unix(t, fake.Path), of(8))
	<-newUp
	if _, err := put(old, vrf(t, "blue", "")); !errors.Is(err, dataplane.ErrTakenOver) || !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("a put of the old term: %v", err)
	}
	if err := <-down; !errors.Is(err, dataplane.ErrTakenOver) {
		t.Errorf("disconnected because of %v", err)
	}
	for says := ""; !strings.Contains(says, "taken over"); says = old.Link().GetError() {
		if len(up) > 0 {
			t.Fatal("it was greeted again")
		}
		time.Sleep(time.Millisecond)
	}
	if got := fake.Objects(); slices.Contains(got, "Vrf/blue") {
		t.Errorf("there are %v", got)
	}
}

func TestAListingIsWhatTheDataPlaneLists(t *testing.T) {
	fake := dataplanetest.New(t)
	client, up, _ := run(t, unix(t, fake.Path), nil)
	<-up
	count := func() (objects, pages int, err error) {
		for page, err := range client.Listing(t.Context()) {
			if err != nil {
				return objects, pages, err
			}
			pages++
			for _, o := range page {
				if o.Kind != "Vrf" || o.Name != fmt.Sprintf("vrf-%05d", objects) || len(o.Spec) == 0 || o.Owner != "" {
					t.Errorf("object %d is %q", objects, o)
				}
				objects++
			}
		}
		return objects, pages, nil
	}
	if objects, pages, err := count(); objects != 0 || pages != 1 || err != nil {
		t.Errorf("%d objects in %d pages, %v", objects, pages, err)
	}
	var objects []*api.Object
	for i := range 12_000 {
		objects = append(objects, vrf(t, fmt.Sprintf("vrf-%05d", i), "a VRF"))
	}
	if _, err := put(client, objects...); err != nil {
		t.Fatal(err)
	}
	if objects, pages, err := count(); objects != 12_000 || pages != 3 || err != nil {
		t.Errorf("%d objects in %d pages, %v", objects, pages, err)
	}
	for page := range client.Listing(t.Context()) {
		if len(page) == 0 {
			t.Error("the first page is empty")
		}
		break
	}
	// An abandoned answer does no harm.
	if objects, _, err := count(); objects != 12_000 || err != nil {
		t.Errorf("%d objects, %v", objects, err)
	}
	fake.Kill()
	if _, _, err := count(); !errors.Is(err, dataplane.ErrDisconnected) {
		t.Errorf("without a data plane: %v", err)
	}
}
