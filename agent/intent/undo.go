// Undoing a revision: everything is wanted as before it, but for what somebody changed since.
package intent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Why revisions are undone.
const (
	unconfirmed = "nobody confirmed it in time"
	unfinished  = "not all of it could be done"
	cutOff      = "the agent ended before all of it was done"
)

// What a revision is called that undoes another.
const (
	undoneWhole  = "undone"
	undoneInPart = "undone in part"
)

// undoes returns which revision it undoes, 0: none, and whether it leaves some of that. That is kept in its words alone.
func (r *Revision) undoes() (revision uint64, inPart bool) {
	words, ours := strings.CutPrefix(r.Source.Why, "revision ")
	number, words, _ := strings.Cut(words, " ")
	how, _, _ := strings.Cut(words, ":")
	revision, err := strconv.ParseUint(number, 10, 64)
	if !ours || err != nil || r.Source.Owner != agentOwner || revision != r.RollbackTo+1 || how != undoneWhole && how != undoneInPart {
		return 0, false
	}
	return revision, how == undoneInPart
}

// What could not be undone is tried again, later each time, but at least so often.
const undoneAgainWithin = time.Minute

// agentOwner is on whose behalf the agent undoes.
const agentOwner = "agent"

// Undoing is what the agent did about a revision that does not stand.
type Undoing struct {
	// The agent, and why.
	Source Source
	// Which does not stand; and what was made of that, 0: nothing could be done.
	Revision, Made uint64
	// What was undone, what could not be, and why nothing could; the last is of the store.
	Objects []Done
	Left    []Left
	Problem error
}

// NotUndone is the error of a revision that could not be undone, or not all of it. It is tried again.
type NotUndone struct {
	Revision uint64
	Left     []Left
	// Of the store.
	Problem error
}

func (n *NotUndone) Error() string {
	if n.Problem != nil {
		return fmt.Sprintf("revision %d is not undone yet: %v", n.Revision, n.Problem)
	}
	return fmt.Sprintf("revision %d is undone only in part; left as it is: %s", n.Revision, listed(n.Left))
}

func (n *NotUndone) Unwrap() error { return n.Problem }

// listed names as many as a person reads.
func listed(left []Left) string {
	const most = 10
	var names []string
	for _, l := range left[:min(len(left), most)] {
		names = append(names, l.String())
	}
	if more := len(left) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// overdue undoes a revision whose time is over.
func (d *Desired) overdue(o *opened, why string) {
	// It is told and tried again there.
	_ = d.undo(context.Background(), o, why, false)
}

// undo makes everything be wanted as before an open revision, as far as that is acceptable; the rest is tried again later. An error is a
// *NotUndone.
func (d *Desired) undo(ctx context.Context, o *opened, why string, wait bool) error {
	d.changing.Lock()
	if d.open[o.Revision] != o || why == unconfirmed && o.ConfirmBy.IsZero() {
		d.changing.Unlock()
		return nil
	}
	begun, told, err := d.takeBack(o, why)
	d.changing.Unlock()
	d.tellUndone(o, told, err)
	if begun == nil {
		return err
	}
	if wait {
		select {
		case <-begun.Done():
		case <-ctx.Done():
		}
	}
	begun.Close()
	return err
}

// takeBack is undo; told is nil if nobody has to know. d.changing is held.
func (d *Desired) takeBack(o *opened, why string) (begun work, told *Undoing, err error) {
	first := o.why == "" && !o.InPart
	told = &Undoing{Source: Source{Owner: agentOwner}, Revision: o.Revision}
	back, err := d.reversed(o)
	if err != nil {
		return nil, d.notNow(o, told, why, err, first), &NotUndone{Revision: o.Revision, Problem: err}
	}
	d.mu.Lock()
	p, left := d.acceptable(back.edits)
	d.mu.Unlock()
	left = append(back.left, left...)
	slices.SortFunc(left, func(a, b Left) int { return a.Key.Compare(b.Key) })
	told.Left = left
	if len(left) > 0 && !first && o.InPart && len(p.edits) == 0 && len(back.handed) == 0 {
		// As it was when it was tried before, perhaps before the agent was started again.
		d.mu.Lock()
		o.why = why
		gone := o.left
		d.putOff(o, left, "")
		d.mu.Unlock()
		if !slices.Equal(gone, left) {
			d.tellLeft(slices.Concat(gone, left))
		}
		return nil, nil, &NotUndone{Revision: o.Revision, Left: left}
	}
	told.Source.Why = fmt.Sprintf("revision %d %s: %s", o.Revision, undoneWhole, why)
	if len(left) > 0 {
		told.Source.Why = fmt.Sprintf("revision %d %s: %s; left as it is: %s", o.Revision, undoneInPart, why, listed(left))
	}
	u, gone := d.undoing(o, back, left), o.left
	u.kept = func() {
		if len(left) > 0 {
			o.InPart, o.why = true, why
			d.putOff(o, left, "")
			return
		}
		d.close(o)
		close(o.undone)
	}
	begun, made, err := d.keep(p, told.Source, Options{}, o.Revision-1, u)
	if err != nil {
		return nil, d.notNow(o, told, why, err, first), &NotUndone{Revision: o.Revision, Problem: err}
	}
	told.Made = made.Number
	for _, e := range p.edits {
		st, _ := d.look(e.Key)
		told.Objects = append(told.Objects, Done{stepFrom(e.Before.kept(), e.After.kept()), st})
	}
	d.tellLeft(gone)
	if len(left) == 0 {
		return begun, told, nil
	}
	return begun, told, &NotUndone{Revision: o.Revision, Left: left}
}

// notNow has it tried again; what is returned is for the first time. d.changing is held.
func (d *Desired) notNow(o *opened, told *Undoing, why string, err error, first bool) *Undoing {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.why = why
	d.putOff(o, o.left, err.Error())
	if !first {
		return nil
	}
	told.Source.Why = fmt.Sprintf("revision %d is to be undone: %s", o.Revision, why)
	told.Problem, told.Left = err, nil
	return told
}

// putOff has a revision undone later. d.mu is held.
func (d *Desired) putOff(o *opened, left []Left, problem string) {
	o.left, o.problem = left, cmp.Or(problem, listed(left))
	d.listLeft()
	o.backoff = min(max(2*o.backoff, d.config.UndoAgain), undoneAgainWithin)
	d.later(o, o.backoff)
}

// tellUndone tells whoever listens.
func (d *Desired) tellUndone(o *opened, told *Undoing, err error) {
	if told == nil {
		return
	}
	if told.Made != 0 {
		d.config.Log.Warn("a revision was undone", "revision", o.Revision, "why", told.Source.Why)
	}
	if err != nil {
		d.config.Log.Error("a revision that does not stand is still there; it is tried again", "revision", o.Revision, "error", err)
	}
	d.tellLeft(told.Left)
	if d.config.Undone != nil {
		d.config.Undone(*told)
	}
}

// listLeft has each object say what keeps it from being undone. d.mu is held, so that it says so when, and as long as, the revision does.
func (d *Desired) listLeft() {
	left := map[object.Key]string{}
	// Of several, the oldest.
	for _, o := range slices.Backward(d.openOnes()) {
		for _, l := range o.left {
			left[l.Key] = fmt.Sprintf("revision %d is to be undone, but %s", o.Revision, l.Problem)
		}
	}
	d.left.Store(&left)
}

// tellLeft tells of objects that could not be undone, or are not in the way any more.
func (d *Desired) tellLeft(objects []Left) {
	for _, l := range objects {
		if s := d.sites.get(l.Key); s.State != Gone {
			d.log.publish(logStatus(s))
		}
	}
}

// reversal is what undoing a revision comes to.
type reversal struct {
	edits []Edit
	// What newer open revisions bring back then.
	handed []Undo
	// What cannot be said any more.
	left []Left
}

// reversed works out what undoes a revision. d.changing is held.
func (d *Desired) reversed(o *opened) (*reversal, error) {
	undoes, err := d.undoesOf(o)
	if err != nil {
		return nil, err
	}
	var above []*opened
	for _, other := range d.openOnes() {
		if other.Revision > o.Revision {
			if _, err := d.undoesOf(other); err != nil {
				return nil, err
			}
			above = append(above, other)
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	back := &reversal{}
	for k, u := range undoes {
		handed := map[uint64]Undo{}
		var mine []string
		for _, owner := range u.Owners {
			i := slices.IndexFunc(above, func(o *opened) bool { return slices.Contains(o.undoes[k].Owners, owner) })
			if i < 0 {
				mine = append(mine, owner)
				continue
			}
			next, there := handed[above[i].Revision]
			if !there {
				next = above[i].undoes[k]
			}
			if layers := replaced(next.Before, u.Before, owner); len(layers) > 0 {
				next.Before = &Record{Layers: layers}
			} else {
				next.Before = nil
			}
			handed[next.Revision] = next
		}
		for _, next := range handed {
			back.handed = append(back.handed, next)
		}
		if len(mine) == 0 {
			continue
		}
		now := d.records.Get(k)
		layers, differ := now.without(""), false
		for _, owner := range mine {
			was, is := u.Before.layerOf(owner), now.layerOf(owner)
			if was == nil && is == nil || was != nil && is != nil && was.Says(is.Kept) && was.Taken == is.Taken {
				continue
			}
			differ = true
			layers = replaced(&Record{Layers: layers}, u.Before, owner)
		}
		if !differ {
			continue
		}
		for i := range layers {
			if slices.Contains(mine, layers[i].Owner) {
				layers[i].Revision = 0
			}
		}
		after, err := d.recordOf(layers)
		if err != nil {
			back.left = append(back.left, Left{k, err.Error()})
			continue
		}
		back.edits = append(back.edits, Edit{Key: k, Before: now, After: after})
	}
	slices.SortFunc(back.edits, func(a, b Edit) int { return a.Key.Compare(b.Key) })
	return back, nil
}

// replaced returns the layers of a record, but what an owner says is as in another.
func replaced(r, by *Record, owner string) []Layer {
	layers := r.without(owner)
	if l := by.layerOf(owner); l != nil {
		layers = append(layers, *l)
	}
	return layers
}

// undoing says what is kept with the edits that undo a revision.
func (d *Desired) undoing(o *opened, back *reversal, left []Left) *undoing {
	u := &undoing{closes: o.Revision, revised: back.handed}
	if len(left) == 0 {
		return u
	}
	u.leaves = &Open{Revision: o.Revision, Unfinished: o.Unfinished, ConfirmBy: o.ConfirmBy, InPart: true}
	stays := make(map[object.Key]struct{}, len(left))
	for _, l := range left {
		stays[l.Key] = struct{}{}
	}
	handed := make(map[object.Key][]string, len(back.handed))
	for _, h := range back.handed {
		handed[h.Key] = append(handed[h.Key], h.Owners...)
	}
	for k, one := range o.undoes {
		if _, there := stays[k]; !there {
			one.Owners = nil
		} else {
			// Of those that a newer one brings back now, this one does not.
			one.Owners = without(one.Owners, handed[k])
		}
		u.revised = append(u.revised, one)
	}
	return u
}

// acceptable prepares those of the edits that are acceptable, and says why the others are not. d.mu is held.
func (d *Desired) acceptable(edits []Edit) (*prepared, []Left) {
	var left []Left
	const rounds = 8
	for range rounds {
		p, err := d.prepare(edits, NoWait)
		if err == nil {
			return p, left
		}
		problems := map[object.Key]string{}
		for _, m := range object.AllErrors(err) {
			about := *m
			about.Object = object.Key{}
			problems[m.Object] = cmp.Or(problems[m.Object], about.Error())
		}
		rest := make([]Edit, 0, len(edits))
		for _, e := range edits {
			if problem, bad := problems[e.Key]; bad {
				left = append(left, Left{e.Key, problem})
			} else {
				rest = append(rest, e)
			}
		}
		if len(rest) == len(edits) {
			break
		}
		edits = rest
	}
	// What is wrong is said of others, or too much is: each by itself.
	var fit []Edit
	var back []func()
	for i := range edits {
		p, err := d.prepare(edits[i:i+1], NoWait)
		if err != nil {
			left = append(left, Left{edits[i].Key, err.Error()})
			continue
		}
		fit, back = append(fit, edits[i]), append(back, p.takeBack)
	}
	for _, f := range slices.Backward(back) {
		f()
	}
	p, err := d.prepare(fit, NoWait)
	if err != nil {
		for _, e := range fit {
			left = append(left, Left{e.Key, err.Error()})
		}
		p = &prepared{takeBack: func() {}}
	}
	return p, left
}

// ErrUnconfirmed: a revision was undone while somebody still waited for data planes.
var ErrUnconfirmed = errors.New(unconfirmed + ", and everything is wanted as before")
