// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"context"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/service"
)

// UEs that send and receive nothing are released (TS 23.502 section 4.12.4.2). The counters of their sessions say what they send and receive.

const lookTime = time.Second

// look is a reading of counters, of the UEs of a data plane whose turn it is.
type look struct {
	ues      []*ue
	sessions map[string]*pduSession
	names    []string
	reading  uint64
}

// Connected implements service.Connector: it reads counters as long as a data plane is connected.
func (s *serving) Connected(ctx context.Context, plane service.Plane) {
	s.post(func() { s.planes[plane.Name] = plane.Client })
	defer s.post(func() {
		if s.planes[plane.Name] == plane.Client {
			delete(s.planes, plane.Name)
		}
	})
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var l *look
		if s.call(ctx, func() { l = s.begin(plane.Name, time.Now()) }) != nil {
			return
		}
		if len(l.ues) == 0 {
			continue
		}
		if all, complete := countersOf(ctx, plane.Client, l.names); complete {
			s.post(func() { l.end(all, time.Now()) })
		}
	}
}

// begin chooses the UEs of a data plane: each is looked at four times in its inactivity time.
func (s *serving) begin(dataplane string, now time.Time) *look {
	l := &look{sessions: map[string]*pduSession{}, reading: s.newReading()}
	for _, u := range s.peers {
		limit := time.Duration(u.in.spec.InactivityTime)
		if limit == 0 || !u.up || u.gone || u.peer.Dataplane != dataplane || now.Before(u.looked.Add(limit/4)) {
			continue
		}
		u.looked = now
		l.ues = append(l.ues, u)
		for _, p := range u.sessions {
			if p.made {
				l.sessions[p.name()] = p
				l.names = append(l.names, p.name())
			}
		}
	}
	return l
}

// end takes the counters.
func (l *look) end(all []*api.SessionCounters, now time.Time) {
	for _, c := range all {
		if p := l.sessions[c.Session]; p != nil && p.usage.read(l.reading, volumeOf(c)) {
			p.u.active = now
		}
	}
	for _, u := range l.ues {
		if limit := time.Duration(u.in.spec.InactivityTime); limit != 0 && u.up && !u.gone && !now.Before(u.active.Add(limit)) {
			u.inactive(now)
		}
	}
}

// inactive asks the AMF to release the context. If it does not, it is asked again after as long.
func (u *ue) inactive(now time.Time) {
	u.active = now
	u.s.Log.Info("a UE is inactive", "name", u.name)
	cause := ngap.CauseRadioNetworkUserInactivity
	u.requestRelease(ngap.Cause{RadioNetwork: &cause}, sortedIDs(u.sessions))
}

// requestRelease sends UE CONTEXT RELEASE REQUEST with the PDU sessions that have a user plane.
func (u *ue) requestRelease(cause ngap.Cause, sessions []uint8) {
	u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		m := &ngap.UEContextReleaseRequest{AMFUENGAPID: amf, RANUENGAPID: ran, Cause: cause}
		for _, id := range sessions {
			m.PDUSessionResourceListCxtRelReq = append(m.PDUSessionResourceListCxtRelReq, ngap.PDUSessionResourceItemCxtRelReq{PDUSessionID: ngap.PDUSessionID(id)})
		}
		return m
	})
}
