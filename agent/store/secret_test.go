// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

const first, second, third = "correct-horse", "battery-staple", "tr0ub4dor"

func peer(t testing.TB, r *object.Registry, password, key string) []object.Change {
	return []object.Change{object.Put(objecttest.Object(t, r, "Peer", "p", "{address: 192.0.2.1, password: "+password+", login: {user: me, key: "+key+"}}"))}
}

func TestSecretsReachOnlyTheDataPlane(t *testing.T) {
	r := objecttest.Secretive(t)
	path := filepath.Join(t.TempDir(), "intent.db")
	s, err := Open(path, r)
	must(t, err)
	var log bytes.Buffer
	d, err := intent.New(intent.Config{Registry: r, Store: s, Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	plane := reconciletest.Willing{}
	d.Attach(ctx, plane)

	events, err := d.Events(intent.Cursor{})
	must(t, err)
	k := object.Key{Kind: "Peer", Name: "p"}
	shown := ""
	show := func(what string, v any) { shown += fmt.Sprintf("%s: %+v\n", what, v) }
	for i, change := range [][]object.Change{peer(t, r, first, third), peer(t, r, second, third)} {
		plan, err := d.Plan(intent.Source{Owner: "api"}, change, intent.Options{})
		must(t, err)
		show("plan", *plan)
		out, err := d.Apply(ctx, intent.Source{Owner: "api"}, change, intent.Options{})
		must(t, err)
		show("outcome", *out)
		if i == 1 && !strings.Contains(shown, "password Before:(secret) After:(secret)") {
			t.Errorf("the plan does not say that the password changes:\n%s", shown)
		}
	}
	_, err = d.Apply(ctx, intent.Source{Owner: "other"}, peer(t, r, first, third), intent.Options{})
	show("conflict", err)
	st, _ := d.Get(k)
	show("status", st)
	show("spec", st.Object.Spec)
	page, err := d.List(intent.Query{})
	must(t, err)
	show("page", page.Objects[0].Object.Spec)
	history, err := d.History(0, 10)
	must(t, err)
	show("history", history)
	for _, from := range []uint64{0, 1} {
		differences, err := d.Diff(from, 0)
		must(t, err)
		show("diff", differences)
	}
	for range 2 {
		e, err := events.Next(ctx)
		must(t, err)
		show("event", e)
		if e.Status.Object != nil {
			show("event", e.Status.Object.Spec)
		}
	}
	shown += log.String()
	if !strings.Contains(shown, "192.0.2.1") {
		t.Errorf("the output lacks the server's address:\n%s", shown)
	}
	if sent := string(plane[k]); !strings.Contains(sent, second) || !strings.Contains(sent, third) {
		t.Errorf("the data plane has %q", sent)
	}
	if revealed := fmt.Sprint(d.Reveal(k).Spec); !strings.Contains(revealed, second) {
		t.Errorf("revealed: %s", revealed)
	}
	cancel()
	<-ended
	file, err := os.ReadFile(journalPath(path))
	must(t, err)
	if !bytes.Contains(file, []byte("Peer/p")) {
		t.Error("nothing is in the journal")
	}
	must(t, s.Close())
	trees, err := os.ReadFile(path)
	must(t, err)
	file = append(file, trees...)
	for _, secret := range []string{first, second, third} {
		if strings.Contains(shown, secret) {
			t.Errorf("%s was told:\n%s", secret, shown)
		}
		if bytes.Contains(file, []byte(secret)) {
			t.Errorf("%s is in the file", secret)
		}
	}

	// Started again, it knows them.
	s, err = Open(path, r)
	must(t, err)
	d, err = intent.New(intent.Config{Registry: r, Store: s})
	must(t, err)
	if revealed := fmt.Sprint(d.Reveal(k).Spec); !strings.Contains(revealed, second) {
		t.Errorf("after a restart: %s", revealed)
	}
	must(t, s.Close())
}

func TestWithoutTheKeySecretsCannotBeRead(t *testing.T) {
	r := objecttest.Secretive(t)
	path := filepath.Join(t.TempDir(), "intent.db")
	s, err := Open(path, r)
	must(t, err)
	d, err := intent.New(intent.Config{Registry: r, Store: s})
	must(t, err)
	_, err = d.Apply(t.Context(), intent.Source{Owner: "api"}, peer(t, r, first, third), intent.Options{Mode: intent.NoWait})
	must(t, err)
	must(t, s.Close())
	if is, err := os.Stat(path + ".key"); err != nil || is.Mode().Perm() != 0o600 || is.Size() != 32 {
		t.Fatalf("the key: %v, %v", is, err)
	}
	key, err := os.ReadFile(path + ".key")
	must(t, err)
	load := func() error {
		s, err := Open(path, r)
		if err != nil {
			return err
		}
		defer s.Close()
		_, _, err = s.Load(func(object.Key, *intent.Record) error { return nil })
		return err
	}
	must(t, os.Chmod(path+".key", 0o640))
	if err := load(); err == nil || !strings.Contains(err.Error(), "make it 0600") {
		t.Errorf("a key that others can read: %v", err)
	}
	must(t, os.Remove(path+".key"))
	if err := load(); !errors.Is(err, ErrKey) {
		t.Errorf("another key: %v", err)
	}
	must(t, os.WriteFile(path+".key", key, 0o600))
	must(t, load())
	must(t, os.WriteFile(path+".key", key[:31], 0o600))
	if err := load(); err == nil || !strings.Contains(err.Error(), "31 bytes") {
		t.Errorf("half a key: %v", err)
	}
}
