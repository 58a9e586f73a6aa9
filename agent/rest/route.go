// From a request to its operation, and what its parameters say.
package rest

import (
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
	// The media type and schema of what is sent; empty: nothing is.
	media string
	body  schema
	// Something that could be sent.
	example any
	replies []reply
	serve   func(*request) error

	segments []string
}

// parameter of an operation.
type parameter struct {
	in, name, text string
	required       bool
	// What it may be: one of these, true or false, a number, or text.
	enum        []string
	boolean     bool
	number      bool
	least, most uint64
	pattern     *regexp.Regexp
	longest     int
}

// reply is what an operation may answer beside problems.
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

// route finds the operation, and takes the path's parameters.
func (q *request) route() error {
	segments, err := split(q.http.URL)
	if err != nil {
		return notFound("there is no such resource")
	}
	var methods []string
	method := q.http.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, op := range q.operations {
		if !op.matches(segments) {
			continue
		}
		if op.method == method {
			q.op = op
		}
		methods = append(methods, op.method)
	}
	switch {
	case methods == nil:
		return notFound("there is no such resource; GET /openapi.json lists them")
	case q.op == nil:
		allow := strings.Join(methods, ", ")
		return &problem{status: http.StatusMethodNotAllowed, kind: "method-not-allowed", detail: "the resource has " + allow, allow: allow}
	}
	q.values = map[string]string{}
	for i, segment := range q.op.segments {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			q.values[strings.TrimSuffix(name, "}")] = segments[i]
		}
	}
	return nil
}

func split(u *url.URL) ([]string, error) {
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func (op *operation) matches(segments []string) bool {
	if len(segments) != len(op.segments) {
		return false
	}
	for i, s := range op.segments {
		if s != segments[i] && (s == "" || s[0] != '{') {
			return false
		}
	}
	return true
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
			return badRequest(p.name, "there twice", "", "each parameter once")
		case len(found) == 1:
			if err := p.check(found[0]); err != nil {
				if p.in == "path" {
					return notFound(fmt.Sprintf("%s: %q is none; accepted: %s", p.name, found[0], p.text))
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
		return n, &problem{status: http.StatusTooManyRequests, kind: "too-much", detail: fmt.Sprintf("what %s sends at a time has more than %d MiB together; send it again when there are answers",
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

func (q *request) letGo() {
	if q.holds == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[q.caller.Name] -= q.holds; q.held[q.caller.Name] == 0 {
		delete(q.held, q.caller.Name)
	}
}

// text reads what was sent. One long text at a time is worked on, because what is made of it takes many times its length.
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
		return nil, badRequest("", "what was sent could not be read: "+err.Error(), "", "")
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
