// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"syscall"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"sluice.dev/sluice/agent/api"
)

func result(code syscall.Errno, format string, args ...any) *api.Result {
	return &api.Result{Code: int32(code), Message: fmt.Sprintf(format, args...)}
}

type key struct{ kind, name string }

// held is an object of the Fake, and the objects that it names.
type held struct {
	object *api.Object
	// When it was made, which is the order of listing.
	order  int
	fixed  map[string]string
	naming map[key]string
}

func (f *Fake) keep(o *api.Object, h *held) {
	k := key{o.Kind, o.Name}
	if was := f.objects[k]; was != nil {
		h.order = was.order
		f.forget(k)
	} else {
		f.made++
		h.order = f.made
	}
	h.object = o
	f.objects[k] = h
	f.generation++
	for other := range h.naming {
		if f.namedBy[other] == nil {
			f.namedBy[other] = map[key]bool{}
		}
		f.namedBy[other][k] = true
	}
}

func (f *Fake) forget(k key) {
	h := f.objects[k]
	if h == nil {
		return
	}
	for other := range h.naming {
		delete(f.namedBy[other], k)
	}
	delete(f.objects, k)
	f.generation++
}

func (f *Fake) inOrder() []*held {
	return slices.SortedFunc(maps.Values(f.objects), func(a, b *held) int { return a.order - b.order })
}

// unpack returns the spec as the message that its kind names.
func unpack(kind string, spec []byte) (protoreflect.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("sluice.v1." + kind))
	if err != nil {
		return nil, err
	}
	m := t.New()
	return m, proto.Unmarshal(spec, m.Interface())
}

// fields calls each for every scalar field that is set, wherever it is in the message.
func fields(m protoreflect.Message, path string, each func(path string, o *api.Field, v protoreflect.Value)) {
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		o, _ := proto.GetExtension(d.Options(), api.E_Field).(*api.Field)
		at := path + d.JSONName()
		switch {
		case d.IsList():
			for i := range v.List().Len() {
				if d.Message() != nil {
					fields(v.List().Get(i).Message(), fmt.Sprintf("%s[%d].", at, i), each)
				} else {
					each(fmt.Sprintf("%s[%d]", at, i), o, v.List().Get(i))
				}
			}
		case d.Message() != nil:
			fields(v.Message(), at+".", each)
		default:
			each(at, o, v)
		}
		return true
	})
}

func read(o *api.Object) (*held, error) {
	m, err := unpack(o.Kind, o.Spec)
	if err != nil {
		return nil, err
	}
	h := &held{fixed: map[string]string{}, naming: map[key]string{}}
	fields(m, "", func(path string, o *api.Field, v protoreflect.Value) {
		if o.GetImmutable() {
			h.fixed[path] = v.String()
		}
		if o.GetRef() != "" && !builtin(o.Ref, v.String()) {
			h.naming[key{o.Ref, v.String()}] = path
		}
	})
	return h, nil
}

func builtin(kind, name string) bool {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("sluice.v1." + kind))
	if err != nil {
		return false
	}
	k, _ := proto.GetExtension(t.Descriptor().Options(), api.E_Kind).(*api.Kind)
	return slices.Contains(k.GetBuiltin(), name)
}

func (f *Fake) put(object *api.Object) *api.Result {
	f.log = append(f.log, "put "+object.Kind+" "+object.Name)
	if f.refuse != nil {
		if r := f.refuse("put", object.Kind, object.Name); r != nil {
			return r
		}
	}
	h, err := read(object)
	if err != nil {
		return result(syscall.EINVAL, "%s %s: %v", object.Kind, object.Name, err)
	}
	for other, path := range h.naming {
		if f.objects[other] == nil {
			return result(syscall.ENOENT, "%s %s: %s: there is no %s %s", object.Kind, object.Name, path, other.kind, other.name)
		}
	}
	if was := f.objects[key{object.Kind, object.Name}]; was != nil && !maps.Equal(was.fixed, h.fixed) {
		return result(syscall.EINVAL, "%s %s: what is immutable cannot change", object.Kind, object.Name)
	}
	f.keep(object, h)
	return &api.Result{}
}

func (f *Fake) delete(kind, name string) *api.Result {
	f.log = append(f.log, "delete "+kind+" "+name)
	if f.refuse != nil {
		if r := f.refuse("delete", kind, name); r != nil {
			return r
		}
	}
	k := key{kind, name}
	for other := range f.namedBy[k] {
		return result(syscall.EBUSY, "%s %s: %s %s needs it (%s)", kind, name, other.kind, other.name, f.objects[other].naming[k])
	}
	f.forget(k)
	return &api.Result{}
}

// list pages by position, which is good enough as long as nothing changes in between.
func (f *Fake) list(q *api.List) *api.Objects {
	start, _ := strconv.Atoi(q.Page)
	limit := int(q.Limit)
	if limit == 0 {
		limit = 1000
	}
	page := &api.Objects{}
	for i, h := range f.inOrder() {
		if i < start || q.Kind != "" && h.object.Kind != q.Kind {
			continue
		}
		if len(page.Objects) == limit {
			page.NextPage = strconv.Itoa(i)
			break
		}
		page.Objects = append(page.Objects, h.object)
	}
	return page
}
