// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

// errorIndication is an outer IP packet of a UPF.
func errorIndication(from, peer string, teid uint32) []byte {
	address := netip.MustParseAddr(peer).AsSlice()
	elements := binary.BigEndian.AppendUint32([]byte{16}, teid)
	elements = append(binary.BigEndian.AppendUint16(append(elements, 133), uint16(len(address))), address...)
	b := binary.BigEndian.AppendUint16([]byte{gtpu.Version1 | 2, 26}, uint16(4+len(elements)))
	b = append(append(b, 0, 0, 0, 0, 0, 1, 0, 0), elements...)
	local := netip.MustParseAddr("192.0.2.1")
	return dhcp.Datagram(netip.AddrPortFrom(netip.MustParseAddr(from), gtpuPort), netip.AddrPortFrom(local, gtpuPort), b)
}

type owner struct{ count int }

func (o *owner) refused() { o.count++ }

func TestAUPFSpeaksOfItsOwnTunnels(t *testing.T) {
	s := &agf{ends: map[farEnd]tunnelOwner{}}
	one, end := &owner{}, farEnd{}
	s.moveEnd(one, &end, farEndOf(netip.MustParseAddr("192.0.2.2"), 7001))
	s.takeRefusal("default", errorIndication("192.0.2.3", "192.0.2.2", 7001))
	s.takeRefusal("default", errorIndication("192.0.2.2", "192.0.2.2", 7002))
	s.takeRefusal("red", errorIndication("192.0.2.2", "192.0.2.2", 7001))
	if one.count != 0 {
		t.Error("another UPF, another tunnel, or another VRF")
	}
	s.takeRefusal("default", errorIndication("192.0.2.2", "192.0.2.2", 7001))
	if one.count != 1 {
		t.Error(one.count)
	}
	// The end moves, and goes.
	s.moveEnd(one, &end, farEndOf(netip.MustParseAddr("192.0.2.2"), 7003))
	s.takeRefusal("default", errorIndication("192.0.2.2", "192.0.2.2", 7001))
	s.takeRefusal("default", errorIndication("192.0.2.2", "192.0.2.2", 7003))
	s.moveEnd(one, &end, farEnd{})
	s.takeRefusal("default", errorIndication("192.0.2.2", "192.0.2.2", 7003))
	if one.count != 2 || len(s.ends) != 0 {
		t.Error(one.count, s.ends)
	}
}

func TestALineWhoseTunnelTheUPFDoesNotKnowRequestsService(t *testing.T) {
	b, u := up(t)
	notifies := func() (count int) {
		for _, sent := range b.core().sent {
			if m, ok := sent.(*ngap.PDUSessionResourceNotify); ok {
				var transfer ngap.PDUSessionResourceNotifyReleasedTransfer
				if _, err := ngap.DecodeTransfer(m.PDUSessionResourceReleasedListNot[0].PDUSessionResourceNotifyReleasedTransfer, &transfer); err != nil || transfer.UserPlaneErrorIndicator == nil {
					t.Errorf("%+v %v", transfer, err)
				}
				count++
			}
		}
		return count
	}
	b.sessions[1].Refused()
	last[*nas.ServiceRequest](b.core())
	// Packets that were on their way have further error indications.
	b.sessions[1].Refused()
	if notifies() != 1 || len(b.cores) != 1 {
		t.Fatalf("%d notifies", notifies())
	}
	b.Receive(&ngap.PDUSessionResourceSetupRequest{NASPDU: b.null(nas.IntegrityCiphered, &nas.ServiceAccept{PDUSessStat: []byte{2, 0}}),
		PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{{PDUSessionID: 1, PDUSessionResourceSetupRequestTransfer: transfer(t, ngap.PDUSessionTypeIpv4, 8)}}})
	if u.ended || b.state != registered || len(u.changed) != 1 || u.changed[0].Tunnel.RemoteTeid != 264 {
		t.Errorf("%+v %d", u, b.state)
	}
	b.sessions[1].Refused()
	b.now = b.now.Add(refusalPause + time.Second)
	b.sessions[1].Refused()
	if notifies() != 2 {
		t.Errorf("%d notifies", notifies())
	}
}
