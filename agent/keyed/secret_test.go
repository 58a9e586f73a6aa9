// SPDX-License-Identifier: Apache-2.0

package keyed

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"sluice.dev/sluice/agent/object"
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

func TestNoStatusAndNoLogTellsASecret(t *testing.T) {
	const first, second, third = "correct-horse", "battery-staple", "tr0ub4dor"
	log := &locked{}
	b := newBedOf(t, objecttest.Secretive(t), slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	peer := func(password string) string {
		return fmt.Sprintf("---\napiVersion: sluice.dev/v1\nkind: Peer\nmetadata: {name: p}\nspec: {address: 192.0.2.1, password: %s, login: {user: me, key: %s}, old: [%s]}\n",
			password, third, third)
	}
	var output strings.Builder
	state := func(text, want string) {
		t.Helper()
		b.place.put("a", text)
		output.Write(b.state("a", want).JSON())
	}
	b.start()
	state(peer(first), "Applied")
	state(peer(second), "Applied")
	for _, password := range []string{"[" + first + "]", "{a: " + first + "}", `"` + first + `\a"`, "*" + first, first + ": x"} {
		state(peer(password), "Invalid")
	}
	for _, spec := range []string{"{login: " + first + "}", "{old: " + first + "}", first} {
		state("apiVersion: sluice.dev/v1\nkind: Peer\nmetadata: {name: p}\nspec: "+spec, "Invalid")
	}
	state(peer(second)+peer(first), "Invalid")
	// An object of another owner with other values, and then with higher priority.
	for _, owner := range []string{"api", "chief"} {
		b.apply(owner, strings.NewReplacer("name: p", "name: "+owner).Replace(peer(second)))
		b.place.put("b", strings.NewReplacer("name: p", "name: "+owner).Replace(peer(first)))
		b.until("its status names "+owner, func() bool {
			s := b.place.status("b")
			return s != nil && strings.Contains(string(s.JSON()), "Peer/"+owner) && strings.Contains(string(s.JSON()), "value of "+owner)
		})
		output.Write(b.place.status("b").JSON())
	}
	if o := b.desired.Reveal(object.Key{Kind: "Peer", Name: "p"}); o == nil || !strings.Contains(fmt.Sprint(o.Spec), second) {
		t.Errorf("%v", o)
	}
	b.end()
	log.mu.Lock()
	output.Write(log.text.Bytes())
	log.mu.Unlock()
	for _, want := range []string{`"state":"Applied"`, `"mistakes"`, "Peer/p", `"level":"`} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("%s is not told at all", want)
		}
	}
	for _, secret := range []string{first, second, third} {
		if i := strings.Index(output.String(), secret); i >= 0 {
			t.Errorf("%s was told: %s", secret, output.String()[max(0, i-300):i+100])
		}
	}
}
