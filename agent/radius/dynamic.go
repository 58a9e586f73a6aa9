// SPDX-License-Identifier: Apache-2.0

// RFC 5176: CoA-Request and Disconnect-Request, without I/O.
package radius

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// Error-Cause (RFC 5176 section 3.5).
const (
	causeNone                 = 0
	causeUnsupportedAttribute = 401
	causeMissingAttribute     = 402
	causeNASMismatch          = 403
	causeUnsupportedService   = 405
	causeInvalidValue         = 407
	causeProhibited           = 501
	causeNoSession            = 503
	causeResources            = 506
	causeMultiple             = 508
)

var causeNames = map[uint32]string{
	causeNone: "none", causeUnsupportedAttribute: "unsupported-attribute", causeMissingAttribute: "missing-attribute",
	causeNASMismatch: "nas-identification-mismatch", causeUnsupportedService: "unsupported-service", causeInvalidValue: "invalid-attribute-value",
	causeProhibited: "administratively-prohibited", causeNoSession: "session-not-found", causeResources: "resources-unavailable",
	causeMultiple: "multiple-session-selection-unsupported",
}

const (
	serviceAuthorizeOnly = 17
	defaultDynamicPort   = 3799
	defaultEventWindow   = 5 * time.Minute
	// How long a request without Event-Timestamp is known, and how many requests are. The memory of a request is 300 bytes at least.
	knownFor         = time.Hour
	maxKnownRequests = 1 << 18
)

// permitted is clients that may send requests, and their policy.
type permitted struct {
	addresses netip.Prefix
	secret    string
	policy    *policy
	spec      *api.DynamicAuthorization
}

// demand is a request that is to be carried out.
type demand struct {
	request packet
	from    netip.AddrPort
	secret  string
	// Clients that it is of: those of several policies may have the same address and secret. They speak to the NAS that the request names.
	by    []*permitted
	key   authenticator
	match subscriber.Match
	// Words of requests and records for the session; nil: not in the request.
	username, nasPortID, calling []byte
	// The same, of words that many sessions share; "": not in the request.
	nasPort, called string
	change          subscriber.Grant
	cause           subscriber.Cause
	// Of Reply-Message: for the subscribers of a Disconnect-Request.
	text string
	// The attributes of the change that cannot be honoured, and which attribute named an object.
	granted granted
	// The attribute for which the request is refused; "": none.
	fault string
}

// known is a request that came before; reply is nil while it is carried out. undated: it has no Event-Timestamp.
type known struct {
	reply   []byte
	until   time.Time
	undated bool
}

// dynamic is the server. It is not for several goroutines.
type dynamic struct {
	// By the authenticator, a digest of the whole request: it is the same request from any address and port.
	known map[authenticator]*known
	order []authenticator
	// Requests from before the start of the agent are refused: it does not know the requests of its predecessor.
	began time.Time
	// The request that receive refused; nil: it refused none.
	refused *demand
}

func newDynamic(now time.Time) *dynamic {
	return &dynamic{known: map[authenticator]*known{}, began: now.Truncate(time.Second)}
}

// authenticate returns a request and the clients that it is of, or why it is dropped.
func authenticate(clients []permitted, from netip.Addr, b []byte) (p packet, by []*permitted, drop string) {
	p, err := parse(b)
	if err != nil {
		return nil, nil, err.Error()
	}
	if p.code() != CoARequest && p.code() != DisconnectRequest {
		return nil, nil, "code"
	}
	if by, drop = believe(p, clients, from); len(by) > 0 {
		drop = ""
	}
	return p, by, drop
}

// receive takes a request of authenticate. It is dropped for a reason, or answered at once, or demands something.
func (d *dynamic) receive(p packet, by []*permitted, from netip.AddrPort, now time.Time) (answer []byte, demanded *demand, cause uint32, drop string) {
	d.refused = nil
	key := p.authenticator()
	d.expire(now)
	if k := d.known[key]; k != nil {
		if k.reply == nil {
			return nil, nil, 0, "in-progress"
		}
		return k.reply, nil, 0, "repeated"
	}
	all := p.attributes()
	r := &demand{request: p, from: from, secret: by[0].secret, key: key}
	var until time.Time
	undated := false
	for _, c := range by {
		end, dated, why := c.fresh(all, d.began, now)
		if why != "" {
			drop = why
			continue
		}
		r.by, undated = append(r.by, c), !dated
		if end.After(until) {
			until = end
		}
	}
	if len(r.by) == 0 {
		return nil, nil, 0, drop
	}
	if !d.remember(key, &known{until: until, undated: undated}) {
		return nil, nil, 0, "too-many"
	}
	if cause := r.read(all); cause != causeNone {
		d.refused = r
		return d.finish(r, cause), nil, cause, ""
	}
	return nil, r, 0, ""
}

// fresh returns until when the agent has to know the request, so that no client repeats it, or why it drops the request. dated: it has an
// Event-Timestamp, and after that no client can (RFC 5176 section 6.3).
func (c *permitted) fresh(all []attribute, began, now time.Time) (until time.Time, dated bool, drop string) {
	window := defaultEventWindow
	if c.spec.EventWindow != 0 {
		window = time.Duration(c.spec.EventWindow)
	}
	for _, a := range all {
		if a.vendor != 0 || a.kind != typeEventTimestamp {
			continue
		}
		n, err := number(a.value)
		if err != nil {
			return until, false, "malformed"
		}
		at := time.Unix(int64(n), 0)
		if now.Sub(at) > window || at.Sub(now) > window || at.Before(began) {
			return until, true, "event-timestamp"
		}
		until = at.Add(window + time.Second)
	}
	switch {
	case !until.IsZero():
		return until, true, ""
	case !c.spec.AllowMissingEventTimestamp:
		return until, false, "event-timestamp-missing"
	}
	return now.Add(knownFor), false, ""
}

// believe returns the clients whose secret signed the request. Each secret is tried once: of a forged request, each trial is the MD5 of up to 4096 octets.
func believe(p packet, clients []permitted, from netip.Addr) (by []*permitted, drop string) {
	type proof struct {
		secret string
		needs  bool
	}
	drop = "unknown-client"
	var tried map[proof]error
	for i := range clients {
		c := &clients[i]
		if !c.addresses.Contains(from) {
			continue
		}
		of := proof{c.secret, c.spec.RequireMessageAuthenticator}
		err, known := tried[of]
		if !known {
			if tried == nil {
				tried = map[proof]error{}
			}
			err = p.verifyRequest([]byte(c.secret), of.needs)
			tried[of] = err
		}
		if err != nil {
			drop = err.Error()
			continue
		}
		by = append(by, c)
	}
	return by, drop
}

func (d *dynamic) expire(now time.Time) {
	for len(d.order) > 0 {
		key := d.order[0]
		if k := d.known[key]; k != nil && now.Before(k.until) {
			return
		}
		d.forgetFirst()
	}
}

func (d *dynamic) forgetFirst() {
	delete(d.known, d.order[0])
	d.order = d.order[1:]
}

// remember reports whether there is room for the request. A request with an Event-Timestamp is not forgotten for a newer one: it could be repeated.
func (d *dynamic) remember(key authenticator, k *known) bool {
	if len(d.order) >= maxKnownRequests {
		if first := d.known[d.order[0]]; first != nil && !first.undated {
			return false
		}
		d.forgetFirst()
	}
	d.known[key] = k
	d.order = append(d.order, key)
	return true
}

// finish makes the reply, which retransmissions get, too.
func (d *dynamic) finish(r *demand, cause uint32) []byte {
	ack, nak := CoAACK, CoANAK
	if r.request.code() == DisconnectRequest {
		ack, nak = DisconnectACK, DisconnectNAK
	}
	code := ack
	var all attributes
	if cause != causeNone {
		code = nak
		all.number(typeErrorCause, cause)
	}
	for _, a := range r.request.attributes() {
		if a.vendor == 0 && a.kind == typeProxyState {
			all.add(typeProxyState, a.value)
		}
	}
	b := reply(code, r.request, []byte(r.secret), all)
	if k := d.known[r.key]; k != nil {
		k.reply = b
	}
	return b
}

// read reads the request's attributes, and returns an Error-Cause if it cannot be carried out.
func (r *demand) read(all []attribute) uint32 {
	var rest []attribute
	identified := false
	// speaks keeps the clients that speak to a NAS.
	speaks := func(to func(nas) bool) bool {
		r.by = slices.DeleteFunc(slices.Clone(r.by), func(c *permitted) bool { return !to(c.policy.nas) })
		return len(r.by) > 0
	}
	for _, a := range all {
		r.fault = a.name()
		if a.vendor != 0 {
			// RFC 5176 section 3: a vendor's attribute may identify a session.
			switch {
			case a.vendor == vendorBroadband && a.kind == broadbandAgentCircuitID:
				r.match.CircuitID = string(a.value)
			case a.vendor == vendorBroadband && a.kind == broadbandAgentRemoteID:
				r.match.RemoteID = string(a.value)
			default:
				rest = append(rest, a)
				continue
			}
			if len(a.value) == 0 {
				return causeInvalidValue
			}
			identified = true
			continue
		}
		var err error
		session := true
		switch a.kind {
		case typeAcctSessionID:
			r.match.ID = string(a.value)
		case typeUserName:
			r.username = a.value
		case typeNASPortID:
			r.nasPortID = a.value
		case typeCallingStationID:
			r.calling = a.value
		case typeCalledStationID:
			r.called = string(a.value)
		case typeNASPort:
			// PPPoE hosts on different lines may have the same one.
			r.match.One = true
			var n uint32
			n, err = number(a.value)
			r.nasPort = strconv.FormatUint(uint64(n), 10)
		case typeFramedIPAddress:
			r.match.IPv4, err = ip4(a.value)
		case typeFramedIPv6Address:
			r.match.IPv6, err = ip6(a.value)
		case typeFramedIPv6Prefix:
			r.match.Prefix, err = prefixOf(a.value)
		case typeDelegatedIPv6Prefix:
			r.match.Delegated, err = prefixOf(a.value)
		case typeFramedInterfaceID:
			if len(a.value) != len(r.match.InterfaceID) || [8]byte(a.value) == [8]byte{} {
				return causeInvalidValue
			}
			r.match.InterfaceID = [8]byte(a.value)
		default:
			session = false
		}
		if session {
			if err != nil || len(a.value) == 0 {
				return causeInvalidValue
			}
			identified = true
			continue
		}
		switch a.kind {
		case typeMessageAuthenticator, typeProxyState, typeEventTimestamp:
		case typeReplyMessage:
			r.text += string(a.value)
		case typeNASIdentifier:
			if !speaks(func(n nas) bool { return string(a.value) == n.identifier }) {
				return causeNASMismatch
			}
		case typeNASIPAddress:
			if address, err := ip4(a.value); err != nil || !speaks(func(n nas) bool { return !n.ip4.IsValid() || address == n.ip4 }) {
				return causeNASMismatch
			}
		case typeNASIPv6Address:
			if address, err := ip6(a.value); err != nil || !speaks(func(n nas) bool { return !n.ip6.IsValid() || address == n.ip6 }) {
				return causeNASMismatch
			}
		case typeServiceType:
			if n, err := number(a.value); err != nil || n == serviceAuthorizeOnly {
				return causeUnsupportedService
			}
		case typeAcctTerminateCause:
			n, err := number(a.value)
			if err != nil || r.request.code() != DisconnectRequest {
				return causeUnsupportedAttribute
			}
			r.cause = subscriber.Cause(n)
		default:
			rest = append(rest, a)
		}
	}
	r.fault = ""
	if !identified {
		return causeMissingAttribute
	}
	g, err := grantOf(rest, r.by[0].policy.spec.Attributes)
	r.granted = g
	if len(g.unusable) > 0 {
		r.fault = g.unusable[0].name
	}
	// A session keeps its VRF: it tells sessions with the same address apart.
	r.match.VRF = g.VRF
	g.VRF, r.granted.VRF = "", ""
	if r.match.VRF == subscriber.Clear {
		r.match.VRF = defaultVRF
	}
	if r.request.code() == DisconnectRequest {
		switch {
		case err != nil || len(g.unreadable) > 0:
			return causeInvalidValue
		case len(g.unsupported) > 0 || len(rest) > 0 && r.match.VRF == "" || !sameGrant(g.Grant, subscriber.Grant{}):
			return causeUnsupportedAttribute
		}
		if r.cause == 0 {
			r.cause = subscriber.AdminReset
		}
		return causeNone
	}
	switch {
	case err != nil || len(g.unreadable) > 0:
		return causeInvalidValue
	case len(g.unsupported) > 0:
		return causeUnsupportedAttribute
	}
	r.change = changeable(g.Grant)
	// A session keeps its addresses and routes.
	if !sameGrant(r.change, g.Grant) {
		return causeUnsupportedAttribute
	}
	if sameGrant(r.change, subscriber.Grant{}) {
		return causeMissingAttribute
	}
	return causeNone
}

// policy is the policy whose attributes count.
func (r *demand) policy() string {
	if len(r.by) == 0 {
		return ""
	}
	return r.by[0].policy.name
}

// changeable is the part of a grant that a session that is up takes.
func changeable(g subscriber.Grant) subscriber.Grant {
	return subscriber.Grant{SessionTimeout: g.SessionTimeout, IdleTimeout: g.IdleTimeout, InterimInterval: g.InterimInterval, ACLUp: g.ACLUp, ACLDown: g.ACLDown,
		MeterUp: g.MeterUp, MeterDown: g.MeterDown, RateUp: g.RateUp, RateDown: g.RateDown, QosProfile: g.QosProfile, QosGroup: g.QosGroup,
		QosProfileUp: g.QosProfileUp, QosGroupUp: g.QosGroupUp, FlowProfile: g.FlowProfile, MSS: g.MSS, Redirect: g.Redirect, Class: g.Class}
}

func sameGrant(a, b subscriber.Grant) bool { return reflect.DeepEqual(a, b) }

// sortClients orders clients: the longest prefix first.
func sortClients(all []permitted) {
	slices.SortStableFunc(all, func(a, b permitted) int { return b.addresses.Bits() - a.addresses.Bits() })
}
