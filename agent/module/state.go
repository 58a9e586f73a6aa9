// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Operational state of modules: questions that the agent passes on.

const (
	statesLimit = 16
	// Questions without an answer, and how long a client waits for one.
	questionsLimit = 64
	answerTime     = 5 * time.Second
	// Bytes of an answer.
	answerLimit = 256 << 10
)

var (
	stateName = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)
	idWord    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
)

// checkStates checks the questions about operational state. Their paths in the REST API and their ids are apart from those of the agent.
func (k *Kinds) checkStates(module string) error {
	if len(k.States) > statesLimit {
		return fmt.Errorf("found %d states; accepted: at most %d", len(k.States), statesLimit)
	}
	first := idOf(module)
	for _, name := range k.States {
		m := k.types[name]
		notes := stateOf(m)
		reply := k.types[name.Parent().Append(protoreflect.Name(notes.Reply))]
		var err error
		rest, below := strings.CutPrefix(notes.Path, "modules/"+module+"/")
		word, own := strings.CutPrefix(notes.Id, first)
		switch {
		case len(notes.ProtoReflect().GetUnknown()) > 0:
			err = errors.New("it has an annotation that this agent does not know")
		case notes.Dataplane:
			err = errors.New("dataplane: found true; accepted: false")
		case !stateName.MatchString(notes.Name):
			err = fmt.Errorf("name: found %q; accepted: at most 32 lower-case letters and digits", clipped(notes.Name))
		case !below || !pluralWord.MatchString(rest) || len(rest) > 63:
			err = fmt.Errorf("path: found %q; accepted: modules/%s/ and at most 63 lower-case letters, digits and - between words", clipped(notes.Path), module)
		case !own || !idWord.MatchString(word):
			err = fmt.Errorf("id: found %q; accepted: %s and a word of at most 63 letters and digits that begins with a capital", clipped(notes.Id), first)
		case len(notes.Kinds) == 0 || slices.ContainsFunc(notes.Kinds, func(kind string) bool { return !slices.Contains(k.Names, kind) }):
			err = errors.New("kinds: accepted: kinds of the module, at least one")
		case notes.Command != "" || notes.Element != "" || notes.Everywhere:
			err = errors.New("command, element and everywhere: accepted: none; `sluice get KIND --state` shows it")
		case notes.Summary == "" || checkText(notes.Summary, noteLimit) != nil || checkText(notes.None, noteLimit) != nil:
			err = fmt.Errorf("summary and none: accepted: a text of at most %d bytes; summary is required", noteLimit)
		case reply == nil || kindOf(reply) != nil:
			err = fmt.Errorf("reply: found %q; accepted: a message of the file's package that is no kind", clipped(notes.Reply))
		case len(notes.Columns) > pathsLimit:
			err = fmt.Errorf("columns: accepted: at most %d", pathsLimit)
		default:
			if err = checkFilters(m); err == nil {
				err = checkAnswer(reply, 1)
			}
		}
		if err != nil {
			return fmt.Errorf("state %s: %w", m.Name(), err)
		}
		for _, column := range notes.Columns {
			if err := checkText(column, noteLimit); err != nil {
				return fmt.Errorf("state %s: columns: %w", m.Name(), err)
			}
		}
	}
	return nil
}

// idOf is how the ids of a module's states begin: "moduleDns" for "dns".
func idOf(module string) string {
	id := "module"
	for _, word := range strings.Split(module, "-") {
		if word != "" {
			id += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return id
}

func checkFilters(m protoreflect.MessageDescriptor) error {
	for i := range m.Fields().Len() {
		switch f := m.Fields().Get(i); {
		case f.Kind() == protoreflect.StringKind:
		case !f.IsList() && (f.Kind() == protoreflect.BoolKind || f.Kind() == protoreflect.Uint32Kind):
		default:
			return fmt.Errorf("%s: accepted: filters of type string, bool and uint32, and lists of strings", f.Name())
		}
	}
	return nil
}

func checkAnswer(m protoreflect.MessageDescriptor, depth int) error {
	if depth > nestingLimit {
		return fmt.Errorf("%s: accepted: at most %d messages inside each other", m.Name(), nestingLimit)
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		switch f.Kind() {
		case protoreflect.StringKind, protoreflect.BoolKind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		case protoreflect.MessageKind:
			if err := checkAnswer(f.Message(), depth+1); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s.%s: accepted in answers: string, bool, uint32, uint64 and messages", m.Name(), f.Name())
		}
	}
	return nil
}

// provide answers questions about the module's state while it is attached.
func (a *session) provide() (withdraw func()) {
	var all []func()
	for _, st := range a.e.Registry.States() {
		if strings.HasPrefix(st.Notes.GetPath(), "modules/"+a.module.name+"/") {
			all = append(all, service.ProvideNamed(a.e, st.Query.Descriptor().FullName(), func(ctx context.Context, query proto.Message) (proto.Message, error) {
				return a.ask(ctx, st, query)
			}))
		}
	}
	return func() {
		for _, one := range all {
			one()
		}
	}
}

// ask passes a question on to the module.
func (a *session) ask(asking context.Context, st *object.State, query proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(asking, answerTime)
	defer cancel()
	packed, err := proto.Marshal(query)
	if err != nil {
		return nil, err
	}
	answered := make(chan *api.StateAnswer, 1)
	a.mu.Lock()
	if len(a.questions) >= questionsLimit {
		a.mu.Unlock()
		return nil, status.Errorf(codes.ResourceExhausted, "module %s has %d questions to answer already", a.module.name, questionsLimit)
	}
	a.lastQuestion++
	id := a.lastQuestion
	a.questions[id] = answered
	a.toAsk = append(a.toAsk, &api.StateQuestion{Id: id, Type: string(st.Query.Descriptor().FullName()), Query: packed})
	a.mu.Unlock()
	a.wakeUp()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.questions, id)
		a.toAsk = slices.DeleteFunc(a.toAsk, func(q *api.StateQuestion) bool { return q.GetId() == id })
	}()
	select {
	case answer := <-answered:
		return a.replyOf(st, answer)
	case <-a.over:
		return nil, status.Errorf(codes.Unavailable, "module %s is not attached", a.module.name)
	case <-a.left:
		return nil, status.Errorf(codes.Unavailable, "module %s is not attached", a.module.name)
	case <-ctx.Done():
		if err := asking.Err(); err != nil {
			return nil, err
		}
		return nil, status.Errorf(codes.DeadlineExceeded, "module %s has not answered for %s", a.module.name, answerTime)
	}
}

func (a *session) replyOf(st *object.State, answer *api.StateAnswer) (proto.Message, error) {
	if problem := answer.GetProblem(); problem != "" {
		if checkText(problem, noteLimit) != nil {
			problem = "a problem whose text is longer than 256 bytes or has control characters"
		}
		return nil, status.Errorf(codes.Unavailable, "module %s: %s", a.module.name, problem)
	}
	if len(answer.GetReply()) > answerLimit {
		return nil, status.Errorf(codes.Internal, "module %s: its answer has %d bytes; accepted: at most %d", a.module.name, len(answer.GetReply()), answerLimit)
	}
	reply := st.Reply.New().Interface()
	if err := proto.Unmarshal(answer.GetReply(), reply); err != nil {
		return nil, status.Errorf(codes.Internal, "module %s: its answer is not a %s", a.module.name, st.Reply.Descriptor().Name())
	}
	return reply, checkReply(reply.ProtoReflect(), a.module.name)
}

// checkReply refuses lists that are longer than announced, and control characters: people read the answer in a terminal.
func checkReply(m protoreflect.Message, module string) (err error) {
	check := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch {
		case err != nil:
		case f.Message() != nil:
			err = checkReply(v.Message(), module)
		case f.Kind() == protoreflect.StringKind && checkText(v.String(), longestMessage) != nil:
			err = status.Errorf(codes.Internal, "module %s: its answer has control characters in %s", module, f.Name())
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !f.IsList() {
			check(f, v)
			return err == nil
		}
		if n, most := v.List().Len(), int(object.Notes(f).Max); most > 0 && n > most {
			err = status.Errorf(codes.Internal, "module %s: its answer has %d elements in %s; accepted: at most %d", module, n, f.Name(), most)
		}
		for i := range v.List().Len() {
			check(f, v.List().Get(i))
		}
		return err == nil
	})
	return err
}

// answer takes the module's answer. The client may have gone.
func (a *session) answer(one *api.StateAnswer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.GetId() == 0 || one.GetId() > a.lastQuestion {
		return status.Errorf(codes.InvalidArgument, "answer: there was no question %d", one.GetId())
	}
	if answered := a.questions[one.GetId()]; answered != nil {
		delete(a.questions, one.GetId())
		answered <- one
	}
	return nil
}
