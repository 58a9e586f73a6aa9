// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// layerOf parses an owner's layer of Session/s, or of another object: "Route r {action: blackhole}".
func layerOf(t testing.TB, text string) object.Change {
	t.Helper()
	if text[0] == '{' {
		text = "Session s " + text
	}
	part := strings.SplitN(text, " ", 3)
	if part[0] == "delete" {
		kind, name, _ := strings.Cut(part[1], "/")
		return object.Remove(object.Key{Kind: kind, Name: name})
	}
	written, err := registry(t).Decode(strings.NewReader(fmt.Sprintf("{apiVersion: sluice.dev/v1, kind: %s, metadata: {name: %s}, spec: %s}", part[0], part[1], part[2])), "")
	must(t, err)
	return object.Put(written[0].Object)
}

// Each field with an owner: "policy.mss: 1300 B (lab)", with a - in front of an overridden value.
func owned(d *intent.Desired, k object.Key) string {
	var all []string
	for _, o := range d.Owners(k) {
		for _, f := range o.Fields {
			mark := ""
			if f.Overridden {
				mark = "-"
			}
			all = append(all, fmt.Sprintf("%s%s: %s (%s)", mark, f.Field, f.Value, o.Owner))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

var theSession = object.Key{Kind: "Session", Name: "s"}

func TestFieldsHaveOwners(t *testing.T) {
	whole := "{access: {port: p}, policy: {mss: 1300}}"
	type step struct {
		owner, text string
		force       bool
		refused     string // empty: it is accepted
		owned       string
	}
	for _, c := range []struct {
		sentence string
		steps    []step
	}{
		{"another owner says only what it cares for", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"lab", "{policy: {anySource: true}}", false, "", "access: {port: p} (api); policy.anySource: true (lab); policy.mss: 1300 B (api)"}}},
		{"what an owner leaves out it gives up", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"api", "{access: {port: p}}", false, "", "access: {port: p} (api)"}}},
		{"but not what another has said, too", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"lab", "{policy: {mss: 1300}}", false, "", "access: {port: p} (api); policy.mss: 1300 B (api); policy.mss: 1300 B (lab)"},
			{"api", "{access: {port: p}}", false, "", "access: {port: p} (api); policy.mss: 1300 B (lab)"}}},
		{"a conflict names the object, the field, both owners and both values", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"lab", "{policy: {mss: 1200}}", false, "Session/s: policy.mss belongs to api (1300 B), and lab sets another value (1200 B)",
				"access: {port: p} (api); policy.mss: 1300 B (api)"}}},
		{"a value that is shared is changed by neither alone", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"lab", "{policy: {mss: 1300}}", false, "", "access: {port: p} (api); policy.mss: 1300 B (api); policy.mss: 1300 B (lab)"},
			{"api", "{access: {port: p}, policy: {mss: 1200}}", false, "policy.mss belongs to lab (1300 B), and api sets another value (1200 B)",
				"access: {port: p} (api); policy.mss: 1300 B (api); policy.mss: 1300 B (lab)"}}},
		{"what was taken over may be changed and given up, and nothing else was taken over", []step{
			{"api", "{access: {port: p}, policy: {mss: 1300, aclUp: web}}", false, "", "access: {port: p} (api); policy.aclUp: web (api); policy.mss: 1300 B (api)"},
			{"lab", "{policy: {mss: 1200}}", true, "", "-policy.mss: 1300 B (api); access: {port: p} (api); policy.aclUp: web (api); policy.mss: 1200 B (lab)"},
			{"lab", "{policy: {mss: 1100}}", false, "", "-policy.mss: 1300 B (api); access: {port: p} (api); policy.aclUp: web (api); policy.mss: 1100 B (lab)"},
			{"lab", "{policy: {mss: 1100, aclUp: lab}}", false, "policy.aclUp belongs to api (web)",
				"-policy.mss: 1300 B (api); access: {port: p} (api); policy.aclUp: web (api); policy.mss: 1100 B (lab)"},
			{"api", "{access: {port: p}, policy: {mss: 1300}}", false, "policy.mss belongs to lab (1100 B)",
				"-policy.mss: 1300 B (api); access: {port: p} (api); policy.aclUp: web (api); policy.mss: 1100 B (lab)"},
			{"lab", "delete Session/s", false, "", "access: {port: p} (api); policy.aclUp: web (api); policy.mss: 1300 B (api)"}}},
		{"what was taken over can be taken back", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"lab", "{policy: {mss: 1200}}", true, "", "-policy.mss: 1300 B (api); access: {port: p} (api); policy.mss: 1200 B (lab)"},
			{"api", whole, true, "", "-policy.mss: 1200 B (lab); access: {port: p} (api); policy.mss: 1300 B (api)"}}},
		{"a higher priority counts without a conflict, and what is below comes back", []step{
			{"api", whole, false, "", "access: {port: p} (api); policy.mss: 1300 B (api)"},
			{"night", "{policy: {mss: 1100}}", false, "", "-policy.mss: 1300 B (api); access: {port: p} (api); policy.mss: 1100 B (night)"},
			{"api", "{access: {port: p}, policy: {mss: 1400}}", false, "", "-policy.mss: 1400 B (api); access: {port: p} (api); policy.mss: 1100 B (night)"},
			{"night", "{policy: {aclUp: night}}", false, "", "access: {port: p} (api); policy.aclUp: night (night); policy.mss: 1400 B (api)"},
			{"night", "delete Session/s", false, "", "access: {port: p} (api); policy.mss: 1400 B (api)"}}},
		{"false counts over true", []step{
			{"api", "{access: {port: p}, policy: {anySource: true}}", false, "", "access: {port: p} (api); policy.anySource: true (api)"},
			{"lab", "{policy: {anySource: false}}", false, "policy.anySource belongs to api (true), and lab sets another value (false)",
				"access: {port: p} (api); policy.anySource: true (api)"},
			{"night", "{policy: {anySource: false}}", false, "", "-policy.anySource: true (api); access: {port: p} (api); policy.anySource: false (night)"}}},
		{"what makes no object by itself is refused", []step{
			{"lab", "{policy: {mss: 1300}}", false, "Session/s: access: missing", ""}}},
		{"what does not go together is refused, and it is told whose it is", []step{
			{"api", "Route r {prefix: 0.0.0.0/0, nextHops: [{interface: wan}]}", false, "", ""},
			{"lab", "Route r {action: blackhole}", false, "nextHops: no effect: nothing is forwarded (set by api)", ""},
			{"lab", "Route r {nextHops: []}", false, "nextHops belongs to api ([{interface: wan}]), and lab sets another value ([])", ""},
			{"night", "Route r {nextHops: []}", false, "nextHops: missing (set by night)", ""}}},
		{"who made an object cannot leave others with a part of it", []step{
			{"api", "{access: {port: p}}", false, "", "access: {port: p} (api)"},
			{"lab", "{policy: {mss: 1300}}", false, "", "access: {port: p} (api); policy.mss: 1300 B (lab)"},
			{"api", "delete Session/s", false, "access: missing (the object would only have fields of lab: policy.mss); accepted: lab deletes the object first",
				"access: {port: p} (api); policy.mss: 1300 B (lab)"},
			{"lab", "delete Session/s", false, "", "access: {port: p} (api)"},
			{"api", "delete Session/s", false, "", ""}}},
		{"an owner does not delete for others", []step{
			{"api", "{access: {port: p}}", false, "", "access: {port: p} (api)"},
			{"lab", "delete Session/s", true, "Session/s: belongs to api, and lab has no fields of it", "access: {port: p} (api)"}}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			d, _, _ := running(t, intent.Config{Owners: map[string]intent.Owner{"night": {Priority: 10}}})
			for i, s := range c.steps {
				_, err := d.Apply(t.Context(), intent.Source{Owner: s.owner}, []object.Change{layerOf(t, s.text)}, intent.Options{Force: s.force, Mode: intent.NoWait})
				if s.refused == "" && err != nil || s.refused != "" && (err == nil || !strings.Contains(err.Error(), s.refused)) {
					t.Fatalf("step %d: error %v, not %q", i, err, s.refused)
				}
				if got := owned(d, theSession); got != s.owned {
					t.Fatalf("step %d:\n%s\nnot\n%s", i, got, s.owned)
				}
			}
		})
	}
}

func TestTwentyConflictsAreNamedAndTheRestIsCounted(t *testing.T) {
	d, _, _ := running(t, intent.Config{})
	var mine, theirs []object.Change
	for i := range 30 {
		mine = append(mine, layerOf(t, fmt.Sprintf("Vrf v%02d {description: mine}", i)))
		theirs = append(theirs, layerOf(t, fmt.Sprintf("Vrf v%02d {description: theirs}", i)))
	}
	_, err := d.Apply(t.Context(), intent.Source{Owner: "api"}, theirs, intent.Options{Mode: intent.NoWait})
	must(t, err)
	_, err = d.Apply(t.Context(), intent.Source{Owner: "lab"}, mine, intent.Options{})
	var conflicts *intent.Conflicts
	if !errors.As(err, &conflicts) || len(conflicts.All) != 30 {
		t.Fatal(err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "and 10 more" || !strings.HasPrefix(lines[19], "Vrf/v19: description") {
		t.Errorf("%d lines: %s", len(lines), err)
	}
}

func TestASecretIsNotShownByAConflictOrByOwners(t *testing.T) {
	r := objecttest.Secretive(t)
	d, _, _ := running(t, intent.Config{Registry: r})
	apply := func(owner, spec string) error {
		_, err := d.Apply(t.Context(), intent.Source{Owner: owner}, []object.Change{object.Put(objecttest.Object(t, r, "Peer", "p", spec))}, intent.Options{Mode: intent.NoWait})
		return err
	}
	must(t, apply("api", "{address: 192.0.2.1, password: hidden-1, login: {user: me, key: hidden-2}}"))
	err := apply("lab", "{password: hidden-3, login: {key: hidden-4}}")
	var conflicts *intent.Conflicts
	if !errors.As(err, &conflicts) || len(conflicts.All) != 2 {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %s", err, conflicts.All, owned(d, object.Key{Kind: "Peer", Name: "p"})); strings.Contains(text, "hidden") || !strings.Contains(text, "password belongs to api") {
		t.Error(text)
	}
	must(t, apply("lab", "{login: {key: hidden-2}}"))
	if got := d.Reveal(object.Key{Kind: "Peer", Name: "p"}); !strings.Contains(fmt.Sprint(got.Spec), "hidden-1") {
		t.Errorf("what counts is %v", got.Spec)
	}
}

func TestRollingBackBringsFieldsAndTheirOwnersBack(t *testing.T) {
	d, _, _ := running(t, intent.Config{})
	apply := func(owner, text string, options intent.Options) *intent.Outcome {
		t.Helper()
		out, err := d.Apply(t.Context(), intent.Source{Owner: owner}, []object.Change{layerOf(t, text)}, options)
		must(t, err)
		return out
	}
	apply("api", "{access: {port: p}, policy: {mss: 1300, anySource: false}}", intent.Options{})
	then := apply("lab", "{policy: {aclUp: lab}}", intent.Options{}).Revision
	before := owned(d, theSession)
	apply("lab", "{policy: {mss: 1200}}", intent.Options{Force: true})
	apply("api", "{access: {port: p, outerVlan: 7}}", intent.Options{})
	found, err := d.Diff(then, 0)
	must(t, err)
	if len(found) != 1 || len(found[0].Fields) != 3 {
		t.Errorf("the difference is %+v", found)
	}
	if _, err = d.Rollback(t.Context(), intent.Source{Owner: "api"}, then, intent.Options{}); err != nil || owned(d, theSession) != before {
		t.Errorf("%v: %s, not %s", err, owned(d, theSession), before)
	}
	if s, _ := d.Get(theSession); s.Object.Spec.(*api.Session).GetPolicy().GetMss() != 1300 || s.Object.Spec.(*api.Session).GetPolicy().GetAclUp() != "lab" {
		t.Errorf("it is %v", s.Object.Spec)
	}
}

// An owner's part of an interface, which any part of makes one.
func part(b byte) string {
	choice := func(of ...string) string {
		n := int(b) % (len(of) + 1)
		b /= byte(len(of) + 1)
		if n == 0 {
			return ""
		}
		return of[n-1]
	}
	return "Interface i {" + choice("mtu: 1400, ", "mtu: 1500, ", "mtu: 0, ") + choice("aclIn: a, ", "aclIn: b, ") + choice("proxyArp: true, ", "proxyArp: false, ") +
		choice("addresses: [192.0.2.1/24], ", "addresses: [192.0.2.2/24, '2001:db8::1/64'], ") + "}"
}

// FuzzOwners: for any layers of owners of different priorities in any order, only the last layer of each owner
// counts. After an owner removes its layer, the state is as if the layer had never existed.
func FuzzOwners(f *testing.F) {
	f.Add([]byte{0, 1, 1, 200, 2, 77, 0, 3, 3, 90})
	f.Add([]byte{3, 255, 2, 254, 1, 253, 0, 252, 1, 0, 2, 1})
	owners := map[string]intent.Owner{"o0": {Priority: 0}, "o1": {Priority: 1}, "o2": {Priority: 2}, "o3": {Priority: 3}}
	k := object.Key{Kind: "Interface", Name: "i"}
	shown := func(d *intent.Desired) string {
		s, _ := d.Get(k)
		if s.Object == nil {
			return "no owner"
		}
		return fmt.Sprint(must1(proto.MarshalOptions{Deterministic: true}.Marshal(s.Object.Spec))) + owned(d, k)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		d := must1(intent.New(intent.Config{Registry: registry(t), Owners: owners}))
		apply := func(d *intent.Desired, owner string, c object.Change) {
			_, err := d.Apply(t.Context(), intent.Source{Owner: owner}, []object.Change{c}, intent.Options{Mode: intent.NoWait})
			must(t, err)
		}
		last := map[string]byte{}
		for i := 0; i+1 < len(ops) && i < 40; i += 2 {
			owner := fmt.Sprintf("o%d", ops[i]%4)
			_, there := last[owner]
			if there && ops[i+1]%5 == 0 {
				delete(last, owner)
				apply(d, owner, object.Remove(k))
				continue
			}
			last[owner] = ops[i+1]
			apply(d, owner, layerOf(t, part(ops[i+1])))
		}
		// The same, each once, in another order.
		inOrder := func(without string) string {
			fresh := must1(intent.New(intent.Config{Registry: registry(t), Owners: owners}))
			names := []string{"o0", "o1", "o2", "o3"}
			slices.SortFunc(names, func(a, b string) int { return cmp.Compare(last[a]%7, last[b]%7) })
			for _, owner := range names {
				if b, there := last[owner]; there && owner != without {
					apply(fresh, owner, layerOf(t, part(b)))
				}
			}
			return shown(fresh)
		}
		if got, want := shown(d), inOrder(""); got != want {
			t.Fatalf("%v: %s\nin another order %s", last, got, want)
		}
		for owner := range last {
			apply(d, owner, object.Remove(k))
			if got, want := shown(d), inOrder(owner); got != want {
				t.Fatalf("%v without %s: %s\nnot %s", last, owner, got, want)
			}
			break
		}
	})
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// taker is a data plane during whose deletions another owner makes the object again.
type taker struct {
	*reconciletest.Plane
	take func()
}

func (p *taker) Delete(ctx context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	go func() {
		p.take()
		p.Plane.Delete(ctx, keys, answered)
	}()
}

func TestADeletionIsCompleteIfAnotherOwnerMakesTheObjectAgainMeanwhile(t *testing.T) {
	r := registry(t)
	d := must1(intent.New(intent.Config{Registry: r}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	plane := &taker{Plane: reconciletest.NewPlane(r)}
	plane.take = func() { apply(t, d, "theirs", puts(vrf("red", "theirs")), intent.Options{Mode: intent.NoWait}) }
	d.Attach(ctx, plane)
	apply(t, d, "ours", puts(vrf("red", "ours")), intent.Options{})
	out := apply(t, d, "ours", removes(vrf("red", "")), intent.Options{})
	if len(out.Objects) != 1 || out.Objects[0].Step != intent.Delete || out.Objects[0].Status.State != intent.Gone || out.Objects[0].Status.Message != "" {
		t.Errorf("%+v", out.Objects)
	}
}
