// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

// aCore is an AMF pool that has its first NG setup before it: UEs wait for it.
type aCore struct {
	n2.Pool
	// Sources of the UEs whose initial messages it was to get.
	asked []netip.Addr
	// Why no AMF takes UEs.
	lacks error
}

func (c *aCore) Do(f func()) { f() }
func (c *aCore) Open(_ string, want *api.Slice, _ *nas.GUTI, ue n2.UE) (*n2.Context, error) {
	if want == nil {
		c.asked = append(c.asked, ue.(link).u.peer.Remote.Addr())
	}
	return nil, n2.ErrStarting
}
func (c *aCore) Serves(string, *api.Slice) error { return c.lacks }

// aHost is a UE at its IKE SA.
type aHost struct {
	step    ike.EAPStep
	answers []ike.EAPAnswer
}

// A NAS message without AN-parameters.
const firstNAS = "02010014fe0028af000000030200" + "0000" + "0002" + "7e00"

var hosts uint64

// begin sends the first IKE_AUTH request of a UE.
func begin(s *serving, from string) *aHost {
	hosts++
	h := &aHost{step: ike.EAPStep{Conversation: hosts, Peer: ike.Peer{ID: hosts, Remote: netip.AddrPortFrom(netip.MustParseAddr(from), 500)}}}
	h.next(s, "")
	return h
}

// next sends an EAP packet.
func (h *aHost) next(s *serving, packet string) {
	h.step.Packet = nil
	if packet != "" {
		h.step.Packet, _ = hex.DecodeString(packet)
	}
	owner{s, "wifi"}.EAP(h.step, func(a ike.EAPAnswer) { h.answers = append(h.answers, a) })
	s.work()
}

// refused reports whether the last answer is EAP-Failure; with the back-off timer, or without.
func (h *aHost) refused(backOff bool) bool {
	if len(h.answers) == 0 {
		return false
	}
	a := h.answers[len(h.answers)-1]
	told := slices.ContainsFunc(a.Notify, func(n *message.Notify) bool { return n.Kind == notifyBackOff })
	return len(a.Packet) == 4 && a.Packet[0] == eap.Failure && told == backOff
}

func counted(t *testing.T, s *serving, reason string) int {
	t.Helper()
	families, err := s.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "sluice_n3iwf_refused_total" && m.GetLabel()[0].GetValue() == reason {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func serve(t *testing.T, change func(*api.N3Iwf)) (*serving, *aCore) {
	t.Helper()
	s, _ := newServer(t)
	core := &aCore{}
	s.pool = core
	follow(s, "N3iwf", "wifi", anN3iwf(change))
	return s, core
}

func TestAUERegistersWhileManySourcesFloodTheN3iwf(t *testing.T) {
	s, core := serve(t, nil)
	honest := netip.MustParseAddr("203.0.113.1")
	flood := func(more int) {
		for i := range more {
			for range maxHalfOpenSource {
				begin(s, fmt.Sprintf("10.%d.%d.1", i/256, i%256)).next(s, firstNAS)
			}
		}
	}
	flood(200)
	if n := s.registering.size(); n > maxHalfOpen {
		t.Errorf("%d half-open UEs", n)
	}
	if counted(t, s, "displaced") == 0 {
		t.Error("no UE is displaced")
	}
	if n := len(core.asked); n > int(paceOfAll.burst)+int(paceOfAll.rate) {
		t.Errorf("%d UEs reach the core at once", n)
	}
	h := begin(s, honest.String())
	h.next(s, firstNAS)
	// The flood goes on, and each source has its turn.
	for now, end := time.Now(), time.Now().Add(5*time.Second); now.Before(end) && !slices.Contains(core.asked, honest); now = now.Add(tickTime) {
		s.tickRegistering(now)
		flood(2)
	}
	if !slices.Contains(core.asked, honest) || h.refused(true) {
		t.Errorf("the UE does not reach the core: %v", h.answers)
	}
}

func TestASourceHasABoundOfUEsThatRegister(t *testing.T) {
	s, _ := serve(t, nil)
	for range maxHalfOpenSource {
		if h := begin(s, "2001:db8::1"); h.refused(true) {
			t.Fatal("a UE below the bound is refused")
		}
	}
	if h := begin(s, "2001:db8::2"); !h.refused(true) || counted(t, s, "half-open") != 1 {
		t.Error("another address of the /64 is another source")
	}
	if h := begin(s, "2001:db8:0:1::1"); h.refused(true) {
		t.Error("another source is refused")
	}
}

func TestAUEThatDoesNotFinishItsRegistrationEnds(t *testing.T) {
	s, core := serve(t, nil)
	silent, slow := begin(s, "192.0.2.100"), begin(s, "192.0.2.101")
	slow.next(s, firstNAS)
	if len(core.asked) != 1 {
		t.Fatalf("%d UEs reach the core", len(core.asked))
	}
	now := time.Now()
	s.tickRegistering(now.Add(firstAnswerTime))
	if s.registering.size() != 1 || counted(t, s, "late") != 1 {
		t.Errorf("%d UEs register, %d are late", s.registering.size(), counted(t, s, "late"))
	}
	// Its IKE SA is still there, and gets an answer.
	if silent.next(s, firstNAS); !silent.refused(false) {
		t.Errorf("%v", silent.answers)
	}
	s.tickRegistering(now.Add(halfOpenTime))
	if !slow.refused(true) || s.registering.size() != 0 || len(s.peers) != 0 {
		t.Errorf("%v, %d register, %d are there", slow.answers, s.registering.size(), len(s.peers))
	}
	s.registering.sweep(now.Add(2 * halfOpenTime))
	if len(s.registering.sources) != 0 {
		t.Errorf("sources stay: %v", s.registering.sources)
	}
}

func TestUEsThatRegisterDoNotCountAmongMaxUes(t *testing.T) {
	s, _ := serve(t, func(n *api.N3Iwf) { n.MaxUes = 1 })
	var all []*aHost
	for range 3 {
		h := begin(s, "192.0.2.100")
		h.next(s, firstNAS)
		all = append(all, h)
	}
	authenticate := func(h *aHost) {
		s.talks[h.step.Conversation].initialContext(&ngap.InitialContextSetupRequest{SecurityKey: per.BitString{Octets: make([]byte, 32), Count: 256}})
	}
	// The core authenticates two: the second one is one too many, and so is a UE that begins now.
	authenticate(all[1])
	if a := all[1].answers; len(a) != 2 || !a[1].Success {
		t.Errorf("%+v", a)
	}
	authenticate(all[0])
	if !all[0].refused(true) || !begin(s, "192.0.2.101").refused(true) || counted(t, s, "congestion") != 2 {
		t.Errorf("%+v, %d refused", all[0].answers, counted(t, s, "congestion"))
	}
	if err := s.instances["wifi"].tooMany(); !strings.HasSuffix(err.Error(), "N3iwf/wifi has maxUes: 1") {
		t.Error(err)
	}
}
