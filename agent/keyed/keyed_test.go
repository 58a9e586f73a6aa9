// SPDX-License-Identifier: Apache-2.0

package keyed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// place holds documents in memory.
type place struct {
	mu        sync.Mutex
	documents map[string]string
	statuses  map[string]*Status
	watches   map[*watch]bool
	away      bool
	listed    int
	// Statuses that were written, and the most at once.
	written map[string]int
	most    int
	// It can be marked, and is.
	markable, marked bool
	// Texts that changed during the listing: their content before.
	before map[string]string
}

func newPlace() *place {
	return &place{documents: map[string]string{}, statuses: map[string]*Status{}, watches: map[*watch]bool{}, written: map[string]int{}}
}

type watch struct {
	place *place
	some  chan []Document
	lost  chan struct{}
}

var errAway = errors.New("connection refused")

func (p *place) List(context.Context) ([]Document, Watch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return nil, nil, errAway
	}
	p.listed++
	var all []Document
	for _, texts := range []map[string]string{p.before, p.documents} {
		for k, text := range texts {
			all = append(all, Document{Key: k, Text: []byte(text)})
		}
	}
	w := &watch{p, make(chan []Document, 100_000), make(chan struct{})}
	p.watches[w] = true
	if p.markable {
		return all, markable{w}, nil
	}
	return all, w, nil
}

func (w *watch) Next(ctx context.Context) ([]Document, error) {
	select {
	case some := <-w.some:
		return some, nil
	case <-w.lost:
		return nil, errAway
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *watch) Close() {
	w.place.mu.Lock()
	defer w.place.mu.Unlock()
	delete(w.place.watches, w)
}

func (p *place) Statuses(context.Context) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return nil, errAway
	}
	return slices.Collect(maps.Keys(p.statuses)), nil
}

func (p *place) WriteStatuses(_ context.Context, updates []StatusUpdate) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return errAway
	}
	for _, t := range updates {
		p.written[t.Key]++
	}
	p.most = max(p.most, len(updates))
	for _, t := range updates {
		if t.Status == nil {
			delete(p.statuses, t.Key)
		} else {
			p.statuses[t.Key] = t.Status
		}
	}
	return nil
}

// put changes a document; "" deletes it.
func (p *place) put(key, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := Document{Key: key, Text: []byte(text)}
	if text == "" {
		delete(p.documents, key)
		d.Deleted = true
	} else {
		p.documents[key] = text
	}
	for w := range p.watches {
		w.some <- []Document{d}
	}
}

// leave makes the place not answer; come makes it answer.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for w := range p.watches {
		close(w.lost)
		delete(p.watches, w)
	}
}

func (p *place) come() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

func (p *place) status(key string) *Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.statuses[key]
}

// bed is a Desired with a willing data plane, and an engine that may be ended and started again.
type bed struct {
	*testing.T
	registry *object.Registry
	desired  *intent.Desired
	log      *slog.Logger
	place    *place
	counters *northbound.Counters
	unknown  time.Duration
	attach   func()
	end      func()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return newBedOf(t, r, slog.DiscardHandler)
}

// newBedOf is newBed with kinds and a log handler.
func newBedOf(t *testing.T, r *object.Registry, log slog.Handler) *bed {
	t.Helper()
	d, err := intent.New(intent.Config{Registry: r, Log: slog.New(log), Owners: map[string]intent.Owner{"chief": {Priority: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx)
	}()
	plane := reconciletest.NewPlane(r)
	b := &bed{T: t, registry: r, desired: d, log: slog.New(log), place: newPlace(), counters: &northbound.Counters{}, unknown: time.Hour, end: func() {},
		attach: func() { d.Attach(ctx, plane) }}
	b.attach()
	t.Cleanup(func() {
		b.end()
		cancel()
		<-ended
	})
	return b
}

func (b *bed) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	e := northbound.Environment{Name: "store", Intent: b.desired, Registry: b.registry, Log: b.log, Counters: b.counters}
	p := pace{least: time.Millisecond, most: 20 * time.Millisecond, linger: time.Millisecond, burst: 20 * time.Millisecond, statuses: time.Millisecond,
		unknown: b.unknown}
	n := newEngine(e, b.place, p)
	go func() {
		defer close(ended)
		n.run(ctx)
	}()
	b.end = func() {
		cancel()
		<-ended
		b.end = func() {}
	}
}

func (b *bed) until(what string, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			for key := range b.place.documents {
				if s := b.place.status(key); s != nil && s.State != "Applied" {
					b.Logf("%s: %s", key, s.JSON())
				}
			}
			b.Fatalf("never: %s", what)
		}
	}
}

func (b *bed) state(key, state string) *Status {
	b.Helper()
	b.until(key+" is "+state, func() bool {
		s := b.place.status(key)
		return s != nil && s.State == state && s.SHA256 == sumOf(b.place, key)
	})
	return b.place.status(key)
}

func (b *bed) applied(keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.state(key, "Applied")
	}
}

// port returns the destination port of an ACL's first rule; "": there is no such ACL.
func (b *bed) port(name string) string {
	s, _ := b.desired.Get(object.Key{Kind: "Acl", Name: name})
	if s.Object == nil {
		return ""
	}
	text, err := b.registry.JSON(s.Object)
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), `destinationPorts":"`)
	port, _, _ := strings.Cut(after, `"`)
	return port
}

func (b *bed) ports(want string, names ...string) {
	b.Helper()
	for _, name := range names {
		b.until(fmt.Sprintf("Acl/%s has port %q", name, want), func() bool { return b.port(name) == want })
	}
}

func (b *bed) apply(owner string, text string) {
	b.Helper()
	all, err := b.registry.Decode(strings.NewReader(text), "")
	if err != nil {
		b.Fatal(err)
	}
	var changes []object.Change
	for _, w := range all {
		changes = append(changes, object.Put(w.Object))
	}
	if _, err := b.desired.Apply(b.Context(), intent.Source{Owner: owner}, changes, intent.Options{Mode: intent.NoWait}); err != nil {
		b.Fatal(err)
	}
}

func acl(name, port string) string {
	return fmt.Sprintf("---\napiVersion: sluice.dev/v1\nkind: Acl\nmetadata: {name: %s}\nspec:\n  rules:\n  - {action: permit, protocol: udp, destinationPorts: \"%s\"}\n",
		name, port)
}

func TestDocumentsAreAppliedUpdatedAndDeleted(t *testing.T) {
	b := newBed(t)
	b.place.put("a", acl("web", "80")+acl("dns", "53"))
	b.start()
	b.applied("a")
	b.ports("80", "web")
	b.place.put("b", acl("ssh", "22"))
	b.applied("b")
	b.place.put("a", acl("web", "8080"))
	b.applied("a")
	b.ports("8080", "web")
	b.ports("", "dns")
	b.place.put("a", "")
	b.ports("", "web")
	b.ports("22", "ssh")
	b.until("its status goes away", func() bool { return b.place.status("a") == nil })
}

func TestOfADocumentThatChangedWhileItWasListedTheLaterTextCounts(t *testing.T) {
	b := newBed(t)
	b.place.before = map[string]string{}
	var names []string
	for i := range 100 {
		name := fmt.Sprintf("a%d", i)
		names = append(names, name)
		b.place.before[name] = acl(name, "80")
		b.place.put(name, acl(name, "8080"))
	}
	b.start()
	for _, name := range names {
		b.until(name+" is there", func() bool { return b.port(name) != "" })
		if port := b.port(name); port != "8080" {
			t.Errorf("%s has port %q", name, port)
		}
	}
}

func TestAnInvalidDocumentKeepsItsLastValidObjectsAndAffectsNoOther(t *testing.T) {
	b := newBed(t)
	b.start()
	b.place.put("a", acl("web", "80")+acl("dns", "53"))
	b.applied("a")
	for _, bad := range []string{"{", "apiVersion: [", acl("web", "99999") + acl("dns", "54"), "---\nkind: Acll\n" + acl("dns", "54")} {
		b.place.put("a", bad)
		s := b.state("a", "Invalid")
		if len(s.Mistakes) == 0 || s.Mistakes[0].Line == 0 || s.Objects != 2 {
			t.Errorf("%q: %s", bad, s.JSON())
		}
		b.ports("80", "web")
		b.place.put("b", acl("ssh", "22"))
		b.applied("b")
		b.place.put("b", "")
		b.ports("", "ssh")
	}
	b.ports("54", "dns")
	b.place.put("a", acl("dns", "55"))
	b.applied("a")
	b.ports("", "web")
}

func TestAnErrorNamesLineObjectFieldAndAcceptedValues(t *testing.T) {
	b := newBed(t)
	b.place.put("a", acl("web", "80")+acl("dns", "99999"))
	b.start()
	m := b.state("a", "Invalid").Mistakes
	if len(m) != 1 || m[0].Line != 14 || m[0].Object != "Acl/dns" || m[0].Field != "rules[0].destinationPorts" || m[0].Accepted == "" || m[0].Found == "" {
		t.Errorf("%+v", m)
	}
}

func TestAnObjectInTwoDocumentsBelongsToTheFirst(t *testing.T) {
	b := newBed(t)
	b.start()
	b.place.put("b", acl("web", "80"))
	b.applied("b")
	b.place.put("a", acl("web", "81")+acl("dns", "53"))
	s := b.state("a", "Invalid")
	if len(s.Mistakes) != 1 || !strings.Contains(s.Mistakes[0].Problem, "is in b already") {
		t.Errorf("%s", s.JSON())
	}
	b.ports("53", "dns")
	b.applied("b")
	// Also when the program was started again.
	b.end()
	b.start()
	b.place.put("c", acl("ssh", "22"))
	b.applied("c")
	b.ports("80", "web")
	b.place.put("b", "")
	b.applied("a")
	b.ports("81", "web")
}

func TestAKeyThatIsABookFillsNoStatus(t *testing.T) {
	b := newBed(t)
	b.start()
	long := strings.Repeat("b", 100_000)
	b.place.put(long, acl("web", "80"))
	b.applied(long)
	b.place.put("a", acl("web", "81"))
	if s := b.state("a", "Invalid"); len(s.JSON()) > 2000 || !strings.Contains(s.Mistakes[0].Problem, "is in bbb") {
		t.Errorf("%d bytes", len(s.JSON()))
	}
	b.place.put("c"+long, "{{{")
	if s := b.state("c"+long, "Invalid"); len(s.JSON()) > 2000 {
		t.Errorf("%d bytes", len(s.JSON()))
	}
}

func TestTheSameObjectTwiceInADocumentIsAMistake(t *testing.T) {
	b := newBed(t)
	b.place.put("a", acl("web", "80")+acl("web", "81"))
	b.start()
	s := b.state("a", "Invalid")
	if len(s.Mistakes) != 1 || !strings.Contains(s.Mistakes[0].Problem, "duplicate object") {
		t.Errorf("%s", s.JSON())
	}
	b.ports("80", "web")
}

func TestAConflictIsReportedAndTriedAgainWhenItIsOver(t *testing.T) {
	b := newBed(t)
	b.apply("api", acl("web", "1"))
	b.place.put("a", acl("web", "80")+acl("dns", "53"))
	b.start()
	s := b.state("a", "Invalid")
	if len(s.Mistakes) != 1 || !strings.Contains(s.Mistakes[0].Problem, "belongs to api") {
		t.Errorf("%s", s.JSON())
	}
	b.ports("53", "dns")
	b.ports("1", "web")
	if _, err := b.desired.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Remove(object.Key{Kind: "Acl", Name: "web"})}, intent.Options{Mode: intent.NoWait}); err != nil {
		t.Fatal(err)
	}
	b.applied("a")
	b.ports("80", "web")
}

func TestAnOwnerOfAHigherPriorityIsNamed(t *testing.T) {
	b := newBed(t)
	b.apply("chief", acl("web", "1"))
	b.place.put("a", acl("web", "80"))
	b.start()
	b.until("the status says so", func() bool {
		s := b.place.status("a")
		return s != nil && s.State == "Pending" && len(s.Details) == 1 && s.Details[0].Reason == "Overridden"
	})
	b.ports("1", "web")
}

func TestObjectsMissingAtTheStartAreDeleted(t *testing.T) {
	b := newBed(t)
	b.apply("store", acl("old", "1")+acl("web", "80"))
	b.apply("api", acl("other", "1"))
	b.place.statuses["gone"] = &Status{}
	b.place.put("a", acl("web", "80"))
	b.start()
	b.applied("a")
	b.ports("", "old")
	b.ports("1", "other")
	b.until("an old status goes away", func() bool { return b.place.status("gone") == nil })
}

func TestEarlierObjectsOfAnUnreadableDocumentStayAtTheStart(t *testing.T) {
	b := newBed(t)
	b.apply("store", acl("old", "1")+acl("web", "80"))
	b.place.put("a", "{")
	b.place.put("b", acl("dns", "53"))
	b.start()
	b.state("a", "Invalid")
	b.applied("b")
	b.ports("1", "old")
	b.ports("80", "web")
	b.place.put("a", acl("web", "81"))
	b.applied("a")
	b.ports("", "old")
	b.ports("81", "web")
	b.ports("53", "dns")
}

func TestNothingIsLostWhileThePlaceIsAway(t *testing.T) {
	b := newBed(t)
	b.place.put("a", acl("web", "80"))
	b.place.put("b", acl("dns", "53"))
	b.start()
	b.applied("a", "b")
	if c := b.counters.Read(); c.Connection != northbound.Connected || c.Received != 2 || c.Failed != 0 {
		t.Errorf("%+v", c)
	}
	b.place.leave()
	b.place.put("a", acl("web", "81"))
	b.place.put("b", "")
	b.place.put("c", acl("ssh", "22"))
	time.Sleep(20 * time.Millisecond)
	if b.port("dns") != "53" {
		t.Error("what cannot be seen was taken for gone")
	}
	b.until("it is counted", func() bool { c := b.counters.Read(); return c.Connection == northbound.Disconnected && c.Failed > 0 })
	b.place.come()
	b.applied("a", "c")
	b.ports("81", "web")
	b.ports("", "dns")
	b.until("its status goes away", func() bool { return b.place.status("b") == nil })
}

func TestASetThatIsPartlyWrongIsAppliedButForThat(t *testing.T) {
	b := newBed(t)
	// The second takes a port's device that the first has.
	port := "---\napiVersion: sluice.dev/v1\nkind: Port\nmetadata: {name: %s}\nspec: {device: net_null0}\n"
	b.place.put("a", fmt.Sprintf(port, "one"))
	b.place.put("b", fmt.Sprintf(port, "two")+acl("web", "80"))
	for i := range 50 {
		b.place.put(fmt.Sprintf("c%d", i), acl(fmt.Sprintf("n%d", i), "1"))
	}
	b.start()
	b.applied("a", "c0", "c49")
	s := b.state("b", "Invalid")
	if len(s.Mistakes) != 1 || s.Mistakes[0].Object != "Port/two" {
		t.Errorf("%s", s.JSON())
	}
	b.ports("80", "web")
	// A refused update leaves the configuration as it was, also after a restart.
	b.place.put("b", strings.Replace(fmt.Sprintf(port, "two"), "net_null0", "net_null1", 1))
	b.applied("b")
	b.place.put("b", fmt.Sprintf(port, "two"))
	b.state("b", "Invalid")
	b.end()
	b.start()
	b.state("b", "Invalid")
	if s, _ := b.desired.Get(object.Key{Kind: "Port", Name: "two"}); s.Object == nil {
		t.Error("an object that was refused took away what was there before")
	}
	// The first gives it up.
	b.place.put("a", "")
	b.applied("b")
}

func TestABurstIsFewRevisions(t *testing.T) {
	b := newBed(t)
	b.start()
	b.place.put("a", acl("web", "80"))
	b.applied("a")
	before := b.desired.Revision()
	for i := range 5000 {
		b.place.put(fmt.Sprintf("k%04d", i), acl(fmt.Sprintf("n%04d", i), "1"))
	}
	b.until("all are there", func() bool { return b.port("n4999") == "1" })
	for i := range 5000 {
		b.state(fmt.Sprintf("k%04d", i), "Applied")
	}
	if revisions := b.desired.Revision() - before; revisions > 1000 {
		t.Errorf("%d revisions", revisions)
	}
}

func TestAReplayAndADuplicateChangeNothing(t *testing.T) {
	b := newBed(t)
	b.place.put("a", acl("web", "80"))
	b.start()
	b.applied("a")
	before := b.desired.Revision()
	for range 10 {
		b.place.put("a", acl("web", "80"))
		b.place.put("a", "# the same\n"+acl("web", "80"))
	}
	b.applied("a")
	b.place.leave()
	b.place.come()
	b.until("it is listed again", func() bool {
		b.place.mu.Lock()
		defer b.place.mu.Unlock()
		return b.place.listed == 2
	})
	b.place.put("b", acl("dns", "53"))
	b.applied("b")
	if b.desired.Revision() != before+1 {
		t.Errorf("%d revisions", b.desired.Revision()-before)
	}
}

func (p *place) writes(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[key]
}

func TestAppliedObjectsAreUnknownWhileTheDataPlaneIsAway(t *testing.T) {
	b := newBed(t)
	b.unknown = 10 * time.Millisecond
	const documents = 3000
	for i := range documents {
		b.place.put(fmt.Sprintf("k%04d", i), acl(fmt.Sprintf("n%04d", i), "1"))
	}
	b.start()
	b.until("all are applied", func() bool { return b.allAre("Applied", documents) })
	b.desired.Detach()
	b.until("all are unknown", func() bool { return b.allAre("Unknown", documents) })
	if detail := b.place.status("k0000").Details[0]; detail.State != "Unknown" || !strings.Contains(detail.Message, "away") {
		t.Errorf("%+v", detail)
	}
	b.attach()
	b.until("all are applied again", func() bool { return b.allAre("Applied", documents) })
	if b.place.most > maxBatch {
		t.Errorf("%d at once", b.place.most)
	}
}

func TestADataPlaneThatIsBackSoonCostsNoWriting(t *testing.T) {
	b := newBed(t)
	b.place.put("a", acl("web", "80"))
	b.start()
	b.applied("a")
	before := b.place.writes("a")
	for range 5 {
		b.desired.Detach()
		b.attach()
		b.until("it is compared", func() bool {
			s, _ := b.desired.Get(object.Key{Kind: "Acl", Name: "web"})
			return s.State == intent.Applied
		})
	}
	b.place.put("b", acl("dns", "53"))
	b.applied("b")
	if writes := b.place.writes("a") - before; writes > 0 {
		t.Errorf("%d were written", writes)
	}
}

func (b *bed) allAre(state string, documents int) bool {
	b.place.mu.Lock()
	defer b.place.mu.Unlock()
	for _, s := range b.place.statuses {
		if s.State != state {
			return false
		}
	}
	return len(b.place.statuses) == documents
}

func sumOf(p *place, key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%x", sha256.Sum256([]byte(p.documents[key])))
}

func TestADataPlaneThatComesAndGoesDoesNotHideThatAnotherIsAway(t *testing.T) {
	statusWriter := newStatusWriter(northbound.Environment{}, nil, newSet(northbound.Environment{}), pace{unknown: time.Hour})
	waits := func() bool {
		statusWriter.mu.Lock()
		defer statusWriter.mu.Unlock()
		return statusWriter.timer != nil
	}
	statusWriter.gone("a")
	for range 3 {
		statusWriter.gone("b")
		statusWriter.back("b")
		if !waits() {
			t.Fatal("that a is away is not told")
		}
	}
	if statusWriter.back("a"); waits() {
		t.Error("something is told although none is away")
	}
}
