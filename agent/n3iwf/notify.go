// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Notifications of TS 24.502 section 9.2.4.
const (
	notifyCongestion message.NotifyType = 15500
	notifyQoS        message.NotifyType = 55501
	notifyNAS4       message.NotifyType = 55502
	notifyNAS6       message.NotifyType = 55503
	notifyUP4        message.NotifyType = 55504
	notifyUP6        message.NotifyType = 55505
	notifyNASPort    message.NotifyType = 55506
	notifyBackOff    message.NotifyType = 55507
	notifySA         message.NotifyType = 55508
)

// Flags of 5G_QOS_INFO.
const (
	qosDSCP    = 1 << 0
	qosDefault = 1 << 1
)

// qosInfo is the 5G_QOS_INFO notification of a child SA (section 9.3.1.1). dscp less than 0: none.
func qosInfo(session uint8, qfis []uint8, isDefault bool, dscp int) *message.Notify {
	data := append([]byte{0, session, byte(len(qfis))}, qfis...)
	flags := byte(0)
	if isDefault {
		flags |= qosDefault
	}
	if dscp >= 0 {
		data = append(data, flags|qosDSCP, byte(dscp))
	} else {
		data = append(data, flags)
	}
	data[0] = byte(len(data) - 1)
	return &message.Notify{Kind: notifyQoS, Data: data}
}

// saInfo is the UP_SA_INFO notification (section 9.3.1.8): which child SA a 5G_QOS_INFO modifies, by its SPI.
func saInfo() *message.Notify { return &message.Notify{Kind: notifySA, Protocol: message.ProtocolESP} }

// addressNotify is NAS_IP4_ADDRESS and so on.
func addressNotify(four, six message.NotifyType, a netip.Addr) *message.Notify {
	if a.Is4() {
		return &message.Notify{Kind: four, Data: a.AsSlice()}
	}
	return &message.Notify{Kind: six, Data: a.AsSlice()}
}

func portNotify(port uint16) *message.Notify {
	return &message.Notify{Kind: notifyNASPort, Data: binary.BigEndian.AppendUint16(nil, port)}
}

// timerUnits are those of a GPRS timer 3 (TS 24.008 section 10.5.7.4a), the finest first.
var timerUnits = []struct {
	bits byte
	unit time.Duration
}{{3, 2 * time.Second}, {4, 30 * time.Second}, {5, time.Minute}, {0, 10 * time.Minute}, {1, time.Hour}, {2, 10 * time.Hour}}

// gprsTimer3 is a time rounded up to a value of the timer.
func gprsTimer3(d time.Duration) byte {
	for _, u := range timerUnits {
		if n := (d + u.unit - 1) / u.unit; n <= 31 {
			return u.bits<<5 | byte(n)
		}
	}
	return 2<<5 | 31
}

// backOffNotifies have a UE stay away for a while.
func backOffNotifies(d time.Duration) []*message.Notify {
	return []*message.Notify{{Kind: notifyCongestion, Data: []byte{}}, {Kind: notifyBackOff, Data: []byte{1, gprsTimer3(d)}}}
}

// The NAS message envelope (section 9.4): a length of two bytes before each message on the TCP connection.

var errEnvelope = errors.New("a NAS message envelope without a message")

// envelopes cuts a stream into messages.
type envelopes struct{ waiting []byte }

func (e *envelopes) take(data []byte) (messages [][]byte, err error) {
	e.waiting = append(e.waiting, data...)
	for len(e.waiting) >= 2 {
		n := int(binary.BigEndian.Uint16(e.waiting))
		if n == 0 {
			return messages, errEnvelope
		}
		if len(e.waiting) < 2+n {
			break
		}
		messages = append(messages, append([]byte(nil), e.waiting[2:2+n]...))
		e.waiting = e.waiting[2+n:]
	}
	if len(e.waiting) == 0 {
		e.waiting = nil
	}
	return messages, nil
}

const (
	// The longest message of an envelope, and of a request of EAP-5G: that has a length of two bytes, too, as have the payloads of IKE around it.
	maxEnvelope = 1<<16 - 1
	maxEAPNAS   = maxEnvelope - 256
)

// envelope is the envelope of a message of at most maxEnvelope bytes.
func envelope(message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
}
