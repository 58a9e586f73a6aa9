// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"crypto/rand"

	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

// Identities and capabilities of a line.

func (l *Line) suci() []byte {
	if s := l.settings.Subscription; s != nil {
		suci, err := s.SUCI(s.PLMN, s.MSIN, rand.Reader)
		if err == nil {
			return suci
		}
		// The null scheme needs no key.
		suci, _ = (&nas.Concealment{Routing: s.Routing}).SUCI(s.PLMN, s.MSIN, rand.Reader)
		return suci
	}
	return nas.SUCIOfLine(l.settings.Line, l.settings.Realm, l.settings.HFCNode != "")
}

func (l *Line) identity() []byte {
	if l.guti != nil {
		return l.guti
	}
	return l.suci()
}

// pei is the MAC address of the home's gateway (TS 24.501 section 9.11.3.4).
func (l *Line) pei() []byte { return append([]byte{nas.IdentityMAC}, l.settings.MAC[:]...) }

// capability: algorithms 5G-EA0 to 3 and 5G-IA0 to 3; a line without keys has the null ones alone.
func (l *Line) capability() []byte {
	if l.settings.Subscription != nil {
		return []byte{0xf0, 0xf0}
	}
	return []byte{0x80, 0x80}
}

// location is the line.
func (l *Line) location() ngap.UserLocationInformation {
	return locationOf(l.settings.Line, l.settings.HFCNode, l.core.TAI())
}

// locationOf is the user location of a line (TS 38.413 section 9.3.1.16): its global line identity, or the HFC node of a cable network. That has the form with
// a TAI: without one, an AMF does not know the tracking area.
func locationOf(line, node string, tai ngap.TAI) ngap.UserLocationInformation {
	location := &ngap.UserLocationInformationWAGF{GlobalLineID: &ngap.GlobalLineID{GlobalLineIdentity: []byte(line), TAI: &tai}}
	if node != "" {
		location = &ngap.UserLocationInformationWAGF{HFCNodeIDNew: &ngap.HFCNodeIDNew{HFCNodeID: []byte(node), TAI: tai}}
	}
	return ngap.UserLocationInformation{UserLocationInformationWAGF: location}
}
