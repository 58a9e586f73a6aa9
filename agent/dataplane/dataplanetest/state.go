// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"strconv"
	"syscall"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"sluice.dev/sluice/agent/api"
)

// state answers a question about operational state with the counters that it was given.
func (f *Fake) state(asked *api.StateQuery) *api.Reply {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("sluice.v1." + asked.Type))
	var notes *api.OperationalState
	if err == nil {
		notes, _ = proto.GetExtension(t.Descriptor().Options(), api.E_State).(*api.OperationalState)
	}
	if !notes.GetDataplane() {
		return &api.Reply{Result: result(syscall.EOPNOTSUPP, "type: this data plane does not know %q", asked.Type)}
	}
	query := t.New()
	if err := proto.Unmarshal(asked.Query, query.Interface()); err != nil {
		return &api.Reply{Result: result(syscall.EINVAL, "query: %v", err)}
	}
	f.asked[asked.Type] = query.Interface()
	counted := f.answers[protoreflect.FullName("sluice.v1."+notes.Reply)]
	if counted == nil {
		return &api.Reply{Answer: &api.Reply_State{}}
	}
	answer := proto.Clone(counted)
	cut(query, answer.ProtoReflect())
	packed, err := proto.Marshal(answer)
	if err != nil {
		return &api.Reply{Result: result(syscall.EINVAL, "%v", err)}
	}
	return &api.Reply{Answer: &api.Reply_State{State: packed}}
}

// cut leaves in the answer's list the query's page, or the elements that the query's list names: the first field of each. Other filters are ignored.
func cut(query, answer protoreflect.Message) {
	filters, fields := query.Descriptor().Fields(), answer.Descriptor().Fields()
	next, limit, page := fields.ByName("next_page"), filters.ByName("limit"), filters.ByName("page")
	if next == nil || limit == nil || page == nil {
		return
	}
	named := map[string]bool{}
	if first := filters.Get(0); first.IsList() {
		for i := range query.Get(first).List().Len() {
			named[query.Get(first).List().Get(i).String()] = true
		}
	}
	list, most, n := answer.Mutable(fields.Get(0)).List(), int(query.Get(limit).Uint()), 0
	start, _ := strconv.Atoi(query.Get(page).String())
	for i := start; i < list.Len(); i++ {
		element := list.Get(i).Message()
		if len(named) > 0 && !named[element.Get(element.Descriptor().Fields().Get(0)).String()] {
			continue
		}
		if most > 0 && n == most {
			answer.Set(next, protoreflect.ValueOfString(strconv.Itoa(i)))
			break
		}
		list.Set(n, list.Get(i))
		n++
	}
	list.Truncate(n)
}
