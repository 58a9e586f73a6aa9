// SPDX-License-Identifier: Apache-2.0
// Rates of back ends as shapers: QosProfiles with the granted rate in place of their own.

package subscriber

import (
	"encoding/hex"
	"hash/fnv"
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// shaper is a QosProfile of ours: base with another peakRate, in bit/s.
type shaper struct {
	base string
	rate uint64
}

// shaperOf is the shaper of a session; the zero shaper: its QosProfile has its own rate.
func shaperOf(a *allowed) shaper {
	if a.shape.BitsPerSecond == 0 {
		return shaper{}
	}
	return shaper{a.policy.QosProfile, min(max(a.shape.BitsPerSecond, a.shape.PeakBitsPerSecond, leastRate), mostRate)}
}

// name is that of the QosProfile, which all sessions of the base and the rate share.
func (of shaper) name() string {
	rate := "-rate-" + strconv.FormatUint(of.rate, 10)
	if name := of.base + rate; object.CheckName(object.Key{Kind: "QosProfile", Name: name}) == nil {
		return name
	}
	h := fnv.New128a()
	h.Write([]byte(of.base))
	return hex.EncodeToString(h.Sum(nil)) + rate
}

// spec is the base with the rate. Classes keep their rates.
func (of shaper) spec(base *api.QosProfile) *api.QosProfile {
	spec := proto.Clone(base).(*api.QosProfile)
	spec.PeakRate, spec.CommittedRate = of.rate, min(spec.CommittedRate, of.rate)
	return spec
}

// putShaper puts the QosProfile of a shaper whose base exists. m.mu is held.
func (m *manager) putShaper(of shaper) {
	m.objects.Put(&object.Object{Kind: "QosProfile", Name: of.name(), Spec: of.spec(m.qosProfiles[of.base])}, func(r service.Result) {
		if r.Err != nil {
			m.log.Error("a rate of subscribers has no shaper", "object", "QosProfile "+of.base, "error", r.Err)
		}
	})
}

// useShaper makes the QosProfile of a session's rate, and returns the function that releases the previous one: after the session does not name
// it any more. m.mu is held.
func (m *manager) useShaper(s *session, now shaper) (drop func()) {
	before := s.shaper
	if now == before {
		return func() {}
	}
	s.shaper = now
	if now != (shaper{}) {
		if m.shapers[now]++; m.shapers[now] == 1 && m.qosProfiles[now.base] != nil {
			m.putShaper(now)
		}
	}
	return func() {
		if before == (shaper{}) {
			return
		}
		if m.shapers[before]--; m.shapers[before] == 0 {
			delete(m.shapers, before)
			m.objects.Delete(object.Key{Kind: "QosProfile", Name: before.name()}, nil)
		}
	}
}

// setQosProfile has shapers follow their base. Without it, sessions name it as if they had no rate: the data plane reports what they lack.
func (m *manager) setQosProfile(name string, p *api.QosProfile) {
	m.mu.Lock()
	defer m.mu.Unlock()
	appears := (p == nil) != (m.qosProfiles[name] == nil)
	if m.qosProfiles[name] = p; p == nil {
		delete(m.qosProfiles, name)
	}
	used := false
	for of := range m.shapers {
		if of.base != name {
			continue
		}
		used = true
		if p != nil {
			m.putShaper(of)
		}
	}
	if !used || !appears || !m.ready {
		return
	}
	for _, s := range m.sessions {
		if s.state == up && s.shaper.base == name {
			m.apply(s, nil)
		}
	}
}
