// SPDX-License-Identifier: Apache-2.0

// The JSON form of objects.
package rest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

type metadata struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// view is an object, as it is applied again; its status is not looked at then.
type view struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Status     statusView      `json:"status"`
}

type statusView struct {
	State              string          `json:"state"`
	Message            string          `json:"message,omitempty"`
	Since              string          `json:"since,omitempty"`
	Owner              string          `json:"owner,omitempty"`
	Owners             []ownerView     `json:"owners,omitempty"`
	Generation         uint64          `json:"generation,omitempty"`
	ObservedGeneration uint64          `json:"observedGeneration,omitempty"`
	Revision           uint64          `json:"revision,omitempty"`
	Conditions         []conditionView `json:"conditions,omitempty"`
}

type ownerView struct {
	Owner    string         `json:"owner"`
	Priority int            `json:"priority"`
	Revision uint64         `json:"revision"`
	Fields   []ownFieldView `json:"fields,omitempty"`
}

type ownFieldView struct {
	Field      string `json:"field"`
	Value      string `json:"value"`
	Overridden bool   `json:"overridden,omitempty"`
}

func ownerOf(o intent.Ownership) ownerView {
	v := ownerView{Owner: o.Owner, Priority: o.Priority, Revision: o.Revision}
	for _, f := range o.Fields {
		v.Fields = append(v.Fields, ownFieldView(f))
	}
	return v
}

type conditionView struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason,omitempty"`
	Message            string `json:"message,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func stateWord(s intent.State) string { return strings.ToLower(s.String()) }

func statusOf(st intent.Status) statusView {
	v := statusView{State: stateWord(st.State), Message: st.Message, Since: moment(st.Since), Owner: st.Owner, Generation: st.Generation,
		ObservedGeneration: st.Observed, Revision: st.Revision}
	for _, o := range st.Owners {
		v.Owners = append(v.Owners, ownerOf(o))
	}
	for _, c := range st.Conditions() {
		v.Conditions = append(v.Conditions, conditionView{c.Type, c.Status(), c.Reason, c.Message, moment(c.Time)})
	}
	return v
}

func (s *server) viewOf(st intent.Status) (*view, error) {
	v := &view{APIVersion: object.APIVersion, Kind: st.Key.Kind, Metadata: metadata{Name: st.Key.Name}, Status: statusOf(st)}
	if st.Object == nil {
		return v, nil
	}
	n, err := s.environment.Registry.Node(s.environment.Registry.Redacted(st.Object), false)
	if err != nil {
		return nil, err
	}
	v.Metadata.Labels, v.Spec = st.Object.Labels, object.JSON(object.Member(n, "spec"))
	return v, nil
}

func entityTag(st intent.Status) string { return `"` + strconv.FormatUint(st.Revision, 10) + `"` }

// json answers with a value that can be written.
func (q *request) json(status int, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	q.out.Header().Set("Content-Type", jsonMedia)
	q.out.WriteHeader(status)
	_, err = q.out.Write(append(text, '\n'))
	return q.gone(err)
}

func (q *request) object(status int, st intent.Status) error {
	v, err := q.viewOf(st)
	if err != nil {
		return err
	}
	if st.Object != nil {
		q.out.Header().Set("ETag", entityTag(st))
	}
	if status == http.StatusCreated {
		q.out.Header().Set("Location", q.http.URL.EscapedPath())
	}
	return q.json(status, v)
}

// pick removes all but some fields, and the object's name.
func pick(v *view, fields []string) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	part := map[string]any{"apiVersion": v.APIVersion, "kind": v.Kind, "metadata": map[string]any{"name": v.Metadata.Name}}
	for _, f := range fields {
		take(part, whole, strings.Split(f, "."))
	}
	return part, nil
}

func take(into, from map[string]any, path []string) {
	value, there := from[path[0]]
	if !there {
		return
	}
	below, isMap := value.(map[string]any)
	if len(path) == 1 || !isMap {
		into[path[0]] = value
		return
	}
	next, isMap := into[path[0]].(map[string]any)
	if !isMap {
		next = map[string]any{}
		into[path[0]] = next
	}
	take(next, below, path[1:])
}
