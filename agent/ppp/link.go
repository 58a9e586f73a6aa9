// SPDX-License-Identifier: Apache-2.0

// Package ppp is the Point-to-Point Protocol (RFC 1661) as an access concentrator speaks it, without I/O: LCP, PAP (RFC 1334), CHAP with MD5
// (RFC 1994), MS-CHAPv2 (RFC 2759), IPCP (RFC 1332, 1877), IPv6CP (RFC 5072), router advertisements (RFC 4861, 4191, 8106) and DHCPv6.
//
// A Link is one small record for each subscriber. It has no goroutine and no timer: each call returns its actions, and Deadline returns
// when Tick is to be called.
package ppp

import (
	"encoding/binary"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/discovery"
	"sluice.dev/sluice/agent/subscriber"
)

// Protocol is the PPP protocol field.
type Protocol uint16

// Protocols that a Link serves.
const (
	IPv4   Protocol = 0x0021
	IPv6   Protocol = 0x0057
	LCP    Protocol = 0xc021
	PAP    Protocol = 0xc023
	CHAP   Protocol = 0xc223
	IPCP   Protocol = 0x8021
	IPv6CP Protocol = 0x8057
)

// Protocols that a Link carries for the owner of a peer that chose EAP: EAP itself (RFC 3748), and the vendor protocols (RFC 3772).
const (
	EAP   Protocol = 0xc227
	VSNCP Protocol = 0x805b
	VSNP  Protocol = 0x005b
)

// Method is a way to authenticate.
type Method uint8

// Methods.
const (
	MethodPAP Method = iota + 1
	MethodCHAP
	MethodMSCHAPv2
	MethodEAP
)

// Kind is the type of an Action.
type Kind uint8

// Kinds of actions.
const (
	// Send Packet, which begins with the protocol field.
	Send Kind = iota + 1
	// Find out whether Credentials are right; the answer is Accept or Reject.
	Authenticate
	// The network protocol of Family is open.
	Opened
	// The peer does not speak Family.
	Refused
	// LCP negotiated anew on a link that had been open: Magic and MTU may differ.
	Renegotiated
	// The link has ended, for Cause and Reason. There is nothing more to do with it.
	Finished
	// A packet was dropped, for Reason.
	Dropped
	// LCP is open, and the peer chose EAP: the link's owner authenticates the peer, and calls Authenticated or Close.
	Delegated
	// Packet of Protocol is from a peer that chose EAP. It refers to the packet of Receive.
	Carried
)

// Action is an effect for the owner of a Link to carry out.
type Action struct {
	Kind        Kind
	Family      uint8
	Protocol    Protocol
	Cause       subscriber.Cause
	Reason      string
	Packet      []byte
	Credentials *subscriber.Credentials
}

// Config is the configuration that many links share.
type Config struct {
	// Name of the access concentrator in CHAP.
	Name string
	// In the order in which they are offered; empty: the line speaks for the peer.
	Methods []Method
	// Which network protocols there are.
	IPv4, IPv6 bool
	// How often the peer is asked whether it is there, and how many questions in a row it may leave unanswered. Zero: it is not asked.
	EchoInterval time.Duration
	EchoFailures uint8
	// Our interface identifier (RFC 5072 section 4.1) and our DHCP unique identifier; none: a random one for each link, and no DHCPv6.
	InterfaceID [8]byte
	ServerID    []byte
	// Random numbers: magic numbers, challenges.
	Random func() uint64
}

// Times and numbers of RFC 1661 section 4.6, and how long a peer may take in all.
const (
	restartTime   = 3 * time.Second
	maxConfigure  = 10
	maxFailure    = 5
	establishTime = 45 * time.Second
	networkTime   = 60 * time.Second
	// The default of RFC 1661 section 6.1, the largest for PPPoE (RFC 2516 section 7), and the minimum for IPv6.
	defaultMRU = 1500
	pppoeMRU   = 1492
	leastMRU   = 64
	// So many requests with our own magic number are a loop.
	maxLoops = 5
	// Each negotiation costs an authentication: so many in this time are no peer's need.
	maxAgain  = 10
	againTime = 30 * time.Second
)

type phase uint8

const (
	establish phase = iota
	authenticate
	network
	finished
)

// Network is the peer's configuration after its authentication.
type Network struct {
	// The peer's address and ours.
	Address, Gateway netip.Addr
	// Of both families; two of each are used.
	DNS []netip.Addr
	// Prefix for SLAAC, address for IA_NA and prefix for IA_PD.
	Prefix, Delegated netip.Prefix
	Address6          netip.Addr
	// The peer's interface identifier; zero: the peer's choice.
	InterfaceID [8]byte
	// Networks that router advertisements have routes to.
	Announced []netip.Prefix
}

// Link is the PPP link of one peer. Its zero value is not used: New.
type Link struct {
	config *Config
	auth   *authentication
	// The peer's configuration. A pointer: a link that is not authenticated has none.
	net *addresses

	lcp, ipcp, ip6cp automaton
	// Nanoseconds since 1970; 0: none.
	phaseEnds, echoDue, advertiseDue int64
	// When the peer began to negotiate LCP anew, for `again`.
	againSince int64

	magic, peerMagic uint32
	ourID, peerID    [8]byte
	// Largest payload that the link carries (RFC 4638), our MRU and the peer's.
	maxPayload, mru, peerMRU uint16
	phase                    phase
	// Index in Config.Methods; the ones that the peer refused.
	method, refused uint8
	echoes, echoID  uint8
	loops           uint8
	advertised      uint8
	// How often the peer negotiated LCP anew within againTime.
	again uint8
	// The data plane asks for echoes, if there is a magic number.
	watched bool
	// From before a restart: the peer may not have got the answer to its credentials, and no packet shows that it has.
	restored bool
	// Options of ours that the peer does not know.
	noMRU, noMagic, noAddress, noID bool
	asked4, asked6                  bool
	// Which families the peer refused, and whether the link was up before.
	off4, off6, was bool
}

// addresses are a Network in the form in which it goes onto the wire.
type addresses struct {
	address, gateway [4]byte
	dns4             [2][4]byte
	has4, has6       bool
	dns4Count        uint8
	dns6Count        uint8
	dns6             [2][16]byte
	prefix           netip.Prefix
	address6         netip.Addr
	delegated        netip.Prefix
	desiredID        [8]byte
	solicited        uint8
	// Route Information options.
	routes []byte
}

// New makes a link. maxPayload is the largest payload of the layer below: 1492 with PPPoE, or the value of
// PPP-Max-Payload.
func New(config *Config, maxPayload uint16) *Link {
	l := &Link{config: config, maxPayload: max(maxPayload, pppoeMRU), peerMRU: defaultMRU}
	l.mru = l.maxPayload
	l.magic = l.newMagic()
	if l.ourID = config.InterfaceID; l.ourID == [8]byte{} {
		l.ourID = l.newInterfaceID()
	}
	l.lcp.id, l.ipcp.id, l.ip6cp.id = uint8(config.Random()), uint8(config.Random()), uint8(config.Random())
	return l
}

func (l *Link) newMagic() uint32 {
	for {
		if m := uint32(l.config.Random()); m != 0 {
			return m
		}
	}
}

// Magic is our Magic-Number; 0: there is none.
func (l *Link) Magic() uint32 {
	if l.noMagic {
		return 0
	}
	return l.magic
}

// MTU is the largest packet that the peer receives.
func (l *Link) MTU() uint16 { return min(l.peerMRU, l.maxPayload) }

// Up reports whether a network protocol is open.
func (l *Link) Up() bool { return l.ipcp.state == opened || l.ip6cp.state == opened }

// Deadline is when Tick is to be called, in nanoseconds since 1970; 0: never.
func (l *Link) Deadline() int64 {
	var first int64
	for _, at := range [...]int64{l.lcp.deadline, l.ipcp.deadline, l.ip6cp.deadline, l.phaseEnds, l.echoDue, l.advertiseDue, l.auth.due()} {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// Open begins to negotiate.
func (l *Link) Open(now int64, out []Action) []Action {
	l.phaseEnds = now + int64(establishTime)
	return l.lcp.begin(l, lcpLayer{}, now, out)
}

// Tick carries out timers that are due.
func (l *Link) Tick(now int64, out []Action) []Action {
	if l.phase == finished {
		return out
	}
	due := func(at int64) bool { return at != 0 && at <= now }
	if due(l.phaseEnds) {
		reason, cause := "the peer took too long to negotiate LCP and to authenticate", subscriber.UserError
		if l.phase == network {
			reason = "the peer opened no network protocol"
		}
		return l.Close(now, cause, reason, out)
	}
	if due(l.lcp.deadline) {
		out = l.lcp.timeout(l, lcpLayer{}, now, out)
	}
	if due(l.ipcp.deadline) {
		out = l.ipcp.timeout(l, ipcpLayer{}, now, out)
	}
	if due(l.ip6cp.deadline) {
		out = l.ip6cp.timeout(l, ip6cpLayer{}, now, out)
	}
	if due(l.auth.due()) {
		out = l.challengeAgain(now, out)
	}
	if due(l.echoDue) {
		out = l.askEcho(now, out)
	}
	if due(l.advertiseDue) && l.phase == network {
		out = l.advertise(now, out)
	}
	return out
}

// Receive takes a packet of the peer, behind the protocol field.
func (l *Link) Receive(p Protocol, b []byte, now int64, out []Action) []Action {
	if l.phase == finished {
		return out
	}
	switch p {
	case LCP:
		return l.receiveLCP(b, now, out)
	case PAP:
		return l.receivePAP(b, now, out)
	case CHAP:
		return l.receiveCHAP(b, now, out)
	case IPCP:
		if l.config.IPv4 {
			return l.receiveNCP(&l.ipcp, ipcpLayer{}, b, now, out)
		}
	case IPv6CP:
		if l.config.IPv6 {
			return l.receiveNCP(&l.ip6cp, ip6cpLayer{}, b, now, out)
		}
	case IPv6:
		l.restored = false
		if l.ip6cp.state == opened {
			return l.receiveIPv6(b, now, out)
		}
		return drop(out, "not-open")
	case IPv4:
		return drop(out, "not-open")
	case EAP, VSNCP, VSNP:
		if l.currentMethod() == MethodEAP && (l.phase == authenticate || l.phase == network) {
			return append(out, Action{Kind: Carried, Protocol: p, Packet: b})
		}
	}
	// RFC 1661 section 5.7: only once LCP is open.
	if l.lcp.state != opened {
		return drop(out, "unknown-protocol")
	}
	return l.rejectProtocol(p, b, drop(out, "unknown-protocol"))
}

// Accept accepts the peer's credentials and sets its configuration. A peer that negotiates LCP again meanwhile authenticates again: Resume then
// lets it in.
func (l *Link) Accept(n Network, message string, now int64, out []Action) []Action {
	if l.phase == finished {
		return out
	}
	l.net = addressesOf(n)
	if l.phase != authenticate || !l.auth.asked {
		return out
	}
	return l.enterNetwork(now, l.sendAuthResult(true, message, out))
}

// Authenticated: the owner of a link whose peer chose EAP has authenticated the peer. The link stays without a network protocol.
func (l *Link) Authenticated() {
	if l.phase == authenticate && l.currentMethod() == MethodEAP {
		l.phase, l.was, l.phaseEnds, l.auth = network, true, 0, nil
	}
}

// Transmit sends a packet of a protocol that the link carries for its owner.
func (l *Link) Transmit(p Protocol, packet []byte, out []Action) []Action {
	if l.phase != authenticate && l.phase != network {
		return out
	}
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(packet)), uint16(p))
	return append(out, Action{Kind: Send, Packet: append(b, packet...)})
}

// Resume is Accept for a link that negotiated again: the peer keeps its configuration.
func (l *Link) Resume(message string, now int64, out []Action) []Action {
	if l.phase != authenticate || !l.auth.asked || l.net == nil {
		return out
	}
	return l.enterNetwork(now, l.sendAuthResult(true, message, out))
}

// Reject refuses the peer's credentials. The link ends.
func (l *Link) Reject(message string, now int64, out []Action) []Action {
	if l.phase != authenticate {
		return out
	}
	out = l.sendAuthResult(false, message, out)
	return l.Close(now, subscriber.UserError, "not authenticated", out)
}

// Change replaces the peer's configuration: the next router advertisement and DHCPv6 answer carry it.
func (l *Link) Change(n Network, now int64) {
	before := l.net
	if l.net = addressesOf(n); before != nil && n.InterfaceID == [8]byte{} {
		l.net.desiredID = before.desiredID
	}
	if l.ip6cp.state == opened {
		l.advertiseDue = now
	}
}

// Close ends the link with a Terminate-Request.
func (l *Link) Close(now int64, cause subscriber.Cause, reason string, out []Action) []Action {
	if l.phase == finished {
		return out
	}
	if l.lcp.state != starting {
		l.lcp.id++
		out = send(out, LCP, terminateRequest, l.lcp.id, []byte(reason))
	}
	return l.finish(cause, reason, out)
}

func (l *Link) finish(cause subscriber.Cause, reason string, out []Action) []Action {
	l.phase, l.auth = finished, nil
	l.lcp, l.ipcp, l.ip6cp = automaton{id: l.lcp.id}, automaton{}, automaton{}
	l.phaseEnds, l.echoDue, l.advertiseDue = 0, 0, 0
	return append(out, Action{Kind: Finished, Cause: cause, Reason: reason})
}

func (l *Link) enterNetwork(now int64, out []Action) []Action {
	l.phase, l.was = network, true
	l.phaseEnds = now + int64(networkTime)
	l.asked4, l.asked6 = false, false
	if l.config.IPv4 && l.net.has4 && !l.off4 {
		out = l.ipcp.begin(l, ipcpLayer{}, now, out)
	}
	if l.config.IPv6 && l.net.has6 && !l.off6 {
		out = l.ip6cp.begin(l, ip6cpLayer{}, now, out)
	}
	return out
}

// networkChanged keeps watch over a link without an open network protocol.
func (l *Link) networkChanged(now int64) {
	switch {
	case l.Up():
		l.phaseEnds = 0
		// The peer has seen the answer to its credentials.
		l.auth = nil
	case l.phase == network && l.phaseEnds == 0 && l.currentMethod() != MethodEAP:
		l.phaseEnds = now + int64(networkTime)
	}
}

func addressesOf(n Network) *addresses {
	a := &addresses{prefix: n.Prefix, address6: n.Address6, delegated: n.Delegated, desiredID: n.InterfaceID}
	if n.Address.Is4() {
		a.address, a.has4 = n.Address.As4(), true
	}
	if n.Gateway.Is4() {
		a.gateway = n.Gateway.As4()
	}
	a.has6 = n.Prefix.IsValid() || n.Address6.IsValid() || n.Delegated.IsValid()
	a.routes = discovery.AppendRoutes(nil, n.Announced, uint32(routerLifetime/time.Second))
	for _, d := range n.DNS {
		switch {
		case d.Is4() && a.dns4Count < 2:
			a.dns4[a.dns4Count] = d.As4()
			a.dns4Count++
		case d.Is6() && a.dns6Count < 2:
			a.dns6[a.dns6Count] = d.As16()
			a.dns6Count++
		}
	}
	return a
}

func drop(out []Action, reason string) []Action {
	return append(out, Action{Kind: Dropped, Reason: reason})
}

// send adds a packet of RFC 1661 section 5.
func send(out []Action, p Protocol, code, id uint8, data []byte) []Action {
	b := make([]byte, 6, 6+len(data))
	binary.BigEndian.PutUint16(b, uint16(p))
	b[2], b[3] = code, id
	binary.BigEndian.PutUint16(b[4:], uint16(4+len(data)))
	return append(out, Action{Kind: Send, Packet: append(b, data...)})
}

// parse reads the header of RFC 1661 section 5. Bytes behind the length are padding.
func parse(b []byte) (code, id uint8, data []byte, ok bool) {
	if len(b) < 4 {
		return 0, 0, nil, false
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	if length < 4 || length > len(b) {
		return 0, 0, nil, false
	}
	return b[0], b[1], b[4:length], true
}

// State is the state of a link that survives a restart of the agent.
func (l *Link) State() []byte {
	flags := byte(0)
	for i, set := range []bool{l.noMRU, l.noMagic, l.off4, l.off6} {
		if set {
			flags |= 1 << i
		}
	}
	b := append(make([]byte, 0, stateLength), stateVersion, flags)
	b = binary.BigEndian.AppendUint32(b, l.magic)
	b = binary.BigEndian.AppendUint32(b, l.peerMagic)
	for _, v := range []uint16{l.maxPayload, l.mru, l.peerMRU} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return append(append(b, l.ourID[:]...), l.method, l.lcp.ackedID, byte(l.lcp.acked>>24), byte(l.lcp.acked>>16), byte(l.lcp.acked>>8), byte(l.lcp.acked))
}

const (
	stateVersion = 1
	stateLength  = 2 + 4 + 4 + 6 + 8 + 6
)

// Restore makes a link that was authenticated in an earlier life of the agent. Its network protocols count as open: a peer that was still
// negotiating repeats its request, and is answered.
func Restore(config *Config, state []byte, n Network, now int64) (*Link, bool) {
	if len(state) != stateLength || state[0] != stateVersion {
		return nil, false
	}
	l := New(config, binary.BigEndian.Uint16(state[10:]))
	l.noMRU, l.noMagic, l.off4, l.off6 = state[1]&1 != 0, state[1]&2 != 0, state[1]&4 != 0, state[1]&8 != 0
	l.magic, l.peerMagic = binary.BigEndian.Uint32(state[2:]), binary.BigEndian.Uint32(state[6:])
	l.mru, l.peerMRU = binary.BigEndian.Uint16(state[12:]), binary.BigEndian.Uint16(state[14:])
	l.ourID = [8]byte(state[16:24])
	l.method = state[24]
	l.lcp.ackedID, l.lcp.acked = state[25], binary.BigEndian.Uint32(state[26:])
	l.net = addressesOf(n)
	l.phase, l.was, l.restored = network, true, true
	l.lcp.state = opened
	if config.IPv4 && l.net.has4 && !l.off4 {
		l.ipcp.state = opened
	}
	if config.IPv6 && l.net.has6 && !l.off6 {
		l.ip6cp.state = opened
		l.advertised = firstAdvertisements
		l.advertiseDue = now + int64(l.config.Random()%uint64(advertiseTime))
	}
	l.scheduleEcho(now)
	return l, true
}
