// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"log/slog"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestAPuntGoesWhereItsPortGoes(t *testing.T) {
	has, refused := map[string]*object.Object{}, errors.New("port is bound")
	var reasons NotReadyReasons
	p := NewPunts(Environment{Objects: &Objects{}, Log: slog.New(slog.DiscardHandler)}, &reasons)
	p.put = func(o *object.Object, written func(Result)) {
		has[o.Name] = o
		written(Result{Err: refused})
	}
	p.remove = func(k object.Key, _ func(Result)) { delete(has, k.Name) }
	port := func(name string, labels map[string]string) Change {
		return Change{object.Key{Kind: "Port", Name: name}, &object.Object{Kind: "Port", Name: name, Labels: labels, Spec: &api.Port{}}}
	}
	at := func(name string) string { return has[name].Labels["dataplane"] }

	if !p.Follow(port("access", map[string]string{"dataplane": "ulm"})) || p.Follow(Change{Key: object.Key{Kind: "Vrf", Name: "access"}}) {
		t.Error("a Port is followed, and nothing else")
	}
	relay := object.Key{Kind: "DhcpRelay", Name: "lan"}
	p.Put("lines", &api.Punt{Port: "access"}, relay)
	p.Put("others", &api.Punt{Port: "later"}, relay)
	if at("lines") != "ulm" || at("others") != "" {
		t.Errorf("lines at %q, others at %q", at("lines"), at("others"))
	}
	p.Follow(port("later", map[string]string{"dataplane": "bonn"}))
	p.Follow(port("access", map[string]string{"dataplane": "bonn"}))
	if at("lines") != "bonn" || at("others") != "bonn" {
		t.Errorf("lines at %q, others at %q", at("lines"), at("others"))
	}
	if reasons.needs[object.Key{Kind: "Punt", Name: "lines"}] != (need{relay, refused}) {
		t.Errorf("the relay does not need its punt: %v", reasons.needs)
	}
	p.Delete("lines")
	p.Follow(port("access", nil))
	if len(has) != 1 || len(reasons.needs) != 1 {
		t.Errorf("%d punts, needed: %v", len(has), reasons.needs)
	}
}
