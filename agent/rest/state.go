// SPDX-License-Identifier: Apache-2.0

// Operational state, as the contract's option `state` declares it: parameters, answers and their schemas are made from its messages.
package rest

import (
	"net/http"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	headers "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reference"
	agent "sluice.dev/sluice/agent/server"
)

// Shapes of parameters that would be refused otherwise, by their formats, and of pages of data planes.
var (
	stateShapes = map[api.Format]*regexp.Regexp{
		api.Format_IP:  regexp.MustCompile(`^[0-9A-Fa-f:.]{2,45}$`),
		api.Format_MAC: regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$`),
	}
	planePageShape = regexp.MustCompile(`^[0-9]{1,18}$`)
)

// stateOperations are the operations that read operational state.
func (s *server) stateOperations(comments *reference.Reference) ([]*operation, error) {
	var all []*operation
	for _, st := range s.environment.Registry.States() {
		op := &operation{method: http.MethodGet, path: "/v1/" + st.Notes.GetPath(), id: st.Notes.GetId(), tag: "Counters and state", role: access.Read,
			summary: st.Notes.GetSummary(), asksDataplane: true,
			replies: []reply{{status: 200, text: "The state.", media: jsonMedia, content: ref(object.SchemaName(st.Reply.Descriptor()))}},
			serve:   func(q *request) error { return q.read(st) }}
		for _, f := range st.Filters.List {
			text, err := comments.Comment(f.Desc.FullName())
			if err != nil {
				return nil, err
			}
			if f.Desc.IsList() {
				text = strings.TrimSpace(text + " With commas between.")
			}
			p := query(f.Name, text)
			switch f.Desc.Kind() {
			case protoreflect.Uint32Kind:
				p = counted(f.Name, text, 0, 1<<32-1)
			case protoreflect.BoolKind:
				p = flag(f.Name, text)
			default:
				if shape := stateShapes[f.Notes.Format]; shape != nil {
					p = shaped(p, shape)
				} else if f.Name == "page" && dataplane.Answers(st.Query.Descriptor()) {
					p = shaped(p, planePageShape)
				}
			}
			op.parameters = append(op.parameters, p)
		}
		if st.Filters.ByName("dataplane") == nil {
			op.parameters = append(op.parameters, query("dataplane", "The name of the data plane, if the agent has several."))
		}
		all = append(all, op)
	}
	return all, nil
}

// read reads operational state.
func (q *request) read(st *object.State) error {
	if q.environment.Agent.Service == nil {
		return &problem{status: http.StatusServiceUnavailable, kind: "no-dataplane", detail: agent.DataplaneGone}
	}
	query := st.Query.New().Interface()
	for _, f := range st.Filters.List {
		texts := []string{q.values[f.Name]}
		if f.Desc.IsList() {
			texts = strings.Split(texts[0], ",")
		}
		for _, text := range texts {
			if text == "" && len(texts) == 1 {
				continue
			}
			if err := st.Narrow(query, f.Name, text); err != nil {
				return badRequest(f.Name, "not acceptable", text, "")
			}
		}
	}
	ctx := q.ctx
	if name := q.values["dataplane"]; name != "" {
		ctx = headers.NewIncomingContext(ctx, headers.Pairs(agent.DataplaneHeader, name))
	}
	question, err := anypb.New(query)
	if err != nil {
		return err
	}
	answer, err := q.environment.Agent.Service.ReadState(ctx, question)
	if err != nil {
		return stateProblem(err)
	}
	message := st.Reply.New()
	if err := answer.UnmarshalTo(message.Interface()); err != nil {
		return err
	}
	return q.json(http.StatusOK, plainMessage(message))
}

// stateProblem is the problem that an error of the agent's service is.
func stateProblem(err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.InvalidArgument:
		return invalid([]mistake{{Problem: s.Message()}}, s.Message())
	case codes.NotFound:
		return notFound(s.Message())
	case codes.Unavailable:
		kind := "no-dataplane"
		if agent.Reason(s) == agent.NoService {
			kind = "no-service"
		}
		return &problem{status: http.StatusServiceUnavailable, kind: kind, detail: s.Message()}
	case codes.ResourceExhausted:
		return &problem{status: http.StatusTooManyRequests, kind: "too-much", detail: s.Message()}
	case codes.Internal:
		// A module's answer makes no sense.
		return &problem{status: http.StatusBadGateway, kind: "bad-answer", detail: s.Message()}
	case codes.DeadlineExceeded:
		return &problem{status: http.StatusGatewayTimeout, kind: "late", detail: s.Message()}
	}
	return err
}

// plainMessage is a message as JSON: every field is there, and numbers are numbers.
func plainMessage(m protoreflect.Message) map[string]any {
	out := map[string]any{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		v := m.Get(f)
		switch {
		case f.IsList():
			list := make([]any, v.List().Len())
			for i := range list {
				list[i] = plainValue(f, v.List().Get(i))
			}
			out[f.JSONName()] = list
		case f.Message() == nil || m.Has(f):
			out[f.JSONName()] = plainValue(f, v)
		}
	}
	return out
}

func plainValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if f.Message() != nil {
		return plainMessage(v.Message())
	}
	return v.Interface()
}

// states leaves the schemas of answers.
func (s schemas) states(all []*object.State, comments *reference.Reference) error {
	for _, st := range all {
		if err := s.plain(st.Reply.Descriptor(), comments); err != nil {
			return err
		}
	}
	return nil
}

func (s schemas) plain(d protoreflect.MessageDescriptor, comments *reference.Reference) error {
	name := object.SchemaName(d)
	if _, known := s.all[name]; known {
		return nil
	}
	fields := schema{}
	s.all[name] = schema{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		var one schema
		key := f.JSONName()
		switch f.Kind() {
		case protoreflect.MessageKind:
			if err := s.plain(f.Message(), comments); err != nil {
				return err
			}
			one = ref(object.SchemaName(f.Message()))
			if !f.IsList() {
				key = "?" + key
			}
		case protoreflect.StringKind:
			one = schema{"type": "string"}
		case protoreflect.BoolKind:
			one = schema{"type": "boolean"}
		default:
			one = schema{"type": "integer", "minimum": 0}
		}
		if f.IsList() {
			one = array(one)
		}
		text, err := comments.Comment(f.FullName())
		if err != nil {
			return err
		}
		if text != "" && one["$ref"] == nil {
			one["description"] = text
		}
		fields[key] = one
	}
	s.all[name] = record(fields)
	return nil
}
