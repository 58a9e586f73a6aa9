// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/object"
)

// state of a session. A session goes from one to the next and never back.
type state uint8

const (
	// Its Session object is on its way.
	connecting state = iota
	// It was ended while it was connecting.
	cancelled
	up
	// Its Session object is being deleted.
	ending
	ended
)

// traffic is counters of the data plane.
type traffic struct{ upPackets, upBytes, downPackets, downBytes uint64 }

func (t traffic) plus(o traffic) traffic {
	return traffic{t.upPackets + o.upPackets, t.upBytes + o.upBytes, t.downPackets + o.downPackets, t.downBytes + o.downBytes}
}

// less reports whether any counter is less: they began anew.
func (t traffic) less(o traffic) bool {
	return t.upPackets < o.upPackets || t.upBytes < o.upBytes || t.downPackets < o.downPackets || t.downBytes < o.downBytes
}

// session is a subscriber's.
type session struct {
	connection Connection // without credentials
	lease      Lease
	state      state
	cause      Cause
	// The profile by which the line is served now; empty: that of the connection.
	serves string
	// Its access protocol ended it by UserError: of DHCP, the subscriber declined the addresses. A RADIUS server or an operator that names this cause declines nothing.
	declined   bool
	since, end time.Time
	identity   uint64
	// Where its addresses come from; nil: from the grant.
	pool4, pool6, poolPrefix, poolDelegated *pool
	// The Meter objects that its rates made.
	meterUp, meterDown string
	// The QosProfile that its rate made; the zero shaper: none.
	shaper shaper
	// Back ends that got the Start record: they get the Stop record even if the profile changes.
	accounting []string
	// Digest of the last Session object that was put.
	putDigest uint64
	// Number of the latest Put, number of Puts without a result, and Puts that a later one superseded.
	puts       uint32
	inFlight   uint32
	superseded *superseded
	// Counters of earlier starts of the data plane, and of this one.
	before, counted traffic
	boot            uint64

	// The time and the reason of the next look.
	deadline.Timer
	interim time.Time
	// When an Interim record with changed addresses is due; zero: the back ends have the addresses.
	addressesDue time.Time
	active       time.Time
	seen         traffic

	// Functions that wait for its end.
	then []func()
}

func (s *session) id() string { return s.connection.ID }

func (s *session) total() traffic { return s.before.plus(s.counted) }

// count takes the data plane's counters since it made the session.
func (s *session) count(now traffic, boot uint64) {
	if boot != 0 && s.boot != 0 && boot != s.boot || now.less(s.counted) {
		s.before = s.before.plus(s.counted)
	}
	s.counted = now
	if boot != 0 {
		s.boot = boot
	}
}

func trafficOf(c *api.SessionCounters) traffic {
	return traffic{c.GetUpPackets(), c.GetUpBytes(), c.GetDownPackets(), c.GetDownBytes()}
}

// identityOf identifies a subscriber for sticky addresses: by the user name, or else by the line.
func identityOf(c *Connection, lineAlone bool) uint64 {
	h := fnv.New64a()
	if !lineAlone && c.Username != "" {
		h.Write([]byte("user\x00"))
		h.Write([]byte(c.Username))
	} else {
		h.Write([]byte("line\x00"))
		h.Write([]byte(c.Line.Dataplane))
		h.Write([]byte{0})
		h.Write([]byte(c.Line.Port))
		h.Write([]byte{0, byte(c.Line.OuterVLAN >> 8), byte(c.Line.OuterVLAN), byte(c.Line.InnerVLAN >> 8), byte(c.Line.InnerVLAN)})
		h.Write(c.Line.MAC[:])
	}
	return h.Sum64()
}

// sessionName is a name that no other session has, also later: a deletion's last counters are this session's.
func sessionName(protocol, id string) string {
	if len(protocol)+1+len(id) <= 253 && object.CheckName(object.Key{Kind: "Session", Name: protocol + "-" + id}) == nil {
		return protocol + "-" + id
	}
	h := fnv.New128a()
	h.Write([]byte(id))
	return protocol + "-" + hex.EncodeToString(h.Sum(nil))
}

// times are the timeouts of a grant and a profile together, and when interim records are due.
type times struct {
	sessionTimeout, idleTimeout, interim time.Duration
	jitter                               uint32
}

// timesBy joins a grant and a profile, which may be nil.
func timesBy(g *Grant, p *api.SubscriberProfile) times {
	return times{sessionTimeout: timeBy(g.SessionTimeout, p.GetSessionTimeout()), idleTimeout: timeBy(g.IdleTimeout, p.GetIdleTimeout()),
		interim: timeBy(g.InterimInterval, p.GetInterimInterval()), jitter: or(p.GetInterimJitter(), 10)}
}

// timeBy is a grant's time, or else the profile's; 0: none.
func timeBy(granted time.Duration, profile uint64) time.Duration {
	return max(or(granted, time.Duration(profile)), 0)
}

// allowed is the grant and the profile together.
type allowed struct {
	vrf                            string
	pools4, pools6, poolsDelegated []string
	dns                            []netip.Addr
	gateway                        netip.Addr
	sessionTimeout                 time.Duration
	rateUp, rateDown               Rate
	// The rate of the QosProfile in place of its own; the zero Rate: its own.
	shape                       Rate
	policy                      *api.Policy
	redirect                    string
	perMAC, perCircuit, perUser uint32
	onConflict                  api.SessionConflict
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// text is or for a text that may be cleared.
func text(value, otherwise string) string {
	switch value {
	case "":
		return otherwise
	case Clear:
		return ""
	}
	return value
}

func either[T any](value, otherwise []T) []T {
	if len(value) == 0 {
		return otherwise
	}
	return value
}

// allowedBy joins a grant and a profile, which may be nil.
func allowedBy(g *Grant, p *api.SubscriberProfile) allowed {
	if p == nil {
		p = &api.SubscriberProfile{}
	}
	q := p.Policy
	a := allowed{
		vrf: orDefault(or(g.VRF, p.Vrf)), pools4: either(g.IPv4Pools, p.Ipv4Pools), pools6: either(g.IPv6Pools, p.Ipv6Pools),
		poolsDelegated: either(g.DelegatedPools, p.DelegatedPools), dns: either(g.DNS, addresses(p.Dns)),
		sessionTimeout: timeBy(g.SessionTimeout, p.SessionTimeout), redirect: text(g.Redirect, q.GetPortal()),
		perMAC: p.SessionsPerMac, perCircuit: p.SessionsPerCircuit, perUser: p.SessionsPerUser, onConflict: p.OnConflict,
		policy: &api.Policy{
			AclUp: text(g.ACLUp, q.GetAclUp()), AclDown: text(g.ACLDown, q.GetAclDown()),
			MeterUp: text(g.MeterUp, ""), MeterDown: text(g.MeterDown, ""),
			Mss: or(g.MSS, q.GetMss()), Mtu: or(g.MTU, q.GetMtu()), AnySource: q.GetAnySource(),
			FlowProfile: text(g.FlowProfile, q.GetFlowProfile()),
			QosProfile:  text(g.QosProfile, q.GetQosProfile()), QosGroup: text(g.QosGroup, q.GetQosGroup()),
			QosProfileUp: text(g.QosProfileUp, q.GetQosProfileUp()), QosGroupUp: text(g.QosGroupUp, q.GetQosGroupUp()),
		},
	}
	if p.Gateway != "" {
		a.gateway, _ = netip.ParseAddr(p.Gateway)
	}
	// In this order: the grant's meter, the grant's rate, the profile's meter, the profile's rate.
	a.policy.MeterUp, a.rateUp = meterOr(g.MeterUp, g.RateUp, q.GetMeterUp(), p.RateUp)
	a.policy.MeterDown, a.rateDown = meterOr(g.MeterDown, g.RateDown, q.GetMeterDown(), p.RateDown)
	// A group alone means nothing; a back end that names a profile relies on the group of ours, and the other way round.
	if a.policy.QosProfile == "" || a.policy.QosGroup == "" {
		a.policy.QosProfile, a.policy.QosGroup = "", ""
	}
	if a.policy.QosProfileUp == "" || a.policy.QosGroupUp == "" {
		a.policy.QosProfileUp, a.policy.QosGroupUp = "", ""
	}
	// Queues take the granted rate in place of a meter, which would drop what they delay. A core's flows have meters beside their queues.
	if g.MeterDown == "" && g.RateDown.BitsPerSecond != 0 && a.policy.QosProfile != "" && g.Core == nil {
		a.shape, a.rateDown = a.rateDown, Rate{}
	}
	return a
}

// unpaired names a QosProfile or QosGroup of a grant that has no effect because the other one of the pair is missing; "": none.
func (a *allowed) unpaired(g *Grant) string {
	for _, of := range []struct{ kind, granted, applied string }{
		{"QosProfile ", g.QosProfile, a.policy.QosProfile}, {"QosGroup ", g.QosGroup, a.policy.QosGroup},
		{"QosProfile ", g.QosProfileUp, a.policy.QosProfileUp}, {"QosGroup ", g.QosGroupUp, a.policy.QosGroupUp},
	} {
		if of.granted != "" && of.granted != Clear && of.granted != of.applied {
			return of.kind + of.granted
		}
	}
	return ""
}

func meterOr(meter string, rate Rate, profileMeter string, profileRate uint64) (string, Rate) {
	switch {
	case meter == Clear:
		return "", Rate{}
	case meter != "":
		return meter, Rate{}
	case rate.BitsPerSecond != 0:
		return "", rate
	case profileMeter != "":
		return profileMeter, Rate{}
	}
	return "", Rate{BitsPerSecond: profileRate}
}

const (
	leastRate, mostRate = 8000, 4_000_000_000_000 // of api/meter.proto
	mostBurst           = 1<<32 - 1
	leastBurst          = 15_000
)

// meterOf is the Meter of a rate, which all sessions of that rate share; "": none. Each session has buckets of its own.
func meterOf(r Rate) (name string, spec *api.Meter) {
	if r.BitsPerSecond == 0 {
		return "", nil
	}
	bound := func(rate uint64) uint64 { return min(max(rate, leastRate), mostRate) }
	// 100 ms of the rate, unless the back end names a burst.
	burst := func(bytes, rate uint64) uint64 {
		if bytes == 0 {
			bytes = rate / 80
		}
		return min(max(bytes, leastBurst), mostBurst)
	}
	rate := bound(r.BitsPerSecond)
	committed := burst(r.BurstBytes, rate)
	name = "rate-" + strconv.FormatUint(rate, 10) + "-" + strconv.FormatUint(committed, 10)
	drop := &api.MeterAction{Verdict: api.MeterVerdict_DROP}
	if peak := bound(r.PeakBitsPerSecond); r.PeakBitsPerSecond > rate {
		excess := burst(r.PeakBurstBytes, peak)
		name += "-" + strconv.FormatUint(peak, 10) + "-" + strconv.FormatUint(excess, 10)
		return name, &api.Meter{Algorithm: api.MeterAlgorithm_TRTCM, CommittedRate: rate, CommittedBurst: committed, PeakRate: peak, ExcessBurst: excess, Red: drop}
	}
	spec = &api.Meter{Algorithm: api.MeterAlgorithm_SRTCM, CommittedRate: rate, CommittedBurst: committed, Red: drop}
	if r.PeakBurstBytes > 0 {
		spec.ExcessBurst = min(r.PeakBurstBytes, mostBurst)
		name += "-0-" + strconv.FormatUint(spec.ExcessBurst, 10)
	}
	return name, spec
}

// prefixes are the session's addresses and prefixes, for its Session object.
func (s *session) prefixes() []string {
	l := &s.lease
	all := make([]string, 0, 4+len(s.connection.Grant.Routes))
	add := func(p netip.Prefix) {
		if w := p.Masked().String(); p.IsValid() && !slices.Contains(all, w) && len(all) < 64 {
			all = append(all, w)
		}
	}
	for _, a := range []netip.Addr{l.IPv4, l.IPv6} {
		if a.IsValid() {
			add(netip.PrefixFrom(a, a.BitLen()))
		}
	}
	add(l.IPv6Prefix)
	add(l.Delegated)
	for _, r := range s.connection.Grant.Routes {
		add(r)
	}
	return all
}

// object is the Session object. shaped: it has the QosProfile of its shaper.
func (s *session) object(a *allowed, labelled, shaped bool) *object.Object {
	policy := a.policy
	if s.meterUp != "" {
		policy.MeterUp = s.meterUp
	}
	if s.meterDown != "" {
		policy.MeterDown = s.meterDown
	}
	if shaped {
		policy.QosProfile = s.shaper.name()
	}
	vrf := a.vrf
	if vrf == "default" {
		vrf = ""
	}
	spec := &api.Session{Access: s.connection.Access, Addresses: s.prefixes(), Vrf: vrf, Policy: policy}
	if core := s.connection.Grant.Core; core != nil {
		spec.Core = &api.Session_Gtpu{Gtpu: core}
	}
	o := &object.Object{Kind: "Session", Name: s.lease.Session, Spec: spec}
	if labelled {
		o.Labels = map[string]string{"dataplane": s.connection.Line.Dataplane}
	}
	return o
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func texts[T fmt.Stringer](all []T) []string {
	var written []string
	for _, one := range all {
		written = append(written, one.String())
	}
	return written
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
