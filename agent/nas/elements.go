// SPDX-License-Identifier: Apache-2.0

// TS 24.501 section 9.11: IEs that the gateway writes or looks into.

package nas

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// PLMN is a mobile country and network code as text: "00101", "310410".
type PLMN string

// Octets of a PLMN identity: digits in swapped halves.
func (p PLMN) Octets() ([]byte, error) {
	if len(p) != 5 && len(p) != 6 {
		return nil, fmt.Errorf("PLMN %q: it must have 5 or 6 digits", string(p))
	}
	digits := [6]byte{5: 0xf}
	for i := range len(p) {
		if p[i] < '0' || p[i] > '9' {
			return nil, fmt.Errorf("PLMN %q: it must have 5 or 6 digits", string(p))
		}
		digits[i] = p[i] - '0'
	}
	return []byte{digits[1]<<4 | digits[0], digits[5]<<4 | digits[2], digits[4]<<4 | digits[3]}, nil
}

// PLMNOf reads a PLMN identity.
func PLMNOf(octets []byte) (PLMN, error) {
	if len(octets) != 3 {
		return "", fmt.Errorf("a PLMN identity of %d octets", len(octets))
	}
	digits := []byte{octets[0] & 15, octets[0] >> 4, octets[1] & 15, octets[2] & 15, octets[2] >> 4, octets[1] >> 4}
	if digits[5] == 15 {
		digits = digits[:5]
	}
	for i, digit := range digits {
		if digit > 9 {
			return "", fmt.Errorf("digit %#x in a PLMN identity", digit)
		}
		digits[i] = digit + '0'
	}
	return PLMN(digits), nil
}

// Types of a 5GS mobile identity (section 9.11.3.4).
const (
	IdentitySUCI   = 1
	IdentityGUTI   = 2
	IdentityIMEI   = 3
	IdentitySTMSI  = 4
	IdentityIMEISV = 5
	IdentityMAC    = 6
)

// SUPI formats of a SUCI (TS 23.003 section 2.2B).
const (
	SUPIFormatIMSI = 0
	SUPIFormatNAI  = 1
	SUPIFormatGCI  = 2
	SUPIFormatGLI  = 3
)

// SUCIOfLine is the mobile identity of a line with the null scheme: a SUCI in NAI format whose SUPI is a global line identifier
// (TS 23.003 section 28.16.2): type3.rid0.schid0.userid<GLI>@<realm>. gci: a global cable identifier.
func SUCIOfLine(identifier, realm string, gci bool) []byte {
	format := byte(SUPIFormatGLI)
	if gci {
		format = SUPIFormatGCI
	}
	nai := fmt.Sprintf("type%d.rid0.schid0.userid%s@%s", format, identifier, realm)
	return append([]byte{format<<4 | IdentitySUCI}, nai...)
}

// GUTI is a 5G-GUTI.
type GUTI struct {
	PLMN PLMN
	// AMFID: region (8 bits), set (10 bits) and pointer (6 bits).
	AMFID uint32
	TMSI  uint32
}

// GUTIOf reads a 5GS mobile identity that is a 5G-GUTI.
func GUTIOf(octets []byte) (GUTI, error) {
	if len(octets) != 11 || octets[0]&7 != IdentityGUTI {
		return GUTI{}, fmt.Errorf("the mobile identity is no 5G-GUTI")
	}
	plmn, err := PLMNOf(octets[1:4])
	if err != nil {
		return GUTI{}, err
	}
	return GUTI{plmn, binary.BigEndian.Uint32(octets[3:7]) & 0xffffff, binary.BigEndian.Uint32(octets[7:])}, nil
}

// Octets of the mobile identity.
func (g GUTI) Octets() ([]byte, error) {
	plmn, err := g.PLMN.Octets()
	if err != nil {
		return nil, err
	}
	octets := append([]byte{0xf0 | IdentityGUTI}, plmn...)
	octets = append(octets, byte(g.AMFID>>16), byte(g.AMFID>>8), byte(g.AMFID))
	return binary.BigEndian.AppendUint32(octets, g.TMSI), nil
}

// SNSSAI is a network slice (section 9.11.2.8).
type SNSSAI struct {
	SST uint8
	// Three octets; nil: none.
	SD []byte
}

func (s SNSSAI) Octets() []byte {
	if len(s.SD) == 3 {
		return append([]byte{s.SST}, s.SD...)
	}
	return []byte{s.SST}
}

// PDU session types (section 9.11.4.11).
const (
	PDUSessionIPv4     = 1
	PDUSessionIPv6     = 2
	PDUSessionIPv4v6   = 3
	PDUSessionEthernet = 5
)

// PDUAddress is the address of a PDU session (section 9.11.4.10): an IPv4 address and an interface identifier for its link-local address.
type PDUAddress struct {
	IPv4                netip.Addr
	InterfaceIdentifier []byte
}

// PDUAddressOf reads a PDU address.
func PDUAddressOf(octets []byte) (PDUAddress, error) {
	if len(octets) < 1 {
		return PDUAddress{}, ErrTruncated
	}
	kind, rest := octets[0]&7, octets[1:]
	var address PDUAddress
	if kind == PDUSessionIPv6 || kind == PDUSessionIPv4v6 {
		if len(rest) < 8 {
			return PDUAddress{}, ErrTruncated
		}
		address.InterfaceIdentifier, rest = append([]byte{}, rest[:8]...), rest[8:]
	}
	if kind == PDUSessionIPv4 || kind == PDUSessionIPv4v6 {
		if len(rest) < 4 {
			return PDUAddress{}, ErrTruncated
		}
		address.IPv4 = netip.AddrFrom4([4]byte(rest))
	}
	return address, nil
}

// DNN is a data network name as labels (TS 23.003 section 9.1).
func DNN(name string) ([]byte, error) {
	var octets []byte
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			continue
		}
		if i == start || i-start > 63 {
			return nil, fmt.Errorf("DNN %q: each label must have 1 to 63 characters", name)
		}
		octets = append(append(octets, byte(i-start)), name[start:i]...)
		start = i + 1
	}
	if len(octets) > 100 {
		return nil, fmt.Errorf("DNN %q: it must have at most 99 characters", name)
	}
	return octets, nil
}

// AMBR is a session's aggregate maximum bit rate in bit/s (section 9.11.4.14).
type AMBR struct{ Down, Up uint64 }

func AMBROf(octets []byte) (AMBR, error) {
	if len(octets) < 6 {
		return AMBR{}, ErrTruncated
	}
	down, err := rate(octets[0:3])
	if err != nil {
		return AMBR{}, err
	}
	up, err := rate(octets[3:6])
	return AMBR{down, up}, err
}

// rate: units grow by 4 from 1 kbit/s, with a restart at each thousand.
func rate(octets []byte) (uint64, error) {
	if octets[0] == 0 {
		return 0, nil
	}
	unit := uint64(octets[0]) - 1
	if unit >= 25 {
		// 256 Pbit/s and more do not fit, and are unlimited.
		return 1 << 62, nil
	}
	scale := uint64(1000)
	for range unit / 5 {
		scale *= 1000
	}
	return uint64(binary.BigEndian.Uint16(octets[1:])) * scale << (2 * (unit % 5)), nil
}
