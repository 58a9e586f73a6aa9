// SPDX-License-Identifier: Apache-2.0

// Identities of sessions at servers: the results of templates for a session's Accounting-Requests, stored until its
// Stop.
package radius

import (
	"encoding/binary"
	"iter"
	"strconv"
	"strings"
	"unique"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/subscriber"
)

const sessionPrefix = "s/"

// words of a session.
type words struct {
	username, nasPortID, calling, nasPort, called string
	// The zero Handle: of an earlier version.
	account unique.Handle[account]
}

// account is whose records a session has, from its Start to its Stop: a policy's, as a NAS, which accounts since that time.
type account struct {
	policy string
	nas    nas
	since  string
}

func (w words) encode() []byte {
	of := account{}
	if w.account != (unique.Handle[account]{}) {
		of = w.account.Value()
	}
	all := []string{w.username, w.nasPortID, w.calling, w.nasPort, w.called, of.policy, of.nas.key(), of.since}
	length := 0
	for _, text := range all {
		length += binary.MaxVarintLen16 + len(text)
	}
	b := make([]byte, 0, length)
	for _, text := range all {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
}

func decodeWords(b []byte) (w words, ok bool) {
	var of account
	var key string
	for i, to := range []*string{&w.username, &w.nasPortID, &w.calling, &w.nasPort, &w.called, &of.policy, &key, &of.since} {
		if (i == 3 || i == 5) && len(b) == 0 {
			return w, true // a record of an earlier version
		}
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return w, false
		}
		*to, b = string(b[n:n+int(length)]), b[n+int(length):]
	}
	if of.policy != "" {
		of.nas = nasOf(key)
		w.account = unique.Make(of)
	}
	return w, len(b) == 0
}

// sessions are found by their words. Nearly always one session has a word: it is in first, and those beyond it are in more.
type sessions struct {
	byID  map[string]words
	first map[wordKey]string
	more  map[wordKey]map[string]bool
	// How many sessions have a policy's records.
	of map[string]int
}

func newSessions(t table) *sessions {
	all := t.Unsorted()
	// Tables of their size: to double one again and again takes longer than to fill it.
	s := &sessions{byID: make(map[string]words, len(all)), first: make(map[wordKey]string, len(words{}.keys())*len(all)), more: map[wordKey]map[string]bool{}, of: map[string]int{}}
	for _, kept := range all {
		if id, ours := strings.CutPrefix(kept.Key, sessionPrefix); ours {
			if w, ok := decodeWords(kept.Value); ok {
				s.set(id, w)
			}
		}
	}
	return s
}

// wordKey is a word of an attribute. Words of different attributes are different.
type wordKey struct {
	attribute uint8
	word      string
}

func (w words) keys() [5]wordKey {
	return [5]wordKey{{typeUserName, w.username}, {typeNASPortID, w.nasPortID}, {typeCallingStationID, w.calling}, {typeNASPort, w.nasPort}, {typeCalledStationID, w.called}}
}

func (s *sessions) set(id string, w words) {
	s.byID[id] = w
	if w.account != (unique.Handle[account]{}) {
		s.of[w.account.Value().policy]++
	}
	for _, key := range w.keys() {
		if key.word == "" {
			continue
		}
		switch first, there := s.first[key]; {
		case !there:
			s.first[key] = id
		case first != id && s.more[key] == nil:
			s.more[key] = map[string]bool{id: true}
		case first != id:
			s.more[key][id] = true
		}
	}
}

// sharing is the sessions that have a word, until one of them changes.
type sharing struct {
	first string
	more  map[string]bool
	any   bool
}

func (of sharing) len() int {
	if !of.any {
		return 0
	}
	return 1 + len(of.more)
}

func (of sharing) has(id string) bool { return of.any && (of.first == id || of.more[id]) }

func (of sharing) all() iter.Seq[string] {
	return func(yield func(string) bool) {
		if !of.any || !yield(of.first) {
			return
		}
		for id := range of.more {
			if !yield(id) {
				return
			}
		}
	}
}

// with returns the sessions that have a word.
func (s *sessions) with(attribute uint8, word []byte) sharing {
	key := wordKey{attribute, string(word)}
	first, there := s.first[key]
	return sharing{first, s.more[key], there}
}

// account learns of a session, and forgets it with its Stop. It returns what changes in the table.
func (s *sessions) account(p *policy, since string, r *subscriber.Record) []durable.Record {
	if r.Kind == subscriber.Stop {
		return s.end(r.ID)
	}
	before, known := s.byID[r.ID]
	w := words{username: r.Grant.Username, nasPortID: expand(p.nasPortID, &r.Request), calling: expand(p.calling, &r.Request),
		nasPort: strconv.FormatUint(uint64(nasPort(&r.Request)), 10), called: expand(p.called, &r.Request), account: unique.Make(account{p.name, p.nas, since})}
	if w.username == "" {
		w.username = p.username(&r.Request)
	}
	if known && before == w {
		return nil
	}
	if known {
		s.forget(r.ID, before)
	}
	s.set(r.ID, w)
	return []durable.Record{{Key: sessionPrefix + r.ID, Value: w.encode()}}
}

func (s *sessions) forget(id string, w words) {
	delete(s.byID, id)
	if w.account != (unique.Handle[account]{}) {
		if policy := w.account.Value().policy; s.of[policy] > 1 {
			s.of[policy]--
		} else {
			delete(s.of, policy)
		}
	}
	for _, key := range w.keys() {
		if key.word == "" {
			continue
		}
		more := s.more[key]
		delete(more, id)
		if s.first[key] == id {
			delete(s.first, key)
			for other := range more {
				s.first[key] = other
				delete(more, other)
				break
			}
		}
		if len(more) == 0 {
			delete(s.more, key)
		}
	}
}

// end forgets a session. It returns what changes in the table.
func (s *sessions) end(id string) []durable.Record {
	w, known := s.byID[id]
	if !known {
		return nil
	}
	s.forget(id, w)
	return []durable.Record{{Key: sessionPrefix + id}}
}
