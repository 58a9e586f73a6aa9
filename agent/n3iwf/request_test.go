// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/service"
)

// informing is an IKE service whose UEs answer notifications when the test says so.
type informing struct {
	*aServer
	// QFIs of each 5G_QOS_INFO, and what takes its answer.
	qfis [][]byte
	done []func(ike.NotifyAnswered)
}

func (i *informing) Inform(_ uint64, _ string, notify []*message.Notify, done func(ike.NotifyAnswered)) error {
	for _, n := range notify {
		if n.Kind == notifyQoS {
			i.qfis = append(i.qfis, n.Data[3:3+n.Data[2]])
		}
	}
	i.done = append(i.done, done)
	return nil
}

func (i *informing) CloseChild(uint64, string) error { return nil }

// aSession is a UE with a PDU session whose QoS flow is 1.
func aSession(t *testing.T) (*serving, *informing, *ue) {
	t.Helper()
	s, server := newServer(t)
	s.shared = service.NewShared(s.objects, sharedPrefix, s.post, func(k object.Key, err error) { t.Error(k, err) })
	server.peers = nil
	follow(s, "N3iwf", "wifi", anN3iwf(nil))
	of := &informing{aServer: server}
	s.ike = of
	in := s.instances["wifi"]
	u := in.restore(&restoredUE{name: "n3iwf-wifi-1", ueRecord: ueRecord{Peer: 7, Inner: []netip.Addr{netip.MustParseAddr("10.201.0.1")}, Sessions: []sessionRecord{{ID: 1,
		Flows: []qosflow.Flow{{QFI: 1, FiveQI: 9}}, Far: netip.MustParseAddr("198.51.100.2"), FarTEID: 5, TEID: 6, Local: netip.MustParseAddr("10.200.0.2"),
		Remote: netip.MustParseAddr("10.201.0.1"), Children: []childRecord{{Name: "pdu-1-1", QFIs: []uint16{1}, Default: true, DSCP: -1}}}}}})
	s.work()
	return s, of, u
}

// modified is how modifications of a PDU session end: "2 ok" for the one that adds QFI 2, or its cause.
type modified []string

// add has the core add a QoS flow.
func (m *modified) add(t *testing.T, u *ue, qfi int64) {
	t.Helper()
	fiveQI := ngap.NonDynamic5QIDescriptor{FiveQI: 9}
	transfer, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyRequestTransfer{QosFlowAddOrModifyRequestList: []ngap.QosFlowAddOrModifyRequestItem{{
		QosFlowIdentifier: ngap.QosFlowIdentifier(qfi), QosFlowLevelQosParameters: &ngap.QosFlowLevelQosParameters{QosCharacteristics: ngap.QosCharacteristics{NonDynamic5QI: &fiveQI},
			AllocationAndRetentionPriority: ngap.AllocationAndRetentionPriority{PriorityLevelARP: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	u.modify(ngap.PDUSessionResourceModifyItemModReq{PDUSessionID: 1, PDUSessionResourceModifyRequestTransfer: transfer}, func(transfer []byte, ok bool) {
		if ok {
			*m = append(*m, fmt.Sprint(qfi, " ok"))
			return
		}
		var why ngap.PDUSessionResourceModifyUnsuccessfulTransfer
		if _, err := ngap.DecodeTransfer(transfer, &why); err != nil {
			t.Error(err)
		}
		*m = append(*m, fmt.Sprint(qfi, " ", why.Cause.RadioNetwork))
	})
	u.s.work()
}

// answer is the UE's answer to a notification.
func (i *informing) answer(s *serving, at int, err error) {
	i.done[at](ike.NotifyAnswered{Err: err})
	s.work()
}

func TestAModificationWaitsForTheOneThatIsUnderWay(t *testing.T) {
	s, of, u := aSession(t)
	var m modified
	for _, qfi := range []int64{2, 3, 4} {
		m.add(t, u, qfi)
	}
	if len(of.qfis) != 1 || !slices.Equal(of.qfis[0], []byte{1, 2}) || len(m) != 0 {
		t.Fatalf("%v, %q", of.qfis, m)
	}
	of.answer(s, 0, nil)
	if len(of.qfis) != 2 || !slices.Equal(of.qfis[1], []byte{1, 2, 3}) {
		t.Fatalf("%v, %q", of.qfis, m)
	}
	// The UE refuses it, and the flows of before come back, before the next one.
	of.answer(s, 1, errors.New("the peer refuses"))
	if len(of.qfis) != 3 || !slices.Equal(of.qfis[2], []byte{1, 2}) {
		t.Fatalf("%v, %q", of.qfis, m)
	}
	of.answer(s, 2, nil)
	if len(of.qfis) != 4 || !slices.Equal(of.qfis[3], []byte{1, 2, 4}) {
		t.Fatalf("%v, %q", of.qfis, m)
	}
	of.answer(s, 3, nil)
	if got := strings.Join(m, ", "); got != "2 ok, 3 radio-resources-not-available, 4 ok" {
		t.Errorf("%q", got)
	}
	if p := u.sessions[1]; len(p.flows) != 3 || p.busy || len(p.queued) != 0 {
		t.Errorf("%v", p.flows)
	}
}

func TestModificationsThatWaitAreRefusedWhenTheyAreTooManyOrTheSessionEnds(t *testing.T) {
	s, of, u := aSession(t)
	var m modified
	for qfi := range int64(maxQueued + 2) {
		m.add(t, u, 2+qfi)
	}
	if got := strings.Join(m, ", "); got != fmt.Sprint(maxQueued+3, " interaction-with-other-procedure") {
		t.Fatalf("%q", got)
	}
	u.sessions[1].remove(false, func() {})
	of.answer(s, 0, nil)
	if len(m) != maxQueued+2 || len(of.qfis) != 1 {
		t.Fatalf("%q", m)
	}
	for _, one := range m[2:] {
		if !strings.HasSuffix(one, " unknown-PDU-session-ID") {
			t.Errorf("%q", one)
		}
	}
}

func TestANASMessageThatIsTooLongForItsEnvelopeIsNotSent(t *testing.T) {
	s, _, u := aSession(t)
	u.downlink(make([]byte, maxEnvelope+1))
	if len(u.waiting) != 0 || counted(t, s, "too-long") != 1 {
		t.Errorf("%d wait, %d are too long", len(u.waiting), counted(t, s, "too-long"))
	}
	u.downlink(make([]byte, maxEnvelope))
	if len(u.waiting) != 1 || len(envelope(u.waiting[0])) != 2+maxEnvelope {
		t.Errorf("%d wait", len(u.waiting))
	}
	// EAP-5G has less room.
	s.pool = &aCore{}
	h := begin(s, "192.0.2.100")
	h.next(s, firstNAS)
	half := s.talks[h.step.Conversation]
	half.downlink(make([]byte, maxEAPNAS+1))
	if len(half.waiting) != 0 || counted(t, s, "too-long") != 2 {
		t.Errorf("%d wait, %d are too long", len(half.waiting), counted(t, s, "too-long"))
	}
}
