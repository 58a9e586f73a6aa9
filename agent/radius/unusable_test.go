// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// reported has the events of a service.
type reported struct {
	service.Intent
	mu     sync.Mutex
	events []string
	last   *intent.ServiceEvent
}

func (r *reported) Touched(object.Key) {}

func (r *reported) Report(e *intent.ServiceEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.last = append(r.events, e.Kind+" "+e.Name+" "+e.State), e
}

func (r *reported) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// watched returns the events of the agent from now on.
func (a *agent) watched() *reported {
	seen := &reported{}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Intent = seen
	return seen
}

// judging is an agent that authenticates, and its events.
func judging(t *testing.T) (*agent, *reported) {
	t.Helper()
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Authentication: []*api.RadiusChoice{{Server: "home"}}}, nil)
	return a, a.watched()
}

func TestAnAttributeThatCannotBeHonouredIsNamedAndRefusesByTheRuleOfThePolicy(t *testing.T) {
	a, seen := judging(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	std := func(kind uint8, text string) (all attributes) { all.text(kind, text); return all }
	cisco := func(text string) (all attributes) { all.vendor(vendorCisco, ciscoAVPair, []byte(text)); return all }
	login := attributes{}
	login.number(typeServiceType, 1)
	const broken, each, none = api.AttributeRule_REFUSE_BROKEN, api.AttributeRule_REFUSE_ANY, api.AttributeRule_REFUSE_NONE
	for name, c := range map[string]struct {
		all     attributes
		event   string
		refuses []api.AttributeRule
	}{
		"an Acl that does not exist":      {std(typeFilterID, "nowhere.in"), "Filter-Id", []api.AttributeRule{broken, each}},
		"a pool that does not exist":      {std(typeFramedPool, "nowhere"), "Framed-Pool", []api.AttributeRule{broken, each}},
		"a VRF that does not exist":       {cisco("ip:vrf-id=nowhere"), "Cisco-AVPair", []api.AttributeRule{broken, each}},
		"a malformed route":               {std(typeFramedRoute, "behind the house"), "Framed-Route", []api.AttributeRule{broken, each}},
		"a malformed rate of a vendor":    {cisco("lcp:interface-config=rate-limit output fast"), "Cisco-AVPair", []api.AttributeRule{each}},
		"an unknown attribute":            {std(200, "what"), "attribute 200", []api.AttributeRule{each}},
		"another service":                 {login, "Service-Type", []api.AttributeRule{broken, each, none}},
		"a /48 as prefix of the link":     {attributes{typeFramedIPv6Prefix, 10, 0, 48, 0x20, 1, 0x0d, 0xb8, 0, 7}, "Framed-IPv6-Prefix", []api.AttributeRule{each}},
		"an Acl that exists":              {std(typeFilterID, "home.in"), "", nil},
		"the VRF that is always there":    {cisco("ip:vrf-id=default"), "", nil},
		"no Acl in place of the profiles": {cisco("ip:outacl=-"), "", nil},
	} {
		for _, rule := range []api.AttributeRule{broken, each, none} {
			clear(a.warned)
			a.policies[0].spec = &api.RadiusPolicy{Authentication: a.policies[0].spec.Authentication, AttributeRule: rule}
			request, _ := parse(accessRequest(AccessRequest, 1, authenticator{}, []byte("testing123"), nil, nil))
			accept, _ := parse(reply(AccessAccept, request, []byte("testing123"), c.all))
			refuses := slices.Contains(c.refuses, rule)
			_, answer := a.answer(a.policies[0], whom{}, accept, a.endpoints[endpointKey{"home", false}], false)
			if (answer.Reject != nil) != refuses {
				t.Errorf("%s, %s: %v", name, rule, answer.Reject)
			}
			if refuses && !strings.Contains(answer.Reject.Error(), c.event) {
				t.Errorf("%s, %s: %v does not name the attribute", name, rule, answer.Reject)
			}
			if g := answer.Grant; slices.Contains([]string{g.ACLUp, g.VRF}, "nowhere") || len(g.IPv4Pools) > 0 || g.IPv6Prefix.IsValid() {
				t.Errorf("%s, %s: the grant names what does not exist", name, rule)
			}
			var want []string
			if c.event != "" {
				want = []string{fmt.Sprint("RadiusAttribute ", c.event, map[bool]string{true: " refused", false: " ignored"}[refuses])}
			}
			if got := seen.take(); !slices.Equal(got, want) {
				t.Errorf("%s, %s: events %q", name, rule, got)
			}
		}
	}
}

func TestAnAttributeWithManyValuesIsOneEventAMinute(t *testing.T) {
	a, seen := judging(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	request, _ := parse(accessRequest(AccessRequest, 1, authenticator{}, []byte("testing123"), nil, nil))
	for i := range 100 {
		var all attributes
		all.text(typeFilterID, fmt.Sprint("of-line-", i))
		accept, _ := parse(reply(AccessAccept, request, []byte("testing123"), all))
		if _, answer := a.answer(a.policies[0], whom{}, accept, a.endpoints[endpointKey{"home", false}], false); answer.Reject == nil {
			t.Fatal("accepted")
		}
	}
	if got := seen.take(); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
}

// fields are those of the last event.
func (r *reported) fields() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]string{"text": r.last.Text}
	for _, f := range r.last.Fields {
		all[f.Name] = f.Value
	}
	return all
}

func TestAnAttributeThatCannotBeHonouredIsNamedWithItsSubscriber(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		buffer := make([]byte, maxLength)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if p, err := parse(buffer[:n]); err == nil {
				_, _ = conn.WriteToUDPAddrPort(reply(AccessAccept, p, []byte("testing123"), attributes{200, 3, 'x'}), from)
			}
		}
	}()
	port, choices := freePort(t), []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(conn.LocalAddr().(*net.UDPAddr).Port), AccountingPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Authentication: choices, Accounting: choices, DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port)}}, &manager{count: 1})
	seen := a.watched()
	line := subscriber.Line{Circuit: subscriber.Circuit{Port: "access", OuterVLAN: 100, InnerVLAN: 7}}
	answers := make(chan subscriber.Answer, 1)
	a.Authenticate(subscriber.Request{ID: "s-1", Profile: "home", Line: line, Credentials: subscriber.Credentials{Username: "al\xffice", Password: []byte("x")}},
		func(answer subscriber.Answer) { answers <- answer })
	if answer := <-answers; answer.Reject != nil {
		t.Fatal(answer.Reject)
	}
	if got := seen.fields(); got["username"] != "al\ufffdice" || got["circuit"] != "access:100.7" || !strings.Contains(got["text"], "for al\ufffdice on access:100.7 is ignored") {
		t.Errorf("%q", got)
	}
	// Of a CoA-Request: the session's, or what the request has.
	a.accountFor(subscriber.Start, "s-1")
	for request, want := range map[string][3]string{
		"Acct-Session-Id = s-1\nFilter-Id = nowhere":            {"alice", "access:100.7", ""},
		"User-Name = alice\nPort-Limit = 7":                     {"alice", "access:100.7", ""},
		"User-Name = bob\nFilter-Id = nothing":                  {"bob", "", ""},
		"Framed-IP-Address = 100.64.7.7\nFilter-Id = elsewhere": {"", "", "100.64.7.7"},
	} {
		a.mu.Lock()
		clear(a.warned)
		a.mu.Unlock()
		radclient(t, port, "coa", request+"\n")
		if got := seen.fields(); [3]string{got["username"], got["circuit"], got["address"]} != want || !strings.Contains(got["text"], cmp.Or(want[0], want[2])) {
			t.Errorf("%s: %q", request, got)
		}
	}
}

func TestRecordsWithoutAServerAreNamedUntilTheyHaveOneAgain(t *testing.T) {
	server := newAccountingServer(t)
	server.setDeaf(true)
	a := startAgent(t, t.TempDir(), server.spec(), &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas"}, nil)
	seen := a.watched()
	comes := func(event string) {
		t.Helper()
		until(t, event, func() bool { return slices.Contains(seen.take(), event) })
	}
	a.accountFor(subscriber.Start, "s-1")
	a.Follow(service.Change{Key: object.Key{Kind: "RadiusServer", Name: "home"}})
	comes("RadiusSpool home stuck")
	server.setDeaf(false)
	a.set("RadiusServer", "home", server.spec())
	comes("RadiusSpool home sent")
	server.got(t, a, 2)
}

func TestAChangeToAnObjectThatDoesNotExistIsRefusedAndNamed(t *testing.T) {
	port := freePort(t)
	m := &manager{count: 1}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port)}}, m)
	seen := a.watched()
	for request, event := range map[string]string{"Filter-Id = nowhere": "Filter-Id", "Port-Limit = 7": "attribute 62", "Mikrotik-Rate-Limit = fast": "Mikrotik-Rate-Limit"} {
		if out := radclient(t, port, "coa", "Acct-Session-Id = s-1\n"+request+"\n"); !strings.Contains(out, "Received CoA-NAK") {
			t.Error(out)
		}
		if got := seen.take(); !slices.Equal(got, []string{"RadiusAttribute " + event + " refused"}) {
			t.Errorf("%s: events %q", request, got)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.changed) > 0 {
		t.Errorf("%+v", m.changed)
	}
}
