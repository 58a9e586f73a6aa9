// SPDX-License-Identifier: Apache-2.0

// Sockets for CoA-Request and Disconnect-Request, and their way through the Manager.
package radius

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/subscriber"
)

// How long until a socket that could not be opened is tried again.
const listenAgain = 5 * time.Second

// listenAt is where requests are received. device: a Linux VRF or interface; "": all.
type listenAt struct {
	address netip.AddrPort
	device  string
}

func (at listenAt) String() string {
	if at.device == "" {
		return at.address.String()
	}
	return at.address.String() + " of " + at.device
}

// covers reports whether requests that come to other are for at, too.
func (at listenAt) covers(other listenAt) bool {
	a, b := at.address.Addr(), other.address.Addr()
	all := a.IsUnspecified() && (a.Is6() || b.Is4())
	return at.address.Port() == other.address.Port() && (a == b || all) && (at.device == "" || at.device == other.device)
}

func (at listenAt) compare(other listenAt) int {
	return cmp.Or(at.address.Compare(other.address), cmp.Compare(at.device, other.device))
}

// listener is a socket for requests.
type listener struct {
	listenAt
	clients []permitted
	conn    *net.UDPConn
	again   time.Time
	// No policy names this address and device together.
	implied bool
	// Why the socket is not open.
	err error
	// The device that the socket is bound to, and when it is looked at next.
	index int
	look  time.Time
}

// listensAt is where a policy receives requests. false: it receives none.
func (p *policy) listensAt() (at listenAt, receives bool) {
	d := p.spec.DynamicAuthorization
	if d == nil {
		return at, false
	}
	address, err := netip.ParseAddr(d.Address)
	if err != nil {
		address = netip.IPv6Unspecified()
	}
	port := uint16(d.Port)
	if port == 0 {
		port = defaultDynamicPort
	}
	return listenAt{netip.AddrPortFrom(address.Unmap(), port), d.Device}, true
}

// listen makes the listeners of policies. s.mu is held.
//
// The kernel gives a packet to one socket: of those with its address before those with none, and among these to one that is bound to its device.
// So there is a socket for each address with each device that policies name, and it serves all policies that cover it: the packets of a policy do
// not depend on others.
func (s *radius) listen(now time.Time) {
	named := map[listenAt]bool{}
	for _, p := range s.policies {
		if at, receives := p.listensAt(); receives {
			named[at] = true
		}
	}
	desired := map[listenAt][]permitted{}
	for one := range named {
		for other := range named {
			at := listenAt{one.address, other.device}
			if one.address.Port() == other.address.Port() && desired[at] == nil {
				desired[at] = s.permittedAt(at)
			}
		}
	}
	for at, l := range s.listeners {
		if desired[at] == nil {
			if l.conn != nil {
				l.conn.Close()
			}
			delete(s.listeners, at)
		}
	}
	for at, clients := range desired {
		if clients == nil {
			continue
		}
		l := s.listeners[at]
		if l == nil {
			l = &listener{listenAt: at}
			s.listeners[at] = l
		}
		l.clients, l.implied = clients, !named[at]
	}
	s.openListeners(now)
	s.reportListeners()
}

// permittedAt returns the clients of all policies that receive requests there; nil: no policy does. s.mu is held.
func (s *radius) permittedAt(at listenAt) (all []permitted) {
	for _, p := range s.policies {
		if of, receives := p.listensAt(); !receives || !of.covers(at) {
			continue
		}
		d := p.spec.DynamicAuthorization
		all = slices.Grow(all, 1)
		add := func(addresses netip.Prefix, secret string) {
			// A server has one entry though it is one of authentication and of accounting.
			if one := (permitted{addresses, secret, p, d}); !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
		for _, c := range d.Clients {
			if prefix, err := netip.ParsePrefix(c.Addresses); err == nil {
				add(prefix, c.Secret)
			}
		}
		for _, choices := range [][]choice{p.authentication, p.accounting} {
			for _, o := range choices {
				add(netip.PrefixFrom(o.address.Addr(), o.address.Addr().BitLen()), o.secret)
			}
		}
	}
	sortClients(all)
	return all
}

// openListeners opens sockets that are closed. s.mu is held.
func (s *radius) openListeners(now time.Time) {
	changed := false
	for _, l := range s.sortedListeners() {
		if l.conn != nil && l.device != "" && !now.Before(l.look) {
			// A socket stays bound to a device that is gone, also when one of its name returns.
			l.look = now.Add(listenAgain)
			if s.indexOf(l.device) != l.index {
				l.conn.Close()
				l.conn = nil
			}
		}
		if l.conn != nil || now.Before(l.again) || s.ended {
			continue
		}
		if l.device != "" {
			l.index, l.look = s.indexOf(l.device), now.Add(listenAgain)
		}
		conn, err := s.bind(l.listenAt)
		changed = changed || (err == nil) != (l.err == nil)
		if err != nil {
			l.again = now.Add(listenAgain)
			if l.err == nil && !l.implied {
				s.Log.Warn("no CoA-Requests are received", "address", l.String(), "error", err)
			}
			l.err = err
			continue
		}
		l.conn, l.err = conn, nil
		s.readers.Add(1)
		go func() {
			defer s.readers.Done()
			s.serve(l, conn)
		}()
	}
	if changed {
		s.reportListeners()
	}
}

// sortedListeners are in a fixed order: the log does not depend on the map. s.mu is held.
func (s *radius) sortedListeners() []*listener {
	if len(s.listeners) == 1 {
		for _, l := range s.listeners {
			return []*listener{l}
		}
	}
	return slices.SortedFunc(maps.Values(s.listeners), func(a, b *listener) int { return a.compare(b.listenAt) })
}

// bind opens a socket for requests. s.mu is held.
//
// Linux refuses an address beside the wildcard, and a device beside all, unless both sockets have SO_REUSEADDR. With it, any program could
// take the port over, so sockets have it only while the agent binds another one.
func (s *radius) bind(at listenAt) (*net.UDPConn, error) {
	conn, err := bindShared(at, false)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return conn, err
	}
	var others []*net.UDPConn
	for _, l := range s.listeners {
		if l.conn != nil && l.address.Port() == at.address.Port() {
			others = append(others, l.conn)
		}
	}
	if len(others) == 0 {
		return nil, err
	}
	for _, other := range others {
		if err := share(other, true); err != nil {
			return nil, err
		}
		defer func() { _ = share(other, false) }()
	}
	if conn, err = bindShared(at, true); err == nil {
		err = share(conn, false)
	}
	return conn, err
}

// bindShared binds a socket, beside others that share the port or not.
func bindShared(at listenAt, shared bool) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(network, address string, conn syscall.RawConn) error {
		if bind := within(at.device); bind != nil {
			if err := bind(network, address, conn); err != nil {
				return err
			}
		}
		if shared {
			if err := shareRaw(conn, true); err != nil {
				return err
			}
		}
		return tellDestination(conn)
	}}
	network := "udp"
	if at.address.Addr().Is4() {
		// Of "udp", 0.0.0.0 is IPv6 as well.
		network = "udp4"
	}
	made, err := config.ListenPacket(context.Background(), network, at.address.String())
	if err != nil {
		return nil, err
	}
	return made.(*net.UDPConn), nil
}

// share sets whether another socket with the same option may have the same port.
func share(conn *net.UDPConn, on bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return shareRaw(raw, on)
}

func shareRaw(conn syscall.RawConn, on bool) error {
	value := 0
	if on {
		value = 1
	}
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, value)
	})
	return errors.Join(err, failed)
}

// reportListeners sets why policies receive no CoA-Requests, or that they do. s.mu is held.
func (s *radius) reportListeners() {
	bad := map[string]string{}
	for _, p := range s.policies {
		at, receives := p.listensAt()
		if l := s.listeners[at]; receives && l != nil && l.err != nil {
			bad[p.name] = noSocket(p.spec.DynamicAuthorization, at, l.err)
		}
	}
	for name := range s.deafPolicies {
		if bad[name] == "" {
			delete(s.deafPolicies, name)
			s.hinderPolicy(name, "dynamicAuthorization", "", "")
		}
	}
	for name, why := range bad {
		s.deafPolicies[name] = true
		s.hinderPolicy(name, "dynamicAuthorization", "NotListening", why)
	}
}

// noSocket names the fields that a socket was bound by.
func noSocket(d *api.DynamicAuthorization, at listenAt, err error) string {
	text := "no CoA-Requests are received: "
	if d.Address != "" {
		text += "dynamicAuthorization.address " + d.Address + ", "
	}
	text += "dynamicAuthorization.port " + strconv.Itoa(int(at.address.Port()))
	if at.device != "" {
		text += ", dynamicAuthorization.device " + at.device
	}
	return text + ": " + cause(err)
}

// cause is the kernel's word for an error, without the call that failed.
func cause(err error) string {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// hinderPolicy sets why a part of a RadiusPolicy does not serve; an empty reason: it serves. s.mu is held.
func (s *radius) hinderPolicy(name, part, reason, message string) {
	k := object.Key{Kind: "RadiusPolicy", Name: name}
	if s.SetNotReady(k, part, reason, message) && s.Intent != nil {
		s.Intent.Touched(k)
	}
}

// serve takes requests until the socket is closed.
func (s *radius) serve(l *listener, conn *net.UDPConn) {
	buffer, control := make([]byte, maxLength+1), make([]byte, 256)
	for {
		n, length, _, from, err := conn.ReadMsgUDPAddrPort(buffer, control)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		b := append([]byte(nil), buffer[:n]...)
		source := sourceOf(control[:length])
		// A client that gets no answer sends its request again.
		answer := func(b []byte) {
			if err := writeNow(conn, b, source, from); err != nil {
				s.dynamicDrops.WithLabelValues("not-sent").Inc()
			}
		}
		s.guarded(func() { s.demanded(l, from, b, answer) })
	}
}

func (s *radius) demanded(l *listener, from netip.AddrPort, b []byte, send func([]byte)) {
	answer, demanded, which, refusal, manager := s.understand(l, from, b)
	if answer != nil {
		send(answer)
	}
	if demanded == nil {
		return
	}
	finish := func(count int, err error) {
		cause := refusal
		switch {
		case cause != causeNone:
		case count == 0 && (err == nil || errors.Is(err, subscriber.ErrNoSession)):
			cause = causeNoSession
		case errors.Is(err, subscriber.ErrTooManySessions):
			cause = causeMultiple
		case err != nil:
			cause = causeResources
		}
		s.mu.Lock()
		if cause == causeResources && s.seldom("change of "+from.Addr().String()) {
			s.Log.Warn("a session cannot be changed", "address", from.Addr().String(), "error", err)
		}
		s.logRefusal(demanded, cause)
		answer := s.dynamic.finish(demanded, cause)
		s.answeredDemand(demanded.policy(), demanded.request.code(), cause)
		s.mu.Unlock()
		send(answer)
	}
	switch {
	case refusal != causeNone:
		finish(0, nil)
	case manager == nil:
		finish(0, errors.New("there is no subscriber Manager"))
	case demanded.request.code() == DisconnectRequest:
		// The Manager calls back when the disk has the sessions' ends. If the disk refuses them, the sessions have ended all the same: neither answer
		// is true before the disk has them, for a killed agent brings the sessions back.
		manager.Terminate(which, demanded.cause, demanded.text, func(count int, err error) {
			if count > 0 && err != nil {
				s.onDisk(func() { finish(count, nil) })
				return
			}
			finish(count, err)
		})
	default:
		// The Manager calls back when the data plane has the change.
		manager.Change(which, demanded.change, finish)
	}
}

// Why a request was dropped, by the reason that a metric counts. Repeated ones are not worth a line of the log.
var dropped = map[string]string{
	errMalformed.Error():            "it is malformed",
	errAuthenticator.Error():        "the client has another secret, or the request is forged",
	errMessageAuthenticator.Error(): "the client has another secret, or the request is forged",
	errNoMessageAuth.Error():        "it has no Message-Authenticator: let the client send one, or unset requireMessageAuthenticator",
	"unknown-client":                "no client of dynamicAuthorization has this address",
	"event-timestamp":               "its Event-Timestamp is outside the event window: compare the clocks",
	"too-many":                      "as many requests came within their event window as the agent remembers: a later one is accepted",
	"event-timestamp-missing":       "it has no Event-Timestamp: let the client send one, or set allowMissingEventTimestamp",
}

// understand reads a request. The listener answers it, drops it, or passes it to the Manager.
func (s *radius) understand(l *listener, from netip.AddrPort, b []byte) (answer []byte, demanded *demand, which []subscriber.Match, refusal uint32, m subscriber.Manager) {
	s.mu.Lock()
	clients := l.clients
	s.mu.Unlock()
	// Anyone can send packets: rejecting them takes no time of others.
	p, by, drop := authenticate(clients, from.Addr(), b)
	s.mu.Lock()
	defer s.mu.Unlock()
	var cause uint32
	s.dynamic.refused = nil
	if drop == "" {
		answer, demanded, cause, drop = s.dynamic.receive(p, by, from, time.Now())
	}
	if drop != "" {
		s.dynamicDrops.WithLabelValues(drop).Inc()
		if why := dropped[drop]; why != "" && s.seldom("dynamic "+drop) {
			s.Log.Warn("a CoA-Request or Disconnect-Request is dropped", "address", from.Addr().String(), "why", why)
		}
	}
	if answer != nil && drop == "" {
		policy := ""
		if s.dynamic.refused != nil {
			policy = s.dynamic.refused.policy()
			s.logRefusal(s.dynamic.refused, cause)
		}
		s.answeredDemand(policy, packet(b).code(), cause)
	}
	client := "client " + from.Addr().String()
	if refused := s.dynamic.refused; refused != nil {
		s.reportUnusable(refused.policy(), client, refused.granted.unusable, true, func() whom { return s.subscriberOf(refused) })
	}
	if demanded != nil {
		if missing := demanded.granted.dropMissing(s.exists); len(missing) > 0 {
			s.reportUnusable(demanded.policy(), client, missing, true, func() whom { return s.subscriberOf(demanded) })
			demanded.fault = missing[0].name
			return nil, demanded, nil, causeInvalidValue, s.manager
		}
		demanded.match.Of = servedBy(s.policies, demanded.by)
		which, refusal = s.sessions.find(demanded)
	}
	return answer, demanded, which, refusal, s.manager
}

// logRefusal logs why a request is refused, seldom for each client and cause. s.mu is held.
func (s *radius) logRefusal(r *demand, cause uint32) {
	if cause == causeNone || !s.seldom("refused "+r.from.Addr().String()+" "+causeNames[cause]) {
		return
	}
	fields := []any{"address", r.from.Addr().String(), "request", r.request.code().String(), "cause", causeNames[cause]}
	if r.fault != "" {
		fields = append(fields, "attribute", r.fault)
	}
	s.Log.Warn("a CoA-Request or Disconnect-Request is refused", fields...)
}

// servedBy returns the profiles of the sessions that clients may change and end (RFC 5176 section 6.1): those that their policies serve.
func servedBy(policies []*policy, clients []*permitted) *subscriber.Profiles {
	return &subscriber.Profiles{Has: func(profile string) bool {
		p := policyOf(policies, profile)
		return slices.ContainsFunc(clients, func(c *permitted) bool { return c.policy == p })
	}}
}

// find returns selectors for the Manager. A session has a word of the request if its records have it, or if the Manager knows it: sessions without
// accounting have no records. refusal is an Error-Cause if the request is not carried out.
func (s *sessions) find(r *demand) (all []subscriber.Match, refusal uint32) {
	var ports []sharing
	for _, of := range []struct {
		attribute uint8
		word      []byte
	}{{typeNASPortID, r.nasPortID}, {typeNASPort, []byte(r.nasPort)}, {typeCalledStationID, []byte(r.called)}} {
		if len(of.word) > 0 {
			ports = append(ports, s.with(of.attribute, of.word))
		}
	}
	// ways returns whether the Manager looks for a word: both ways if the request has the word.
	ways := func(word []byte) []bool {
		if word == nil {
			return []bool{false}
		}
		return []bool{false, true}
	}
	// Sessions whose records have all words.
	recorded := map[string]bool{}
	users, stations := s.with(typeUserName, r.username), s.with(typeCallingStationID, r.calling)
	for _, askUser := range ways(r.username) {
		for _, askStation := range ways(r.calling) {
			match, sets := r.match, ports
			add := func(word []byte, ask bool, of *string, set sharing) {
				switch {
				case word == nil:
				case ask:
					*of = string(word)
				default:
					sets = append(slices.Clip(sets), set)
				}
			}
			add(r.username, askUser, &match.Username, users)
			add(r.calling, askStation, &match.CallingStationID, stations)
			if sets == nil {
				all = append(all, match)
				continue
			}
			// The Manager counts the sessions of the other ways.
			most := math.MaxInt
			if !askUser && !askStation {
				most = subscriber.MaxSelected
			}
			ids := having(r, sets, most)
			if len(ids) > most {
				return nil, causeMultiple
			}
			for _, id := range ids {
				match.ID = id
				if !recorded[id] {
					all = append(all, match)
				}
				recorded[id] = recorded[id] || !askUser && !askStation
			}
		}
	}
	if len(all) == 0 {
		return nil, causeNoSession
	}
	return all, causeNone
}

// having returns the sessions that are in all sets, and that have the Acct-Session-Id of a request. Beyond most, it looks for no more.
func having(r *demand, sets []sharing, most int) (ids []string) {
	smallest := slices.MinFunc(sets, func(a, b sharing) int { return a.len() - b.len() })
	in := func(id string) bool {
		return !slices.ContainsFunc(sets, func(set sharing) bool { return !set.has(id) })
	}
	if r.match.ID != "" {
		if in(r.match.ID) {
			ids = append(ids, r.match.ID)
		}
		return ids
	}
	for id := range smallest.all() {
		if !in(id) {
			continue
		}
		if ids = append(ids, id); len(ids) > most {
			break
		}
	}
	return ids
}
