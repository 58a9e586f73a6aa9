// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
)

// A UPF that does not know the tunnel of a PDU session says so by a GTP-U error indication (TS 29.281 section 7.3.1): it started anew, for example. The gateway gives the
// resource up, and the AMF hears why (TS 23.527 section 5.3.3, TS 38.413 section 8.2.4).

// refusalPause is how long further error indications for a PDU session are ignored: packets are on their way until the core has a new tunnel.
const refusalPause = 10 * time.Second

// farEnd is the UPF's end of a tunnel, in the default VRF.
type farEnd = gtpu.RemoteEnd

// tunnelOwner has a tunnel.
type tunnelOwner interface {
	// refused: the UPF does not know it.
	refused()
}

// moveEnd notes that an owner's tunnel has another far end; the zero farEnd: none.
func (s *agf) moveEnd(owner tunnelOwner, before *farEnd, now farEnd) {
	if *before == now {
		return
	}
	if s.ends[*before] == owner {
		delete(s.ends, *before)
	}
	if *before = now; now != (farEnd{}) {
		s.ends[now] = owner
	}
}

func farEndOf(address netip.Addr, teid uint32) farEnd {
	return farEnd{VRF: object.VRFName(""), End: gtpu.End{Address: address, TEID: teid}}
}

// takeRefusal takes a GTP-U error indication in a VRF, an outer IP packet.
func (s *agf) takeRefusal(vrf string, packet []byte) {
	if end, ok := gtpu.RefusedEnd(packet); ok {
		if owner := s.ends[farEnd{VRF: vrf, End: end}]; owner != nil {
			owner.refused()
		}
	}
}

// refusalNotify is PDU SESSION RESOURCE NOTIFY for a resource that the gateway gives up.
func refusalNotify(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID, id uint8) (*ngap.PDUSessionResourceNotify, error) {
	cause, received := ngap.CauseTransportTransportResourceUnavailable, ngap.UserPlaneErrorIndicatorGTPUErrorIndicationReceived
	transfer, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceNotifyReleasedTransfer{Cause: ngap.Cause{Transport: &cause}, UserPlaneErrorIndicator: &received})
	return &ngap.PDUSessionResourceNotify{AMFUENGAPID: amf, RANUENGAPID: ran,
		PDUSessionResourceReleasedListNot: []ngap.PDUSessionResourceReleasedItemNot{{PDUSessionID: ngap.PDUSessionID(id), PDUSessionResourceNotifyReleasedTransfer: transfer}}}, err
}

// Refused: the UPF does not know the tunnel of the session. The line asks for another one by a service request.
func (s *Session) Refused() {
	l, now := s.line, s.line.world.Now()
	if s.state != active || l.state != registered || !l.connected() || now.Before(s.refusedUntil) {
		return
	}
	amf, ran := l.core.IDs()
	message, err := refusalNotify(amf, ran, s.ID)
	if err != nil {
		return
	}
	s.refusedUntil = now.Add(refusalPause)
	l.core.Send(message)
	l.requestService()
}

// refused implements tunnelOwner.
func (m *member) refused() {
	m.service.environment.Log.Warn("the UPF does not know the tunnel of a PDU session", "session", m.id, "upf", m.end.Address.String())
	m.session.Refused()
}

// refused implements tunnelOwner. The 5G-RG loses the resource, and asks for it when it needs one.
func (r *resource) refused() {
	g := r.g
	if g.core == nil || g.gone {
		return
	}
	amf, ran := g.core.IDs()
	message, err := refusalNotify(amf, ran, r.id)
	if err != nil {
		return
	}
	g.service.environment.Log.Warn("the UPF does not know the tunnel of a PDU session", "session", r.name(), "upf", r.remote.String())
	g.core.Send(message)
	g.withdraw(r)
	g.settle()
}
