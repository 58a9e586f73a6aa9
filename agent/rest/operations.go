// SPDX-License-Identifier: Apache-2.0

// Every operation that there is.
package rest

import (
	_ "embed"
	"net/http"
	"regexp"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

const (
	jsonMedia  = "application/json"
	mergeMedia = "application/merge-patch+json"
)

var (
	nameShape     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:@-]*[A-Za-z0-9])?$`)
	fieldsShape   = regexp.MustCompile(`^[A-Za-z0-9]+(\.[A-Za-z0-9]+)*(,[A-Za-z0-9]+(\.[A-Za-z0-9]+)*)*$`)
	withinShape   = regexp.MustCompile(`^([1-9][0-9]{0,4}s|[1-9][0-9]{0,3}m|([1-9][0-9]?|1[0-5][0-9]|16[0-8])h)$`)
	cursorShape   = regexp.MustCompile(`^[0-9a-f]{1,16}-[0-9a-f]{1,16}$`)
	pageShape     = regexp.MustCompile(`^[A-Za-z0-9]+/[A-Za-z0-9][A-Za-z0-9._:@-]*$`)
	selectorShape = regexp.MustCompile(`^(!?[A-Za-z0-9._/-]+|[A-Za-z0-9._/-]+(==?|!=)[A-Za-z0-9._-]*)(,(!?[A-Za-z0-9._/-]+|[A-Za-z0-9._/-]+(==?|!=)[A-Za-z0-9._-]*))*$`)
	// A value has no comma: that is between conditions.
	fieldSelectorShape = regexp.MustCompile(`^[A-Za-z0-9.]+(==?|!=)[^,\x00-\x1f\x7f]*(,[A-Za-z0-9.]+(==?|!=)[^,\x00-\x1f\x7f]*)*$`)
	ownerShape         = regexp.MustCompile(`^[^/\x00-\x20\x7f]+$`)
)

func query(name, text string) parameter {
	return parameter{in: "query", name: name, text: text, longest: 1000}
}

// shaped: a pattern describes the accepted values well enough for the document.
func shaped(p parameter, shape *regexp.Regexp) parameter {
	p.pattern, p.longest = shape, 10_000
	return p
}

func counted(name, text string, least, most uint64) parameter {
	p := query(name, text)
	p.number, p.least, p.most = true, least, most
	return p
}

func chosen(name, text string, of ...string) parameter {
	p := query(name, text)
	p.enum = of
	return p
}

func flag(name, text string) parameter {
	p := query(name, text)
	p.boolean = true
	return p
}

var modes = map[string]intent.Mode{"": intent.BestEffort, "best-effort": intent.BestEffort, "all-or-nothing": intent.AllOrNothing, "no-wait": intent.NoWait}

// Parameters of all operations that change the configuration.
func changeParameters(more ...parameter) []parameter {
	return append([]parameter{
		chosen("mode", "best-effort: each object stands by itself, and the agent tries refused ones again. all-or-nothing: if a data plane refuses an object, the agent undoes the whole change. no-wait: as best-effort, without waiting for data planes.",
			"best-effort", "all-or-nothing", "no-wait"),
		query("why", "The reason, for the history."),
		shaped(query("confirmWithin", "The agent rolls the revision back after that time unless it was confirmed: a number and s, m or h, at most 168h."), withinShape),
	}, more...)
}

var force = flag("force", "Take over fields that another owner of the same priority set to other values. Needs the role admin.")

var owners = flag("owners", "Show in status.owners the fields of each owner.")

// table returns the operations of all resources. Examples are objects by kind.
func (s *server) table(examples map[string]schema) []*operation {
	ifMatch := parameter{in: "header", name: "If-Match", text: `Only if the object has this entity tag, or one of several with commas between; *: only if it exists.`, longest: 1000}
	ifNoneMatch := parameter{in: "header", name: "If-None-Match", text: "*: only if the object does not exist.", enum: []string{"*"}}
	var all []*operation
	add := func(op *operation) { all = append(all, op) }
	for _, k := range s.environment.Registry.Kinds() {
		many, one := "/v1/"+k.Plural, "/v1/"+k.Plural+"/{name}"
		name := parameter{in: "path", name: "name", required: true, pattern: nameShape, longest: 253,
			text: "The object's name: at most 253 letters, digits and . _ : @ -, beginning and ending with a letter or digit."}
		object := reply{status: 200, text: "The object with its status.", media: jsonMedia, content: ref(k.Name), etag: true}
		accepted := reply{status: 202, text: "The change is accepted and stored; the data plane has not completed it in time.", media: jsonMedia, content: ref(k.Name), etag: true}
		add(&operation{method: http.MethodGet, path: many, id: "list" + k.Name, tag: k.Name, role: access.Read, summary: "The objects of the kind " + k.Name,
			text: "In the order of their names, by pages.",
			parameters: []parameter{
				shaped(query("selector", "Labels: city=bonn,tier!=test,new,!old: all must hold."), selectorShape),
				shaped(query("fieldSelector", "Fields: access.outerVlan=100,vrf!=red: all must hold. A field may also be metadata.name or status.state."), fieldSelectorShape),
				shaped(query("owner", "Only objects with fields of this owner."), ownerShape), owners,
				counted("limit", "The maximum number of objects in the page. Default: 1000.", 1, intent.LargestPage),
				shaped(query("page", "The value of next in the page before."), pageShape),
				shaped(query("fields", "Only these fields, with commas between, such as metadata.labels,spec.mtu,status.state. Kind and name are always included."), fieldsShape),
			},
			replies: []reply{{status: 200, text: "A page.", media: jsonMedia, content: ref("List")}}, serve: func(q *request) error { return q.list(k) }})
		add(&operation{method: http.MethodGet, path: one, id: "get" + k.Name, tag: k.Name, role: access.Read, summary: "One " + k.Name, parameters: []parameter{name, owners},
			replies: []reply{object}, serve: func(q *request) error { return q.get(k) }})
		add(&operation{method: http.MethodPut, path: one, id: "put" + k.Name, tag: k.Name, role: access.Operate, action: "apply", summary: "Create one " + k.Name + " or replace its fields",
			text: "The body may omit kind and name. The body has all fields of this northbound: the northbound gives up fields that it had before and omits now. " +
				"Fields of other owners stay.",
			parameters: changeParameters(force, name, ifMatch, ifNoneMatch), media: jsonMedia, body: ref(k.Name + "Input"), example: schema{"spec": examples[k.Name]["spec"]},
			replies: []reply{object, {status: 201, text: "It was created.", media: jsonMedia, content: ref(k.Name), etag: true}, accepted},
			serve:   func(q *request) error { return q.put(k) }})
		add(&operation{method: http.MethodPatch, path: one, id: "patch" + k.Name, tag: k.Name, role: access.Operate, action: "apply", summary: "Change fields of one " + k.Name,
			text: "A merge patch (RFC 7396) of the fields of this northbound: it changes the fields that it has, null gives a field up, and lists are replaced as a whole. " +
				"Fields of other owners stay.",
			parameters: changeParameters(force, name, ifMatch), media: mergeMedia, body: schema{"type": "object"}, example: schema{"metadata": schema{"labels": schema{"city": "bonn"}}},
			replies: []reply{object, accepted}, serve: func(q *request) error { return q.patch(k) }})
		add(&operation{method: http.MethodDelete, path: one, id: "delete" + k.Name, tag: k.Name, role: access.Operate, action: "delete", summary: "Delete one " + k.Name,
			text:       "The northbound gives up its fields. Fields of other owners stay; the object is deleted when it has no owner.",
			parameters: changeParameters(name, ifMatch), replies: []reply{{status: 200, text: "The result.", media: jsonMedia, content: ref("Applied")},
				{status: 202, text: "The deletion is accepted and stored; the data plane has not completed it in time.", media: jsonMedia, content: ref("Applied")}},
			serve: func(q *request) error { return q.delete(k) }})
	}
	complete := flag("complete", "The request has all objects of this northbound. The northbound gives up its fields of all other objects.")
	add(&operation{method: http.MethodPost, path: "/v1/apply", id: "apply", tag: "Many at once", role: access.Operate, action: "apply", summary: "Change many objects",
		text:       "The agent checks them as a whole: an object may take a key that another gives up. If one is not acceptable, nothing is changed.",
		parameters: changeParameters(force, complete), media: jsonMedia, body: ref("Changes"), example: schema{"put": []schema{examples["Vrf"]}, "delete": []schema{{"kind": "Vrf", "name": "old"}}},
		replies: []reply{{status: 200, text: "The result.", media: jsonMedia, content: ref("Applied")},
			{status: 202, text: "The change is accepted and stored; the data plane has not completed it in time.", media: jsonMedia, content: ref("Applied")}}, serve: (*request).apply})
	add(&operation{method: http.MethodPost, path: "/v1/plan", id: "plan", tag: "Many at once", role: access.Read, summary: "The operations that applying these changes would cause",
		text: "A dry run: nothing is changed.", parameters: []parameter{force, complete}, media: jsonMedia, body: ref("Changes"), example: schema{"put": []schema{examples["Vrf"]}, "delete": []schema{{"kind": "Vrf", "name": "old"}}},
		replies: []reply{{status: 200, text: "The plan.", media: jsonMedia, content: ref("Plan")}}, serve: (*request).plan})
	add(&operation{method: http.MethodGet, path: "/v1/history", id: "history", tag: "Revisions", role: access.Read, summary: "The revisions of the configuration, the latest first",
		parameters: []parameter{counted("before", "Only revisions before this one.", 1, 1<<62), counted("limit", "The maximum number of revisions. Default: 100.", 1, 1000)},
		replies:    []reply{{status: 200, text: "Revisions.", media: jsonMedia, content: ref("History")}}, serve: (*request).history})
	add(&operation{method: http.MethodGet, path: "/v1/diff", id: "diff", tag: "Revisions", role: access.Read, summary: "The difference of two revisions",
		parameters: []parameter{counted("from", "0, or left out: from the empty configuration.", 0, 1<<62), counted("to", "0, or left out: to the current configuration.", 0, 1<<62)},
		replies:    []reply{{status: 200, text: "Differences.", media: jsonMedia, content: ref("Differences")}}, serve: (*request).diff})
	revision := counted("revision", "Its number.", 1, 1<<62)
	revision.in, revision.required = "path", true
	add(&operation{method: http.MethodPost, path: "/v1/history/{revision}/rollback", id: "rollback", tag: "Revisions", role: access.Admin, action: "rollback",
		summary: "Restore the configuration of a revision", text: "For all owners. The rollback is a new revision.", parameters: changeParameters(revision),
		replies: []reply{{status: 200, text: "The result.", media: jsonMedia, content: ref("Applied")},
			{status: 202, text: "The change is accepted and stored; the data plane has not completed it in time.", media: jsonMedia, content: ref("Applied")}}, serve: (*request).rollback})
	add(&operation{method: http.MethodPost, path: "/v1/history/{revision}/confirm", id: "confirm", tag: "Revisions", role: access.Operate, action: "confirm",
		summary: "Confirm a revision that would be rolled back", parameters: []parameter{revision},
		replies: []reply{{status: 204, text: "It is confirmed."}}, serve: (*request).confirm})
	add(&operation{method: http.MethodGet, path: "/v1/events", id: "events", tag: "State", role: access.Read, summary: "Events",
		text: "Server-sent events: the id is the cursor to continue from, and the data is an object as a GET returns it. A client that was disconnected continues with Last-Event-ID. To follow all objects: list, then follow from the list's cursor. When a data plane is back, there is an event with the current state of its objects.",
		parameters: []parameter{
			shaped(query("cursor", "Continue after this; without it and Last-Event-ID: from now on."), cursorShape),
			shaped(query("kinds", "Only objects of these kinds, with commas between."), regexp.MustCompile(`^[A-Za-z0-9]+(,[A-Za-z0-9]+)*$`)),
			{in: "header", name: "Last-Event-ID", text: "Continue after this.", pattern: cursorShape, longest: 33},
		},
		replies: []reply{{status: 200, text: "Events.", media: "text/event-stream", content: schema{"type": "string"}}}, serve: (*request).events})
	add(&operation{method: http.MethodGet, path: "/v1/status", id: "status", tag: "State", role: access.Read, summary: "How many objects are in each state",
		replies: []reply{{status: 200, text: "Counts.", media: jsonMedia, content: ref("Counts")}}, serve: (*request).status})
	add(&operation{method: http.MethodGet, path: "/health", id: "health", tag: "State", role: access.NoRole, summary: "Whether the agent answers",
		replies: []reply{{status: 200, text: "The agent answers.", media: jsonMedia, content: ref("Health")}},
		serve:   func(q *request) error { return q.json(http.StatusOK, map[string]string{"status": "ok"}) }})
	add(&operation{method: http.MethodGet, path: "/openapi.json", id: "openapi", tag: "About", role: access.NoRole, summary: "This document (OpenAPI 3.1)",
		replies: []reply{{status: 200, text: "The document.", media: jsonMedia, content: schema{"type": "object"}}},
		serve:   func(q *request) error { return q.file(jsonMedia, q.contract.Load().document) }})
	for _, f := range []struct {
		path, id, summary, media string
		text                     []byte
	}{
		{"/", "page", "This document as a page to browse and try", "text/html", pageHTML},
		{"/page.js", "pageScript", "The page's script", "text/javascript", pageJS}, {"/page.css", "pageStyle", "The page's style", "text/css", pageCSS},
		{"/icon.svg", "pageIcon", "The page's icon", "image/svg+xml", pageIcon},
	} {
		add(&operation{method: http.MethodGet, path: f.path, id: f.id, tag: "About", role: access.NoRole, summary: f.summary,
			replies: []reply{{status: 200, text: "The file.", media: f.media, content: schema{"type": "string"}}},
			serve:   func(q *request) error { return q.file(f.media+"; charset=utf-8", f.text) }})
	}
	return all
}

var (
	//go:embed page/index.html
	pageHTML []byte
	//go:embed page/page.js
	pageJS []byte
	//go:embed page/page.css
	pageCSS []byte
	//go:embed page/icon.svg
	pageIcon []byte
)

func (q *request) file(media string, text []byte) error {
	q.out.Header().Set("Content-Type", media)
	_, err := q.out.Write(text)
	return q.gone(err)
}

// gone: the client disconnected. This is no error, and there is no client to answer.
func (q *request) gone(err error) error {
	if err != nil {
		q.environment.Log.Debug("a client went away", "address", q.http.RemoteAddr, "error", err)
	}
	return nil
}

func (q *request) key(k *object.Kind) object.Key { return k.Key(q.values["name"]) }
