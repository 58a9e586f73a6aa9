// SPDX-License-Identifier: Apache-2.0

// The kinds as JSON schemas (2020-12): as strict as a schema can be, and never stricter than the agent.
package rest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

type schema = map[string]any

func ref(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

func array(of schema) schema { return schema{"type": "array", "items": of} }

// record is a mapping with exactly these fields; those that begin with "?" may be left out.
func record(fields schema) schema {
	properties, required := schema{}, []string{}
	for name, s := range fields {
		bare, optional := strings.CutPrefix(name, "?")
		properties[bare] = s
		if !optional {
			required = append(required, bare)
		}
	}
	out := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = sorted(required)
	}
	return out
}

func words(of ...string) schema { return schema{"type": "string", "enum": of} }

func wordsOf[W fmt.Stringer](all []W) schema {
	var of []string
	for _, w := range all {
		of = append(of, w.String())
	}
	return words(of...)
}

var (
	textSchema   = schema{"type": "string"}
	countSchema  = schema{"type": "integer", "minimum": 0}
	momentSchema = schema{"type": "string", "format": "date-time"}
	flagSchema   = schema{"type": "boolean"}
)

const (
	namePattern  = `^[A-Za-z0-9]([A-Za-z0-9._:@-]*[A-Za-z0-9])?$`
	labelKey     = `^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$`
	labelPattern = `^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$`
	ip4Pattern   = `((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	ip6Pattern   = `[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*`
	vlanPattern  = `(409[0-4]|40[0-8][0-9]|[1-3][0-9]{3}|[1-9][0-9]{0,2})`
	portPattern  = `(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}|0)`
	bytePattern  = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	flagPattern  = `!?([Ff][Ii][Nn]|[Ss][Yy][Nn]|[Rr][Ss][Tt]|[Pp][Ss][Hh]|[Aa][Cc][Kk]|[Uu][Rr][Gg]|[Ee][Cc][Ee]|[Cc][Ww][Rr])`
)

func numbers(most int) schema { return numbersFrom(0, most) }

func numbersFrom(least, most int) schema {
	return schema{"type": "integer", "minimum": least, "maximum": most}
}

func pattern(text string) schema { return schema{"type": "string", "pattern": text} }

func either(of ...schema) schema { return schema{"anyOf": of} }

// formatSchema is the schema of a string field. A value that looks like a number may be written as one.
func formatSchema(f api.Format) schema {
	switch f {
	case api.Format_IP:
		return either(pattern("^"+ip4Pattern+"$"), pattern("^"+ip6Pattern+"$"))
	case api.Format_PREFIX, api.Format_IP_PREFIX:
		return either(pattern("^"+ip4Pattern+"/(3[0-2]|[12]?[0-9])$"), pattern("^"+ip6Pattern+"/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$"))
	case api.Format_MAC:
		return pattern(`^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$`)
	case api.Format_PORT_RANGE:
		return either(pattern("^"+portPattern+"(-"+portPattern+")?$"), numbers(65535))
	case api.Format_VLAN_RANGE:
		return either(pattern("^"+vlanPattern+"(-"+vlanPattern+")?$"), numbersFrom(1, 4094))
	case api.Format_IP_PROTOCOL:
		return either(pattern(`^([Tt][Cc][Pp]|[Uu][Dd][Pp]|[Ii][Cc][Mm][Pp]6?|`+bytePattern+`)$`), numbers(255))
	case api.Format_DSCP:
		return either(pattern(`^([Cc][Ss][0-7]|[Aa][Ff][1-4][1-3]|[Ee][Ff]|[Vv][Aa]|[Vv][Oo][Ii][Cc][Ee]-[Aa][Dd][Mm][Ii][Tt]|6[0-3]|[1-5]?[0-9])$`), numbers(63))
	case api.Format_TCP_FLAGS:
		return pattern("^ *" + flagPattern + "( *, *" + flagPattern + ")*$")
	case api.Format_ICMP_TYPE:
		return either(pattern("^"+bytePattern+"(/"+bytePattern+")?$"), numbers(255))
	case api.Format_LINUX_NAME:
		return schema{"type": []string{"string", "number"}, "pattern": `^[^/:\s]+$`, "maxLength": 15}
	case api.Format_NAMESPACE:
		return schema{"type": []string{"string", "number"}, "pattern": `^[^/\s]+$`, "maxLength": 200}
	default:
		return schema{"type": []string{"string", "number"}, "maxLength": 1024}
	}
}

// nameSchema is the name of an object.
func nameSchema() schema {
	return schema{"type": []string{"string", "number"}, "pattern": namePattern, "minLength": 1, "maxLength": 253}
}

// numberSchema is a number, or text of a number with its unit.
func numberSchema(f *object.Field) schema {
	least, most := f.Bounds()
	var plain []schema
	if f.Notes.Zero != "" && least > 0 {
		plain = append(plain, schema{"const": 0})
	}
	text := `^\s*-?[0-9]+(\.[0-9]+)?\s*$`
	if f.Notes.Unit != api.Unit_NONE {
		text = `^\s*-?[0-9]+(\.[0-9]+)?\s*([A-Za-zµ]+(/s)?)?\s*$`
	}
	return either(append(plain, schema{"type": "integer", "minimum": least, "maximum": most}, pattern(text))...)
}

// schemas collects the schemas of messages.
type schemas struct {
	all schema
}

// message leaves the schema of a message under its name, and returns a reference to it.
func (s schemas) message(name string, fs *object.Fields) schema {
	if _, known := s.all[name]; known {
		return ref(name)
	}
	properties, required := schema{}, []string{}
	one := schema{"type": "object", "properties": properties, "additionalProperties": false}
	s.all[name] = one
	choices := map[protoreflect.OneofDescriptor][]string{}
	for _, f := range fs.List {
		properties[f.Name] = s.field(f)
		if !f.Optional() && f.Fields == nil || f.Notes.Required {
			required = append(required, f.Name)
		}
		if choice := f.Desc.ContainingOneof(); choice != nil && !choice.IsSynthetic() {
			choices[choice] = append(choices[choice], f.Name)
		}
	}
	if len(required) > 0 {
		one["required"] = required
	}
	// Of a choice, one is there: the others are null where the schema of one of them applies.
	alone := schema{}
	for _, names := range choices {
		for _, name := range names {
			others := schema{}
			for _, other := range names {
				if other != name {
					others[other] = schema{"type": "null"}
				}
			}
			if len(others) > 0 {
				alone[name] = schema{"properties": others}
			}
		}
	}
	if len(alone) > 0 {
		one["dependentSchemas"] = alone
	}
	return ref(name)
}

func (s schemas) field(f *object.Field) schema {
	var one schema
	switch kind := f.Desc.Kind(); {
	case f.Fields != nil:
		one = s.message(object.SchemaName(f.Fields.Message), f.Fields)
	case f.Ref != nil:
		one = nameSchema()
	case kind == protoreflect.EnumKind:
		one = words(object.EnumNames(f.Desc.Enum())...)
	case kind == protoreflect.BoolKind:
		one = schema{"type": "boolean"}
	case kind == protoreflect.StringKind:
		one = formatSchema(f.Notes.Format)
	default:
		one = numberSchema(f)
	}
	text := f.Accepted()
	if f.Notes.Unit != api.Unit_NONE {
		one = annotated(one, "x-unit", strings.ToLower(f.Notes.Unit.String()))
	}
	if f.Desc.IsList() {
		list := array(one)
		if f.Notes.Max > 0 {
			list["maxItems"] = f.Notes.Max
		}
		if least := f.Notes.Min; least > 0 {
			list["minItems"] = least
		} else if f.Notes.Required {
			list["minItems"] = 1
		}
		one, text = list, "A list; each: "+text
	}
	// Null is the same as leaving it out, and so is text that is empty.
	if f.Optional() && !f.Notes.Required {
		none := []schema{one, {"type": "null"}}
		if f.Desc.Kind() == protoreflect.StringKind && !f.Desc.IsList() {
			none = append(none, schema{"const": ""})
		}
		one = either(none...)
	}
	one = annotated(one, "description", text)
	if f.Ref != nil {
		one = annotated(one, "x-names", f.Ref.Name)
	}
	if f.Notes.Immutable {
		one = annotated(one, "x-immutable", true)
	}
	if f.Notes.Secret {
		one = annotated(one, "writeOnly", true)
	}
	if f.Notes.Zero != "" {
		one = annotated(one, "x-left-out", f.Notes.Zero)
	}
	if f.Notes.Example != "" {
		var example any = f.Notes.Example
		if f.Desc.Kind() != protoreflect.StringKind {
			if n, err := strconv.ParseInt(f.Notes.Example, 10, 64); err == nil {
				example = n
			}
		}
		if f.Desc.IsList() {
			example = []any{example}
		}
		one = annotated(one, "examples", []any{example})
	}
	return one
}

func annotated(s schema, name string, value any) schema {
	s[name] = value
	return s
}

// kinds adds the schemas of every kind: for answers, for requests, and for lists.
func (s schemas) kinds(r *object.Registry) {
	var many []schema
	for _, k := range r.Kinds() {
		spec := s.message(k.Name+"Spec", k.Fields)
		labels := schema{"type": "object", "maxProperties": object.MaxLabels, "propertyNames": schema{"pattern": labelKey, "maxLength": 253 + 1 + 63},
			"additionalProperties": schema{"type": []string{"string", "number"}, "pattern": labelPattern, "maxLength": 63}}
		s.all["Metadata"] = record(schema{"name": nameSchema(), "?labels": labels})
		s.all["MetadataInput"] = record(schema{"?name": nameSchema(), "?labels": either(labels, schema{"type": "null"})})
		version, kind := schema{"const": object.APIVersion}, schema{"const": k.Name}
		s.all[k.Name] = record(schema{"apiVersion": version, "kind": kind, "metadata": ref("Metadata"), "?spec": spec, "status": ref("Status")})
		input := record(schema{"?apiVersion": version, "?kind": kind, "?metadata": ref("MetadataInput"), "?spec": either(spec, schema{"type": "null"}), "?status": schema{}})
		if whole, _ := s.all[k.Name+"Spec"].(schema); whole["required"] != nil {
			input = record(schema{"?apiVersion": version, "?kind": kind, "?metadata": ref("MetadataInput"), "spec": spec, "?status": schema{}})
		}
		s.all[k.Name+"Input"] = input
		many = append(many, schema{"allOf": []schema{ref(k.Name + "Input"), {"required": []string{"apiVersion", "kind", "metadata"},
			"properties": schema{"metadata": schema{"type": "object", "required": []string{"name"}}}}}})
	}
	s.all["AnyObject"] = schema{"oneOf": many}
}

// envelopes leaves the schemas of everything that is around objects.
func (s schemas) envelopes(r *object.Registry) {
	var kinds []string
	for _, k := range r.Kinds() {
		kinds = append(kinds, k.Name)
	}
	var states []string
	for _, state := range reconcile.States() {
		states = append(states, stateWord(state))
	}
	step, impact := wordsOf(intent.Steps()), wordsOf(reconcile.Impacts())
	kind := words(kinds...)
	s.all["Status"] = record(schema{"state": words(states...), "?message": textSchema, "?since": momentSchema, "?owner": textSchema,
		"?owners": array(record(schema{"owner": textSchema, "priority": schema{"type": "integer"}, "revision": countSchema,
			"?fields": array(record(schema{"field": textSchema, "value": textSchema, "?overridden": flagSchema}))})),
		"?generation": countSchema, "?observedGeneration": countSchema, "?revision": countSchema,
		"?conditions": array(record(schema{"type": words(intent.ConditionTypes[:]...), "status": words(intent.ConditionStatuses[:]...), "?reason": textSchema,
			"?message": textSchema, "?lastTransitionTime": momentSchema}))})
	s.all["List"] = record(schema{"items": array(record(schema{"apiVersion": schema{"const": object.APIVersion}, "kind": kind,
		"metadata": ref("Metadata"), "?spec": schema{"type": "object"}, "?status": schema{"type": "object"}})), "?next": textSchema, "cursor": textSchema})
	named := schema{"kind": kind, "name": schema{"type": "string", "pattern": namePattern, "maxLength": 253}}
	s.all["Changes"] = record(schema{"?put": array(ref("AnyObject")), "?delete": array(record(named)),
		"?expect": array(record(schema{"kind": named["kind"], "name": named["name"], "revision": schema{"type": "integer", "minimum": 0, "maximum": int64(1<<63 - 1)}}))})
	joined := record(schema{"owner": textSchema, "objects": countSchema, "besides": array(textSchema)})
	s.all["Applied"] = record(schema{"revision": countSchema, "?confirmBy": momentSchema, "?joined": joined,
		"objects": array(record(schema{"step": step, "kind": kind, "name": textSchema, "status": ref("Status")}))})
	field := record(schema{"field": textSchema, "?before": textSchema, "?after": textSchema, "?immutable": flagSchema})
	s.all["Plan"] = record(schema{"revision": countSchema, "impact": impact, "?joined": joined, "steps": array(record(schema{"step": step, "kind": kind, "name": textSchema,
		"?fields": array(field), "?why": textSchema, "?waitsFor": textSchema, "impact": impact}))})
	s.all["History"] = record(schema{"revisions": array(record(schema{"number": countSchema, "time": momentSchema, "owner": textSchema, "?who": textSchema,
		"?why": textSchema, "changes": countSchema, "?objects": array(record(schema{"step": step, "kind": kind, "name": textSchema})), "?rollbackTo": countSchema, "?confirmBy": momentSchema,
		"?standing": words(standings[:]...), "?undoneBy": countSchema}))})
	s.all["Differences"] = record(schema{"objects": array(record(schema{"step": step, "kind": kind, "name": textSchema, "?fields": array(field),
		"?ownerBefore": textSchema, "?ownerAfter": textSchema}))})
	s.all["Counts"] = record(schema{"revision": countSchema, "objects": schema{"type": "object", "propertyNames": words(states...), "additionalProperties": countSchema}})
	s.all["Health"] = record(schema{"status": words("ok")})
	s.all["Problem"] = record(schema{"type": textSchema, "title": textSchema, "status": countSchema, "detail": textSchema,
		"?errors": array(record(schema{"?object": textSchema, "?index": countSchema, "?field": textSchema, "problem": textSchema, "?found": textSchema,
			"?accepted": textSchema, "?holder": textSchema}))})
}

func pretty(value any) ([]byte, error) { return json.MarshalIndent(value, "", " ") }
