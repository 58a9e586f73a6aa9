// SPDX-License-Identifier: Apache-2.0

// Local users: PAP (RFC 1334), CHAP with MD5 (RFC 1994), MS-CHAPv2 (RFC 2759).
package subscriber

import (
	"crypto/des"
	"crypto/md5"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"time"
	"unicode/utf16"

	//lint:ignore SA1019 RFC 2759 is made of it.
	"golang.org/x/crypto/md4"

	"sluice.dev/sluice/agent/api"
)

var (
	errPassword = errors.New("wrong password")
	errDisabled = errors.New("the user is disabled")
)

// failure2759 is the message of MS-CHAPv2 for a user that may not try again (RFC 2759 section 6).
const failure2759 = "E=691 R=0 V=3"

// verify reports whether the credentials prove that the subscriber knows the password. message is for the subscriber.
func verify(c *Credentials, password string) (message string, ok bool) {
	switch {
	case c.CHAP != nil:
		digest := md5.New()
		digest.Write([]byte{c.CHAP.Identifier})
		digest.Write([]byte(password))
		digest.Write(c.CHAP.Challenge)
		return "", subtle.ConstantTimeCompare(digest.Sum(nil), c.CHAP.Response[:]) == 1
	case c.MSCHAPv2 != nil:
		hash := ntPasswordHash(password)
		challenge := challengeHash(c.MSCHAPv2, c.Username)
		expected := challengeResponse(challenge, hash)
		if subtle.ConstantTimeCompare(expected[:], c.MSCHAPv2.Response[:]) != 1 {
			return failure2759, false
		}
		return authenticatorResponse(hash, expected, challenge), true
	case c.Password != nil:
		// Compare digests, so that the time does not depend on the length.
		said, right := sha1.Sum(c.Password), sha1.Sum([]byte(password))
		return "", subtle.ConstantTimeCompare(said[:], right[:]) == 1
	}
	// The line alone speaks for the subscriber.
	return "", true
}

// ntPasswordHash is of RFC 2759 section 8.3.
func ntPasswordHash(password string) (hash [16]byte) {
	digest := md4.New()
	for _, unit := range utf16.Encode([]rune(password)) {
		digest.Write([]byte{byte(unit), byte(unit >> 8)})
	}
	return [16]byte(digest.Sum(nil))
}

// challengeHash is of RFC 2759 section 8.2: of the name without its domain.
func challengeHash(c *MSCHAPv2, username string) [8]byte {
	if i := strings.LastIndexByte(username, '\\'); i >= 0 {
		username = username[i+1:]
	}
	digest := sha1.New()
	digest.Write(c.PeerChallenge[:])
	digest.Write(c.AuthenticatorChallenge[:])
	digest.Write([]byte(username))
	return [8]byte(digest.Sum(nil))
}

// challengeResponse is of RFC 2759 section 8.5.
func challengeResponse(challenge [8]byte, hash [16]byte) (response [24]byte) {
	var keys [21]byte
	copy(keys[:], hash[:])
	for i := range 3 {
		block, err := des.NewCipher(desKey(keys[7*i:]))
		if err != nil {
			continue // the key has 8 bytes
		}
		block.Encrypt(response[8*i:], challenge[:])
	}
	return response
}

// desKey spreads 7 bytes over 8, with room for parity.
func desKey(b []byte) []byte {
	return []byte{b[0], b[0]<<7 | b[1]>>1, b[1]<<6 | b[2]>>2, b[2]<<5 | b[3]>>3, b[3]<<4 | b[4]>>4, b[4]<<3 | b[5]>>5, b[5]<<2 | b[6]>>6, b[6] << 1}
}

// authenticatorResponse is of RFC 2759 section 8.7.
func authenticatorResponse(hash [16]byte, response [24]byte, challenge [8]byte) string {
	const (
		magic1 = "Magic server to client signing constant"
		magic2 = "Pad to make it do more than one iteration"
	)
	again := md4.New()
	again.Write(hash[:])
	digest := sha1.New()
	digest.Write(again.Sum(nil))
	digest.Write(response[:])
	digest.Write([]byte(magic1))
	first := digest.Sum(nil)
	digest = sha1.New()
	digest.Write(first)
	digest.Write(challenge[:])
	digest.Write([]byte(magic2))
	return "S=" + strings.ToUpper(hex.EncodeToString(digest.Sum(nil)))
}

// authenticateLocal authenticates a request with the local users. users are by name.
func authenticateLocal(users map[string]*api.LocalUser, r *Request) Answer {
	u := users[r.Username]
	if u == nil {
		return Answer{Reject: ErrUnknownUser}
	}
	proves := r.Password != nil || r.CHAP != nil || r.MSCHAPv2 != nil
	message, ok := "", true
	if proves || u.Password != "" {
		message, ok = verify(&r.Credentials, u.Password)
		// An empty password proves nothing.
		ok = ok && proves && u.Password != ""
	}
	switch {
	case u.Disabled:
		return Answer{Reject: errDisabled, Message: failureOf(r)}
	case !ok:
		return Answer{Reject: errPassword, Message: failureOf(r)}
	}
	return Answer{Message: message, Grant: grantOf(u)}
}

func failureOf(r *Request) string { return r.Failure("") }

// Failure is the message of a rejection with a text for the subscriber, in the form of his credentials; "": no text.
func (r *Request) Failure(text string) string {
	switch {
	case r.MSCHAPv2 == nil:
		return text
	case text == "":
		return failure2759
	}
	return failure2759 + " M=" + text
}

// GrantOf returns the grant of a local user, for services that authenticate users themselves.
func GrantOf(u *api.LocalUser) Grant { return grantOf(u) }

// grantOf is the grant of a local user.
func grantOf(u *api.LocalUser) Grant {
	p := u.Policy
	g := Grant{Profile: u.Profile, VRF: u.Vrf, SessionTimeout: time.Duration(u.SessionTimeout), IdleTimeout: time.Duration(u.IdleTimeout),
		RateUp: Rate{BitsPerSecond: u.RateUp}, RateDown: Rate{BitsPerSecond: u.RateDown}}
	setPolicy(&g, p)
	g.IPv4, _ = netip.ParseAddr(u.Ipv4Address)
	g.IPv6, _ = netip.ParseAddr(u.Ipv6Address)
	g.IPv6Prefix, _ = netip.ParsePrefix(u.Ipv6Prefix)
	g.Delegated, _ = netip.ParsePrefix(u.DelegatedPrefix)
	for _, written := range u.Routes {
		if n, err := netip.ParsePrefix(written); err == nil {
			g.Routes = append(g.Routes, n)
		}
	}
	g.DNS = addresses(u.Dns)
	return g
}

func addresses(written []string) []netip.Addr {
	var all []netip.Addr
	for _, w := range written {
		if a, err := netip.ParseAddr(w); err == nil {
			all = append(all, a)
		}
	}
	return all
}

func setPolicy(g *Grant, p *api.Policy) {
	g.ACLUp, g.ACLDown, g.MeterUp, g.MeterDown = p.GetAclUp(), p.GetAclDown(), p.GetMeterUp(), p.GetMeterDown()
	g.QosProfile, g.QosGroup, g.QosProfileUp, g.QosGroupUp = p.GetQosProfile(), p.GetQosGroup(), p.GetQosProfileUp(), p.GetQosGroupUp()
	g.FlowProfile, g.MSS, g.MTU = p.GetFlowProfile(), p.GetMss(), p.GetMtu()
	g.Redirect = p.GetPortal()
}
