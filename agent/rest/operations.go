// Every operation that there is.
package rest

import (
	_ "embed"
	"net/http"
	"regexp"
	"strings"

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
	ownerShape    = regexp.MustCompile(`^[^/\x00-\x20\x7f]+$`)
)

func query(name, text string) parameter {
	return parameter{in: "query", name: name, text: text, longest: 1000}
}

// shaped: a pattern bounds what may be said well enough for the document.
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

// Parameters of all that changes what is wanted.
func changeParameters(more ...parameter) []parameter {
	return append([]parameter{
		chosen("mode", "best-effort: each object stands by itself, and what failed is tried again. all-or-nothing: if a data plane refuses any, all is undone. no-wait: as best-effort, without waiting for data planes.",
			"best-effort", "all-or-nothing", "no-wait"),
		query("why", "For history: why, in a few words."),
		shaped(query("confirmWithin", "The revision is rolled back after that time unless it was confirmed: a number and s, m or h, at most 168h."), withinShape),
	}, more...)
}

var force = flag("force", "Take over what another owner of the same priority wants otherwise. Needs the role admin.")

var owners = flag("owners", "Tell of each owner in status.owners which fields it owns.")

// table returns the operations of all resources. Examples are objects by kind.
func (s *server) table(examples map[string]schema) []*operation {
	ifMatch := parameter{in: "header", name: "If-Match", text: `Only if the object has this entity tag, or one of several with commas between; *: only if it is there.`, longest: 1000}
	ifNoneMatch := parameter{in: "header", name: "If-None-Match", text: "*: only if nobody wants the object yet.", enum: []string{"*"}}
	var all []*operation
	add := func(op *operation) {
		op.segments = strings.Split(strings.TrimPrefix(op.path, "/"), "/")
		all = append(all, op)
	}
	for _, k := range s.environment.Registry.Kinds() {
		many, one := "/v1/"+k.Plural, "/v1/"+k.Plural+"/{name}"
		name := parameter{in: "path", name: "name", required: true, pattern: nameShape, longest: 253,
			text: "The object's name: at most 253 letters, digits and . _ : @ -, beginning and ending with a letter or digit."}
		object := reply{status: 200, text: "The object, and how it stands with it.", media: jsonMedia, content: ref(k.Name), etag: true}
		accepted := reply{status: 202, text: "It is wanted now, and the data plane was not done with it in time.", media: jsonMedia, content: ref(k.Name), etag: true}
		add(&operation{method: http.MethodGet, path: many, id: "list" + k.Name, tag: k.Name, role: access.Read, summary: "The objects of the kind " + k.Name,
			text: "In the order of their names, by pages.",
			parameters: []parameter{
				shaped(query("selector", "Labels: city=bonn,tier!=test,new,!old: all must hold."), selectorShape),
				shaped(query("owner", "Only what this owner says something of."), ownerShape), owners,
				counted("limit", "The most objects in the page; 1000 if it is left out.", 1, intent.LargestPage),
				shaped(query("page", "The next of the page before."), pageShape),
				shaped(query("fields", "Only these fields, with commas between, such as metadata.labels,spec.mtu,status.state. What names the object is always there."), fieldsShape),
			},
			replies: []reply{{status: 200, text: "A page.", media: jsonMedia, content: ref("List")}}, serve: func(q *request) error { return q.list(k) }})
		add(&operation{method: http.MethodGet, path: one, id: "get" + k.Name, tag: k.Name, role: access.Read, summary: "One " + k.Name, parameters: []parameter{name, owners},
			replies: []reply{object}, serve: func(q *request) error { return q.get(k) }})
		add(&operation{method: http.MethodPut, path: one, id: "put" + k.Name, tag: k.Name, role: access.Operate, action: "apply", summary: "Create one " + k.Name + ", or say what it is",
			text: "What names it may be left out of the body. The body is all that this northbound says of the object: what it said before and leaves out now is given up, " +
				"and what other owners say stays.",
			parameters: changeParameters(force, name, ifMatch, ifNoneMatch), media: jsonMedia, body: ref(k.Name + "Input"), example: schema{"spec": examples[k.Name]["spec"]},
			replies: []reply{object, {status: 201, text: "It was created.", media: jsonMedia, content: ref(k.Name), etag: true}, accepted},
			serve:   func(q *request) error { return q.put(k) }})
		add(&operation{method: http.MethodPatch, path: one, id: "patch" + k.Name, tag: k.Name, role: access.Operate, action: "apply", summary: "Change fields of one " + k.Name,
			text: "A merge patch (RFC 7396) of what this northbound says of the object: what it names is changed, null gives a field up, and lists are replaced as a whole. " +
				"What other owners say stays.",
			parameters: changeParameters(force, name, ifMatch), media: mergeMedia, body: schema{"type": "object"}, example: schema{"metadata": schema{"labels": schema{"city": "bonn"}}},
			replies: []reply{object, accepted}, serve: func(q *request) error { return q.patch(k) }})
		add(&operation{method: http.MethodDelete, path: one, id: "delete" + k.Name, tag: k.Name, role: access.Operate, action: "apply", summary: "No longer want one " + k.Name,
			text:       "What other owners say of it stays; it is gone when nobody says anything of it.",
			parameters: changeParameters(name, ifMatch), replies: []reply{{status: 200, text: "What was done.", media: jsonMedia, content: ref("Applied")},
				{status: 202, text: "Nobody wants it any more, and the data plane was not done with it in time.", media: jsonMedia, content: ref("Applied")}},
			serve: func(q *request) error { return q.delete(k) }})
	}
	complete := flag("complete", "The changes are all that this northbound wants: whatever else it wanted, it no longer does.")
	add(&operation{method: http.MethodPost, path: "/v1/apply", id: "apply", tag: "Many at once", role: access.Operate, action: "apply", summary: "Change many objects",
		text:       "They are checked as a whole: what one gives up, another may take. If one is not acceptable, nothing is changed.",
		parameters: changeParameters(force, complete), media: jsonMedia, body: ref("Changes"), example: schema{"put": []schema{examples["Vrf"]}, "delete": []schema{{"kind": "Vrf", "name": "old"}}},
		replies: []reply{{status: 200, text: "What was done.", media: jsonMedia, content: ref("Applied")},
			{status: 202, text: "It is wanted now, and the data plane was not done with it in time.", media: jsonMedia, content: ref("Applied")}}, serve: (*request).apply})
	add(&operation{method: http.MethodPost, path: "/v1/plan", id: "plan", tag: "Many at once", role: access.Read, summary: "What applying these changes would do",
		text: "A dry run: nothing is changed.", parameters: []parameter{force, complete}, media: jsonMedia, body: ref("Changes"), example: schema{"put": []schema{examples["Vrf"]}, "delete": []schema{{"kind": "Vrf", "name": "old"}}},
		replies: []reply{{status: 200, text: "The plan.", media: jsonMedia, content: ref("Plan")}}, serve: (*request).plan})
	add(&operation{method: http.MethodGet, path: "/v1/history", id: "history", tag: "Revisions", role: access.Read, summary: "The revisions of what is wanted, the latest first",
		parameters: []parameter{counted("before", "Only revisions before this one.", 1, 1<<62), counted("limit", "The most revisions; 100 if it is left out.", 1, 1000)},
		replies:    []reply{{status: 200, text: "Revisions.", media: jsonMedia, content: ref("History")}}, serve: (*request).history})
	add(&operation{method: http.MethodGet, path: "/v1/diff", id: "diff", tag: "Revisions", role: access.Read, summary: "How two revisions differ",
		parameters: []parameter{counted("from", "0, or left out: from nothing at all.", 0, 1<<62), counted("to", "0, or left out: to what is wanted now.", 0, 1<<62)},
		replies:    []reply{{status: 200, text: "Differences.", media: jsonMedia, content: ref("Differences")}}, serve: (*request).diff})
	revision := counted("revision", "Its number.", 1, 1<<62)
	revision.in, revision.required = "path", true
	add(&operation{method: http.MethodPost, path: "/v1/history/{revision}/rollback", id: "rollback", tag: "Revisions", role: access.Admin, action: "rollback",
		summary: "Want again what was wanted at a revision", text: "Whoever wanted it. That is a new revision.", parameters: changeParameters(revision),
		replies: []reply{{status: 200, text: "What was done.", media: jsonMedia, content: ref("Applied")},
			{status: 202, text: "It is wanted now, and the data plane was not done with it in time.", media: jsonMedia, content: ref("Applied")}}, serve: (*request).rollback})
	add(&operation{method: http.MethodPost, path: "/v1/history/{revision}/confirm", id: "confirm", tag: "Revisions", role: access.Operate, action: "confirm",
		summary: "Let a revision stand that would be rolled back by itself", parameters: []parameter{revision},
		replies: []reply{{status: 204, text: "It stands."}}, serve: (*request).confirm})
	add(&operation{method: http.MethodGet, path: "/v1/events", id: "events", tag: "How it stands", role: access.Read, summary: "What happens, as it happens",
		text: "Server-sent events: each has the cursor to go on from as its id, and an object as a GET returns it as its data. A client that was cut off goes on where it was with Last-Event-ID. To follow everything: list, then follow from the list's cursor. When a data plane is back, its objects are told as they are then.",
		parameters: []parameter{
			shaped(query("cursor", "Go on after this; if neither it nor Last-Event-ID is there: from now on."), cursorShape),
			shaped(query("kinds", "Only objects of these kinds, with commas between."), regexp.MustCompile(`^[A-Za-z0-9]+(,[A-Za-z0-9]+)*$`)),
			{in: "header", name: "Last-Event-ID", text: "Go on after this.", pattern: cursorShape, longest: 33},
		},
		replies: []reply{{status: 200, text: "Events.", media: "text/event-stream", content: schema{"type": "string"}}}, serve: (*request).events})
	add(&operation{method: http.MethodGet, path: "/v1/status", id: "status", tag: "How it stands", role: access.Read, summary: "How many objects are in each state",
		replies: []reply{{status: 200, text: "Counts.", media: jsonMedia, content: ref("Counts")}}, serve: (*request).status})
	add(&operation{method: http.MethodGet, path: "/health", id: "health", tag: "How it stands", role: access.Nobody, summary: "Whether the agent answers",
		replies: []reply{{status: 200, text: "It does.", media: jsonMedia, content: ref("Health")}},
		serve:   func(q *request) error { return q.json(http.StatusOK, map[string]string{"status": "ok"}) }})
	add(&operation{method: http.MethodGet, path: "/openapi.json", id: "openapi", tag: "About", role: access.Nobody, summary: "This document (OpenAPI 3.1)",
		replies: []reply{{status: 200, text: "The document.", media: jsonMedia, content: schema{"type": "object"}}},
		serve:   func(q *request) error { return q.file(jsonMedia, q.document) }})
	for _, f := range []struct {
		path, id, summary, media string
		text                     []byte
	}{
		{"/", "page", "This document as a page to browse and try", "text/html", pageHTML},
		{"/page.js", "pageScript", "The page's script", "text/javascript", pageJS}, {"/page.css", "pageStyle", "The page's style", "text/css", pageCSS},
		{"/icon.svg", "pageIcon", "The page's icon", "image/svg+xml", pageIcon},
	} {
		add(&operation{method: http.MethodGet, path: f.path, id: f.id, tag: "About", role: access.Nobody, summary: f.summary,
			replies: []reply{{status: 200, text: "It.", media: f.media, content: schema{"type": "string"}}},
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

// gone: that a client went away is nobody's mistake, and there is nobody to tell.
func (q *request) gone(err error) error {
	if err != nil {
		q.environment.Log.Debug("a client went away", "address", q.http.RemoteAddr, "error", err)
	}
	return nil
}

func (q *request) key(k *object.Kind) object.Key { return k.Key(q.values["name"]) }
