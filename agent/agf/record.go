// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/subscriber"
)

// countMargin is the margin of uplink counts after a restart: for messages that were sent after the last record.
const countMargin = 32

// lineRecord is the part of a line that outlives the agent.
type lineRecord struct {
	Line  string `json:"line"`
	Realm string `json:"realm"`
	AGF   string `json:"agf"`
	// The AccessNode, in records of an earlier release, which have no Agf.
	Node  string      `json:"node,omitempty"`
	MAC   []byte      `json:"mac"`
	Slice *nas.SNSSAI `json:"slice,omitempty"`
	// With which the data plane's objects of its sessions were made.
	Markings []*api.FiveQiMark `json:"markings,omitempty"`
	GUTI     []byte            `json:"guti"`
	// -1: idle.
	RAN      int64                `json:"ran"`
	Context  *nas.SecurityContext `json:"context,omitempty"`
	SQN      uint64               `json:"sqn,omitempty"`
	AMBR     nas.AMBR             `json:"ambr,omitzero"`
	Sessions []sessionRecord      `json:"sessions"`
	// Not nil: the line is not registered, and waits.
	Hold *holdRecord `json:"hold,omitempty"`
}

type holdRecord struct {
	Until    time.Time `json:"until"`
	Attempts int       `json:"attempts"`
	Doubts   int       `json:"doubts,omitempty"`
	Refusals int       `json:"refusals,omitempty"`
	Why      string    `json:"why"`
	Objects  string    `json:"objects"`
}

type sessionRecord struct {
	ID uint8 `json:"id"`
	// Of the subscriber session, and whether it began.
	Subscriber string `json:"subscriber"`
	Started    bool   `json:"started,omitempty"`
	// The subscriber session has ended.
	Left   bool       `json:"left,omitempty"`
	Demand Demand     `json:"demand"`
	Active bool       `json:"active"`
	Kind   uint8      `json:"kind"`
	IPv4   netip.Addr `json:"ipv4,omitzero"`
	IID    []byte     `json:"iid,omitempty"`
	// Of IPv6: the prefix, or that the UPF advertised none.
	Prefix   netip.Prefix `json:"prefix,omitzero"`
	Without6 bool         `json:"without6,omitempty"`
	// Prefix for the home.
	Delegation delegationRecord `json:"delegation,omitzero"`
	// Where the line is.
	Dataplane string         `json:"dataplane,omitempty"`
	Port      string         `json:"port,omitempty"`
	OuterVLAN uint16         `json:"outer,omitempty"`
	InnerVLAN uint16         `json:"inner,omitempty"`
	Remote    netip.Addr     `json:"remote,omitzero"`
	TEID      uint32         `json:"teid"`
	AMBR      nas.AMBR       `json:"ambr"`
	QoS       nas.QoS        `json:"qos"`
	Flows     []qosflow.Flow `json:"flows"`
	Options   nas.Options    `json:"options,omitzero"`
}

// record of a registered line. Others have none: they begin anew.
func (l *Line) record() lineRecord {
	r := lineRecord{Line: l.settings.Line, Realm: l.settings.Realm, MAC: l.settings.MAC[:], Slice: l.settings.Slice, Markings: l.settings.Markings, GUTI: l.guti, RAN: -1, Context: l.context, AMBR: l.ambr}
	if l.core != nil {
		_, ran := l.core.IDs()
		r.RAN = int64(ran)
	}
	if s := l.settings.Subscription; s != nil {
		r.SQN = s.Greatest()
	}
	for _, s := range l.sessions {
		if !s.told {
			continue
		}
		r.Sessions = append(r.Sessions, sessionRecord{ID: s.ID, Left: s.left, Demand: s.demand, Active: s.state == active, Kind: s.kind, IPv4: s.ipv4, IID: s.iid[:], Prefix: s.prefix, Without6: s.without6, Delegation: s.delegation.record(),
			Remote: s.remote, TEID: s.teid, AMBR: s.ambr, QoS: s.qos, Flows: qosflow.Sorted(s.flows), Options: s.options})
	}
	return r
}

// restore makes a line of its record: registered, and idle until its context at the AMF resumes.
func restore(r *lineRecord, s Settings, w World) (*Line, error) {
	l := NewLine(s, w)
	l.state, l.ambr = registered, r.AMBR
	l.takeGUTI(r.GUTI)
	if c := r.Context; c != nil {
		context, err := nas.NewSecurityContext(c.KSI, c.KAMF, c.Algorithms)
		if err != nil {
			return nil, fmt.Errorf("the record of line %s: %w", r.Line, err)
		}
		context.Uplink, context.Downlink = c.Uplink+countMargin, c.Downlink
		l.context = context
	}
	if s.Subscription != nil {
		s.Subscription.Restore(r.SQN)
	}
	for i := range r.Sessions {
		of := &r.Sessions[i]
		one := &Session{ID: of.ID, line: l, demand: of.Demand, told: true, left: of.Left, kind: of.Kind, ipv4: of.IPv4, prefix: of.Prefix, without6: of.Without6, remote: of.Remote, teid: of.TEID, ambr: of.AMBR,
			qos: of.QoS, options: of.Options, flows: map[uint8]qosflow.Flow{}}
		copy(one.iid[:], of.IID)
		one.delegation = of.Delegation.delegation()
		for _, f := range of.Flows {
			one.flows[f.QFI] = f
		}
		if of.Active {
			one.state, one.accepted, one.tunnelled = active, true, true
		}
		if one.left {
			one.events = noSubscriber{}
		}
		l.sessions[of.ID] = one
	}
	return l, nil
}

// attach gives a restored line its context; nil: the line comes back by a service request.
func (l *Line) attach(core Core) {
	for _, s := range l.sessions {
		if s.state == active {
			s.dueRenewal()
		}
	}
	if core == nil {
		l.idle(l.world.Random(comeBack))
		return
	}
	l.core, l.suspended = core, true
}

// Save implements World.
func (s *agf) Save(l *Line) {
	one := s.of[l]
	if one == nil || s.environment.Records == nil {
		return
	}
	r := l.record()
	if len(r.Sessions) == 0 || l.state == deregistered || l.state == registering || l.state == over {
		s.unrecord(one)
		return
	}
	r.AGF = one.agf
	for i := range r.Sessions {
		if m, ok := l.sessions[r.Sessions[i].ID].events.(*member); ok {
			at := &r.Sessions[i]
			at.Subscriber, at.Started = m.id, m.started
			at.Dataplane, at.Port, at.OuterVLAN, at.InnerVLAN = m.circuit.Dataplane, m.circuit.Port, m.circuit.OuterVLAN, m.circuit.InnerVLAN
		}
	}
	value, err := json.Marshal(&r)
	if err != nil {
		s.environment.Log.Error("the record of a line cannot be written", "record", one.key, "error", err)
		return
	}
	one.recorded = true
	s.environment.Records.Put(durable.Record{Key: keyOf(one.key), Value: value})
}

// hold has a line wait: also after a restart.
func (s *agf) hold(key string, h hold) {
	now := time.Now()
	if len(s.holds) >= maxHolds && !h.until.After(now) {
		return
	}
	s.holds[key] = h
	if s.environment.Records == nil || !h.until.After(now) {
		return
	}
	value, err := json.Marshal(&lineRecord{Line: key, AGF: h.agf, Hold: &holdRecord{Until: h.until, Attempts: h.attempts, Doubts: h.doubts, Refusals: h.refusals, Why: h.why.Error(), Objects: h.objects}})
	if err != nil {
		s.environment.Log.Error("the record of a line cannot be written", "record", key, "error", err)
		return
	}
	s.environment.Records.Put(durable.Record{Key: keyOf(key), Value: value})
}

// unhold forgets that a line waited.
func (s *agf) unhold(key string) {
	if _, is := s.holds[key]; !is {
		return
	}
	delete(s.holds, key)
	if one := s.lines[key]; s.environment.Records != nil && (one == nil || !one.recorded) {
		s.environment.Records.Put(durable.Record{Key: keyOf(key)})
	}
}

func (s *agf) unrecord(one *registration) {
	if one.recorded {
		one.recorded = false
		s.environment.Records.Put(durable.Record{Key: keyOf(one.key)})
	}
}

// keyOf is a key of the log for a line of any name.
func keyOf(line string) string {
	if line != "" && len(line) <= durable.KeyLimit {
		return line
	}
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:])
}

// loadRecords reads the lines from before a restart, and produces the objects of their sessions.
func (s *agf) loadRecords() {
	if s.environment.Records == nil {
		return
	}
	for _, record := range s.environment.Records.All() {
		var r lineRecord
		err := json.Unmarshal(record.Value, &r)
		if err == nil {
			err = s.takeUp(&r)
		}
		if err != nil {
			s.environment.Log.Error("a line is lost", "record", record.Key, "error", err)
		}
	}
}

func (s *agf) takeUp(r *lineRecord) error {
	if h := r.Hold; h != nil {
		s.holds[r.Line] = hold{h.Until, h.Attempts, h.Doubts, h.Refusals, errors.New(h.Why), r.AGF, h.Objects}
		return nil
	}
	if len(r.MAC) != 6 {
		return errors.New("malformed record")
	}
	s.mu.Lock()
	if r.AGF == "" {
		for _, name := range slices.Sorted(maps.Keys(s.agfs)) {
			if s.agfs[name].Node == r.Node {
				r.AGF = name
				break
			}
		}
	}
	of := s.agfs[r.AGF]
	node := s.nodes[of.GetNode()]
	s.mu.Unlock()
	settings := Settings{Line: r.Line, Realm: r.Realm, MAC: [6]byte(r.MAC), Slice: r.Slice}
	if node != nil {
		its, err := s.settings(r.Line, settings.MAC, of, node)
		if err != nil {
			return err
		}
		its.Realm, its.Slice = r.Realm, r.Slice
		settings = its
	}
	// Other markings follow as a change.
	settings.Markings, settings.Marks = r.Markings, qosflow.Marks(r.Markings)
	l, err := restore(r, settings, s)
	if err != nil {
		return err
	}
	one := &registration{Line: l, agf: r.AGF, key: r.Line, recorded: true, restored: true, ran: r.RAN}
	s.lines[one.key], s.of[l] = one, one
	for i := range r.Sessions {
		of := &r.Sessions[i]
		if of.Left {
			continue
		}
		m := &member{service: s, id: of.Subscriber, of: one, session: l.sessions[of.ID], mac: [6]byte(r.MAC), started: of.Started, teid: of.Demand.TEID}
		m.circuit = subscriber.Circuit{Dataplane: of.Dataplane, Port: of.Port, OuterVLAN: of.OuterVLAN, InnerVLAN: of.InnerVLAN}
		m.session.events = m
		m.result = m.session.result()
		m.first = endOf(&m.result)
		m.forwards(m.first)
		s.members[m.id] = m
		s.teids[m.teid] = m
		m.prepare(&m.result, func(p profiles) {})
		// The names follow from what the objects say.
		m.used = namesOf(&m.result)
		if !m.started {
			m.due = time.AfterFunc(sessionTime, func() { s.do(m.abandoned) })
		}
	}
	return nil
}

func namesOf(r *Result) (p profiles) {
	if r.Flows != nil {
		p.flows = nameOf(r.Flows, "")
	}
	if r.QueuesUp != nil {
		p.up = nameOf(r.QueuesUp, "")
	}
	if r.QueuesDown != nil {
		p.down = nameOf(r.QueuesDown, "")
	}
	for _, each := range r.Meters {
		p.meters = append(p.meters, each.Name)
	}
	return p
}

// claim gives restored lines their contexts.
func (s *agf) claim() {
	kept, idle := 0, 0
	defer func() {
		if kept+idle > 0 {
			s.environment.Log.Info("lines of before the restart are taken over", "connected", kept, "idle", idle)
		}
	}()
	for _, one := range s.lines {
		if !one.restored {
			continue
		}
		one.restored = false
		if one.ran >= 0 {
			if core := s.pool.Claim(one.ran, one.Line); core != nil {
				kept++
				one.attach(core)
				continue
			}
		}
		idle++
		one.attach(nil)
	}
}
