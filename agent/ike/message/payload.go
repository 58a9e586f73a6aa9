// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"net/netip"
)

// PayloadType is the type of a payload.
type PayloadType uint8

// Payload types.
const (
	TypeSA            PayloadType = 33
	TypeKE            PayloadType = 34
	TypeIDi           PayloadType = 35
	TypeIDr           PayloadType = 36
	TypeCertificate   PayloadType = 37
	TypeRequest       PayloadType = 38
	TypeAuth          PayloadType = 39
	TypeNonce         PayloadType = 40
	TypeNotify        PayloadType = 41
	TypeDelete        PayloadType = 42
	TypeVendor        PayloadType = 43
	TypeTSi           PayloadType = 44
	TypeTSr           PayloadType = 45
	TypeEncrypted     PayloadType = 46
	TypeConfiguration PayloadType = 47
	TypeEAP           PayloadType = 48
	TypeFragment      PayloadType = 53
)

// Payload is a payload of a message.
type Payload interface {
	Type() PayloadType
	append(b []byte) []byte
}

// Encrypted is an Encrypted payload, or a fragment of one if Number is not 0.
type Encrypted struct {
	// Type of the first payload inside.
	First         PayloadType
	Number, Total uint16
	// IV, ciphertext and ICV.
	Body []byte
}

// Protocol is the protocol of an SPI.
type Protocol uint8

// Protocols.
const (
	ProtocolNone Protocol = 0
	ProtocolIKE  Protocol = 1
	ProtocolAH   Protocol = 2
	ProtocolESP  Protocol = 3
)

// SA is a Security Association payload.
type SA struct{ Proposals []Proposal }

// Proposal is a set of transforms that go together.
type Proposal struct {
	Number     uint8
	Protocol   Protocol
	SPI        []byte
	Transforms []Transform
}

// TransformType is the purpose of a transform.
type TransformType uint8

// Transform types; AdditionalKE1 to AdditionalKE1 + 6 are those of RFC 9370.
const (
	Encryption    TransformType = 1
	PRF           TransformType = 2
	Integrity     TransformType = 3
	KeyExchange   TransformType = 4
	Sequence      TransformType = 5
	AdditionalKE1 TransformType = 6
	AdditionalKE7 TransformType = 12
)

// Transform is an algorithm. KeyLength is in bits; 0: the algorithm has one length.
type Transform struct {
	Type      TransformType
	ID        uint16
	KeyLength uint16 `json:",omitempty"`
}

// KE is a Key Exchange payload.
type KE struct {
	Group uint16
	Data  []byte
}

// IDType is the form of an identity.
type IDType uint8

// Identity types.
const (
	IDIPv4  IDType = 1
	IDFQDN  IDType = 2
	IDEmail IDType = 3
	IDIPv6  IDType = 5
	IDDN    IDType = 9
	IDGN    IDType = 10
	IDKey   IDType = 11
)

// ID is an Identification payload.
type ID struct {
	Responder bool
	Kind      IDType
	Data      []byte
}

// Body returns the octets of the identity that AUTH signs: the payload without its generic header.
func (p *ID) Body() []byte { return p.append(nil) }

// Certificate encodings.
const (
	EncodingX509       uint8 = 4
	EncodingCRL        uint8 = 7
	EncodingHashAndURL uint8 = 12
	EncodingOCSP       uint8 = 14
)

// Certificate is a Certificate payload.
type Certificate struct {
	Encoding uint8
	Data     []byte
}

// Request is a Certificate Request payload.
type Request struct {
	Encoding uint8
	// SHA-1 hashes of the public keys of authorities, each 20 bytes.
	Authorities []byte
}

// AuthMethod is how an AUTH payload proves.
type AuthMethod uint8

// Methods of authentication.
const (
	AuthRSA       AuthMethod = 1
	AuthSharedKey AuthMethod = 2
	AuthECDSA256  AuthMethod = 9
	AuthECDSA384  AuthMethod = 10
	AuthECDSA521  AuthMethod = 11
	AuthNull      AuthMethod = 13
	AuthSignature AuthMethod = 14
)

// Auth is an Authentication payload.
type Auth struct {
	Method AuthMethod
	Data   []byte
}

// Nonce is a Nonce payload.
type Nonce struct{ Data []byte }

// Notify is a Notify payload.
type Notify struct {
	Protocol Protocol
	SPI      []byte
	Kind     NotifyType
	Data     []byte
}

// Delete is a Delete payload.
type Delete struct {
	Protocol Protocol
	SPIs     [][]byte
}

// Vendor is a Vendor ID payload.
type Vendor struct{ Data []byte }

// TS is a Traffic Selector payload.
type TS struct {
	Responder bool
	Selectors []Selector
}

// Selector is a range of addresses, ports and protocols. Protocol 0: any.
type Selector struct {
	Protocol   uint8  `json:",omitempty"`
	StartPort  uint16 `json:",omitempty"`
	EndPort    uint16 `json:",omitempty"`
	Start, End netip.Addr
}

// ConfigurationType is the type of a Configuration payload.
type ConfigurationType uint8

// Configuration payload types.
const (
	ConfigurationRequest ConfigurationType = 1
	ConfigurationReply   ConfigurationType = 2
	ConfigurationSet     ConfigurationType = 3
	ConfigurationAck     ConfigurationType = 4
)

// Configuration attributes.
const (
	InternalIP4Address uint16 = 1
	InternalIP4Netmask uint16 = 2
	InternalIP4DNS     uint16 = 3
	InternalIP6Address uint16 = 8
	InternalIP6DNS     uint16 = 10
	InternalIP4Subnet  uint16 = 13
	InternalIP6Subnet  uint16 = 15
)

// Configuration is a Configuration payload.
type Configuration struct {
	Kind       ConfigurationType
	Attributes []Attribute
}

// Attribute is a configuration attribute.
type Attribute struct {
	Type  uint16
	Value []byte
}

// EAP is an EAP payload: a whole EAP packet.
type EAP struct{ Data []byte }

// Type implements Payload.
func (p *Encrypted) Type() PayloadType {
	if p.Number > 0 {
		return TypeFragment
	}
	return TypeEncrypted
}
func (p *SA) Type() PayloadType            { return TypeSA }                                // Type implements Payload.
func (p *KE) Type() PayloadType            { return TypeKE }                                // Type implements Payload.
func (p *ID) Type() PayloadType            { return either(p.Responder, TypeIDr, TypeIDi) } // Type implements Payload.
func (p *Certificate) Type() PayloadType   { return TypeCertificate }                       // Type implements Payload.
func (p *Request) Type() PayloadType       { return TypeRequest }                           // Type implements Payload.
func (p *Auth) Type() PayloadType          { return TypeAuth }                              // Type implements Payload.
func (p *Nonce) Type() PayloadType         { return TypeNonce }                             // Type implements Payload.
func (p *Notify) Type() PayloadType        { return TypeNotify }                            // Type implements Payload.
func (p *Delete) Type() PayloadType        { return TypeDelete }                            // Type implements Payload.
func (p *Vendor) Type() PayloadType        { return TypeVendor }                            // Type implements Payload.
func (p *TS) Type() PayloadType            { return either(p.Responder, TypeTSr, TypeTSi) } // Type implements Payload.
func (p *Configuration) Type() PayloadType { return TypeConfiguration }                     // Type implements Payload.
func (p *EAP) Type() PayloadType           { return TypeEAP }                               // Type implements Payload.

func either(second bool, a, b PayloadType) PayloadType {
	if second {
		return a
	}
	return b
}

// parsePayload reads a payload's body; nil: its type is not known.
func parsePayload(t PayloadType, b []byte) (Payload, error) {
	need := func(n int) error {
		if len(b) < n {
			return syntax("payload %d has %d bytes, and needs %d", t, len(b), n)
		}
		return nil
	}
	switch t {
	case TypeSA:
		return parseSA(b)
	case TypeKE:
		if err := need(5); err != nil {
			return nil, err
		}
		return &KE{Group: binary.BigEndian.Uint16(b), Data: b[4:]}, nil
	case TypeIDi, TypeIDr:
		if err := need(4); err != nil {
			return nil, err
		}
		id := &ID{Responder: t == TypeIDr, Kind: IDType(b[0]), Data: b[4:]}
		if n := len(id.Data); id.Kind == IDIPv4 && n != 4 || id.Kind == IDIPv6 && n != 16 {
			return nil, syntax("an identity of type %d has %d bytes", id.Kind, n)
		}
		return id, nil
	case TypeCertificate:
		if err := need(2); err != nil {
			return nil, err
		}
		return &Certificate{Encoding: b[0], Data: b[1:]}, nil
	case TypeRequest:
		if err := need(1); err != nil {
			return nil, err
		}
		return &Request{Encoding: b[0], Authorities: b[1:]}, nil
	case TypeAuth:
		if err := need(4); err != nil {
			return nil, err
		}
		return &Auth{Method: AuthMethod(b[0]), Data: b[4:]}, nil
	case TypeNonce:
		// RFC 7296 section 3.9.
		if len(b) < 16 || len(b) > 256 {
			return nil, syntax("a nonce has %d bytes", len(b))
		}
		return &Nonce{b}, nil
	case TypeNotify:
		if err := need(4); err != nil {
			return nil, err
		}
		size := int(b[1])
		if err := need(4 + size); err != nil {
			return nil, err
		}
		return &Notify{Protocol: Protocol(b[0]), Kind: NotifyType(binary.BigEndian.Uint16(b[2:])), SPI: b[4 : 4+size], Data: b[4+size:]}, nil
	case TypeDelete:
		return parseDelete(b)
	case TypeVendor:
		return &Vendor{b}, nil
	case TypeTSi, TypeTSr:
		return parseTS(t == TypeTSr, b)
	case TypeConfiguration:
		return parseConfiguration(b)
	case TypeEAP:
		// RFC 3748 section 4.
		if err := need(4); err != nil {
			return nil, err
		}
		if int(binary.BigEndian.Uint16(b[2:])) != len(b) {
			return nil, syntax("an EAP packet states %d bytes of %d", binary.BigEndian.Uint16(b[2:]), len(b))
		}
		return &EAP{b}, nil
	}
	return nil, nil
}

func parseSA(b []byte) (*SA, error) {
	sa := &SA{}
	for last := false; !last; {
		if len(b) < 8 {
			return nil, syntax("a proposal is cut off")
		}
		length, size, count := int(binary.BigEndian.Uint16(b[2:])), int(b[6]), int(b[7])
		if length < 8+size || length > len(b) || count > maxTransforms || len(sa.Proposals) == maxProposals || b[0] != 0 && b[0] != 2 {
			return nil, syntax("a proposal states %d bytes, %d of SPI and %d transforms", length, size, count)
		}
		last = b[0] == 0
		p := Proposal{Number: b[4], Protocol: Protocol(b[5]), SPI: b[8 : 8+size]}
		body := b[8+size : length]
		for range count {
			if len(body) < 8 {
				return nil, syntax("a transform is cut off")
			}
			n := int(binary.BigEndian.Uint16(body[2:]))
			if n < 8 || n > len(body) {
				return nil, syntax("a transform states %d bytes of %d", n, len(body))
			}
			t := Transform{Type: TransformType(body[4]), ID: binary.BigEndian.Uint16(body[6:])}
			known := true
			for attributes := body[8:n]; len(attributes) > 0; {
				if len(attributes) < 4 {
					return nil, syntax("an attribute of a transform is cut off")
				}
				kind, value := binary.BigEndian.Uint16(attributes), binary.BigEndian.Uint16(attributes[2:])
				size := 4
				if kind&0x8000 == 0 {
					size += int(value)
				}
				if size > len(attributes) {
					return nil, syntax("an attribute of a transform is cut off")
				}
				// RFC 7296 section 3.3.6: a transform with an attribute that is not known is not chosen.
				if kind == 0x800e {
					t.KeyLength = value
				} else {
					known = false
				}
				attributes = attributes[size:]
			}
			if known {
				p.Transforms = append(p.Transforms, t)
			} else {
				p.Transforms = append(p.Transforms, Transform{Type: t.Type, ID: 0xffff})
			}
			body = body[n:]
		}
		if len(body) > 0 {
			return nil, syntax("%d bytes follow the transforms of a proposal", len(body))
		}
		sa.Proposals = append(sa.Proposals, p)
		b = b[length:]
	}
	if len(b) > 0 {
		return nil, syntax("%d bytes follow the proposals", len(b))
	}
	return sa, nil
}

func (p *SA) append(b []byte) []byte {
	for i := range p.Proposals {
		o, at := &p.Proposals[i], len(b)
		more := byte(2)
		if i == len(p.Proposals)-1 {
			more = 0
		}
		b = append(b, more, 0, 0, 0, o.Number, byte(o.Protocol), byte(len(o.SPI)), byte(len(o.Transforms)))
		b = append(b, o.SPI...)
		for j, t := range o.Transforms {
			more, length := byte(3), byte(8)
			if j == len(o.Transforms)-1 {
				more = 0
			}
			if t.KeyLength > 0 {
				length = 12
			}
			b = append(b, more, 0, 0, length, byte(t.Type), 0, byte(t.ID>>8), byte(t.ID))
			if t.KeyLength > 0 {
				b = append(b, 0x80, 14, byte(t.KeyLength>>8), byte(t.KeyLength))
			}
		}
		binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	}
	return b
}

func parseDelete(b []byte) (*Delete, error) {
	if len(b) < 4 {
		return nil, syntax("a Delete payload has %d bytes", len(b))
	}
	d, size, count := &Delete{Protocol: Protocol(b[0])}, int(b[1]), int(binary.BigEndian.Uint16(b[2:]))
	if size*count != len(b)-4 || count > 0 && size == 0 || size != map[Protocol]int{ProtocolIKE: 0, ProtocolAH: 4, ProtocolESP: 4}[d.Protocol] {
		return nil, syntax("a Delete payload of protocol %d states %d SPIs of %d bytes", d.Protocol, count, size)
	}
	for i := range count {
		d.SPIs = append(d.SPIs, b[4+i*size:4+(i+1)*size])
	}
	return d, nil
}

func (p *Delete) append(b []byte) []byte {
	size := 0
	if len(p.SPIs) > 0 {
		size = len(p.SPIs[0])
	}
	b = append(b, byte(p.Protocol), byte(size))
	b = binary.BigEndian.AppendUint16(b, uint16(len(p.SPIs)))
	for _, s := range p.SPIs {
		b = append(b, s...)
	}
	return b
}

// Types of traffic selectors.
const (
	selectorIPv4 = 7
	selectorIPv6 = 8
)

func parseTS(responder bool, b []byte) (*TS, error) {
	if len(b) < 4 || b[0] == 0 {
		return nil, syntax("a Traffic Selector payload has no selector")
	}
	ts, count := &TS{Responder: responder}, int(b[0])
	b = b[4:]
	for range count {
		if len(b) < selectorLength {
			return nil, syntax("a traffic selector is cut off")
		}
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length < selectorLength || length > len(b) {
			return nil, syntax("a traffic selector states %d bytes of %d", length, len(b))
		}
		size := map[byte]int{selectorIPv4: 4, selectorIPv6: 16}[b[0]]
		if size != 0 {
			if length != selectorLength+2*size {
				return nil, syntax("a traffic selector of type %d has %d bytes", b[0], length)
			}
			s := Selector{Protocol: b[1], StartPort: binary.BigEndian.Uint16(b[4:]), EndPort: binary.BigEndian.Uint16(b[6:])}
			s.Start, _ = netip.AddrFromSlice(b[8 : 8+size])
			s.End, _ = netip.AddrFromSlice(b[8+size : length])
			ts.Selectors = append(ts.Selectors, s)
		}
		b = b[length:]
	}
	if len(b) > 0 {
		return nil, syntax("%d bytes follow the traffic selectors", len(b))
	}
	return ts, nil
}

func (p *TS) append(b []byte) []byte {
	selectors := p.Selectors[:min(len(p.Selectors), maxSelectors)]
	b = append(b, byte(len(selectors)), 0, 0, 0)
	for _, s := range selectors {
		kind, length := byte(selectorIPv4), byte(selectorLength+8)
		if s.Start.Is6() {
			kind, length = selectorIPv6, selectorLength+32
		}
		b = append(b, kind, s.Protocol, 0, length)
		b = binary.BigEndian.AppendUint16(b, s.StartPort)
		b = binary.BigEndian.AppendUint16(b, s.EndPort)
		b = append(b, s.Start.AsSlice()...)
		b = append(b, s.End.AsSlice()...)
	}
	return b
}

func parseConfiguration(b []byte) (*Configuration, error) {
	if len(b) < 4 {
		return nil, syntax("a Configuration payload has %d bytes", len(b))
	}
	c := &Configuration{Kind: ConfigurationType(b[0])}
	for b = b[4:]; len(b) > 0; {
		if len(b) < 4 || len(c.Attributes) == maxAttributes {
			return nil, syntax("a configuration attribute is cut off")
		}
		length := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if length > len(b) {
			return nil, syntax("a configuration attribute states %d bytes of %d", length, len(b))
		}
		c.Attributes = append(c.Attributes, Attribute{binary.BigEndian.Uint16(b) & 0x7fff, b[4:length]})
		b = b[length:]
	}
	return c, nil
}

func (p *Configuration) append(b []byte) []byte {
	b = append(b, byte(p.Kind), 0, 0, 0)
	for _, a := range p.Attributes {
		b = binary.BigEndian.AppendUint16(b, a.Type)
		b = binary.BigEndian.AppendUint16(b, uint16(len(a.Value)))
		b = append(b, a.Value...)
	}
	return b
}

func (p *Encrypted) append(b []byte) []byte {
	if p.Number > 0 {
		b = binary.BigEndian.AppendUint16(b, p.Number)
		b = binary.BigEndian.AppendUint16(b, p.Total)
	}
	return append(b, p.Body...)
}

func (p *KE) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, p.Group)
	return append(append(b, 0, 0), p.Data...)
}

func (p *ID) append(b []byte) []byte { return append(append(b, byte(p.Kind), 0, 0, 0), p.Data...) }

func (p *Certificate) append(b []byte) []byte { return append(append(b, p.Encoding), p.Data...) }

func (p *Request) append(b []byte) []byte { return append(append(b, p.Encoding), p.Authorities...) }

func (p *Auth) append(b []byte) []byte { return append(append(b, byte(p.Method), 0, 0, 0), p.Data...) }

func (p *Nonce) append(b []byte) []byte { return append(b, p.Data...) }

func (p *Notify) append(b []byte) []byte {
	b = append(b, byte(p.Protocol), byte(len(p.SPI)))
	b = binary.BigEndian.AppendUint16(b, uint16(p.Kind))
	return append(append(b, p.SPI...), p.Data...)
}

func (p *Vendor) append(b []byte) []byte { return append(b, p.Data...) }

func (p *EAP) append(b []byte) []byte { return append(b, p.Data...) }
