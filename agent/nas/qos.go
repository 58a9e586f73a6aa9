// SPDX-License-Identifier: Apache-2.0

// TS 24.501 sections 9.11.4.12 and 9.11.4.13: QoS flow descriptions and QoS rules.

package nas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// Errors of QoS rules and flow descriptions, with the 5GSM causes that answer them (sections 6.3.2.4 and 6.4.1.3).
var (
	// ErrQoSSyntax: causes 45 and 84.
	ErrQoSSyntax = errors.New("syntactical error in a QoS rule or flow description")
	// ErrQoSSemantic: cause 83.
	ErrQoSSemantic = errors.New("semantic error in a QoS rule or flow description")
)

// Directions of a packet filter.
const (
	Downlink      = 1
	Uplink        = 2
	Bidirectional = 3
)

// Bounds of a PDU session's QoS.
const (
	maxRules   = 255
	maxFilters = 256
)

// PacketFilter is a packet filter. A field that is zero, or nil, matches everything. Remote is the network's end.
type PacketFilter struct {
	Identifier, Direction uint8
	Protocol              *uint8
	Remote, Local         netip.Prefix
	// First and last port.
	RemotePorts, LocalPorts *[2]uint16
	SPI                     *uint32
	// Traffic class and its mask.
	Class     *[2]uint8
	FlowLabel *uint32
	// Of frames: as the subscriber sends them.
	Destination, Source net.HardwareAddr
	CVLAN, SVLAN        *uint16
	CPriority           *uint8
	SPriority           *uint8
	EtherType           *uint16
}

// QoSRule is a QoS rule.
type QoSRule struct {
	Identifier uint8
	Default    bool
	Precedence uint8
	QFI        uint8
	Filters    []PacketFilter
}

// QoSFlow is a QoS flow description. Rates are in bit/s; 0: none.
type QoSFlow struct {
	QFI, FiveQI                uint8
	GuaranteedUp, GuaranteedDn uint64
	MaximumUp, MaximumDn       uint64
}

// QoS holds the rules of a PDU session by their identifier, and its flows by QFI.
type QoS struct {
	Rules map[uint8]QoSRule
	Flows map[uint8]QoSFlow
}

// Clone is a copy that may be changed.
func (q *QoS) Clone() QoS { return QoS{maps.Clone(q.Rules), maps.Clone(q.Flows)} }

// Sorted are the rules in the order in which they are tried.
func (q *QoS) Sorted() []QoSRule {
	all := slices.Collect(maps.Values(q.Rules))
	slices.SortFunc(all, func(a, b QoSRule) int { return int(a.Precedence) - int(b.Precedence) })
	return all
}

// ApplyRules carries out an IE of authorized QoS rules. On an error q may be changed: apply to a clone.
func (q *QoS) ApplyRules(octets []byte) error {
	if q.Rules == nil {
		q.Rules = map[uint8]QoSRule{}
	}
	for len(octets) > 0 {
		if len(octets) < 4 {
			return ErrQoSSyntax
		}
		identifier, length := octets[0], int(binary.BigEndian.Uint16(octets[1:]))
		if length < 1 || len(octets) < 3+length {
			return ErrQoSSyntax
		}
		if err := q.applyRule(identifier, octets[3:3+length]); err != nil {
			return fmt.Errorf("QoS rule %d: %w", identifier, err)
		}
		octets = octets[3+length:]
	}
	defaults := 0
	precedences := map[uint8]bool{}
	for _, r := range q.Rules {
		if r.Default {
			defaults++
		}
		if precedences[r.Precedence] {
			return fmt.Errorf("%w: two rules have precedence %d", ErrQoSSemantic, r.Precedence)
		}
		precedences[r.Precedence] = true
	}
	if defaults > 1 {
		return fmt.Errorf("%w: %d default rules", ErrQoSSemantic, defaults)
	}
	return nil
}

// Operations on rules.
const (
	createRule     = 1
	deleteRule     = 2
	addFilters     = 3
	replaceFilters = 4
	deleteFilters  = 5
	changeRule     = 6
)

func (q *QoS) applyRule(identifier uint8, b []byte) error {
	operation, isDefault, count := b[0]>>5, b[0]>>4&1 == 1, int(b[0]&15)
	b = b[1:]
	rule, exists := q.Rules[identifier]
	switch {
	case operation == deleteRule:
		// It is deleted already.
		if rule.Default {
			return fmt.Errorf("%w: the default rule is deleted", ErrQoSSemantic)
		}
		delete(q.Rules, identifier)
		return nil
	case operation == createRule:
		if identifier == 0 || len(q.Rules) >= maxRules && !exists {
			return ErrQoSSemantic
		}
		rule = QoSRule{Identifier: identifier, Default: isDefault}
	case operation < addFilters || operation > changeRule:
		return ErrQoSSyntax
	case !exists:
		return fmt.Errorf("%w: the rule does not exist", ErrQoSSemantic)
	}
	rule.Filters = slices.Clone(rule.Filters)
	if operation == replaceFilters {
		rule.Filters = nil
	}
	for range count {
		if len(b) < 1 {
			return ErrQoSSyntax
		}
		if operation == deleteFilters {
			which := b[0] & 15
			rule.Filters = slices.DeleteFunc(rule.Filters, func(f PacketFilter) bool { return f.Identifier == which })
			b = b[1:]
			continue
		}
		if operation == changeRule {
			return ErrQoSSyntax
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return ErrQoSSyntax
		}
		filter := PacketFilter{Identifier: b[0] & 15, Direction: b[0] >> 4 & 3}
		if filter.Direction == 0 {
			return ErrQoSSyntax
		}
		if err := filter.components(b[2 : 2+int(b[1])]); err != nil {
			return err
		}
		rule.Filters = slices.DeleteFunc(rule.Filters, func(f PacketFilter) bool { return f.Identifier == filter.Identifier })
		rule.Filters = append(rule.Filters, filter)
		b = b[2+int(b[1]):]
	}
	if len(rule.Filters) > maxFilters {
		return ErrQoSSemantic
	}
	// Precedence and QFI, which a change may leave out.
	switch {
	case len(b) >= 2:
		rule.Precedence, rule.QFI = b[0], b[1]&63
	case len(b) == 1:
		rule.Precedence = b[0]
	case operation == createRule:
		return ErrQoSSyntax
	}
	q.Rules[identifier] = rule
	return nil
}

// sizes of the values of packet filter components.
var sizes = map[uint8]int{0x01: 0, 0x10: 8, 0x11: 8, 0x21: 17, 0x23: 17, 0x30: 1, 0x40: 2, 0x41: 4, 0x50: 2, 0x51: 4, 0x60: 4, 0x70: 2, 0x80: 3,
	0x81: 6, 0x82: 6, 0x83: 2, 0x84: 2, 0x85: 1, 0x86: 1, 0x87: 2}

func (f *PacketFilter) components(b []byte) error {
	for len(b) > 0 {
		size, known := sizes[b[0]]
		if !known {
			return fmt.Errorf("%w: packet filter component %#x is unknown", ErrQoSSyntax, b[0])
		}
		if len(b) < 1+size {
			return ErrQoSSyntax
		}
		value := b[1 : 1+size]
		var ok = true
		switch b[0] {
		case 0x10:
			f.Remote, ok = prefix4(value)
		case 0x11:
			f.Local, ok = prefix4(value)
		case 0x21:
			f.Remote, ok = prefix6(value)
		case 0x23:
			f.Local, ok = prefix6(value)
		case 0x30:
			f.Protocol = &[]uint8{value[0]}[0]
		case 0x40, 0x41:
			f.LocalPorts, ok = ports(value)
		case 0x50, 0x51:
			f.RemotePorts, ok = ports(value)
		case 0x60:
			spi := binary.BigEndian.Uint32(value)
			f.SPI = &spi
		case 0x70:
			f.Class = &[2]uint8{value[0], value[1]}
		case 0x80:
			label := uint32(value[0]&15)<<16 | uint32(value[1])<<8 | uint32(value[2])
			f.FlowLabel = &label
		case 0x81:
			f.Destination = slices.Clone(value)
		case 0x82:
			f.Source = slices.Clone(value)
		case 0x83, 0x84, 0x87:
			number := binary.BigEndian.Uint16(value)
			switch b[0] {
			case 0x83:
				number &= 0xfff
				f.CVLAN = &number
			case 0x84:
				number &= 0xfff
				f.SVLAN = &number
			default:
				f.EtherType = &number
			}
		case 0x85:
			f.CPriority = &[]uint8{value[0] & 15}[0]
		case 0x86:
			f.SPriority = &[]uint8{value[0] & 15}[0]
		}
		if !ok {
			return fmt.Errorf("%w: packet filter component %#x", ErrQoSSemantic, b[0])
		}
		b = b[1+size:]
	}
	return nil
}

// prefix4 is an address and a mask, which must be that of a network.
func prefix4(b []byte) (netip.Prefix, bool) {
	ones, bits := net.IPMask(b[4:8]).Size()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(b[:4])), ones).Masked(), bits == 32
}

func prefix6(b []byte) (netip.Prefix, bool) {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte(b[:16])), int(min(b[16], 128))).Masked(), b[16] <= 128
}

func ports(b []byte) (*[2]uint16, bool) {
	first := binary.BigEndian.Uint16(b)
	last := first
	if len(b) == 4 {
		last = binary.BigEndian.Uint16(b[2:])
	}
	return &[2]uint16{first, last}, first <= last
}

// ApplyFlows carries out an IE of authorized QoS flow descriptions. On an error q may be changed: apply to a clone.
func (q *QoS) ApplyFlows(octets []byte) error {
	if q.Flows == nil {
		q.Flows = map[uint8]QoSFlow{}
	}
	for len(octets) > 0 {
		if len(octets) < 3 {
			return ErrQoSSyntax
		}
		qfi, operation, count := octets[0]&63, octets[1]>>5, int(octets[2]&63)
		octets = octets[3:]
		flow, exists := q.Flows[qfi]
		switch {
		case operation < createRule || operation > addFilters:
			return fmt.Errorf("%w: operation %d", ErrQoSSyntax, operation)
		case operation == createRule:
			flow = QoSFlow{QFI: qfi}
		case operation != deleteRule && !exists:
			return fmt.Errorf("%w: QoS flow %d does not exist", ErrQoSSemantic, qfi)
		}
		for range count {
			if len(octets) < 2 || len(octets) < 2+int(octets[1]) {
				return ErrQoSSyntax
			}
			if err := flow.parameter(octets[0], octets[2:2+int(octets[1])]); err != nil {
				return fmt.Errorf("QoS flow %d: %w", qfi, err)
			}
			octets = octets[2+int(octets[1]):]
		}
		if operation == deleteRule {
			delete(q.Flows, qfi)
			continue
		}
		q.Flows[qfi] = flow
	}
	return nil
}

func (f *QoSFlow) parameter(identifier uint8, value []byte) error {
	if identifier == 1 {
		if len(value) != 1 {
			return ErrQoSSyntax
		}
		f.FiveQI = value[0]
		return nil
	}
	to := map[uint8]*uint64{2: &f.GuaranteedUp, 3: &f.GuaranteedDn, 4: &f.MaximumUp, 5: &f.MaximumDn}[identifier]
	if to == nil {
		// Averaging window, EPS bearer identity, and elements of later releases.
		return nil
	}
	if len(value) != 3 {
		return ErrQoSSyntax
	}
	var err error
	*to, err = rate(value)
	return err
}
