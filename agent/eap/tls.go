// SPDX-License-Identifier: Apache-2.0

package eap

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// EAP-TLS: RFC 5216 with TLS 1.2, RFC 9190 with TLS 1.3.

const (
	tlsLength byte = 0x80
	tlsMore   byte = 0x40
	tlsStart  byte = 0x20
	// A fragment of ours. IKE and RADIUS carry it whole.
	tlsFragment = 1024
	// TLS messages of one flight, of either end.
	tlsLimit = 64 << 10
	mskSize  = 64
)

// TLS is how a peer proves its identity by EAP-TLS.
type TLS struct {
	// With the certificate of the gateway. ClientAuth and session tickets are set here.
	Config *tls.Config
	// Verify checks the certificates of the peer, its own first, and that they are for an identity. It returns the username, which the peer must not be able
	// to spell in more than one way. It may block.
	Verify func(chain [][]byte, identity string) (username string, err error)
}

// pipe is the connection of TLS to nowhere: records go in and out as bytes.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	in      bytes.Buffer
	out     []byte
	// The random number of our ServerHello, the first output.
	hello []byte
	// TLS waits for records.
	waiting, closed bool
}

var errPipe = errors.New("the conversation is over")

// Read implements net.Conn.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.in.Len() == 0 {
		if p.closed {
			return 0, io.EOF
		}
		p.waiting = true
		p.changed.Broadcast()
		p.changed.Wait()
	}
	p.waiting = false
	return p.in.Read(b)
}

// Write implements net.Conn.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, errPipe
	}
	p.out = append(p.out, b...)
	if p.hello == nil && len(b) >= randomAt+randomSize {
		p.hello = bytes.Clone(b[randomAt : randomAt+randomSize])
	}
	return len(b), nil
}

// Close implements net.Conn.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.changed.Broadcast()
	return nil
}

// exchange gives records of the peer to TLS, and returns the records of TLS once it waits for input or has ended.
func (p *pipe) exchange(records []byte, ended func() bool) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in.Write(records)
	if len(records) > 0 {
		p.waiting = false
	}
	p.changed.Broadcast()
	for !p.waiting && !ended() {
		p.changed.Wait()
	}
	out := p.out
	p.out = nil
	return out
}

type nowhere struct{}

func (nowhere) Network() string { return "eap" }
func (nowhere) String() string  { return "eap" }

func (p *pipe) LocalAddr() net.Addr              { return nowhere{} } // LocalAddr implements net.Conn.
func (p *pipe) RemoteAddr() net.Addr             { return nowhere{} } // RemoteAddr implements net.Conn.
func (p *pipe) SetDeadline(time.Time) error      { return nil }       // SetDeadline implements net.Conn.
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }       // SetReadDeadline implements net.Conn.
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }       // SetWriteDeadline implements net.Conn.

// tlsConversation is a conversation with a peer that has a certificate.
type tlsConversation struct {
	how        TLS
	identifier byte
	identity   string
	// Of the certificate.
	username string
	began    bool
	// The rest of our flight that is not sent yet, and the part of the peer's flight that has arrived.
	out, in []byte
	// The flight of ours is sent whole with its length.
	flight int
	pipe   *pipe
	conn   *tls.Conn
	// Guarded by the pipe's mutex: the handshake has ended.
	ended   bool
	failure error
	group   sync.WaitGroup
	// Our last flight is on its way: EAP-Success or EAP-Failure follows.
	last bool
	msk  []byte
	// Of TLS 1.2: the master secret as crypto/tls writes it.
	secrets strings.Builder
}

// NewTLS returns a conversation that asks for the peer's name and for its certificate.
func NewTLS(how TLS) Conversation {
	return &tlsConversation{how: how}
}

// End implements Ender.
func (c *tlsConversation) End() {
	if c.pipe != nil {
		c.pipe.Close()
		c.group.Wait()
	}
}

// Next implements Conversation.
func (c *tlsConversation) Next(packet []byte, done func(Step)) {
	if packet == nil {
		c.identifier = 1
		done(Step{Packet: Packet{Request, c.identifier, TypeIdentity, nil}.Append(nil)})
		return
	}
	p, err := Parse(packet)
	switch {
	case err != nil:
		done(refuse(c.identifier, c.identity, err))
	case p.Code != Response || p.Identifier != c.identifier:
		done(refuse(c.identifier, c.identity, fmt.Errorf("%w: code %d, identifier %d", ErrPacket, p.Code, p.Identifier)))
	case p.Type == TypeNak:
		done(refuse(c.identifier, c.identity, errors.New("the peer does not use EAP-TLS")))
	case !c.began && p.Type == TypeIdentity:
		c.began, c.identity = true, printable(string(p.Data))
		c.begin()
		done(c.request([]byte{tlsStart}))
	case !c.began || p.Type != TypeTLS || len(p.Data) == 0:
		done(refuse(c.identifier, c.identity, fmt.Errorf("%w: type %d", ErrPacket, p.Type)))
	default:
		c.fragment(p.Data[0], p.Data[1:], done)
	}
}

func (c *tlsConversation) request(data []byte) Step {
	c.identifier++
	return Step{Packet: Packet{Request, c.identifier, TypeTLS, data}.Append(nil)}
}

// fragment takes a fragment of the peer's flight, or its word that it has one of ours.
func (c *tlsConversation) fragment(flags byte, data []byte, done func(Step)) {
	if flags&tlsLength != 0 {
		if len(data) < 4 || binary.BigEndian.Uint32(data) > tlsLimit {
			done(refuse(c.identifier, c.identity, fmt.Errorf("%w: the length of TLS messages", ErrPacket)))
			return
		}
		data = data[4:]
	}
	switch {
	case len(c.out) > 0 && len(data) == 0:
		done(c.send())
	case len(c.out) > 0 || len(c.in)+len(data) > tlsLimit:
		done(refuse(c.identifier, c.identity, fmt.Errorf("%w: TLS messages out of turn or too long", ErrPacket)))
	case flags&tlsMore != 0 && len(data) == 0:
		done(refuse(c.identifier, c.identity, fmt.Errorf("%w: a fragment of TLS messages without data", ErrPacket)))
	case flags&tlsMore != 0:
		c.in = append(c.in, data...)
		done(c.request([]byte{0}))
	case c.last:
		done(c.finish())
	default:
		records := append(c.in, data...)
		c.in = nil
		// Signatures and certificates take their time.
		go func() { done(c.handshake(records)) }()
	}
}

// send sends the next fragment of our flight.
func (c *tlsConversation) send() Step {
	n := min(len(c.out), tlsFragment)
	var head []byte
	switch {
	case n == len(c.out) && n == c.flight:
		head = []byte{0}
	case len(c.out) == c.flight:
		head = binary.BigEndian.AppendUint32([]byte{tlsLength | tlsMore}, uint32(c.flight))
	case n < len(c.out):
		head = []byte{tlsMore}
	default:
		head = []byte{0}
	}
	part := c.out[:n]
	c.out = c.out[n:]
	return c.request(append(head, part...))
}

// begin starts TLS.
func (c *tlsConversation) begin() {
	c.pipe = &pipe{}
	c.pipe.changed.L = &c.pipe.mu
	config := c.how.Config.Clone()
	config.ClientAuth, config.SessionTicketsDisabled, config.InsecureSkipVerify = tls.RequireAnyClientCert, true, true
	config.MinVersion = tls.VersionTLS12
	config.VerifyPeerCertificate = func(chain [][]byte, _ [][]*x509.Certificate) (err error) {
		c.username, err = c.how.Verify(chain, c.identity)
		return err
	}
	config.KeyLogWriter = &c.secrets
	c.conn = tls.Server(c.pipe, config)
	c.group.Add(1)
	go func() {
		defer c.group.Done()
		err := c.conn.Handshake()
		if err == nil {
			err = c.keys()
		}
		c.pipe.mu.Lock()
		defer c.pipe.mu.Unlock()
		c.ended, c.failure = true, err
		c.pipe.changed.Broadcast()
	}()
}

// keys derives the key of the method, and informs a peer of TLS 1.3 that the handshake is over.
func (c *tlsConversation) keys() error {
	state := c.conn.ConnectionState()
	if state.Version != tls.VersionTLS13 {
		return c.keys12(state.CipherSuite)
	}
	// RFC 9190 sections 2.1.1 and 2.3.
	if _, err := c.conn.Write([]byte{0}); err != nil {
		return err
	}
	material, err := state.ExportKeyingMaterial("EXPORTER_EAP_TLS_Key_Material", []byte{TypeTLS}, 2*mskSize)
	if err != nil {
		return err
	}
	c.msk = material[:mskSize]
	return nil
}

const (
	// A ServerHello behind the heads of its record and of the message, and the version.
	randomAt   = 5 + 4 + 2
	randomSize = 32
)

// keys12 derives the key of the method with TLS 1.2 (RFC 5216 section 2.3). crypto/tls exports keys of TLS 1.2 only to peers with extended master
// secrets (RFC 7627), which strongSwan does not have; so the master secret comes from where crypto/tls writes it for debuggers.
func (c *tlsConversation) keys12(suite uint16) error {
	var label, client, master string
	if n, err := fmt.Sscan(c.secrets.String(), &label, &client, &master); n != 3 || err != nil || label != "CLIENT_RANDOM" || c.pipe.hello == nil {
		return errors.New("no master secret")
	}
	random, err := hex.DecodeString(client)
	if err != nil {
		return err
	}
	secret, err := hex.DecodeString(master)
	if err != nil {
		return err
	}
	hash := sha256.New
	switch suite {
	case tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_256_GCM_SHA384:
		hash = sha512.New384
	}
	// P_hash of RFC 5246 section 5.
	seed := slices.Concat([]byte("client EAP encryption"), random, c.pipe.hello)
	sum := func(parts ...[]byte) []byte {
		h := hmac.New(hash, secret)
		for _, p := range parts {
			h.Write(p)
		}
		return h.Sum(nil)
	}
	var material []byte
	for a := sum(seed); len(material) < mskSize; a = sum(a) {
		material = append(material, sum(a, seed)...)
	}
	c.msk = material[:mskSize]
	return nil
}

// handshake goes on with records of the peer.
func (c *tlsConversation) handshake(records []byte) Step {
	out := c.pipe.exchange(records, func() bool { return c.ended })
	c.pipe.mu.Lock()
	c.last = c.ended
	c.pipe.mu.Unlock()
	if len(out) == 0 {
		if c.last {
			return c.finish()
		}
		return refuse(c.identifier, c.identity, fmt.Errorf("%w: TLS messages that are not complete", ErrPacket))
	}
	c.out, c.flight = out, len(out)
	return c.send()
}

// finish ends the conversation: the peer has our last flight.
func (c *tlsConversation) finish() Step {
	if c.failure != nil {
		return refuse(c.identifier, c.identity, fmt.Errorf("user %q: %w", c.identity, c.failure))
	}
	return Step{Packet: Packet{Code: Success, Identifier: c.identifier}.Append(nil), Success: true, MSK: c.msk, Username: c.username}
}
