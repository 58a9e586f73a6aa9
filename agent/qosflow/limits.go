// SPDX-License-Identifier: Apache-2.0

package qosflow

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
)

// Meter is a Meter that flows name.
type Meter struct {
	Name string
	Spec *api.Meter
}

// Aggregates are the rates that limit a PDU session, and how its meters are named.
type Aggregates struct {
	// AMBR of the session and of the subscriber. The subscriber's is shared with other sessions where TogetherUp or TogetherDown is true.
	Session, Subscriber      nas.AMBR
	TogetherUp, TogetherDown bool
	// Owners of meters, unlike those of other sessions and subscribers. Name makes a meter's name.
	SessionID, SubscriberID string
	Name                    func(spec proto.Message, owner string) string
}

// Limits of the rates of a PDU session (TS 23.501 section 5.7.1.8). Where one aggregate rate applies to all packets of a session in a direction, the session
// has a meter, which sessions of the same rate share. Otherwise its flows have meters: a flow with a guaranteed bit rate has one of its MFBR, all other packets
// those of the aggregate rates of the session and of the subscriber.
type Limits struct {
	// Rates of the session's own meters, bit/s; 0: none.
	Up, Down uint64
	// The aggregate rate of the session alone, bit/s; 0: none.
	Aggregate nas.AMBR
	Meters    []Meter
	// Names of meters: of flows with a guaranteed bit rate by QFI, and of other packets.
	flowUp, flowDown   map[uint8]string
	otherUp, otherDown []string
}

// Limit finds the limits of a session with these flows.
func Limit(a *Aggregates, flows map[uint8]Flow) Limits {
	var l Limits
	l.Aggregate = nas.AMBR{Up: alone(a.Session.Up, a.Subscriber.Up, a.TogetherUp), Down: alone(a.Session.Down, a.Subscriber.Down, a.TogetherDown)}
	l.Up, l.flowUp, l.otherUp = l.direction(a, flows, true)
	l.Down, l.flowDown, l.otherDown = l.direction(a, flows, false)
	return l
}

// alone is the lower of the session's rate and of the subscriber's, unless that is shared.
func alone(session, subscriber uint64, together bool) uint64 {
	if subscriber != 0 && !together && (session == 0 || subscriber < session) {
		return subscriber
	}
	return session
}

func (l *Limits) direction(a *Aggregates, flows map[uint8]Flow, up bool) (own uint64, ofFlow map[uint8]string, other []string) {
	session, subscriber, together, suffix := l.Aggregate.Down, a.Subscriber.Down, a.TogetherDown, "\x00down"
	if up {
		session, subscriber, together, suffix = l.Aggregate.Up, a.Subscriber.Up, a.TogetherUp, "\x00up"
	}
	ofFlow = map[uint8]string{}
	for qfi, f := range flows {
		if most := f.Most(up); most != 0 {
			ofFlow[qfi] = l.add(a, a.SessionID+suffix+"\x00"+strconv.Itoa(int(qfi)), most)
		}
	}
	if !together && len(ofFlow) == 0 {
		return session, nil, nil
	}
	if session != 0 {
		other = append(other, l.add(a, a.SessionID+suffix, session))
	}
	if together {
		other = append(other, l.add(a, a.SubscriberID+suffix, subscriber))
	}
	return 0, ofFlow, other
}

func (l *Limits) add(a *Aggregates, owner string, rate uint64) string {
	spec := MeterOf(rate)
	spec.Scope = api.MeterScope_GLOBAL
	one := Meter{a.Name(spec, owner), spec}
	l.Meters = append(l.Meters, one)
	return one.Name
}

// Of are the meters of a flow's packets.
func (l *Limits) Of(qfi uint8) (up, down []string) {
	up, down = l.otherUp, l.otherDown
	if name := l.flowUp[qfi]; name != "" {
		up = []string{name}
	}
	if name := l.flowDown[qfi]; name != "" {
		down = []string{name}
	}
	return up, down
}

// MeterOf polices a rate, with buckets of a tenth of a second.
func MeterOf(rate uint64) *api.Meter {
	rate = Bounded(rate)
	return &api.Meter{Algorithm: api.MeterAlgorithm_SRTCM, CommittedRate: rate, CommittedBurst: min(max(rate/80, 16000), 1<<32-1),
		Red: &api.MeterAction{Verdict: api.MeterVerdict_DROP}}
}

// Together tells, for each direction, whether sessions with these rates of their own may exceed the subscriber's, so that it limits them together. A session
// alone has the lower of both rates.
func Together(subscriber nas.AMBR, sessions []nas.AMBR) (up, down bool) {
	var ups, downs []uint64
	for _, s := range sessions {
		ups, downs = append(ups, s.Up), append(downs, s.Down)
	}
	return exceeds(ups, subscriber.Up), exceeds(downs, subscriber.Down)
}

func exceeds(sessions []uint64, subscriber uint64) bool {
	if subscriber == 0 || len(sessions) < 2 {
		return false
	}
	sum := uint64(0)
	for _, rate := range sessions {
		if rate == 0 || rate > subscriber {
			return true
		}
		sum += rate
	}
	return sum > subscriber
}
