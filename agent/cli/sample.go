// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
)

// A sample is all counters at one time.
type sample struct {
	at       time.Time
	boot     uint64
	sessions map[string]*api.SessionCounters
	ports    map[string]*api.PortCounters
	drops    map[string]*api.DropCounters
	nodes    map[string]*api.NodeCounters
}

func takeSample(ctx context.Context, client api.AgentClient, now func() time.Time) (*sample, error) {
	version, err := client.GetVersion(ctx, &api.VersionQuery{})
	if err != nil {
		return nil, err
	}
	s := &sample{boot: version.GetDataplane().GetGreeting().GetBoot(), sessions: map[string]*api.SessionCounters{},
		ports: map[string]*api.PortCounters{}, drops: map[string]*api.DropCounters{}, nodes: map[string]*api.NodeCounters{}}
	err = everyPage(func(page string) (string, error) {
		found, err := read[*api.SessionCountersList](ctx, client, &api.SessionCountersQuery{Limit: 10000, Page: page})
		for _, c := range found.GetSessions() {
			s.sessions[c.GetSession()] = c
		}
		return found.GetNextPage(), err
	})
	if err != nil {
		return nil, err
	}
	ports, err := read[*api.PortCountersList](ctx, client, &api.PortCountersQuery{})
	if err != nil {
		return nil, err
	}
	for _, c := range ports.GetPorts() {
		s.ports[c.GetPort()] = c
	}
	drops, err := read[*api.DropCountersList](ctx, client, &api.DropCountersQuery{})
	if err != nil {
		return nil, err
	}
	for _, c := range drops.GetDrops() {
		s.drops[c.GetReason()] = c
	}
	nodes, err := read[*api.NodeCountersList](ctx, client, &api.NodeCountersQuery{})
	if err != nil {
		return nil, err
	}
	for _, c := range nodes.GetNodes() {
		s.nodes[c.GetNode()] = c
	}
	s.at = now()
	return s, nil
}

// A view is the difference between two samples. Rates are per second; counters are totals.
type view struct {
	Time     time.Time     `json:"time"`
	Seconds  float64       `json:"seconds"`
	Totals   totals        `json:"totals"`
	Sessions []sessionRate `json:"sessions"`
	Ports    []portRate    `json:"ports"`
	Drops    []dropRate    `json:"drops"`
	Nodes    []nodeRate    `json:"nodes"`
}

type totals struct {
	Sessions       int     `json:"sessions"`
	ActiveSessions int     `json:"activeSessions"`
	UpPackets      uint64  `json:"upPackets"`
	DownPackets    uint64  `json:"downPackets"`
	UpPacketRate   float64 `json:"upPacketRate"`
	DownPacketRate float64 `json:"downPacketRate"`
	UpBitRate      float64 `json:"upBitRate"`
	DownBitRate    float64 `json:"downBitRate"`
	Drops          uint64  `json:"drops"`
	DropRate       float64 `json:"dropRate"`
}

type sessionRate struct {
	Name string `json:"name"`
	// Of a subscriber's session.
	Username       string  `json:"username,omitempty"`
	UpPackets      uint64  `json:"upPackets"`
	UpBytes        uint64  `json:"upBytes"`
	DownPackets    uint64  `json:"downPackets"`
	DownBytes      uint64  `json:"downBytes"`
	Drops          uint64  `json:"drops"`
	UpPacketRate   float64 `json:"upPacketRate"`
	UpBitRate      float64 `json:"upBitRate"`
	DownPacketRate float64 `json:"downPacketRate"`
	DownBitRate    float64 `json:"downBitRate"`
	DropRate       float64 `json:"dropRate"`
}

type portRate struct {
	Name         string  `json:"name"`
	LinkUp       bool    `json:"linkUp"`
	RxPackets    uint64  `json:"rxPackets"`
	RxBytes      uint64  `json:"rxBytes"`
	TxPackets    uint64  `json:"txPackets"`
	TxBytes      uint64  `json:"txBytes"`
	RxMissed     uint64  `json:"rxMissed"`
	RxErrors     uint64  `json:"rxErrors"`
	RxNoBuffer   uint64  `json:"rxNoBuffer"`
	TxErrors     uint64  `json:"txErrors"`
	RxPacketRate float64 `json:"rxPacketRate"`
	RxBitRate    float64 `json:"rxBitRate"`
	TxPacketRate float64 `json:"txPacketRate"`
	TxBitRate    float64 `json:"txBitRate"`
}

type dropRate struct {
	Reason      string  `json:"reason"`
	Packets     uint64  `json:"packets"`
	Rate        float64 `json:"rate"`
	Description string  `json:"description"`
}

// Rates of a node between the samples.
type nodeRate struct {
	Name            string  `json:"name"`
	Packets         uint64  `json:"packets"`
	PacketRate      float64 `json:"packetRate"`
	PacketsPerCall  float64 `json:"packetsPerCall"`
	CyclesPerPacket float64 `json:"cyclesPerPacket"`
}

// since is the growth of a counter. A counter that is smaller than before was reset.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

func (s *sample) since(before *sample) *view {
	if before.boot != s.boot {
		before = &sample{at: before.at}
	}
	v := &view{Time: s.at.UTC(), Seconds: max(s.at.Sub(before.at).Seconds(), 1e-9),
		Sessions: []sessionRate{}, Ports: []portRate{}, Drops: []dropRate{}, Nodes: []nodeRate{}}
	rate := func(now, before uint64) float64 { return float64(since(now, before)) / v.Seconds }
	for name, c := range s.sessions {
		b := before.sessions[name]
		r := sessionRate{name, "", c.GetUpPackets(), c.GetUpBytes(), c.GetDownPackets(), c.GetDownBytes(), c.GetDrops(),
			rate(c.GetUpPackets(), b.GetUpPackets()), 8 * rate(c.GetUpBytes(), b.GetUpBytes()),
			rate(c.GetDownPackets(), b.GetDownPackets()), 8 * rate(c.GetDownBytes(), b.GetDownBytes()),
			rate(c.GetDrops(), b.GetDrops())}
		v.Sessions = append(v.Sessions, r)
		v.Totals.UpPackets += r.UpPackets
		v.Totals.DownPackets += r.DownPackets
		v.Totals.UpPacketRate += r.UpPacketRate
		v.Totals.DownPacketRate += r.DownPacketRate
		v.Totals.UpBitRate += r.UpBitRate
		v.Totals.DownBitRate += r.DownBitRate
		if r.UpPacketRate+r.DownPacketRate > 0 {
			v.Totals.ActiveSessions++
		}
	}
	v.Totals.Sessions = len(v.Sessions)
	for name, c := range s.ports {
		b := before.ports[name]
		v.Ports = append(v.Ports, portRate{name, c.GetLinkUp(), c.GetRxPackets(), c.GetRxBytes(), c.GetTxPackets(), c.GetTxBytes(),
			c.GetRxMissed(), c.GetRxErrors(), c.GetRxNoBuffer(), c.GetTxErrors(),
			rate(c.GetRxPackets(), b.GetRxPackets()), 8 * rate(c.GetRxBytes(), b.GetRxBytes()),
			rate(c.GetTxPackets(), b.GetTxPackets()), 8 * rate(c.GetTxBytes(), b.GetTxBytes())})
	}
	for reason, c := range s.drops {
		r := dropRate{reason, c.GetPackets(), rate(c.GetPackets(), before.drops[reason].GetPackets()), c.GetDescription()}
		v.Drops = append(v.Drops, r)
		v.Totals.Drops += r.Packets
		v.Totals.DropRate += r.Rate
	}
	for name, c := range s.nodes {
		b := before.nodes[name]
		packets, calls := since(c.GetPackets(), b.GetPackets()), since(c.GetCalls(), b.GetCalls())
		if packets == 0 || calls == 0 {
			continue
		}
		v.Nodes = append(v.Nodes, nodeRate{name, packets, float64(packets) / v.Seconds, float64(packets) / float64(calls),
			float64(since(c.GetCycles(), b.GetCycles())) / float64(packets)})
	}
	// The busiest first; by name where that is the same.
	slices.SortFunc(v.Sessions, func(a, b sessionRate) int {
		return cmp.Or(cmp.Compare(b.UpBitRate+b.DownBitRate, a.UpBitRate+a.DownBitRate), cmp.Compare(b.DropRate, a.DropRate),
			cmp.Compare(b.UpBytes+b.DownBytes, a.UpBytes+a.DownBytes), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(v.Ports, func(a, b portRate) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(v.Drops, func(a, b dropRate) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(v.Nodes, func(a, b nodeRate) int {
		return cmp.Or(cmp.Compare(b.CyclesPerPacket*float64(b.Packets), a.CyclesPerPacket*float64(a.Packets)), cmp.Compare(a.Name, b.Name))
	})
	return v
}
