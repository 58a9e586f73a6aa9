// SPDX-License-Identifier: Apache-2.0

// TS 23.501 section 5.21.2: an AMF fails, or is taken out of service. Another AMF of its set, or its backup AMF, takes its UEs: an initial message at once, and a UE with a
// context with its next message. Until then the context waits for its AMF, which may have kept it (TS 38.413 section 8.7.1).

package n2

import (
	"maps"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

// region and set are parts of an AMF identifier (TS 23.003 section 2.10.1).
func (g guami) region() uint32 { return g.amfID >> 16 }
func (g guami) set() uint32    { return g.amfID >> 6 & 0x3ff }

// sameSet: AMF sets are of a region of a PLMN.
func (g guami) sameSet(other guami) bool {
	return g.plmn == other.plmn && g.region() == other.region() && g.set() == other.set()
}

// leaves reports whether AMF STATUS INDICATION announced all GUAMIs of the AMF.
func (a *amf) leaves() bool {
	return len(a.served) > 0 && !slices.ContainsFunc(a.served, func(g guami) bool { return !slices.Contains(a.leaving, g) })
}

// serving is a demand for a GUAMI that is available.
func serving(suits func(guami) bool) func(*amf) bool {
	return func(a *amf) bool {
		return slices.ContainsFunc(a.served, func(g guami) bool { return suits(g) && !slices.Contains(a.leaving, g) })
	}
}

// backups is a demand for an AMF that another one named as its backup for a GUAMI, in NG SETUP RESPONSE, AMF CONFIGURATION UPDATE or AMF STATUS INDICATION.
func (s *Service) backups(node string, g guami) func(*amf) bool {
	var names []string
	for _, a := range s.amfs {
		if name := a.backup[g]; a.node == node && name != "" {
			names = append(names, name)
		}
	}
	return func(a *amf) bool { return slices.Contains(names, a.amfName) && !a.leaves() }
}

// standIns are the AMFs for a UE of a GUAMI, in their order: those that serve it, the backup, those of its set.
func (s *Service) standIns(node string, g guami) []func(*amf) bool {
	return []func(*amf) bool{serving(func(other guami) bool { return other == g }), s.backups(node, g), serving(g.sameSet)}
}

// pool are the AMFs of an access node but one, by name.
func (s *Service) pool(node, not string) (all []*amf) {
	for _, a := range s.amfs {
		if a.node == node && a.name != not {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *amf) int { return strings.Compare(a.name, b.name) })
	return all
}

// guamiOf is the GUAMI of a context: that of INITIAL CONTEXT SETUP REQUEST, or else the first one of its AMF.
func (c *Context) guamiOf() (guami, bool) {
	switch {
	case c.guami != (guami{}):
		return c.guami, true
	case c.amf != nil && len(c.amf.served) > 0:
		return c.amf.served[0], true
	}
	return guami{}, false
}

// learn takes the GUAMI of a context from a message of its AMF. With INITIAL CONTEXT SETUP REQUEST the AMF has a context to share: before it, the UE begins again.
func (c *Context) learn(message any) {
	var of *ngap.GUAMI
	switch m := message.(type) {
	case *ngap.InitialContextSetupRequest:
		of, c.settled = &m.GUAMI, true
	case *ngap.UEContextModificationRequest:
		of = m.NewGUAMI
	}
	if of == nil {
		return
	}
	if g, err := guamiOf(of); err == nil {
		c.guami = g
	}
}

// successors are the AMFs that may take a context over.
func (s *Service) successors(c *Context) []*amf {
	g, known := c.guamiOf()
	if !known || !c.known || !c.settled {
		return nil
	}
	all := slices.DeleteFunc(s.pool(c.amf.node, c.amf.name), func(a *amf) bool { return !a.takesUEs() })
	for _, suits := range s.standIns(c.amf.node, g) {
		if those := slices.DeleteFunc(slices.Clone(all), func(a *amf) bool { return !suits(a) }); len(those) > 0 {
			return those
		}
	}
	return nil
}

func (s *Service) succeeded(c *Context) bool { return len(s.successors(c)) > 0 }

// rebind gives a context to another AMF. Identifiers stay: that of the AMF is unique in the set (TS 38.401 section 6.2.1).
func (s *Service) rebind(c *Context, to *amf) {
	from := c.amf
	delete(from.ues, c.ranID)
	// It may have kept it: after the next NG setup it hears NG RESET.
	from.closed[c.ranID] = closedContext{until: time.Now().Add(closedTime), releasing: true}
	delete(to.closed, c.ranID)
	c.amf, c.amfName, c.unbound = to, to.name, false
	to.ues[c.ranID] = c
	s.keep(c)
	from.counts.moved++
	s.moved.WithLabelValues(from.name, to.name).Inc()
}

// bind gives a context whose AMF is gone to another one, for a message of its UE.
func (c *Context) bind() {
	if to := byWeight(c.service.successors(c), func(*amf) bool { return true }, c.service.random); to != nil {
		c.service.rebind(c, to)
	}
}

// takeOver is the context of a UE that another AMF of its set, or its backup AMF, has taken over, before the UE sent a message. Nil: there is none.
func (s *Service) takeOver(a *amf, ran ngap.RANUENGAPID, theirs *ngap.AMFUENGAPID) *Context {
	for _, other := range s.amfs {
		c := other.ues[int64(ran)]
		if c == nil || other == a || !c.unbound || theirs == nil || int64(*theirs) != c.amfID || !slices.Contains(s.successors(c), a) {
			continue
		}
		s.rebind(c, a)
		return c
	}
	return nil
}

// reassess: an AMF became ready, or is not ready any more. Contexts of AMFs that are gone have a successor now, or none.
func (s *Service) reassess() {
	for _, a := range s.amfs {
		for _, c := range slices.Collect(maps.Values(a.ues)) {
			switch {
			case c.unbound && a.phase == ready:
				g, _ := c.guamiOf()
				c.unbound = slices.Contains(a.leaving, g) && s.succeeded(c)
			case c.unbound && !s.succeeded(c):
				c.unbound = false
				s.wait(c, a.reason)
			case c.suspended && c.ue != nil && !c.left && a.phase != ready && s.succeeded(c):
				c.suspended, c.unbound = false, true
				if ue, can := c.ue.(Retained); can {
					s.guarded(c, ue.Resumed)
				}
			}
		}
	}
}

// handOver gives contexts of an AMF that does not come back to others. A UE that is Informed loses its context instead: it has an initial message for the other AMF.
func (s *Service) handOver(a *amf) {
	for _, c := range slices.Collect(maps.Values(a.ues)) {
		if _, returns := c.ue.(Informed); c.unbound && !returns {
			c.bind()
		}
	}
}

// unavailable takes AMF STATUS INDICATION (TS 38.413 section 8.7.6). UEs of the GUAMIs go to other AMFs with their next message; with a timer, not before the
// association ends.
func (s *Service) unavailable(a *amf, m *ngap.AMFStatusIndication) {
	var atOnce []guami
	for i := range m.UnavailableGUAMIList {
		item := &m.UnavailableGUAMIList[i]
		g, err := guamiOf(&item.GUAMI)
		if err != nil {
			continue
		}
		a.leaving = append(a.leaving, g)
		if item.BackupAMFName != nil {
			a.backup[g] = *item.BackupAMFName
		}
		if item.TimerApproachForGUAMIRemoval == nil {
			atOnce = append(atOnce, g)
		}
	}
	if len(a.leaving) > maxGUAMIs {
		a.leaving = a.leaving[len(a.leaving)-maxGUAMIs:]
	}
	for _, c := range a.ues {
		if g, known := c.guamiOf(); known && !c.suspended && slices.Contains(atOnce, g) && s.succeeded(c) {
			c.unbound = true
		}
	}
}

// preferences of the initial message of a UE with a 5G-GUTI: the AMFs for a context, then those of the region.
func (s *Service) preferences(node string, guti *nas.GUTI, d *demand) {
	g := guami{guti.PLMN, guti.AMFID}
	d.prefer = s.standIns(node, g)
	d.near = serving(func(other guami) bool { return other.plmn == g.plmn && other.region() == g.region() })
}
