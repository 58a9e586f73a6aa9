// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/tcp"
)

// UEs that outlive the agent. A UE has a record from INITIAL CONTEXT SETUP RESPONSE on; one that is still registering begins anew. Its IKE SA is in the
// records of the IKE service, and its context at the AMF in those of the N2 service. Its TCP connection goes on in the new process: a UE whose
// connection was reset would open another one (TS 24.502 section 7.3), but until then the core would not reach it.

const (
	ueKey  = "ue/"
	nasKey = "nas/"
)

// ueRecord is the durable part of a UE.
type ueRecord struct {
	N3iwf string `json:"n3iwf"`
	// The fields of the N3iwf that the UE depends on, and its label.
	Fixed [8]string `json:"fixed"`
	Plane string    `json:"plane,omitempty"`
	// ID of its IKE SA, the data plane, and where the UE was.
	Peer      uint64         `json:"peer"`
	Dataplane string         `json:"dataplane"`
	Remote    netip.AddrPort `json:"remote"`
	// RAN UE NGAP ID.
	RAN      int64                              `json:"ran"`
	Inner    []netip.Addr                       `json:"inner"`
	AMBR     [2]uint64                          `json:"ambr"`
	Children int                                `json:"children"`
	Since    time.Time                          `json:"since"`
	Past     [4]uint64                          `json:"past"`
	Reports  *ngap.LocationReportingRequestType `json:"reports,omitempty"`
	Sessions []sessionRecord                    `json:"sessions,omitempty"`
	// PDU sessions that the core asked for, and whose setup is not answered.
	Opening []uint8 `json:"opening,omitempty"`
}

type sessionRecord struct {
	ID       uint8          `json:"id"`
	Frames   bool           `json:"frames,omitempty"`
	Flows    []qosflow.Flow `json:"flows"`
	AMBR     [2]uint64      `json:"ambr"`
	Far      netip.Addr     `json:"far"`
	FarTEID  uint32         `json:"farTeid"`
	TEID     uint32         `json:"teid"`
	Local    netip.Addr     `json:"local"`
	Remote   netip.Addr     `json:"remote"`
	Children []childRecord  `json:"children"`
	Before   [4]uint64      `json:"before"`
	Last     [4]uint64      `json:"last"`
	Reported [4]uint64      `json:"reported"`
	Since    time.Time      `json:"since"`
}

type childRecord struct {
	Name    string   `json:"name"`
	QFIs    []uint16 `json:"qfis"`
	Default bool     `json:"default,omitempty"`
	DSCP    int      `json:"dscp"`
}

// nasRecord is the durable part of a UE's TCP connection, without one of what waits for it.
type nasRecord struct {
	Connection *tcp.State `json:"connection,omitempty"`
	// The part of a message that came.
	Partial []byte `json:"partial,omitempty"`
	// Messages that the UE has not acknowledged as a whole, how many of their bytes it has not, and messages that wait.
	Sent    [][]byte `json:"sent,omitempty"`
	Left    int      `json:"left,omitempty"`
	Waiting [][]byte `json:"waiting,omitempty"`
}

// nasMark changes with each nasRecord that is worth keeping.
type nasMark struct {
	conn             *tcp.Conn
	received, queued uint32
	over             bool
	waiting          int
}

func (v volume) kept() [4]uint64 {
	return [4]uint64{v.upPackets, v.upBytes, v.downPackets, v.downBytes}
}

func volumeFrom(k [4]uint64) volume { return volume{k[0], k[1], k[2], k[3]} }

func (r rates) kept() [2]uint64 { return [2]uint64{r.up, r.down} }

func ratesFrom(k [2]uint64) rates { return rates{k[0], k[1]} }

// record is the UE's, once its context is set up.
func (u *ue) record() *ueRecord {
	r := &ueRecord{N3iwf: u.in.name, Fixed: fixed(u.in.spec), Plane: u.in.plane, Peer: u.peer.ID, Dataplane: u.peer.Dataplane, Remote: u.peer.Remote, RAN: u.ran, Inner: u.inner,
		AMBR: u.ambr.kept(), Children: u.children, Since: u.since, Past: u.past.kept()}
	if u.reports != nil {
		r.Reports = &u.reports.LocationReportingRequestType
	}
	for _, id := range sortedIDs(u.sessions) {
		p := u.sessions[id]
		if !p.answered {
			r.Opening = append(r.Opening, id)
			continue
		}
		one := sessionRecord{ID: id, Frames: p.frames, Flows: qosflow.Sorted(p.flows), AMBR: p.ambr.kept(), Far: p.far, FarTEID: p.farTEID, TEID: p.teid, Local: p.local, Remote: p.remote,
			Before: p.usage.before.kept(), Last: p.usage.last.kept(), Reported: p.usage.reported.kept(), Since: p.usage.since}
		for _, c := range p.children {
			kept := childRecord{Name: c.name, Default: c.isDefault, DSCP: c.dscp}
			for _, qfi := range c.qfis {
				kept.QFIs = append(kept.QFIs, uint16(qfi))
			}
			one.Children = append(one.Children, kept)
		}
		r.Sessions = append(r.Sessions, one)
	}
	return r
}

// save keeps the UE as it is. Messages that are sent afterwards wait for it.
func (u *ue) save() {
	if !u.settled || u.gone || u.s.Records == nil {
		return
	}
	if value, ok := u.s.kept(u.name, u.record()); ok {
		u.records = u.s.Records.Put(durable.Record{Key: ueKey + u.name, Value: value})
	}
}

func (s *serving) kept(name string, record any) ([]byte, bool) {
	value, err := json.Marshal(record)
	if err != nil {
		s.Log.Error("the record of a UE cannot be written", "name", name, "error", err)
		return nil, false
	}
	return value, true
}

// saveNAS keeps the TCP connection, if it has changed so that another process must know.
func (u *ue) saveNAS() {
	if !u.settled || u.gone || u.s.Records == nil {
		return
	}
	mark := nasMark{conn: u.conn, waiting: len(u.waiting)}
	if u.conn != nil {
		mark.received, mark.queued = u.conn.Progress()
		mark.over = u.conn.Over()
	}
	if mark == u.mark {
		return
	}
	u.mark = mark
	r, ok := u.nasRecord()
	if !ok {
		u.records = u.s.Records.Put(durable.Record{Key: nasKey + u.name})
	} else if value, ok := u.s.kept(u.name, r); ok {
		u.records = u.s.Records.Put(durable.Record{Key: nasKey + u.name, Value: value})
	}
}

// nasRecord returns false if there is nothing to go on with.
func (u *ue) nasRecord() (*nasRecord, bool) {
	r := &nasRecord{Waiting: u.waiting}
	if u.conn == nil {
		return r, len(u.waiting) > 0
	}
	u.acknowledge()
	r.Sent = u.sent
	if state, goesOn := u.conn.State(); goesOn {
		r.Left = len(state.Out)
		state.Out = nil // the messages have it
		r.Connection, r.Partial = &state, u.reading.waiting
	}
	return r, true
}

// unsave deletes the records.
func (u *ue) unsave() {
	if !u.settled || u.s.Records == nil {
		return
	}
	u.settled = false
	u.records = u.s.Records.Put(durable.Record{Key: ueKey + u.name}, durable.Record{Key: nasKey + u.name})
}

// restoredUE is a UE from before a restart.
type restoredUE struct {
	name string
	ueRecord
	nas nasRecord
}

// loadRecords reads the records from before a restart.
func (s *serving) loadRecords() {
	if s.Records == nil {
		return
	}
	for _, r := range s.Records.All() {
		name, is := strings.CutPrefix(r.Key, ueKey)
		if !is {
			if of, nas := strings.CutPrefix(r.Key, nasKey); !nas || s.Records.Get(ueKey+of) == nil {
				s.Records.Put(durable.Record{Key: r.Key})
			}
			continue
		}
		one := &restoredUE{name: name}
		err := json.Unmarshal(r.Value, &one.ueRecord)
		if kept := s.Records.Get(nasKey + name); err == nil && kept != nil {
			err = json.Unmarshal(kept, &one.nas)
		}
		if err != nil {
			s.Log.Error("a UE is lost", "name", name, "error", err)
			s.Records.Put(durable.Record{Key: ueKey + name}, durable.Record{Key: nasKey + name})
			continue
		}
		if n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:]); err == nil {
			s.lastNumber = max(s.lastNumber, n)
		}
		s.restored[one.N3iwf] = append(s.restored[one.N3iwf], one)
	}
}

// takeUp takes over the UEs of an N3iwf. Peers are the IKE SAs that have gone on.
func (s *serving) takeUp(in *instance, peers []ike.Peer) {
	all := s.restored[in.name]
	delete(s.restored, in.name)
	for _, r := range all {
		at := slices.IndexFunc(peers, func(p ike.Peer) bool { return p.ID == r.Peer })
		u := in.restore(r)
		if at >= 0 {
			u.peer = peers[at]
			u.compare(peers[at].Children)
		} else {
			u.closing, u.severed = "its IKE SA ended while the agent was away", true
		}
		if !u.severed && (r.Fixed != fixed(in.spec) || r.Plane != in.plane || in.ends(in, u)) {
			u.closing = "the N3iwf was changed"
		}
		s.taken = append(s.taken, u)
	}
}

// restore makes a UE of its record, with its objects.
func (in *instance) restore(r *restoredUE) *ue {
	s, now := in.s, time.Now()
	u := &ue{s: s, in: in, name: r.name, peer: ike.Peer{ID: r.Peer, Connection: connectionPrefix + in.name, Dataplane: r.Dataplane, Remote: r.Remote}, up: true, settled: true, suspended: true,
		asked: true, ran: r.RAN, inner: r.Inner, waiting: r.nas.Waiting, sent: r.nas.Sent, sessions: map[uint8]*pduSession{}, ambr: ratesFrom(r.AMBR), past: volumeFrom(r.Past),
		children: r.Children, since: r.Since, active: now, looked: now, unanswered: r.Opening}
	if r.Reports != nil {
		u.reports = &ngap.LocationReportingControl{LocationReportingRequestType: *r.Reports}
	}
	u.reconnect(&r.nas, now)
	in.ues[u] = true
	s.peers[u.peer.ID], s.names[u.name] = u, u
	for _, a := range u.inner {
		in.given[a] = u
		for _, p := range in.pools {
			if last := in.last[p]; p.Contains(a) && (!last.IsValid() || last.Less(a)) {
				in.last[p] = a
			}
		}
	}
	u.reachable()
	for i := range r.Sessions {
		u.sessions[r.Sessions[i].ID] = u.restoreSession(&r.Sessions[i])
	}
	// Rates may be shared: all sessions are needed.
	for _, id := range sortedIDs(u.sessions) {
		u.sessions[id].produce()
	}
	return u
}

func (u *ue) restoreSession(r *sessionRecord) *pduSession {
	p := &pduSession{u: u, id: r.ID, frames: r.Frames, answered: true, parameters: parameters{flows: map[uint8]qosflow.Flow{}, ambr: ratesFrom(r.AMBR), far: r.Far, farTEID: r.FarTEID},
		teid: r.TEID, local: r.Local, remote: r.Remote, usage: usage{before: volumeFrom(r.Before), last: volumeFrom(r.Last), reported: volumeFrom(r.Reported), since: r.Since}}
	for _, f := range r.Flows {
		p.flows[f.QFI] = f
	}
	for _, kept := range r.Children {
		c := &childSA{group: group{isDefault: kept.Default, dscp: kept.DSCP}, name: kept.Name, tunnel: u.name + "-" + kept.Name}
		for _, qfi := range kept.QFIs {
			c.qfis = append(c.qfis, uint8(qfi))
		}
		u.s.put("IpsecTunnel", c.tunnel, &api.IpsecTunnel{Vrf: u.in.spec.Vrf}, nil)
		p.children = append(p.children, c)
	}
	u.s.teids[p.teid] = true
	p.reserve()
	return p
}

// reconnect goes on with the TCP connection.
func (u *ue) reconnect(r *nasRecord, now time.Time) {
	if r.Connection == nil {
		u.waiting, u.sent = slices.Concat(u.sent, u.waiting), nil
		return
	}
	state := *r.Connection
	var out []byte
	for _, m := range u.sent {
		out = append(out, envelope(m)...)
	}
	// Of the first message, the UE may have a part.
	state.Out = out[max(0, len(out)-r.Left):]
	u.conn, u.reading = tcp.Restore(state, now), envelopes{waiting: r.Partial}
}

// compare looks at the child SAs that the UE has now.
func (u *ue) compare(children []ike.ChildState) {
	has := map[string]bool{}
	for _, c := range children {
		has[c.Name] = true
	}
	if !has[signalling] {
		u.closing = "the signalling SA is gone"
	}
	delete(has, signalling)
	for _, p := range u.sessions {
		for _, c := range p.children {
			if !has[c.name] {
				p.lost = time.Now()
			}
			delete(has, c.name)
		}
	}
	for name := range has {
		u.superfluous = append(u.superfluous, name)
	}
}

// claim gives the UEs their contexts at AMFs.
func (s *serving) claim() {
	s.pool.Do(func() {
		for _, u := range s.taken {
			u.core = s.pool.Claim(u.ran, link{u: u})
		}
	})
}

// resume ends the UEs that cannot go on, once the data planes have the objects of all, and what was begun for the others.
func (s *serving) resume() {
	kept := 0
	for _, u := range s.taken {
		switch {
		case u.severed:
			u.down(u.closing)
			continue
		case u.core == nil:
			u.end("the AMF has no context of the UE any more")
			continue
		case u.closing != "":
			u.end(u.closing)
			continue
		}
		kept++
		for _, name := range u.superfluous {
			if err := s.ike.CloseChild(u.peer.ID, name); err != nil {
				s.Log.Info("a child SA cannot be closed", "name", u.name, "error", err)
			}
		}
		u.superfluous = nil
		u.unopened()
	}
	if len(s.taken) > 0 {
		s.Log.Info("UEs of before the restart are taken over", "connected", kept, "ended", len(s.taken)-kept)
	}
	s.taken = nil
	for name, all := range s.restored {
		for _, r := range all {
			s.Log.Info("a UE is disconnected", "name", r.name, "why", fmt.Sprintf("N3iwf/%s does not serve", name))
			s.Records.Put(durable.Record{Key: ueKey + r.name}, durable.Record{Key: nasKey + r.name})
		}
	}
	clear(s.restored)
}

// unopened answers requests for PDU sessions that the process before was about to set up.
func (u *ue) unopened() {
	var results []setupResult
	for _, id := range u.unanswered {
		results = append(results, setupResult{id: id, transfer: unsuccessful(ngap.CauseRadioNetworkFailureInRadioInterfaceProcedure)})
	}
	if u.unanswered = nil; len(results) == 0 {
		return
	}
	u.save()
	u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any { return setupResponse(amf, ran, results) })
}
