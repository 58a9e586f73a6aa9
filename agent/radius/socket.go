// SPDX-License-Identifier: Apache-2.0

// Packets to and from servers: sockets, and the log's lines about servers.
package radius

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"sluice.dev/sluice/agent/object"
)

// carryOut carries out the client's actions. s.mu is held.
func (s *radius) carryOut(actions []action) {
	for _, a := range actions {
		switch a := a.(type) {
		case transmit:
			s.send(a)
		case counted:
			s.count(a)
			switch a.what {
			case errAuthenticator.Error(), errMessageAuthenticator.Error(), errNoMessageAuth.Error():
				s.disbelieved(a)
				s.suspect(a.endpoint, "answers from "+a.endpoint.address.String()+" to "+a.endpoint.purpose()+" requests are dropped: "+remedies[a.what])
			case countReply:
				a.endpoint.why = ""
			case countDead:
				why := s.deadBecause(a.endpoint)
				s.Log.Warn("a RADIUS server does not answer", "server", a.endpoint.server, "endpoint", a.endpoint.address.String(), "why", why)
				s.hinder(a.endpoint, "ServerDead", why)
			case countAlive:
				s.Log.Info("a RADIUS server answers again", "server", a.endpoint.server, "endpoint", a.endpoint.address.String())
				s.hinder(a.endpoint, "", "")
				for p := range s.accountants() {
					if slices.ContainsFunc(p.accounting, func(o choice) bool { return o.endpoint == a.endpoint }) {
						s.spool.alive(p.name)
					}
				}
			}
		case finished:
			if a.exchange.done != nil {
				a.exchange.done(a.packet, a.endpoint)
			}
		}
	}
}

// dropped counts a packet from a server, or one to it that could not be sent. s.mu is held.
func (s *radius) dropped(e *endpoint, reason string) {
	s.count(counted{endpoint: e, what: reason})
}

// count counts for metrics and for operators. The series of a server that is gone do not come back. s.mu is held.
func (s *radius) count(c counted) {
	if _, there := s.servers[c.endpoint.server]; there {
		s.measurements.count(c)
		s.tally(c)
	}
}

// suspect keeps why a server may seem dead, until it answers. s.mu is held.
func (s *radius) suspect(e *endpoint, why string) {
	if e.why = why; e.dead {
		s.hinder(e, "ServerDead", why)
	}
}

// deadBecause is what operators read of a dead server. s.mu is held.
func (s *radius) deadBecause(e *endpoint) string {
	if e.why != "" {
		return e.why
	}
	return "no answer from " + e.address.String() + " to " + e.purpose() + " requests"
}

// cannotSend names the fields of a RadiusServer that its sockets have.
func cannotSend(e *endpoint, err error) string {
	text := "no packets to " + e.address.String() + " can be sent"
	if e.source.IsValid() {
		text += ", sourceAddress " + e.source.String()
	}
	if e.device != "" {
		text += ", device " + e.device
	}
	return text + ": " + cause(err)
}

// hinder sets why a RadiusServer does not serve; an empty reason: it serves, for this purpose.
func (s *radius) hinder(e *endpoint, reason, message string) {
	k := object.Key{Kind: "RadiusServer", Name: e.server}
	if s.SetUnanswered(k, e.purpose(), reason, message) && s.Intent != nil {
		s.Intent.Touched(k)
	}
}

// Remedies for replies that fail verification, unless they are forged.
var remedies = map[string]string{
	errAuthenticator.Error():        "the server has another secret, or the reply is forged",
	errMessageAuthenticator.Error(): "the server has another secret, or the reply is forged",
	errNoMessageAuth.Error():        "no Message-Authenticator: let the server send one, or set allowUnsignedReplies",
}

// seldom is true once a minute for the same words, so that a line for each request does not fill the log. s.mu is held.
func (s *radius) seldom(words string) bool {
	now := time.Now()
	if now.Sub(s.warned[words]) < warnAgain {
		return false
	}
	if len(s.warned) >= mostWarned {
		clear(s.warned)
	}
	s.warned[words] = now
	return true
}

// disbelieved logs that replies of a server are dropped. s.mu is held.
func (s *radius) disbelieved(c counted) {
	if !s.seldom(c.endpoint.server + " " + c.endpoint.purpose()) {
		return
	}
	s.Log.Warn("a reply of a RADIUS server is dropped", "server", c.endpoint.server, "endpoint", c.endpoint.address.String(), "why", remedies[c.what])
}

// send writes a packet to the socket of an endpoint, which is opened at its first use. A failed write, for which a full socket buffer is one reason,
// is repeated at the timeout.
func (s *radius) send(t transmit) {
	e := t.endpoint
	if e.removed || s.ended {
		return
	}
	for len(s.sockets[e]) <= t.socket {
		s.sockets[e] = append(s.sockets[e], nil)
	}
	conn := s.sockets[e][t.socket]
	if conn == nil {
		var err error
		if conn, err = open(e.settings); err != nil {
			s.dropped(e, "no-socket")
			s.suspect(e, cannotSend(e, err))
			if !s.closed[e] {
				s.closed[e] = true
				s.Log.Warn("a RADIUS server cannot be reached", "server", e.server, "endpoint", e.address.String(), "error", err)
			}
			return
		}
		delete(s.closed, e)
		s.sockets[e][t.socket] = conn
		s.readers.Add(1)
		go func() {
			defer s.readers.Done()
			s.read(conn, e, t.socket)
		}()
	}
	if err := writeNow(conn, t.bytes, nil, netip.AddrPort{}); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		s.dropped(e, "not-sent")
		s.suspect(e, cannotSend(e, err))
		if unbound(err) {
			// The next transmission opens another one.
			conn.Close()
			s.sockets[e][t.socket] = nil
		}
	}
}

// unbound reports whether a socket's source address or device is gone: it stays bound to the old one when another of its name comes.
func unbound(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENODEV, syscall.ENXIO, syscall.EINVAL, syscall.EADDRNOTAVAIL, syscall.EDESTADDRREQ, syscall.ENETUNREACH},
		func(gone error) bool { return errors.Is(err, gone) })
}

// open makes a socket that takes packets from the server's address and port alone.
func open(of settings) (*net.UDPConn, error) {
	dialer := net.Dialer{Control: within(of.device)}
	if of.source.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(of.source, 0))
	}
	made, err := dialer.Dial("udp", of.address.String())
	if err != nil {
		return nil, err
	}
	conn := made.(*net.UDPConn)
	// A smaller buffer is no error.
	_ = conn.SetReadBuffer(socketBuffer)
	return conn, nil
}

// within binds a socket to a VRF or an interface of Linux. "": it is not bound.
func within(device string) func(network, address string, conn syscall.RawConn) error {
	if device == "" {
		return nil
	}
	return func(_, _ string, conn syscall.RawConn) error {
		var bound error
		err := conn.Control(func(fd uintptr) {
			bound = syscall.SetsockoptString(int(fd), syscall.SOL_SOCKET, syscall.SO_BINDTODEVICE, device)
		})
		if err = errors.Join(err, bound); err != nil {
			return fmt.Errorf("device %s: %w", device, err)
		}
		return nil
	}
}

// read takes replies until the socket is closed.
func (s *radius) read(conn *net.UDPConn, e *endpoint, socket int) {
	buffer := make([]byte, maxLength+1)
	for {
		n, err := conn.Read(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// An ICMP error: any host can send one, so the timeout decides.
			s.mu.Lock()
			s.dropped(e, "unreachable")
			s.mu.Unlock()
			continue
		}
		// Replies are kept: attributes of a grant are parts of them.
		b := append([]byte(nil), buffer[:n]...)
		s.replied(e, socket, b, time.Now())
	}
}

func (s *radius) replied(e *endpoint, socket int, b []byte, now time.Time) {
	var answers []func()
	s.guarded(func() { answers = s.receive(e, socket, b, now) })
	for _, answer := range answers {
		s.guarded(answer)
	}
}

// receive takes a packet, and returns the callbacks that it is the answer for: they run without s.mu.
func (s *radius) receive(e *endpoint, socket int, b []byte, now time.Time) (answers []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiving = true
	defer func() {
		answers, s.answers, s.receiving = s.answers, nil, false
	}()
	s.carryOut(s.client.receive(e, socket, b, now))
	s.carryOut(s.pump(now))
	return nil
}

// callBack runs f without s.mu: after the packet that is being received, or else in a goroutine. s.mu is held.
func (s *radius) callBack(f func()) {
	if s.receiving {
		s.answers = append(s.answers, f)
	} else {
		go f()
	}
}

// guarded keeps a panic about a packet or in a timer from ending the agent. A timer may panic each time: the log has one line a second.
func (s *radius) guarded(f func()) {
	defer func() {
		now := time.Now().Unix()
		if p := recover(); p != nil && s.panicked.Swap(now) != now {
			s.Log.Error("the code for a packet or a timer panicked", "error", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}
