// SPDX-License-Identifier: Apache-2.0

// Suggestions for mistyped names of objects.
package intent

import (
	"slices"
	"strings"

	"sluice.dev/sluice/agent/object"
)

const (
	// Of a kind that has more objects, only those are looked for whose name differs in one letter: that takes as long however many there are.
	nearAmong = 1000
	// Users do not type longer names by hand.
	nearLongest = 64
	// The characters of names.
	nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@-"
)

// Near implements Interface.
func (d *Desired) Near(k object.Key) string {
	kind := d.registry.Kind(k.Kind)
	if kind == nil || k.Name == "" || len(k.Name) > nearLongest {
		return ""
	}
	if near := d.oneLetterFrom(k, kind); len(near) > 0 {
		return only(near)
	}
	names := slices.Clone(kind.Builtin)
	for other := range d.ordered().after(object.Key{Kind: k.Kind}) {
		if other.Kind != k.Kind {
			break
		}
		if names = append(names, other.Name); len(names) > nearAmong {
			return ""
		}
	}
	d.mu.RLock()
	names = slices.DeleteFunc(names, func(name string) bool { return !d.called(name, kind) || name == k.Name })
	d.mu.RUnlock()
	near := object.Nearest(k.Name, names)
	if object.Nearest(k.Name, slices.DeleteFunc(names, func(name string) bool { return name == near })) != "" {
		return ""
	}
	return near
}

func only(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return ""
}

// called returns whether the configuration or the builtin objects have an object of the kind with a name. d.mu is held.
func (d *Desired) called(name string, kind *object.Kind) bool {
	return kind.IsBuiltin(name) || d.records.Get(object.Key{Kind: kind.Name, Name: name}).merged() != nil
}

// oneLetterFrom returns names that objects have and that differ in one letter, in two that changed places, or in capitals; two at most.
func (d *Desired) oneLetterFrom(k object.Key, kind *object.Kind) []string {
	var found []string
	d.mu.RLock()
	defer d.mu.RUnlock()
	// Returns whether that is enough.
	try := func(parts ...string) bool {
		name := strings.Join(parts, "")
		if name != "" && name != k.Name && !slices.Contains(found, name) && d.called(name, kind) {
			found = append(found, name)
		}
		return len(found) > 1
	}
	if try(strings.ToLower(k.Name)) {
		return found
	}
	for i := range len(k.Name) + 1 {
		before, behind := k.Name[:i], k.Name[i:]
		if behind != "" && try(before, behind[1:]) || len(behind) > 1 && try(before, behind[1:2], behind[:1], behind[2:]) {
			return found
		}
		for n := range len(nameLetters) {
			letter := nameLetters[n : n+1]
			if try(before, letter, behind) || behind != "" && try(before, letter, behind[1:]) {
				return found
			}
		}
	}
	return found
}
