// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestNoEventReasonLogOrMemoryTellsASecret(t *testing.T) {
	const first, second, third = "correct-horse", "battery-staple", "tr0ub4dor"
	log := &locked{}
	s := newSceneOf(t, objecttest.Secretive(t), slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	peer := func(password string) string {
		return document("Peer", "p", `{"address": "192.0.2.1", "password": `+password+`, "login": {"user": "me", "key": "`+third+`"}, "old": ["`+third+`"]}`)
	}
	s.sent(message(peer(`"`+first+`"`)), message(peer(`"`+second+`"`)))
	bad := []string{`["` + first + `"]`, `{"a": "` + first + `"}`, `"` + first + `\u0007"`, `*` + first, first + `: x`}
	for _, password := range bad {
		s.sent(message(peer(password)))
	}
	s.sent(message(document("Peer", "p", `{"login": "`+first+`"}`)), message(document("Peer", "p", `{"old": "`+first+`"}`)), tombstone("Peer/p"))
	until(t, "its end is published", func() bool {
		s.Lock()
		defer s.Unlock()
		return len(s.events) > 0 && s.events[len(s.events)-1].Gone
	})
	s.stop()
	var output strings.Builder
	for _, e := range s.events {
		output.Write(e.Body)
	}
	if len(s.dead) != len(bad)+2 {
		t.Errorf("%d dead letters", len(s.dead))
	}
	// A dead letter is the unchanged message; the reason is in its headers.
	for _, d := range s.dead {
		text, err := json.Marshal([]any{d.Headers(), d.Reason})
		if err != nil {
			t.Fatal(err)
		}
		output.Write(text)
	}
	log.mu.Lock()
	output.Write(log.text.Bytes())
	log.mu.Unlock()
	memory, err := os.ReadFile(s.memory)
	if err != nil {
		t.Fatal(err)
	}
	output.Write(memory)
	for _, want := range []string{`"kind":"Peer"`, `"level":"`, "not a mapping"} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("%s is not told at all", want)
		}
	}
	for _, secret := range []string{first, second, third} {
		if i := strings.Index(output.String(), secret); i >= 0 {
			t.Errorf("%s was told: %q", secret, output.String()[max(0, i-300):i+100])
		}
	}
}
