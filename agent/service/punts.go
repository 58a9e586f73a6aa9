// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"maps"
	"sync"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Punts writes the Punts of a service. A Punt has the labels of its Port: it goes to the data planes that have the port, and to no other. The
// service follows Port before the kinds that Punts come from.
type Punts struct {
	put    func(*object.Object, func(Result))
	remove func(object.Key, func(Result))
	// Of the objects that Punts come from.
	reasons *NotReadyReasons
	log     *slog.Logger

	mu     sync.Mutex
	labels map[string]map[string]string // by Port
	punts  map[string]punt
}

type punt struct {
	spec  *api.Punt
	owner object.Key
}

// NewPunts returns the Punts of a service. The object that a Punt comes from is not ready while a data plane refuses the Punt.
func NewPunts(e Environment, h *NotReadyReasons) *Punts {
	return &Punts{put: e.Objects.Put, remove: e.Objects.Delete, reasons: h, log: e.Log, labels: map[string]map[string]string{}, punts: map[string]punt{}}
}

// Follow takes a change of a Port. It returns false if the change is of something else.
func (p *Punts) Follow(c Change) bool {
	if c.Key.Kind != "Port" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var labels map[string]string
	if c.Object != nil {
		labels = c.Object.Labels
	}
	if maps.Equal(labels, p.labels[c.Key.Name]) {
		return true
	}
	p.labels[c.Key.Name] = labels
	if c.Object == nil {
		delete(p.labels, c.Key.Name)
	}
	for name, one := range p.punts {
		if one.spec.Port == c.Key.Name {
			p.write(name, one)
		}
	}
	return true
}

// Put writes a Punt that comes from the object owner.
func (p *Punts) Put(name string, spec *api.Punt, owner object.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := punt{spec, owner}
	p.punts[name] = one
	p.write(name, one)
}

// Delete deletes a Punt.
func (p *Punts) Delete(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.punts, name)
	key := object.Key{Kind: "Punt", Name: name}
	p.reasons.NeedsNoLonger(key)
	p.remove(key, nil)
}

func (p *Punts) write(name string, one punt) {
	p.put(&object.Object{Kind: "Punt", Name: name, Labels: p.labels[one.spec.Port], Spec: one.spec}, func(r Result) {
		p.reasons.Needs(one.owner, object.Key{Kind: "Punt", Name: name}, r.Err)
		if r.Err != nil {
			p.log.Error("a punt is refused", "object", one.owner.String(), "error", r.Err)
		}
	})
}
