// SPDX-License-Identifier: Apache-2.0

// Resources: the objects of a kind, and one of them.
package rest

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

func (q *request) list(k *object.Kind) error {
	page, err := q.environment.Intent.List(intent.Query{Kinds: []string{k.Name}, Selector: q.values["selector"],
		FieldSelector: q.values["fieldSelector"], Owner: q.values["owner"],
		Limit: int(q.number("limit")), After: q.values["page"]})
	if err != nil {
		return err
	}
	fields := strings.Split(q.values["fields"], ",")
	items := make([]any, 0, len(page.Objects))
	for _, st := range page.Objects {
		q.owners(&st)
		v, err := q.viewOf(st)
		if err != nil {
			return err
		}
		var item any = v
		if fields[0] != "" {
			if item, err = pick(v, fields); err != nil {
				return err
			}
		}
		items = append(items, item)
	}
	return q.json(http.StatusOK, struct {
		Items  []any  `json:"items"`
		Next   string `json:"next,omitempty"`
		Cursor string `json:"cursor"`
	}{items, page.Next, page.Cursor.String()})
}

// find returns an object that the configuration or a data plane has.
func (q *request) find(k *object.Kind) (intent.Status, error) {
	st, there := q.environment.Intent.Get(q.key(k))
	if !there || st.Object == nil && k.IsBuiltin(st.Key.Name) {
		return st, notFound("there is no " + k.Name + " " + q.values["name"])
	}
	return st, nil
}

// configured returns an object of the configuration.
func (q *request) configured(k *object.Kind) (intent.Status, error) {
	st, err := q.find(k)
	if err == nil && st.Object == nil {
		err = notFound(st.Key.String() + " is deleted")
	}
	return st, err
}

func (q *request) get(k *object.Kind) error {
	st, err := q.find(k)
	if err != nil {
		return err
	}
	q.owners(&st)
	return q.object(http.StatusOK, st)
}

// owners adds the layers of the owners, if the request asks for them.
func (q *request) owners(st *intent.Status) {
	if q.values["owners"] == "true" {
		st.Owners = q.environment.Intent.Owners(st.Key)
	}
}

// expect reads If-Match and If-None-Match (RFC 9110 section 13.1).
func (q *request) expect(k *object.Kind) (map[object.Key]uint64, error) {
	match, conditional := q.values["If-Match"]
	none := q.values["If-None-Match"]
	switch {
	case conditional && none != "":
		// It cannot both be there and not.
		return nil, &intent.Moved{Objects: []object.Key{q.key(k)}}
	case none != "":
		return map[object.Key]uint64{q.key(k): 0}, nil
	case !conditional:
		return nil, nil
	}
	st, _ := q.environment.Intent.Get(q.key(k))
	for _, tag := range strings.Split(match, ",") {
		if tag = strings.TrimSpace(tag); st.Object != nil && (tag == "*" || tag == entityTag(st)) {
			return map[object.Key]uint64{st.Key: st.Revision}, nil
		}
	}
	return nil, &intent.Moved{Objects: []object.Key{st.Key}}
}

func (q *request) put(k *object.Kind) error {
	n, err := q.body()
	if err != nil {
		return q.refused(err)
	}
	if !object.IsMapping(n) {
		return q.refused(badRequest("", "not an object", "", "a mapping with spec, and metadata if there are labels"))
	}
	// The path names the object already.
	complete := func(n *yaml.Node, name string, value *yaml.Node) {
		if object.IsMapping(n) && object.Member(n, name) == nil {
			object.SetMember(n, name, value)
		}
	}
	complete(n, "apiVersion", object.Text(object.APIVersion))
	complete(n, "kind", object.Text(k.Name))
	complete(n, "metadata", object.Mapping())
	complete(object.Member(n, "metadata"), "name", object.Text(q.values["name"]))
	o, errs := q.environment.Registry.Object(n)
	if err := q.named(k, o, errs); err != nil {
		return q.refused(err)
	}
	expect, err := q.expect(k)
	if err != nil {
		return q.refused(err)
	}
	return q.one(k, object.Put(o), expect)
}

// named returns the errors of an object whose name must be the path's.
func (q *request) named(k *object.Kind, o *object.Object, errs object.Errors) error {
	if len(errs) > 0 {
		return errs
	}
	for _, part := range []struct{ field, found, accepted string }{{"kind", o.Kind, k.Name}, {"metadata.name", o.Name, q.values["name"]}} {
		if part.found != part.accepted {
			return &object.Error{Object: o.Key(), Field: part.field, Problem: "differs from the path", Found: strconv.Quote(part.found), Accepted: part.accepted}
		}
	}
	return nil
}

// How often a patch is tried while others change the same object.
const patchAttempts = 10

func (q *request) patch(k *object.Kind) error {
	patch, err := q.body()
	if err != nil {
		return q.refused(err)
	}
	if !object.IsMapping(patch) {
		return q.refused(badRequest("", "not a merge patch", "", "an object"))
	}
	given, err := q.expect(k)
	if err != nil {
		return q.refused(err)
	}
	for attempt := 1; ; attempt++ {
		st, err := q.configured(k)
		if err != nil {
			return q.refused(err)
		}
		// This northbound's layer, without those of others.
		layer := q.environment.Intent.OwnLayer(q.environment.Name, st.Key)
		if layer == nil {
			layer = &object.Object{Kind: st.Key.Kind, Name: st.Key.Name, Spec: k.Message.New().Interface()}
		}
		now, err := q.environment.Registry.LayerNode(layer)
		if err != nil {
			return err
		}
		o, errs := q.environment.Registry.Object(object.MergePatch(now, patch))
		if err := q.named(k, o, errs); err != nil {
			return q.refused(err)
		}
		expect := given
		if expect == nil {
			expect = map[object.Key]uint64{st.Key: st.Revision}
		}
		err = q.one(k, object.Put(o), expect)
		var moved *intent.Moved
		if given != nil || attempt == patchAttempts || !errors.As(err, &moved) {
			return err
		}
	}
}

// one carries out a change of one object and answers with it.
func (q *request) one(k *object.Kind, c object.Change, expect map[object.Key]uint64) error {
	before, _ := q.environment.Intent.Get(c.Key)
	outcome, status, err := q.change([]object.Change{c}, expect)
	if err != nil {
		return err
	}
	done := outcome.Objects[0]
	// To a data plane that refused it before it is created, too.
	if before.Object == nil && done.Step == intent.Create && status == http.StatusOK {
		status = http.StatusCreated
	}
	// An outcome leaves the objects themselves out.
	now, _ := q.environment.Intent.Get(done.Status.Key)
	if now.Revision == done.Status.Revision {
		object := now.Object
		now = done.Status
		now.Object = object
	}
	return q.object(status, now)
}

func (q *request) delete(k *object.Kind) error {
	st, err := q.configured(k)
	if err != nil {
		return q.refused(err)
	}
	expect, err := q.expect(k)
	if err != nil {
		return q.refused(err)
	}
	if !st.Of(q.environment.Name) {
		return q.refused(&intent.Conflicts{All: []intent.Conflict{{Key: st.Key, Owner: q.environment.Name, Holder: st.Owner}}})
	}
	outcome, status, err := q.change([]object.Change{object.Remove(st.Key)}, expect)
	if err != nil {
		return err
	}
	return q.json(status, appliedOf(outcome))
}
