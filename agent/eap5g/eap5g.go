// SPDX-License-Identifier: Apache-2.0

// Package eap5g is EAP-5G (TS 24.502 section 9.3.2): an expanded EAP method that carries NAS messages, without
// authentication of its own. UEs on untrusted access use it in IKE, 5G residential gateways in PPP.
package eap5g

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

const (
	vendor3GPP  = 10415
	methodEAP5G = 3
	// Vendor and type.
	expandedHeader = 7
)

// MessageID is which EAP-5G message a packet is.
type MessageID uint8

// Messages.
const (
	Start        MessageID = 1
	NAS          MessageID = 2
	Notification MessageID = 3
	Stop         MessageID = 4
)

// ErrMessage: a packet of the peer is no EAP-5G message.
var ErrMessage = errors.New("malformed EAP-5G message")

// Request is a request of EAP-5G. One of NAS has a NAS message.
func Request(identifier uint8, id MessageID, message []byte) []byte {
	data := []byte{vendor3GPP >> 16, vendor3GPP >> 8 & 0xff, vendor3GPP & 0xff, 0, 0, 0, methodEAP5G, byte(id), 0}
	if id == NAS {
		data = binary.BigEndian.AppendUint16(data, uint16(len(message)))
		data = append(data, message...)
	}
	return eap.Packet{Code: eap.Request, Identifier: identifier, Type: eap.TypeExpanded, Data: data}.Append(nil)
}

// End is EAP-Success or EAP-Failure.
func End(identifier uint8, code byte) []byte {
	return eap.Packet{Code: code, Identifier: identifier}.Append(nil)
}

// Response is a response of EAP-5G. One of NAS has parameters and a NAS message, which refers to the packet.
type Response struct {
	Identifier uint8
	ID         MessageID
	Parameters Parameters
	Message    []byte
}

// Parse reads a response.
func Parse(packet []byte) (r Response, err error) {
	p, err := eap.Parse(packet)
	if err != nil {
		return r, err
	}
	if p.Code != eap.Response || p.Type == eap.TypeNak {
		return r, fmt.Errorf("%w: code %d, type %d", ErrMessage, p.Code, p.Type)
	}
	d := p.Data
	if p.Type != eap.TypeExpanded || len(d) < expandedHeader+2 || uint32(d[0])<<16|uint32(d[1])<<8|uint32(d[2]) != vendor3GPP || binary.BigEndian.Uint32(d[3:]) != methodEAP5G {
		return r, fmt.Errorf("%w: type %d", ErrMessage, p.Type)
	}
	r.Identifier, r.ID = p.Identifier, MessageID(d[expandedHeader])
	d = d[expandedHeader+2:]
	if r.ID != NAS {
		return r, nil
	}
	parameters, d, ok := counted(d)
	if !ok {
		return r, fmt.Errorf("%w: AN-parameters end early", ErrMessage)
	}
	if r.Parameters, err = parseParameters(parameters); err != nil {
		return r, err
	}
	if r.Message, _, ok = counted(d); !ok || len(r.Message) == 0 {
		return r, fmt.Errorf("%w: NAS-PDU ends early", ErrMessage)
	}
	return r, nil
}

// counted reads a length of two bytes and as many bytes.
func counted(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return nil, nil, false
	}
	return b[2 : 2+n], b[2+n:], true
}

// Parameters are the AN-parameters of a UE (section 9.3.2.2.2), by which its AMF is selected.
type Parameters struct {
	// PLMN and AMF ID of the AMF that served the UE before.
	GUAMI *nas.GUTI
	PLMN  nas.PLMN
	// Requested NSSAI.
	Slices []nas.SNSSAI
	Cause  ngap.RRCEstablishmentCause
}

// Types of AN-parameters.
const (
	parameterGUAMI = 1
	parameterPLMN  = 2
	parameterNSSAI = 3
	parameterCause = 4
	maxSlices      = 8
)

// causes are establishment causes for non-3GPP access (section 9.2.2).
var causes = map[uint8]ngap.RRCEstablishmentCause{0: ngap.RRCEstablishmentCauseEmergency, 1: ngap.RRCEstablishmentCauseHighPriorityAccess,
	3: ngap.RRCEstablishmentCauseMoSignalling, 4: ngap.RRCEstablishmentCauseMoData, 8: ngap.RRCEstablishmentCauseMpsPriorityAccess,
	9: ngap.RRCEstablishmentCauseMcsPriorityAccess}

// parseParameters ignores parameters of unknown types.
func parseParameters(b []byte) (p Parameters, err error) {
	p.Cause = ngap.RRCEstablishmentCauseMoSignalling
	for len(b) > 0 {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return p, fmt.Errorf("%w: an AN-parameter ends early", ErrMessage)
		}
		kind, value := b[0], b[2:2+int(b[1])]
		b = b[2+len(value):]
		switch kind {
		case parameterGUAMI:
			if len(value) != 6 {
				return p, fmt.Errorf("%w: a GUAMI of %d bytes", ErrMessage, len(value))
			}
			plmn, err := nas.PLMNOf(value[:3])
			if err != nil {
				return p, fmt.Errorf("%w: GUAMI: %w", ErrMessage, err)
			}
			p.GUAMI = &nas.GUTI{PLMN: plmn, AMFID: uint32(value[3])<<16 | uint32(value[4])<<8 | uint32(value[5])}
		case parameterPLMN:
			if len(value) != 3 {
				return p, fmt.Errorf("%w: a PLMN of %d bytes", ErrMessage, len(value))
			}
			if p.PLMN, err = nas.PLMNOf(value); err != nil {
				return p, fmt.Errorf("%w: selected PLMN: %w", ErrMessage, err)
			}
		case parameterNSSAI:
			if p.Slices, err = parseNSSAI(value); err != nil {
				return p, err
			}
		case parameterCause:
			if len(value) != 1 {
				return p, fmt.Errorf("%w: an establishment cause of %d bytes", ErrMessage, len(value))
			}
			if cause, known := causes[value[0]&15]; known {
				p.Cause = cause
			}
		}
	}
	return p, nil
}

// parseNSSAI reads the value of an NSSAI (TS 24.501 section 9.11.3.37). Mapped values of another PLMN are left out.
func parseNSSAI(b []byte) (slices []nas.SNSSAI, err error) {
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n || len(slices) == maxSlices {
			return nil, fmt.Errorf("%w: malformed requested NSSAI", ErrMessage)
		}
		one := nas.SNSSAI{SST: b[1]}
		if n >= 4 {
			one.SD = b[2:5]
		}
		slices, b = append(slices, one), b[1+n:]
	}
	return slices, nil
}
