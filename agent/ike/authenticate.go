// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
	"sluice.dev/sluice/agent/subscriber"
)

// IKE_AUTH (RFC 7296 section 1.2).

// authPayloads are the payloads of IKE_AUTH and CREATE_CHILD_SA.
type authPayloads struct {
	idi, idr     *message.ID
	chain        [][]byte
	requested    bool
	auth         *message.Auth
	eap          *message.EAP
	sa           *message.SA
	ke           *message.KE
	nonce        *message.Nonce
	tsi, tsr     *message.TS
	cp           *message.Configuration
	deletes      []*message.Delete
	notify       map[message.NotifyType]*message.Notify
	err          *message.Notify
	notification []*message.Notify
}

// Bounds of EAP: packets of the peer, and the time from the first packet to the last. Methods in fragments of 1,000 bytes need some twenty packets.
const (
	maxEAPRounds = 64
	maxEAPTime   = 2 * time.Minute
)

// Certificates of one message.
const maxCertificates = 8

func readAuth(all []message.Payload) (p authPayloads) {
	p.notify = map[message.NotifyType]*message.Notify{}
	for _, one := range all {
		switch one := one.(type) {
		case *message.ID:
			if one.Responder {
				p.idr = one
			} else {
				p.idi = one
			}
		case *message.Certificate:
			if one.Encoding == message.EncodingX509 && len(p.chain) < maxCertificates {
				p.chain = append(p.chain, one.Data)
			}
		case *message.Request:
			p.requested = true
		case *message.Auth:
			p.auth = one
		case *message.EAP:
			p.eap = one
		case *message.SA:
			p.sa = one
		case *message.KE:
			p.ke = one
		case *message.Nonce:
			p.nonce = one
		case *message.TS:
			if one.Responder {
				p.tsr = one
			} else {
				p.tsi = one
			}
		case *message.Configuration:
			p.cp = one
		case *message.Delete:
			p.deletes = append(p.deletes, one)
		case *message.Notify:
			if p.notify[one.Kind] == nil {
				p.notify[one.Kind] = one
			}
			if one.Kind.Error() && p.err == nil {
				p.err = one
			}
			p.notification = append(p.notification, one)
		}
	}
	return p
}

// authentication is an IKE_AUTH that is going on.
type authentication struct {
	// The first request, and the ID payload that is signed.
	first    authPayloads
	idi, idr *message.ID
	// EAP has succeeded, with this key.
	success bool
	msk     []byte
	// EAP packets of the peer, and when EAP must be over.
	rounds int
	until  time.Time
	// Of the user's back end.
	addresses []netip.Addr
	pools     []string
	grant     *subscriber.Grant
	// As initiator: the responder is authenticated, and our own AUTH is on its way.
	trusted, proved bool
	child           *ChildSA
	// Why EAP fails, when the peer has not heard the end of it.
	failure error
}

// localIdentity is how we call ourselves.
func (s *ikeSA) localIdentity() Identity {
	switch {
	case !s.conn.LocalID.Any():
		return s.conn.LocalID
	case s.conn.LocalMethod == Certificate && s.conn.Credential != nil:
		return s.conn.Credential.Subject
	}
	kind := message.IDIPv4
	if s.local.Addr().Is6() {
		kind = message.IDIPv6
	}
	return Identity{kind, string(s.local.Addr().AsSlice())}
}

// certificates are the payloads with our certificate.
func (s *ikeSA) certificates() (all []message.Payload) {
	if s.conn.LocalMethod != Certificate || s.conn.Credential == nil || s.resumed != nil {
		return nil
	}
	for _, der := range s.conn.Credential.Chain {
		all = append(all, &message.Certificate{Encoding: message.EncodingX509, Data: der})
	}
	return all
}

// ourAuth is our AUTH payload.
func (s *ikeSA) ourAuth(id *message.ID, msk []byte) (*message.Auth, error) {
	octets := s.octets(s.initiator, id)
	switch {
	case s.resumed != nil:
		return s.resumedAuth(s.initiator, id), nil
	case msk != nil:
		return &message.Auth{Method: message.AuthSharedKey, Data: sharedKeyAuth(s.prf, msk, octets)}, nil
	case s.conn.LocalMethod == SharedKey:
		if len(s.conn.Secret) == 0 {
			return nil, errors.New("the connection has no shared key")
		}
		return &message.Auth{Method: message.AuthSharedKey, Data: sharedKeyAuth(s.prf, s.conn.Secret, octets)}, nil
	case s.conn.LocalMethod == Certificate && s.conn.Credential != nil:
		return s.conn.Credential.sign(octets, s.peerHashes, s.conn.AllowSHA1)
	}
	return nil, errors.New("the connection has no credential for us")
}

// mixPPK takes a post-quantum preshared key into the keys (RFC 8784 section 3).
func (s *ikeSA) mixPPK() {
	s.keys.D = s.prf.Expand(s.conn.PPK, len(s.keys.D), s.keys.D)
	s.keys.Pi = s.prf.Expand(s.conn.PPK, len(s.keys.Pi), s.keys.Pi)
	s.keys.Pr = s.prf.Expand(s.conn.PPK, len(s.keys.Pr), s.keys.Pr)
}

func (s *ikeSA) ppkIdentity() *message.Notify {
	return &message.Notify{Kind: message.PPKIdentity, Data: append([]byte{2}, s.conn.PPKID...)}
}

// sendAuth sends IKE_AUTH.
func (s *ikeSA) sendAuth(now time.Time) {
	s.authID = s.nextID
	a := &authentication{idi: s.localIdentity().payload(false)}
	s.auth = a
	if s.usePPK {
		s.mixPPK()
	}
	payloads := append([]message.Payload{a.idi}, s.certificates()...)
	if s.conn.RemoteMethod == Certificate && len(s.conn.Authorities) > 0 && s.resumed == nil {
		payloads = append(payloads, &message.Request{Encoding: message.EncodingX509, Authorities: s.conn.Authorities})
	}
	if id := s.conn.RemoteID; !id.Any() && id.Data[0] != '*' {
		payloads = append(payloads, id.payload(true))
	}
	if s.conn.LocalMethod != EAP || s.resumed != nil {
		auth, err := s.ourAuth(a.idi, nil)
		if err != nil {
			s.fail(now, err.Error())
			return
		}
		payloads = append(payloads, auth)
	}
	if s.conn.AskAddress {
		payloads = append(payloads, &message.Configuration{Kind: message.ConfigurationRequest, Attributes: []message.Attribute{{Type: message.InternalIP4Address}}})
	}
	if s.firstContact() {
		payloads = append(payloads, &message.Notify{Kind: message.InitialContact})
	}
	if !s.conn.NoMOBIKE {
		payloads = append(payloads, &message.Notify{Kind: message.MOBIKESupported})
		payloads = append(payloads, s.additionalAddresses()...)
	}
	if s.usePPK {
		payloads = append(payloads, s.ppkIdentity())
	}
	if s.conn.resumable() {
		payloads = append(payloads, &message.Notify{Kind: message.TicketRequest})
	}
	// RFC 6023 is not what peers know: the first child comes with IKE_AUTH.
	names := s.nextChildren
	if len(names) == 0 && len(s.conn.Children) > 0 {
		names = []string{s.conn.Children[0].Name}
	}
	if len(names) > 0 {
		a.child = s.newChild(s.conn.child(names[0]), true)
		s.nextChildren = names[1:]
		payloads = append(payloads, s.offer(a.child, false)...)
	}
	s.request(message.IKEAuth, now, s.receiveAuth, payloads...)
}

// firstContact reports whether there is no other IKE SA with the peer (RFC 7296 section 2.4). One of another connection may be between the same
// identities, and the peer would delete it.
func (s *ikeSA) firstContact() bool {
	if len(s.m.of(s.conn.Name)) > 1 {
		return false
	}
	for _, c := range s.m.taking(s.dataplane, s.vrf, s.local.Addr(), s.remote.Addr()) {
		for _, other := range s.m.of(c.Name) {
			if other != s && other.remote.Addr() == s.remote.Addr() {
				return false
			}
		}
	}
	return true
}

// receiveAuth takes the responder's IKE_AUTH.
func (s *ikeSA) receiveAuth(all []message.Payload, now time.Time) {
	p, a := readAuth(all), s.auth
	if s.conn.LocalMethod == EAP && s.resumed == nil && !(a.proved && p.auth != nil) && p.err == nil {
		s.receiveEAP(a, p, now)
		return
	}
	if a.proved && p.auth != nil {
		p.idr = a.idr
	}
	if p.idr == nil || p.auth == nil {
		switch {
		case p.err != nil:
			s.refusedByPeer(p.err.Kind, now)
		case p.eap != nil:
			s.fail(now, "the peer asks for EAP, and the connection has no user")
		default:
			s.fail(now, "the peer's IKE_AUTH has no identity or no authentication")
		}
		return
	}
	a.first, a.idr = p, p.idr
	s.peer = identityOf(p.idr)
	if !s.conn.RemoteID.Matches(s.peer) {
		s.refused(now, fmt.Sprintf("the peer is %s, not %s", s.peer, s.conn.RemoteID))
		return
	}
	check := s.verify
	if a.proved {
		check = s.verifyEAP
	}
	check(p, s.octets(false, p.idr), func(err error, now time.Time) {
		if err != nil {
			s.refused(now, err.Error())
			return
		}
		s.takeAddresses(p)
		s.takeTicket(p, now)
		s.establish(p, now)
		if s.ending != "" {
			s.terminate(now, s.ending)
			return
		}
		if c := a.child; c != nil {
			s.childAnswer(c, p, nil, false, now)
		}
		for _, name := range s.nextChildren {
			s.ensureChild(name, now)
		}
		s.nextChildren, s.auth = nil, nil
		if old := s.reauthOf; old != nil {
			s.reauthOf = nil
			// Behind the requests for the other children.
			s.enqueue(now, func(s *ikeSA, now time.Time) bool {
				old.replacedBy(s, now)
				return false
			})
		}
		s.proceed(now)
	})
}

// refused ends an IKE SA whose responder we do not trust: it has it, so it gets a Delete.
func (s *ikeSA) refused(now time.Time, why string) {
	s.m.count("failure", "authentication")
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "failed", Detail: why})
	s.state = rekeyed
	s.children = nil
	conn := s.conn
	s.queue = nil
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		s.request(message.Informational, now, func([]message.Payload, time.Time) { s.close(now, why) },
			&message.Notify{Kind: message.AuthenticationFailed, Data: []byte{}})
		return true
	})
	s.state = deleting
	s.m.retry(conn, s.m.mustBeUp(conn), now)
}

// verify checks the peer's AUTH payload. then is called at once, or when a certificate has been verified.
func (s *ikeSA) verify(p authPayloads, octets []byte, then func(err error, now time.Time)) {
	now := s.heard
	if s.resumed != nil {
		s.authMethod = "ticket"
		if s.peer != s.resumed.Peer || !equalAuth(p.auth.Data, s.resumedAuth(false, p.idr).Data) {
			then(fmt.Errorf("%w: %s does not have the keys of the IKE SA that is resumed", errAuthentication, s.peer), now)
			return
		}
		then(nil, now)
		return
	}
	switch s.conn.RemoteMethod {
	case SharedKey:
		s.authMethod = "psk"
		if p.auth.Method != message.AuthSharedKey || len(s.conn.Secret) == 0 || !equalAuth(p.auth.Data, sharedKeyAuth(s.prf, s.conn.Secret, octets)) {
			then(fmt.Errorf("%w: %s does not know the shared key", errAuthentication, s.peer), now)
			return
		}
		then(nil, now)
	case Certificate:
		s.authMethod = "certificate"
		if p.auth.Method == message.AuthSharedKey || p.auth.Method == message.AuthNull {
			then(fmt.Errorf("%w: %s uses no certificate", errAuthentication, s.peer), now)
			return
		}
		s.suspended = true
		proven, weak := false, s.conn.AllowSHA1
		question := VerifyChain{Connection: s.conn.Name, Trust: s.conn.Trust, Chain: p.chain, Identity: s.peer, Proof: func(key crypto.PublicKey) error {
			err := verifySignature(key, p.auth, octets, weak)
			proven = err == nil
			return err
		}}
		if !s.initiator {
			question.Remote = s.remote.Addr()
		}
		s.ask(question, func(answer any, now time.Time) {
			s.suspended = false
			v, _ := answer.(Verified)
			if errors.Is(v.Err, errAuthentication) || errors.Is(v.Err, errBusy) {
				then(v.Err, now)
				return
			}
			if v.Err != nil || v.Key == nil {
				then(fmt.Errorf("the certificate of %s is not trusted: %w", s.peer, errors.Join(v.Err)), now)
				return
			}
			if proven {
				then(nil, now)
				return
			}
			then(verifySignature(v.Key, p.auth, octets, weak), now)
		})
	default:
		then(fmt.Errorf("%w: %s sends AUTH before EAP", errAuthentication, s.peer), now)
	}
}

// establish makes an IKE SA count.
func (s *ikeSA) establish(p authPayloads, now time.Time) {
	s.leaveOpening(s.state)
	s.state, s.up, s.heard, s.expires = established, now, now, time.Time{}
	s.exchange, s.init1, s.init2, s.intAuthI, s.intAuthR, s.resumed, s.peerHashes = nil, nil, nil, nil, nil, nil, nil
	s.mobike = p.notify[message.MOBIKESupported] != nil && !s.conn.NoMOBIKE
	s.learnAdditional(p.notification)
	s.setTimes(now)
	if s.conversation != 0 {
		s.m.act(EAPEnd{s.conversation})
		s.conversation = 0
	}
	delete(s.m.again, s.conn.Name)
	defer s.m.identify(s)
	s.beginAnew(p, now)
	s.findTwin(now)
	s.keepSA()
	if s.conn.Owned {
		s.m.peers[s.id] = s
		s.m.act(PeerUp{s.described()})
	}
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "up", Detail: fmt.Sprintf("%s by %s, %s", s.peer, s.authMethod, suite.Text(s.chosen))})
}

// beginAnew closes the other IKE SAs of a peer that sends INITIAL_CONTACT (RFC 7296 section 2.4): those of the same identity, and of EAP those of the
// same user. One that came up while the peer opened this one is not of an earlier life of the peer.
func (s *ikeSA) beginAnew(p authPayloads, now time.Time) {
	if p.notify[message.InitialContact] == nil {
		return
	}
	for _, other := range s.m.identities[s.identityKey()] {
		if other != s && other.living() && !s.crosses(other) {
			other.cause = subscriber.UserRequest
			other.close(now, "the peer began anew")
		}
	}
}

// setTimes sets when the IKE SA is rekeyed and authenticated again, a little sooner for each, so that many do not meet.
func (s *ikeSA) setTimes(now time.Time) {
	spread := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return now.Add(d - d/10*time.Duration(s.ourSPI%64)/64)
	}
	s.rekeyAt = spread(s.conn.RekeyTime)
	if s.initiator && s.reauthAt.IsZero() {
		s.reauthAt = spread(s.conn.ReauthTime)
	}
}

// candidates are the connections that a responder can use for an initiator's identities.
func (s *ikeSA) candidates(d Datagram, p authPayloads) *Connection {
	for _, c := range s.m.taking(s.dataplane, s.vrf, d.Local.Addr(), d.Remote.Addr()) {
		if !c.serves(identityOf(p.idi)) {
			continue
		}
		if p.auth == nil != (c.RemoteMethod == EAP) {
			continue
		}
		if p.auth != nil && (p.auth.Method == message.AuthSharedKey) != (c.RemoteMethod == SharedKey) {
			continue
		}
		local := c.LocalID
		if local.Any() && c.Credential != nil {
			local = c.Credential.Subject
		}
		if p.idr != nil && !local.Any() && !local.Matches(identityOf(p.idr)) && c.LocalMethod != Certificate {
			continue
		}
		if _, ok := suite.Choose(c.Proposals, []message.Proposal{{Protocol: message.ProtocolIKE, Transforms: s.chosen}}, 0); ok {
			return c
		}
	}
	return nil
}

// answerAuth answers IKE_AUTH.
func (s *ikeSA) answerAuth(d Datagram, h message.Header, all []message.Payload, now time.Time) {
	p := readAuth(all)
	if s.resumed != nil {
		if s.auth == nil {
			s.answerResumed(p, now)
		}
		return
	}
	if s.intermediates < len(additionalGroups(s.chosen)) {
		s.close(now, "the peer leaves out an additional key exchange")
		return
	}
	if a := s.auth; a != nil {
		s.continueEAP(a, p, now)
		return
	}
	if p.idi == nil {
		s.failAuth(now, message.InvalidSyntax, "IKE_AUTH has no identity")
		return
	}
	s.peer = identityOf(p.idi)
	c := s.candidates(d, p)
	if c == nil {
		s.unknownIdentity(d, p, now)
		return
	}
	s.m.drop(s)
	s.conn, s.authID = c, h.ID
	s.m.add(s)
	s.local, s.remote = d.Local, d.Remote
	// The first message may refer to a buffer of fragments, which is ours alone.
	a := &authentication{first: p, idi: p.idi}
	s.auth = a
	if p.idr != nil && c.LocalMethod == Certificate && c.LocalID.Any() {
		a.idr = c.Credential.Subject.payload(true)
	} else {
		a.idr = s.localIdentity().payload(true)
	}
	keys := s.keys
	if s.usePPK = p.notify[message.PPKIdentity] != nil && len(c.PPK) > 0; s.usePPK {
		if !bytes.Equal(p.notify[message.PPKIdentity].Data, s.ppkIdentity().Data) {
			s.failAuth(now, message.AuthenticationFailed, "the peer uses another PPK")
			return
		}
		s.mixPPK()
	} else if c.PPKMandatory {
		s.failAuth(now, message.AuthenticationFailed, "the peer uses no PPK")
		return
	}
	if c.RemoteMethod == EAP {
		s.beginEAP(a, p, now)
		return
	}
	s.verify(p, s.octets(true, p.idi), func(err error, now time.Time) {
		if errors.Is(err, errBusy) {
			// There is no response: the peer sends its request again.
			s.m.count("drop", "verifications")
			s.auth, s.keys = nil, keys
			return
		}
		if err != nil {
			s.failAuth(now, message.AuthenticationFailed, err.Error())
			return
		}
		s.finishAuth(a, append([]message.Payload{a.idr}, s.certificates()...), nil, now)
	})
}

// failAuth refuses IKE_AUTH.
func (s *ikeSA) failAuth(now time.Time, n message.NotifyType, why string) {
	s.m.count("failure", n.String())
	s.respond(message.IKEAuth, nil, &message.Notify{Kind: n, Data: []byte{}})
	s.close(now, why)
}

// beginEAP authenticates us, and asks the peer for its identity.
func (s *ikeSA) beginEAP(a *authentication, p authPayloads, now time.Time) {
	auth, err := s.ourAuth(a.idr, nil)
	if err != nil {
		s.failAuth(now, message.AuthenticationFailed, err.Error())
		return
	}
	s.authMethod = "eap"
	s.conversation, a.until = s.ourSPI, now.Add(maxEAPTime)
	s.stepEAP(a, nil, p.notification, append(append([]message.Payload{a.idr}, s.certificates()...), auth))
}

// stepEAP asks for the next EAP packet, and sends it behind other payloads.
func (s *ikeSA) stepEAP(a *authentication, packet []byte, notify []*message.Notify, before []message.Payload) {
	s.suspended = true
	step := EAPStep{Connection: s.conn.Name, Conversation: s.conversation, Identity: s.peer, Remote: s.remote, Packet: packet}
	if s.conn.Owned {
		step.Peer, step.Notify = s.described(), notify
	}
	s.ask(step, func(answer any, now time.Time) {
		s.suspended = false
		e, _ := answer.(EAPAnswer)
		before = append(before, payloadsOf(e.Notify)...)
		switch {
		case e.Err != nil && len(e.Packet) == 0:
			s.m.count("failure", message.AuthenticationFailed.String())
			s.respond(message.IKEAuth, nil, append(payloadsOf(e.Notify), &message.Notify{Kind: message.AuthenticationFailed, Data: []byte{}})...)
			s.close(now, e.Err.Error())
		case e.Err != nil:
			// EAP-Failure (RFC 7296 section 2.16).
			s.m.count("failure", "eap")
			s.respond(message.IKEAuth, nil, append(before, &message.EAP{Data: e.Packet})...)
			s.close(now, e.Err.Error())
		default:
			a.failure = e.Failure
			// A method may take as long as its back end; a silent peer is removed, and one that does not come to an end.
			if s.expires = now.Add(halfOpenTime); s.expires.After(a.until) {
				s.expires = a.until
			}
			if e.Success {
				a.success, a.msk, s.username, a.addresses, a.pools, a.grant = true, e.MSK, e.Username, e.Addresses, e.Pools, e.Grant
			}
			s.respond(message.IKEAuth, nil, append(before, &message.EAP{Data: e.Packet})...)
		}
	})
}

// continueEAP takes an EAP packet of the peer, or after EAP its AUTH.
func (s *ikeSA) continueEAP(a *authentication, p authPayloads, now time.Time) {
	switch {
	case !a.success && p.eap != nil:
		if a.rounds++; a.rounds > maxEAPRounds {
			s.failAuth(now, message.AuthenticationFailed, fmt.Sprintf("EAP of %s is not over after %d packets", s.peer, maxEAPRounds))
			return
		}
		s.stepEAP(a, p.eap.Data, p.notification, nil)
	case a.success && p.auth != nil:
		key, ours := a.msk, a.msk
		if key == nil {
			// RFC 7296 section 2.16: methods without a key use SK_pi and SK_pr.
			key, ours = s.keys.Pi, s.keys.Pr
		}
		if p.auth.Method != message.AuthSharedKey || !equalAuth(p.auth.Data, sharedKeyAuth(s.prf, key, s.octets(true, a.idi))) {
			s.failAuth(now, message.AuthenticationFailed, fmt.Sprintf("%s does not know the key of EAP", s.peer))
			return
		}
		s.finishAuth(a, nil, ours, now)
	default:
		s.failAuth(now, message.InvalidSyntax, "IKE_AUTH has neither EAP nor AUTH")
	}
}

// finishAuth answers the last IKE_AUTH: our AUTH, addresses and the first child.
func (s *ikeSA) finishAuth(a *authentication, payloads []message.Payload, msk []byte, now time.Time) {
	auth, err := s.ourAuth(a.idr, msk)
	if err != nil {
		s.failAuth(now, message.AuthenticationFailed, err.Error())
		return
	}
	payloads = append(payloads, auth)
	if s.usePPK {
		payloads = append(payloads, &message.Notify{Kind: message.PPKIdentity})
	}
	if s.conn.Owned {
		s.finishOwned(a, payloads, now)
		return
	}
	asks := a.first.cp != nil && a.first.cp.Kind == message.ConfigurationRequest
	if s.conn.Profile != "" && !asks {
		// RFC 7296 section 3.15.4: without an address there is no session.
		s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "failed", Detail: fmt.Sprintf("%s asks for no address, and users of SubscriberProfile/%s need one", s.peer, s.conn.Profile)})
		a.first.sa = nil
		s.completeAuth(a, append(payloads, &message.Notify{Kind: message.FailedCPRequired, Data: []byte{}}), now)
		return
	}
	if s.conn.Profile == "" && len(s.conn.Pools)+len(a.addresses)+len(a.pools) == 0 || !asks {
		s.completeAuth(a, payloads, now)
		return
	}
	// The addresses of before are free again for the user.
	s.beginAnew(a.first, now)
	s.lease = s.ourSPI
	what := LeaseAddress{Connection: s.conn.Name, Remote: s.remote.Addr(), Lease: s.lease, Username: s.username, Fixed: a.addresses, Pools: a.pools, Grant: a.grant}
	if what.Username == "" {
		what.Username = s.peer.String()
	}
	for _, one := range a.first.cp.Attributes {
		switch one.Type {
		case message.InternalIP4Address:
			what.IPv4 = true
		case message.InternalIP6Address:
			what.IPv6 = true
		}
		n := map[uint16]int{message.InternalIP4Address: 4, message.InternalIP6Address: 16}[one.Type]
		if len(one.Value) >= max(n, 1) && n > 0 {
			if address, ok := netip.AddrFromSlice(one.Value[:n]); ok && !address.IsUnspecified() {
				what.Requested = append(what.Requested, address)
			}
		}
	}
	s.suspended = true
	s.ask(what, func(answer any, now time.Time) {
		s.suspended = false
		l, _ := answer.(Leased)
		if l.Err != nil || len(l.Addresses) == 0 {
			s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "failed", Detail: fmt.Sprintf("no address for %s: %v", s.peer, l.Err)})
			s.lease = 0
			a.first.sa = nil
			s.completeAuth(a, append(payloads, &message.Notify{Kind: message.InternalAddressFailure}), now)
			return
		}
		s.addresses, s.tunnel = l.Addresses, l.Tunnel
		s.completeAuth(a, append(payloads, configurationReply(l.Addresses, l.DNS, nil)), now)
	})
}

// completeAuth establishes the IKE SA and its first child.
func (s *ikeSA) completeAuth(a *authentication, payloads []message.Payload, now time.Time) {
	if !s.conn.NoMOBIKE && a.first.notify[message.MOBIKESupported] != nil {
		payloads = append(payloads, &message.Notify{Kind: message.MOBIKESupported})
		payloads = append(payloads, s.additionalAddresses()...)
	}
	payloads = append(payloads, s.ticketFor(a, now)...)
	s.establish(a.first, now)
	var after []uint32
	if a.first.sa != nil && a.first.tsi != nil && a.first.tsr != nil {
		confs := s.conn.Children
		if s.confs != nil {
			confs = s.confs
		}
		c, more := s.acceptChild(a.first, nil, confs, now)
		switch {
		case c == nil:
			payloads = append(payloads, more...)
		case s.openAccepted(c, nil, now) != nil:
			payloads = append(payloads, &message.Notify{Kind: message.NoProposalChosen, Data: []byte{}})
		default:
			payloads, after = append(payloads, more...), append(after, c.SPIIn)
		}
	}
	s.auth = nil
	s.respond(message.IKEAuth, after, payloads...)
	s.keepSA()
}

// reauthenticate opens another IKE SA with the same children, and ends this one when it is up (make before break).
func (s *ikeSA) reauthenticate(now time.Time) bool {
	var names []string
	for _, c := range s.sortedChildren() {
		if !c.replaced && !c.deleting && !slices.Contains(names, c.Conf.Name) {
			names = append(names, c.Conf.Name)
		}
	}
	conn := s.m.connections[s.conn.Name]
	if conn == nil || !conn.Remote.IsValid() {
		return false
	}
	other := s.m.open(conn, names, now)
	other.reauthOf = s
	return true
}
