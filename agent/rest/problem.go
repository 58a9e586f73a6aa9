// SPDX-License-Identifier: Apache-2.0

// Errors as RFC 9457 problems.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// problem is an error with the answer for the client.
type problem struct {
	status int
	// The last word of its type.
	kind, detail string
	errors       []mistake
	// Methods that the resource has, and media types that it takes.
	allow, accept string
}

func (p *problem) Error() string { return p.detail }

// mistake is one of several things that are wrong.
type mistake struct {
	// "Port/access"; empty: not one object's.
	Object string `json:"object,omitempty"`
	// Of the objects in the request, counted from 0; only where its name could not be read.
	Index *int `json:"index,omitempty"`
	// Path in the spec, or the name of a parameter.
	Field    string `json:"field,omitempty"`
	Problem  string `json:"problem"`
	Found    string `json:"found,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	// The holder of a conflict.
	Holder string `json:"holder,omitempty"`
}

// No answer names more.
const maxMistakes = 500

func badRequest(field, what, found, accepted string) *problem {
	e := object.Error{Field: field, Problem: what, Found: found, Accepted: accepted}
	return &problem{status: http.StatusBadRequest, kind: "bad-request", detail: e.Sentence(), errors: []mistake{{Field: field, Problem: what, Found: found, Accepted: accepted}}}
}

func notFound(detail string) *problem {
	return &problem{status: http.StatusNotFound, kind: "not-found", detail: detail}
}

func mistakesOf(errs object.Errors, index *int) []mistake {
	var all []mistake
	for _, e := range errs[:min(len(errs), maxMistakes)] {
		m := mistake{Field: e.Field, Problem: e.Problem, Found: e.Found, Accepted: e.Accepted}
		switch {
		case e.Object.Kind != "" && e.Object.Name != "":
			m.Object = e.Object.String()
		default:
			m.Object, m.Index = e.Object.Kind, index
		}
		all = append(all, m)
	}
	return all
}

func invalid(all []mistake, detail string) *problem {
	return &problem{status: http.StatusUnprocessableEntity, kind: "invalid", detail: detail, errors: all}
}

// problemOf is the only place that maps errors to statuses.
func problemOf(err error) *problem {
	var known *problem
	var unknown *access.Unknown
	var conflicts *intent.Conflicts
	var moved *intent.Moved
	var left *intent.NotUndone
	var waiting *intent.Waiting
	var bad *intent.BadQuery
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &unknown):
		return &problem{status: http.StatusUnauthorized, kind: "unauthenticated", detail: unknown.Problem}
	case errors.Is(err, access.ErrForbidden):
		return &problem{status: http.StatusForbidden, kind: "forbidden", detail: err.Error()}
	case object.AllErrors(err) != nil:
		all := object.AllErrors(err)
		return invalid(mistakesOf(all, nil), all[0].Error())
	case errors.As(err, &conflicts):
		p := &problem{status: http.StatusConflict, kind: "conflict", detail: conflicts.All[0].String()}
		for _, c := range conflicts.All[:min(len(conflicts.All), intent.MaxConflicts)] {
			p.errors = append(p.errors, mistake{Object: c.Key.String(), Field: c.Field, Problem: c.Problem(), Found: c.Requested, Accepted: c.Mend(), Holder: c.Holder})
		}
		if more := len(conflicts.All) - 1; more > 0 {
			p.detail += fmt.Sprintf(", and %d more", more)
		}
		return p
	case errors.As(err, &moved):
		p := &problem{status: http.StatusPreconditionFailed, kind: "moved", detail: moved.Error()}
		changed := "changed meanwhile"
		if moved.Unplanned {
			changed = "differs from the plan"
		}
		for _, k := range moved.Objects[:min(len(moved.Objects), maxMistakes)] {
			p.errors = append(p.errors, mistake{Object: k.String(), Problem: changed})
		}
		return p
	case errors.As(err, &bad) && bad.Meaning:
		return invalid([]mistake{{Problem: bad.Problem}}, bad.Problem)
	case errors.As(err, &bad):
		return &problem{status: http.StatusBadRequest, kind: "bad-request", detail: bad.Problem}
	case errors.As(err, &long):
		return &problem{status: http.StatusRequestEntityTooLarge, kind: "too-large", detail: "the request has more than 64 MiB"}
	case errors.Is(err, intent.ErrNoRevision):
		return notFound(err.Error())
	case errors.Is(err, intent.ErrDiskFull):
		return &problem{status: http.StatusInsufficientStorage, kind: "disk-full", detail: err.Error()}
	case errors.As(err, &waiting):
		return &problem{status: http.StatusConflict, kind: "waiting", detail: err.Error()}
	case errors.Is(err, intent.ErrNothingToConfirm):
		return &problem{status: http.StatusConflict, kind: "nothing-to-confirm", detail: err.Error()}
	case errors.Is(err, intent.ErrUnconfirmed):
		return &problem{status: http.StatusConflict, kind: "not-confirmed", detail: err.Error()}
	case errors.As(err, &left):
		return &problem{status: http.StatusConflict, kind: "not-undone", detail: left.Error()}
	case errors.Is(err, intent.ErrTooLate):
		return &problem{status: http.StatusGone, kind: "too-late", detail: err.Error()}
	case errors.Is(err, intent.ErrDisconnected):
		return &problem{status: http.StatusServiceUnavailable, kind: "no-dataplane", detail: "the agent has no data plane, which all-or-nothing needs"}
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{status: http.StatusGatewayTimeout, kind: "late", detail: "the data plane did not answer in time"}
	case errors.Is(err, context.Canceled):
		return &problem{status: http.StatusServiceUnavailable, kind: "interrupted", detail: "the request was interrupted"}
	}
	return &problem{status: http.StatusInternalServerError, kind: "internal", detail: err.Error()}
}

// mistaken reports whether an operator must mend the error: not for missing objects, other owners' objects and
// changed revisions.
func (p *problem) mistaken() bool {
	switch p.status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed:
		return false
	}
	return true
}

func (q *request) problem(p *problem) {
	header := q.out.Header()
	header.Set("Content-Type", "application/problem+json")
	if p.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	if p.allow != "" {
		header.Set("Allow", p.allow)
	}
	if p.accept != "" {
		header.Set("Accept", p.accept)
		if q.http.Method == http.MethodPatch {
			header.Set("Accept-Patch", p.accept)
		}
	}
	// Always of these types, so it can be written.
	text, _ := json.Marshal(struct {
		Type   string    `json:"type"`
		Title  string    `json:"title"`
		Status int       `json:"status"`
		Detail string    `json:"detail"`
		Errors []mistake `json:"errors,omitempty"`
	}{"urn:sluice:problem:" + p.kind, http.StatusText(p.status), p.status, strings.ToValidUTF8(p.detail, "?"), p.errors})
	q.out.WriteHeader(p.status)
	_, _ = q.out.Write(append(text, '\n'))
}
