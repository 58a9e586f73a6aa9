// SPDX-License-Identifier: Apache-2.0

package wcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/eap5g"
)

const (
	// RFC 3748 section 4.3: a request without an answer is sent again.
	requestTime = 3 * time.Second
	maxRequests = 5
	// The core may take so long for each NAS message before the 5G-RG is authenticated.
	coreTime = 30 * time.Second
	// Configure-Requests of VSNCP (RFC 1661 section 4.6), and messages about resources.
	restartTime  = 3 * time.Second
	maxConfigure = 10
	answerTime   = 2 * time.Second
	maxAnswers   = 4
	// NAS messages that wait for the 5G-RG.
	maxWaiting = 32
	// The largest NAS message: the payload of a PPP packet of 1492 bytes behind the header of EAP-5G.
	maxNAS = 1492 - 2 - 16
)

// Codes of RFC 1661 section 5.
const (
	configureRequest = 1
	configureAck     = 2
	configureNak     = 3
	configureReject  = 4
	terminateRequest = 5
	terminateAck     = 6
	codeReject       = 7
)

// vendor is the OUI of the Broadband Forum, the vendor of the VSNP messages.
var vendor = []byte{0x00, 0x25, 0x6d}

// Errors of a Gateway.
var (
	// ErrStopped: the 5G-RG ends the procedure.
	ErrStopped = errors.New("the 5G-RG stops")
	// ErrSilent: the 5G-RG, or the core, does not answer.
	ErrSilent = errors.New("no answer")
	// ErrRefused: the 5G-RG refuses a resource.
	ErrRefused = errors.New("the 5G-RG refuses the resource")
	// ErrTooMany: messages wait that the 5G-RG does not take.
	ErrTooMany = errors.New("the 5G-RG takes no NAS messages")
	// ErrClosed: the connection is over.
	ErrClosed = errors.New("the connection is closed")
)

type phase uint8

const (
	// The 5G-RG is to answer an EAP request.
	asking phase = iota
	// The core is to answer the 5G-RG's NAS message.
	waiting
	// VSNCP negotiates.
	configuring
	ready
	closed
)

// transaction is a message about a resource that the 5G-RG is to answer.
type transaction struct {
	packet []byte
	due    time.Time
	left   int
	done   func(error)
}

// Gateway is a 5G-RG as far as W-CP goes. Its methods are called one at a time.
type Gateway struct {
	world World
	phase phase
	// EAP: the last request, and its identifier.
	identifier uint8
	request    []byte
	registered bool
	// VSNCP: our request has this identifier; the peer's is acknowledged, and ours.
	configure           uint8
	acked, acknowledged bool

	due  time.Time
	left int
	// NAS messages for the 5G-RG.
	queue [][]byte

	transactions    map[uint8]*transaction
	lastTransaction uint8
}

// NewGateway begins EAP-5G.
func NewGateway(w World) *Gateway {
	g := &Gateway{world: w, identifier: 1, transactions: map[uint8]*transaction{}}
	g.ask(eap5g.Start, nil)
	return g
}

// Deadline is the time of the next Tick; the zero time: never.
func (g *Gateway) Deadline() time.Time {
	at := g.due
	for _, t := range g.transactions {
		if at.IsZero() || t.due.Before(at) {
			at = t.due
		}
	}
	return at
}

// Tick ends timers.
func (g *Gateway) Tick() {
	now := g.world.Now()
	if !g.due.IsZero() && !g.due.After(now) {
		g.due = time.Time{}
		g.expire(now)
	}
	for id, t := range g.transactions {
		if t.due.After(now) || g.phase == closed {
			continue
		}
		if t.left--; t.left <= 0 {
			delete(g.transactions, id)
			t.done(fmt.Errorf("a resource: %w", ErrSilent))
			continue
		}
		t.due = now.Add(answerTime)
		g.world.Send(VSNP, t.packet)
	}
}

func (g *Gateway) expire(now time.Time) {
	if g.left--; g.left <= 0 {
		what := map[phase]string{asking: "EAP-5G of the 5G-RG", waiting: "the core", configuring: "VSNCP of the 5G-RG"}[g.phase]
		g.fail(fmt.Errorf("%s: %w", what, ErrSilent))
		return
	}
	switch g.phase {
	case asking:
		g.due = now.Add(requestTime)
		g.world.Send(EAP, g.request)
	case configuring:
		g.due = now.Add(restartTime)
		g.sendConfigure()
	}
}

// fail ends the connection. Before the 5G-RG is authenticated, it gets EAP-Failure.
func (g *Gateway) fail(err error) {
	if g.phase == closed {
		return
	}
	if g.phase <= waiting {
		g.world.Send(EAP, eap5g.End(g.identifier, eap.Failure))
	}
	g.close()
	g.world.Closed(err)
}

func (g *Gateway) close() {
	g.phase, g.due, g.queue = closed, time.Time{}, nil
	for id, t := range g.transactions {
		delete(g.transactions, id)
		t.done(ErrClosed)
	}
}

// Close ends the connection because of the core or the link. The 5G-RG gets EAP-Failure if it is not authenticated yet. Closed is not called.
func (g *Gateway) Close() {
	if g.phase <= waiting {
		// The core's last message is for the 5G-RG: the reason for the rejection.
		g.world.Send(EAP, eap5g.End(g.identifier, eap.Failure))
	}
	if g.phase != closed {
		g.close()
	}
}

// Receive takes a packet of the 5G-RG.
func (g *Gateway) Receive(p Protocol, packet []byte) {
	switch {
	case g.phase == closed:
	case p == EAP:
		g.receiveEAP(packet)
	case p == VSNCP:
		g.receiveControl(packet)
	case p == VSNP:
		g.receiveMessage(packet)
	}
}

// ---- EAP-5G

func (g *Gateway) ask(id eap5g.MessageID, message []byte) {
	g.request = eap5g.Request(g.identifier, id, message)
	g.phase, g.due, g.left = asking, g.world.Now().Add(requestTime), maxRequests
	g.world.Send(EAP, g.request)
}

func (g *Gateway) receiveEAP(packet []byte) {
	if g.phase != asking {
		// An answer to a request that was sent twice.
		g.world.Dropped("eap-unexpected")
		return
	}
	r, err := eap5g.Parse(packet)
	switch {
	case err == nil && r.Identifier != g.identifier:
		g.world.Dropped("eap-identifier")
	case err != nil:
		g.fail(err)
	case r.ID == eap5g.Stop:
		g.fail(ErrStopped)
	case r.ID != eap5g.NAS:
		g.fail(fmt.Errorf("%w: message %d", eap5g.ErrMessage, r.ID))
	default:
		g.phase, g.due, g.left = waiting, g.world.Now().Add(coreTime), 1
		if g.registered {
			g.world.Uplink(r.Message)
		} else {
			g.registered = true
			g.world.Register(r.Parameters, r.Message)
		}
		g.proceed()
	}
}

// NAS brings a NAS message of the core to the 5G-RG. false: it cannot.
func (g *Gateway) NAS(message []byte) bool {
	switch {
	case len(message) == 0:
	case g.phase == closed:
		return false
	case len(message) > maxNAS:
		g.world.Dropped("nas-too-long")
		return false
	case g.phase == ready:
		g.sendNAS(message)
	case len(g.queue) == maxWaiting:
		g.fail(ErrTooMany)
		return false
	default:
		g.queue = append(g.queue, message)
		g.proceed()
	}
	return true
}

// proceed asks the 5G-RG with the next NAS message of the core, if there is one.
func (g *Gateway) proceed() {
	if g.phase == waiting && len(g.queue) > 0 {
		next := g.queue[0]
		g.queue = g.queue[1:]
		g.identifier++
		g.ask(eap5g.NAS, next)
	}
}

func (g *Gateway) sendNAS(message []byte) {
	m := Message{Kind: KindNAS, NAS: message}
	g.world.Send(VSNP, m.Append(nil))
}

// Accept: the core has authenticated the 5G-RG. false: it is not waiting for that.
func (g *Gateway) Accept() bool {
	if g.phase > waiting || !g.registered {
		return false
	}
	g.world.Send(EAP, eap5g.End(g.identifier, eap.Success))
	g.phase, g.request = configuring, nil
	g.due, g.left = g.world.Now().Add(restartTime), maxConfigure
	g.configure = 1
	g.sendConfigure()
	return true
}

// ---- VSNCP (RFC 3772 section 2). It has no options: it negotiates the vendor's protocol.

func (g *Gateway) control(code, identifier uint8, data []byte) {
	b := binary.BigEndian.AppendUint16([]byte{code, identifier}, uint16(7+len(data)))
	g.world.Send(VSNCP, append(append(b, vendor...), data...))
}

func (g *Gateway) sendConfigure() { g.control(configureRequest, g.configure, nil) }

func (g *Gateway) receiveControl(b []byte) {
	if len(b) < 7 {
		g.world.Dropped("vsncp-malformed")
		return
	}
	code, identifier, length := b[0], b[1], int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case length < 7 || length > len(b):
		g.world.Dropped("vsncp-malformed")
		return
	case !bytes.Equal(b[4:7], vendor):
		g.world.Dropped("vsncp-vendor")
		return
	case g.phase != configuring && g.phase != ready:
		// RFC 1661 section 3.5: not before the peer is authenticated. It repeats itself.
		g.world.Dropped("vsncp-too-early")
		return
	}
	data := b[7:length]
	switch code {
	case configureRequest:
		if len(data) > 0 {
			g.control(configureReject, identifier, data)
			return
		}
		g.acked = true
		g.control(configureAck, identifier, nil)
	case configureAck:
		if identifier != g.configure {
			g.world.Dropped("vsncp-identifier")
			return
		}
		g.acknowledged = true
	case configureNak, configureReject, codeReject:
		g.fail(fmt.Errorf("%w: VSNCP", ErrRefused))
		return
	case terminateRequest:
		g.control(terminateAck, identifier, nil)
		g.fail(ErrStopped)
		return
	default:
		g.world.Dropped("vsncp-code")
		return
	}
	if g.phase == configuring && g.acked && g.acknowledged {
		g.phase, g.due = ready, time.Time{}
		for _, message := range g.queue {
			g.sendNAS(message)
		}
		g.queue = nil
		g.world.Ready()
	}
}

// ---- VSNP

func (g *Gateway) receiveMessage(b []byte) {
	// A 5G-RG that has our acknowledgement sends before ours to it arrives: the rest of VSNCP may come after.
	if g.phase != ready {
		g.world.Dropped("vsnp-too-early")
		return
	}
	m, err := ParseMessage(b)
	switch {
	case err != nil:
		g.world.Dropped("vsnp-malformed")
	case m.Kind == KindNAS:
		g.world.Uplink(m.NAS)
	case m.Kind == KindAnswer && g.transactions[m.Transaction] != nil:
		t := g.transactions[m.Transaction]
		delete(g.transactions, m.Transaction)
		err := error(nil)
		if m.Cause != CauseDone {
			err = fmt.Errorf("%w: cause %d", ErrRefused, m.Cause)
		}
		t.done(err)
	case m.Kind == KindAnswer:
		g.world.Dropped("vsnp-unknown-transaction")
	default:
		g.world.Dropped("vsnp-unexpected")
	}
}

// Tell sends a message about a resource. done is called once, unless the transactions are exhausted; not before Tell returns.
func (g *Gateway) Tell(kind Kind, r Resource, done func(error)) error {
	if g.phase != ready {
		return ErrClosed
	}
	if len(g.transactions) == 255 {
		return ErrTooMany
	}
	for g.lastTransaction++; g.lastTransaction == 0 || g.transactions[g.lastTransaction] != nil; g.lastTransaction++ {
	}
	m := Message{Kind: kind, Transaction: g.lastTransaction, Resource: r}
	packet := m.Append(nil)
	g.transactions[g.lastTransaction] = &transaction{packet: packet, due: g.world.Now().Add(answerTime), left: maxAnswers, done: done}
	g.world.Send(VSNP, packet)
	return nil
}
