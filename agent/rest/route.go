// SPDX-License-Identifier: Apache-2.0

// From a request to its operation, and the values of its parameters.
package rest

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/object"
)

// operation is one method of one resource.
type operation struct {
	method, path     string
	id, tag, summary string
	// More about it, for the document.
	text string
	role access.Role
	// As the audit log calls it; empty: it changes nothing.
	action     string
	parameters []parameter
	// The media type and schema of the request's body; empty: it has none.
	media string
	body  schema
	// Something that could be sent.
	example any
	replies []reply
	// It needs a data plane to answer.
	asksDataplane bool
	serve         func(*request) error
}

// parameter of an operation.
type parameter struct {
	in, name, text string
	required       bool
	// The accepted values: one of these, true or false, a number, or text.
	enum        []string
	boolean     bool
	number      bool
	least, most uint64
	pattern     *regexp.Regexp
	longest     int
}

// reply is an operation's answer other than problems.
type reply struct {
	status  int
	text    string
	media   string
	content schema
	etag    bool
}

func (p *parameter) check(text string) error {
	accepted := ""
	switch {
	case p.enum != nil:
		if slices.Contains(p.enum, text) {
			return nil
		}
		accepted = strings.Join(p.enum, ", ")
	case p.boolean:
		if text == "true" || text == "false" {
			return nil
		}
		accepted = "true, false"
	case p.number:
		n, err := strconv.ParseUint(text, 10, 64)
		if err == nil && n >= p.least && n <= p.most && (text == "0" || text[0] != '0') {
			return nil
		}
		accepted = fmt.Sprintf("%d to %d", p.least, p.most)
	default:
		if len(text) <= p.longest && (p.pattern == nil || p.pattern.MatchString(text)) && strings.IndexFunc(text, control) < 0 {
			return nil
		}
		accepted = p.text
	}
	return badRequest(p.name, "not acceptable", strconv.Quote(text[:min(len(text), 80)]), accepted)
}

func control(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }

// muxOf routes requests to operations. Of two with the same pattern, the first has it: a module cannot take a path.
func muxOf(operations []*operation) *http.ServeMux {
	mux, taken := http.NewServeMux(), map[string]bool{}
	for _, op := range operations {
		pattern := op.method + " " + op.path
		if op.path == "/" {
			pattern += "{$}"
		}
		if !taken[pattern] {
			taken[pattern] = true
			mux.Handle(pattern, op)
		}
	}
	return mux
}

type requestKey struct{}

// ServeHTTP implements http.Handler. The request is one that route has routed.
func (op *operation) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	q := r.Context().Value(requestKey{}).(*request)
	q.op, q.values = op, map[string]string{}
	for _, p := range op.parameters {
		if p.in == "path" {
			q.values[p.name] = r.PathValue(p.name)
		}
	}
}

// unrouted takes the header of ServeMux's own answers.
type unrouted struct {
	http.ResponseWriter
	header http.Header
	status int
}

func (u *unrouted) Header() http.Header            { return u.header }
func (u *unrouted) Write(text []byte) (int, error) { return len(text), nil }
func (u *unrouted) WriteHeader(status int)         { u.status = status }

// route finds the operation, and takes the path's parameters.
func (q *request) route() error {
	now, err := q.current()
	if err != nil {
		return err
	}
	u := &unrouted{header: http.Header{}}
	now.mux.ServeHTTP(u, q.http.WithContext(context.WithValue(q.http.Context(), requestKey{}, q)))
	switch {
	case q.op != nil:
		return nil
	case u.status == http.StatusMethodNotAllowed:
		allow := u.header.Get("Allow")
		return &problem{status: http.StatusMethodNotAllowed, kind: "method-not-allowed", detail: "the resource has " + allow, allow: allow}
	}
	return notFound("there is no such resource; GET /openapi.json lists them")
}

// parameters checks those of the path, and takes those of the query and the header.
func (q *request) parameters() error {
	query, err := url.ParseQuery(q.http.URL.RawQuery)
	if err != nil {
		return badRequest("", "the query cannot be read", "", "")
	}
	var names []string
	for i := range q.op.parameters {
		p := &q.op.parameters[i]
		var found []string
		switch p.in {
		case "path":
			found = []string{q.values[p.name]}
		case "header":
			found = q.http.Header.Values(p.name)
		default:
			names = append(names, p.name)
			found = query[p.name]
			delete(query, p.name)
		}
		switch {
		case len(found) > 1:
			return badRequest(p.name, "duplicate parameter", "", "each parameter once")
		case len(found) == 1:
			if err := p.check(found[0]); err != nil {
				if p.in == "path" {
					return notFound(fmt.Sprintf("%s: %q is not known; accepted: %s", p.name, found[0], p.text))
				}
				return err
			}
			q.values[p.name] = found[0]
		case p.required:
			return badRequest(p.name, "is missing", "", p.text)
		}
	}
	for name := range query {
		return badRequest(name[:min(len(name), 80)], "there is no such parameter", "", strings.Join(names, ", "))
	}
	return nil
}

// number returns a parameter that was checked; 0 if it is not there.
func (q *request) number(name string) uint64 {
	n, _ := strconv.ParseUint(q.values[name], 10, 64)
	return n
}

// counting is a body that is counted as it comes.
type counting struct {
	q    *request
	body io.Reader
}

// Read implements io.Reader.
func (c *counting) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if !c.q.hold(n) {
		return n, &problem{status: http.StatusTooManyRequests, kind: "too-much", detail: fmt.Sprintf("the requests of %s that wait for answers have more than %d MiB; send this one again later",
			c.q.caller.Name, largestTogether>>20)}
	}
	return n, err
}

// hold counts bytes of a body; false: they are too many.
func (q *request) hold(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holds += n
	q.held[q.caller.Name] += n
	return q.held[q.caller.Name] <= largestTogether
}

func (q *request) releaseBytes() {
	if q.holds == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[q.caller.Name] -= q.holds; q.held[q.caller.Name] == 0 {
		delete(q.held, q.caller.Name)
	}
}

// text reads the body. One long text at a time is processed, because its objects take many times its length.
func (q *request) text() ([]byte, error) {
	media, parameters, err := mime.ParseMediaType(q.http.Header.Get("Content-Type"))
	charset := strings.ToLower(parameters["charset"])
	if err != nil || media != q.op.media || charset != "" && charset != "utf-8" || q.http.Header.Get("Content-Encoding") != "" {
		return nil, &problem{status: http.StatusUnsupportedMediaType, kind: "unsupported-media-type", detail: "Content-Type: accepted: " + q.op.media,
			accept: q.op.media}
	}
	text, err := io.ReadAll(&counting{q, http.MaxBytesReader(q.out, q.http.Body, largestBody)})
	if err != nil {
		if p := problemOf(err); p.status != http.StatusInternalServerError {
			return nil, err
		}
		return nil, badRequest("", "the request body cannot be read: "+err.Error(), "", "")
	}
	if len(text) > longBody {
		select {
		case q.long <- struct{}{}:
			q.isLong = true
		case <-q.ctx.Done():
			return nil, q.ctx.Err()
		}
	}
	return text, nil
}

// body reads the one value that was sent.
func (q *request) body() (*yaml.Node, error) {
	text, err := q.text()
	if err != nil {
		return nil, err
	}
	n, err := object.ParseJSON(text)
	if err != nil {
		return nil, badRequest("", err.Error(), "", "JSON")
	}
	return n, nil
}
