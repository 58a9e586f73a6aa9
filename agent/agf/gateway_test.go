// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"log/slog"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/wcp"
)

// noLink is the link of a 5G-RG that is gone.
type noLink struct{}

func (noLink) Send(wcp.Protocol, []byte) {}
func (noLink) Authenticated()            {}
func (noLink) Close(string)              {}

func TestAReleaseRequestThatTheAMFDoesNotAnswerEndsAfterAWhile(t *testing.T) {
	s := &agf{gateways: newGateways()}
	at := &core{t: t, ran: 4}
	g := &gateway{service: s, link: noLink{}, core: at, sessions: map[uint8]*resource{}}
	s.gateways.all[g] = true
	g.wcp = wcp.NewGateway(g)
	g.settle()
	before := time.Now()
	g.end()
	if m, ok := at.sent[0].(*ngap.UEContextReleaseRequest); len(at.sent) != 1 || !ok || m.AMFUENGAPID != 9 || m.RANUENGAPID != 4 ||
		*m.Cause.RadioNetwork != ngap.CauseRadioNetworkRadioConnectionWithUeLost {
		t.Fatalf("%+v", at.sent)
	}
	// Until then the AMF may still release the context, and hears of messages that do not arrive.
	s.tickGateways(before.Add(releaseTime - time.Millisecond))
	gatewayUE{g}.Receive(&ngap.DownlinkNASTransport{AMFUENGAPID: 9, RANUENGAPID: 4, NASPDU: []byte{1}})
	if _, ok := at.sent[1].(*ngap.NASNonDeliveryIndication); !ok || at.closed || !s.gateways.all[g] {
		t.Fatalf("%+v %v", at.sent, at.closed)
	}
	s.tickGateways(time.Now().Add(releaseTime))
	if !at.closed || g.core != nil || len(s.gateways.all) != 0 || len(at.sent) != 2 {
		t.Errorf("%+v %+v", at, s.gateways.all)
	}
	if _, due := s.gateways.due.Due(time.Now().Add(time.Hour)); due {
		t.Error("a 5G-RG that was forgotten has a timer")
	}
}

func TestAContextThatIsNotSetUpFailsAtTheAMF(t *testing.T) {
	s := &agf{gateways: newGateways(), environment: service.Environment{Log: slog.New(slog.DiscardHandler)}}
	at := &core{t: t, ran: 4}
	g := &gateway{service: s, link: noLink{}, core: at, sessions: map[uint8]*resource{}}
	s.gateways.all[g] = true
	g.wcp = wcp.NewGateway(g)
	// The 5G-RG did not ask for it.
	gatewayUE{g}.Receive(&ngap.InitialContextSetupRequest{AMFUENGAPID: 9, RANUENGAPID: 4,
		PDUSessionResourceSetupListCxtReq: []ngap.PDUSessionResourceSetupItemCxtReq{{PDUSessionID: 3}}})
	m, ok := at.sent[0].(*ngap.InitialContextSetupFailure)
	if len(at.sent) != 2 || !ok || m.AMFUENGAPID != 9 || m.RANUENGAPID != 4 || m.Cause.RadioNetwork == nil || len(m.PDUSessionResourceFailedToSetupListCxtFail) != 1 {
		t.Fatalf("%+v", at.sent)
	}
	if _, err := ngap.Encode(m); err != nil {
		t.Error(err)
	}
	if _, ok := at.sent[1].(*ngap.UEContextReleaseRequest); !ok || !g.gone {
		t.Errorf("%+v", at.sent)
	}
}
