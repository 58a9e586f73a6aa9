// SPDX-License-Identifier: Apache-2.0

// RFC 2865 section 3: packets, their attributes and authenticators. RFC 3579 section 3.2: Message-Authenticator.
package radius

import (
	"crypto/md5"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Code is the type of a packet.
type Code uint8

// Codes of RFC 2865, 2866, 5176 and 5997.
const (
	AccessRequest      Code = 1
	AccessAccept       Code = 2
	AccessReject       Code = 3
	AccountingRequest  Code = 4
	AccountingResponse Code = 5
	AccessChallenge    Code = 11
	StatusServer       Code = 12
	DisconnectRequest  Code = 40
	DisconnectACK      Code = 41
	DisconnectNAK      Code = 42
	CoARequest         Code = 43
	CoAACK             Code = 44
	CoANAK             Code = 45
)

var codeNames = map[Code]string{
	AccessRequest: "Access-Request", AccessAccept: "Access-Accept", AccessReject: "Access-Reject", AccountingRequest: "Accounting-Request",
	AccountingResponse: "Accounting-Response", AccessChallenge: "Access-Challenge", StatusServer: "Status-Server",
	DisconnectRequest: "Disconnect-Request", DisconnectACK: "Disconnect-ACK", DisconnectNAK: "Disconnect-NAK", CoARequest: "CoA-Request",
	CoAACK: "CoA-ACK", CoANAK: "CoA-NAK",
}

func (c Code) String() string {
	if name := codeNames[c]; name != "" {
		return name
	}
	return fmt.Sprintf("code %d", uint8(c))
}

const (
	headLength = 20
	maxLength  = 4096
	// Of an attribute's value; of a vendor's attribute 247.
	maxValue       = 253
	maxVendorValue = 247
)

// Why a packet is dropped: the reason of a metric.
var (
	errMalformed            = errors.New("malformed")
	errAuthenticator        = errors.New("authenticator")
	errMessageAuthenticator = errors.New("message-authenticator")
	errNoMessageAuth        = errors.New("message-authenticator-missing")
)

type authenticator [16]byte

// packet is a received packet whose header and attribute lengths were checked. It keeps the bytes.
type packet []byte

// parse checks a packet. Octets behind the length that the header claims are padding.
func parse(b []byte) (packet, error) {
	if len(b) < headLength {
		return nil, errMalformed
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	if length < headLength || length > maxLength || length > len(b) {
		return nil, errMalformed
	}
	p := packet(b[:length:length])
	for at := headLength; at < length; at += int(p[at+1]) {
		if length-at < 2 || p[at+1] < 2 || int(p[at+1]) > length-at {
			return nil, errMalformed
		}
	}
	return p, nil
}

func (p packet) code() Code                   { return Code(p[0]) }
func (p packet) identifier() uint8            { return p[1] }
func (p packet) authenticator() authenticator { return authenticator(p[4:headLength]) }

// attribute is one of a packet. A vendor's has the vendor's number and its own type.
type attribute struct {
	vendor uint32
	kind   uint8
	value  []byte
}

// attributes returns the attributes in order, each vendor's by itself. A Vendor-Specific attribute that does not hold attributes of one
// octet each for type and length stays whole, as RFC 2865 section 5.26 allows it to be anything.
func (p packet) attributes() []attribute { return p.appendAttributes(nil) }

func (p packet) appendAttributes(all []attribute) []attribute {
	for at := headLength; at < len(p); at += int(p[at+1]) {
		a := attribute{kind: p[at], value: p[at+2 : at+int(p[at+1])]}
		if a.kind != typeVendorSpecific {
			all = append(all, a)
			continue
		}
		inner, ok := appendVendor(all, a.value)
		if !ok {
			inner = append(all, a)
		}
		all = inner
	}
	return all
}

// appendVendor appends the attributes of a vendor, or reports that the value holds anything else.
func appendVendor(all []attribute, value []byte) ([]attribute, bool) {
	if len(value) < 4+2 {
		return nil, false
	}
	vendor := binary.BigEndian.Uint32(value)
	for rest := value[4:]; len(rest) > 0; {
		if len(rest) < 2 || rest[1] < 2 || int(rest[1]) > len(rest) || vendor == 0 {
			return nil, false
		}
		all = append(all, attribute{vendor, rest[0], rest[2:rest[1]]})
		rest = rest[rest[1]:]
	}
	return all, true
}

// messageAuthenticator returns where the value of the Message-Authenticator stands; 0: there is none. Several, or one of another length
// than 16, are an error.
func (p packet) messageAuthenticator() (int, error) {
	found := 0
	for at := headLength; at < len(p); at += int(p[at+1]) {
		if p[at] != typeMessageAuthenticator {
			continue
		}
		if found != 0 || p[at+1] != 2+md5.Size {
			return 0, errMessageAuthenticator
		}
		found = at + 2
	}
	return found, nil
}

// signature is the HMAC-MD5 (RFC 2104) of a packet with the Message-Authenticator at `at` zero, and another authenticator in the header.
func (p packet) signature(at int, head authenticator, secret []byte) (sum [md5.Size]byte) {
	var inner, outer [md5.BlockSize]byte
	if len(secret) > md5.BlockSize {
		hashed := md5.Sum(secret)
		secret = hashed[:]
	}
	copy(inner[:], secret)
	for i, b := range inner {
		inner[i], outer[i] = b^0x36, b^0x5c
	}
	// Most packets fit: there is nothing to allocate.
	var room [512]byte
	b := append(append(append(append(room[:0], inner[:]...), p[:4]...), head[:]...), p[headLength:at]...)
	b = append(append(b, sum[:]...), p[at+md5.Size:]...)
	sum = md5.Sum(b)
	return md5.Sum(append(append(room[:0], outer[:]...), sum[:]...))
}

// signed reports whether the Message-Authenticator at `at` is right.
func (p packet) signed(at int, head authenticator, secret []byte) bool {
	sum := p.signature(at, head, secret)
	return subtle.ConstantTimeCompare(sum[:], p[at:at+md5.Size]) == 1
}

// sign sets the Message-Authenticator that newPacket has room for.
func (p packet) sign(head authenticator, secret []byte) {
	sum := p.signature(signedFirst, head, secret)
	copy(p[signedFirst:], sum[:])
}

// digest is MD5 over a packet with another authenticator in the header, and the secret (RFC 2865 section 3, RFC 2866 section 3).
func (p packet) digest(head authenticator, secret []byte) authenticator {
	// Most packets fit: there is nothing to allocate.
	var room [512]byte
	b := append(append(room[:0], p[:4]...), head[:]...)
	return md5.Sum(append(append(b, p[headLength:]...), secret...))
}

// verifyReply checks that a packet answers the request with this authenticator and that its sender knows the secret.
func (p packet) verifyReply(request authenticator, secret []byte, needsMessageAuthenticator bool) error {
	at, err := p.messageAuthenticator()
	switch {
	case err != nil:
		return err
	case !equal(p.digest(request, secret), p.authenticator()):
		return errAuthenticator
	case at == 0 && needsMessageAuthenticator:
		return errNoMessageAuth
	case at != 0 && !p.signed(at, request, secret):
		return errMessageAuthenticator
	}
	return nil
}

// verifyRequest checks a request whose authenticator is a digest: CoA, Disconnect, accounting.
func (p packet) verifyRequest(secret []byte, needsMessageAuthenticator bool) error {
	at, err := p.messageAuthenticator()
	switch {
	case err != nil:
		return err
	case !equal(p.digest(authenticator{}, secret), p.authenticator()):
		return errAuthenticator
	case at == 0 && needsMessageAuthenticator:
		return errNoMessageAuth
	case at != 0 && !p.signed(at, authenticator{}, secret):
		return errMessageAuthenticator
	}
	return nil
}

func equal(a, b authenticator) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// attributes are those of a packet under construction. Excess attributes are left out: a packet has at most 4096
// octets.
type attributes []byte

const attributesRoom = maxLength - headLength - (2 + md5.Size) - 2*maxValue

func (a *attributes) add(kind uint8, value []byte) {
	if len(value) == 0 || len(value) > maxValue || len(*a)+2+len(value) > attributesRoom {
		return
	}
	*a = append(*a, kind, uint8(2+len(value)))
	*a = append(*a, value...)
}

func (a *attributes) text(kind uint8, text string) {
	a.add(kind, []byte(text[:min(len(text), maxValue)]))
}

func (a *attributes) number(kind uint8, n uint32) {
	a.add(kind, binary.BigEndian.AppendUint32(nil, n))
}

func (a *attributes) vendor(vendor uint32, kind uint8, value []byte) {
	if len(value) > maxVendorValue {
		return
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 6+len(value)), vendor)
	b = append(b, kind, uint8(2+len(value)))
	a.add(typeVendorSpecific, append(b, value...))
}

func (a *attributes) address(kind4, kind6 uint8, address netip.Addr) {
	switch {
	case address.Is4() && kind4 != 0:
		a.add(kind4, address.AsSlice())
	case address.Is6() && kind6 != 0:
		a.add(kind6, address.AsSlice())
	}
}

// prefix adds an IPv6 prefix (RFC 3162 section 2.3, RFC 4818).
func (a *attributes) prefix(kind uint8, prefix netip.Prefix) {
	if !prefix.IsValid() || !prefix.Addr().Is6() {
		return
	}
	full := prefix.Masked().Addr().As16()
	a.add(kind, append([]byte{0, byte(prefix.Bits())}, full[:(prefix.Bits()+7)/8]...))
}

// usualLength is room for most requests.
const usualLength = 384

// newPacket is the head of a packet, with room for what follows.
func newPacket(code Code, identifier uint8, head authenticator) packet {
	p := make(packet, headLength, usualLength)
	p[0], p[1] = byte(code), identifier
	copy(p[4:], head[:])
	return p
}

func (p packet) withLength() packet {
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	return p
}

func (p packet) withMessageAuthenticator() packet {
	p = append(p, typeMessageAuthenticator, 2+md5.Size)
	return append(p, make([]byte, md5.Size)...)
}

// signedFirst is where the Message-Authenticator stands in what we send: before all other attributes, so that the
// octets that an MD5 collision would have to choose are behind it.
const signedFirst = headLength + 2

// accessRequest builds an Access-Request or a Status-Server.
func accessRequest(code Code, identifier uint8, random authenticator, secret, password []byte, all attributes) []byte {
	p := newPacket(code, identifier, random).withMessageAuthenticator()
	if password != nil {
		hidden := hidePassword(password, random, secret)
		p = append(p, typeUserPassword, uint8(2+len(hidden)))
		p = append(p, hidden...)
	}
	p = append(p, all...).withLength()
	p.sign(random, secret)
	return p
}

// accountingRequest builds an Accounting-Request. `delay` is Acct-Delay-Time in seconds.
func accountingRequest(identifier uint8, secret []byte, delay uint32, all attributes) []byte {
	p := append(newPacket(AccountingRequest, identifier, authenticator{}), typeAcctDelayTime, 6)
	p = binary.BigEndian.AppendUint32(p, delay)
	p = append(p, all...).withLength()
	sum := p.digest(authenticator{}, secret)
	copy(p[4:], sum[:])
	return p
}

// reply builds the answer to a CoA-Request or Disconnect-Request.
func reply(code Code, request packet, secret []byte, all attributes) []byte {
	p := newPacket(code, request.identifier(), request.authenticator()).withMessageAuthenticator()
	p = append(p, all...).withLength()
	p.sign(request.authenticator(), secret)
	sum := p.digest(request.authenticator(), secret)
	copy(p[4:], sum[:])
	return p
}

// Longer passwords do not fit (RFC 2865 section 5.2).
const maxPassword = 128

// hidePassword is RFC 2865 section 5.2.
func hidePassword(password []byte, random authenticator, secret []byte) []byte {
	password = password[:min(len(password), maxPassword)]
	hidden := make([]byte, max((len(password)+15)/16*16, 16))
	copy(hidden, password)
	before := random[:]
	for at := 0; at < len(hidden); at += 16 {
		h := md5.New()
		h.Write(secret)
		h.Write(before)
		subtle.XORBytes(hidden[at:at+16], hidden[at:at+16], h.Sum(nil))
		before = hidden[at : at+16]
	}
	return hidden
}
