// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"context"
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Usage of PDU sessions: counters of their Sessions in the data plane, and the volumes that the core gets with the answers to PDU SESSION RESOURCE MODIFY
// REQUEST, PDU SESSION RESOURCE RELEASE COMMAND and UE CONTEXT RELEASE COMMAND, and with PDU SESSION RESOURCE NOTIFY.

const (
	// How long an answer to the core waits for counters.
	countTime = 2 * time.Second
	// Sessions in one query.
	pageLength = 1000
	// Between 1900 and 1970: times in NGAP are as those of NTP (TS 38.413 section 9.3.1.88).
	ntpEpoch = 2208988800
)

// volume is what a session let through.
type volume struct{ upPackets, upBytes, downPackets, downBytes uint64 }

func volumeOf(c *api.SessionCounters) volume {
	return volume{c.GetUpPackets(), c.GetUpBytes(), c.GetDownPackets(), c.GetDownBytes()}
}

func (v volume) plus(w volume) volume {
	return volume{v.upPackets + w.upPackets, v.upBytes + w.upBytes, v.downPackets + w.downPackets, v.downBytes + w.downBytes}
}

// usage is what a PDU session carried.
type usage struct {
	// The counters of the data plane as they were read last, and those of data planes before it: a new one begins at 0.
	last, before volume
	// The number of the reading that gave them: readings may end in another order than they began.
	reading uint64
	// The volume that the core knows, and until when.
	reported volume
	since    time.Time
}

// read takes the counters of a reading, unless a later one was taken already. It returns false if they are as they were.
func (u *usage) read(reading uint64, now volume) bool {
	if reading < u.reading || now == u.last {
		return false
	}
	u.reading = reading
	if now.upPackets < u.last.upPackets || now.downPackets < u.last.downPackets {
		u.before = u.before.plus(u.last)
	}
	u.last = now
	return true
}

func (u *usage) total() volume { return u.before.plus(u.last) }

// report is what the session carried since the report before.
func (u *usage) report(rat ngap.RATType, now time.Time) *ngap.SecondaryRATUsageInformation {
	total := u.total()
	item := ngap.VolumeTimedReportItem{StartTimeStamp: ntp(u.since), EndTimeStamp: ntp(now),
		UsageCountUL: ngap.UsageCountUL(total.upBytes - u.reported.upBytes), UsageCountDL: ngap.UsageCountDL(total.downBytes - u.reported.downBytes)}
	u.reported, u.since = total, now
	return &ngap.SecondaryRATUsageInformation{PDUSessionUsageReport: &ngap.PDUSessionUsageReport{RATType: rat, PDUSessionTimedReportList: []ngap.VolumeTimedReportItem{item}}}
}

// ntp is a time in seconds since 1900.
func ntp(t time.Time) []byte { return binary.BigEndian.AppendUint32(nil, uint32(t.Unix()+ntpEpoch)) }

// rats are the RAT types of reports.
var rats = map[api.UsageRat]ngap.RATType{api.UsageRat_NR: ngap.RATTypeNr, api.UsageRat_EUTRA: ngap.RATTypeEutra, api.UsageRat_NR_UNLICENSED: ngap.RATTypeNrUnlicensed,
	api.UsageRat_EUTRA_UNLICENSED: ngap.RATTypeEUtraUnlicensed}

// report is the report of a session for the core; nil: the configuration has no usageRat.
func (p *pduSession) report() *ngap.SecondaryRATUsageInformation {
	rat, configured := rats[p.u.in.spec.UsageRat]
	if !configured {
		return nil
	}
	return p.usage.report(rat, time.Now())
}

// finish deletes the Session. counted is called once its last counters are known, or after a while without them.
func (p *pduSession) finish(counted func()) {
	s, key, waits := p.u.s, object.Key{Kind: "Session", Name: p.name()}, true
	done := func() {
		if waits {
			waits = false
			counted()
		}
	}
	if p.u.in.spec.UsageRat == api.UsageRat_NO_USAGE {
		s.objects.Delete(key, nil)
		done()
		return
	}
	s.objects.Delete(key, func(r service.Result) {
		s.post(func() {
			var last api.SessionCounters
			if len(r.Final) > 0 && proto.Unmarshal(r.Final, &last) == nil {
				p.usage.read(s.newReading(), volumeOf(&last))
			}
			done()
		})
	})
	time.AfterFunc(countTime, func() { s.post(done) })
}

// count reads the counters of a session. counted is called once they are known, or after a while without them.
func (p *pduSession) count(counted func()) {
	s := p.u.s
	client := s.planes[p.u.peer.Dataplane]
	if p.u.in.spec.UsageRat == api.UsageRat_NO_USAGE || client == nil || !p.made {
		counted()
		return
	}
	reading := s.newReading()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), countTime)
		defer cancel()
		all, _ := countersOf(ctx, client, []string{p.name()})
		s.post(func() {
			for _, c := range all {
				p.usage.read(reading, volumeOf(c))
			}
			counted()
		})
	}()
}

// newReading numbers the readings of counters in the order of their beginning.
func (s *serving) newReading() uint64 {
	s.readings++
	return s.readings
}

// countersOf reads the counters of sessions. It returns false if it has not read all.
func countersOf(ctx context.Context, client *dataplane.Client, names []string) (all []*api.SessionCounters, complete bool) {
	for len(names) > 0 {
		n := min(len(names), pageLength)
		answer, err := dataplane.Ask[*api.SessionCountersList](ctx, client, &api.SessionCountersQuery{Sessions: names[:n]})
		if err != nil {
			return all, false
		}
		all, names = append(all, answer.GetSessions()...), names[n:]
	}
	return all, true
}

// releasedTransfer is the answer about a session that is released; p nil: there was none.
func releasedTransfer(p *pduSession) []byte {
	m := &ngap.PDUSessionResourceReleaseResponseTransfer{}
	if p != nil {
		m.SecondaryRATUsageInformation = p.report()
	}
	transfer, _ := ngap.EncodeTransfer(m)
	return transfer
}

// ---- The end of a UE's context.

// ending is what UE CONTEXT RELEASE COMPLETE says: the PDU sessions that had a user plane.
type ending struct {
	sessions []*pduSession
	// Their counters are known; and who waits for that.
	counted bool
	then    []func()
}

// endSessions ends the user plane of all PDU sessions. Child SAs stay: they go with the IKE SA.
func (u *ue) endSessions() *ending {
	if u.ending != nil {
		return u.ending
	}
	e := &ending{}
	u.ending = e
	for _, id := range sortedIDs(u.sessions) {
		if p := u.sessions[id]; p.made {
			e.sessions = append(e.sessions, p)
		}
	}
	left := len(e.sessions) + 1
	one := func() {
		if left--; left > 0 {
			return
		}
		e.counted = true
		for _, f := range e.then {
			f()
		}
	}
	for _, p := range e.sessions {
		p.stop(one)
	}
	one()
	return e
}

// ids of the PDU sessions that had a user plane.
func (e *ending) ids() (ids []uint8) {
	for _, p := range e.sessions {
		ids = append(ids, p.id)
	}
	return ids
}

// complete fills UE CONTEXT RELEASE COMPLETE (TS 23.502 section 4.12.4.2 step 4): where the UE is, and the PDU sessions that had a user plane.
func (u *ue) complete(m *ngap.UEContextReleaseComplete, done func()) {
	e := u.endSessions()
	filled := func() {
		location := u.location()
		m.UserLocationInformation = &location
		for _, p := range e.sessions {
			item := ngap.PDUSessionResourceItemCxtRelCpl{PDUSessionID: ngap.PDUSessionID(p.id)}
			if report := p.report(); report != nil {
				item.PDUSessionResourceReleaseResponseTransfer, _ = ngap.EncodeTransfer(&ngap.PDUSessionResourceReleaseResponseTransfer{SecondaryRATUsageInformation: report})
			}
			m.PDUSessionResourceListCxtRelCpl = append(m.PDUSessionResourceListCxtRelCpl, item)
		}
		done()
	}
	if e.counted {
		filled()
		return
	}
	e.then = append(e.then, filled)
}
