// SPDX-License-Identifier: Apache-2.0

// Package reference describes the kinds and their fields from the comments and annotations of the contract (api/*.proto). The object
// reference (docs/reference.md) and `sluice explain` are made from it.
package reference

import (
	_ "embed"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// The descriptors with their comments; `make generate` writes them.
//
//go:embed contract.binpb
var contract []byte

// Reference holds the comments of the contract.
type Reference struct {
	files *protoregistry.Files
}

// New reads the comments.
func New() (*Reference, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(contract, &set); err != nil {
		return nil, fmt.Errorf("reading the comments of the contract: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("reading the comments of the contract: %w", err)
	}
	return &Reference{files}, nil
}

// Comment returns the comment above a declaration, on one line.
func (r *Reference) Comment(name protoreflect.FullName) (string, error) {
	d, err := r.files.FindDescriptorByName(name)
	if err != nil {
		return "", fmt.Errorf("%s is not in the descriptors, which are older or newer than this program: %w", name, err)
	}
	return strings.Join(strings.Fields(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments), " "), nil
}

// Kind returns the comment of a kind.
func (r *Reference) Kind(k *object.Kind) (string, error) {
	return r.Comment(k.Message.Descriptor().FullName())
}

// Meaning returns the meaning of a field: its comment or that of its message, then a sentence or two for each
// annotation. In Markdown, kinds are links within one page.
func (r *Reference) Meaning(f *object.Field, markdown bool) ([]string, error) {
	comment, err := r.Comment(f.Desc.FullName())
	if err != nil {
		return nil, err
	}
	if comment == "" && f.Fields != nil {
		if comment, err = r.Comment(f.Fields.Message.FullName()); err != nil {
			return nil, err
		}
	}
	var parts []string
	if comment != "" {
		parts = append(parts, comment)
	}
	mark := func(text string) string {
		if markdown {
			return "*" + text + "*"
		}
		return text
	}
	if f.Desc.Kind() == protoreflect.EnumKind {
		values := f.Desc.Enum().Values()
		for i := range values.Len() {
			c, err := r.Comment(values.Get(i).FullName())
			if err != nil {
				return nil, err
			}
			if c != "" {
				parts = append(parts, fmt.Sprintf("`%s`: %s", strings.ToLower(string(values.Get(i).Name())), c))
			}
		}
	}
	if one := f.Desc.ContainingOneof(); one != nil && !one.IsSynthetic() && one.Fields().Len() > 1 {
		var others []string
		for i := range one.Fields().Len() {
			if other := one.Fields().Get(i); other != f.Desc {
				others = append(others, "`"+other.JSONName()+"`")
			}
		}
		parts = append(parts, "Excludes "+strings.Join(others, ", ")+".")
	}
	if f.Ref != nil {
		kind := f.Ref.Name
		if markdown {
			kind = fmt.Sprintf("[%s](#%s)", kind, strings.ToLower(kind))
		}
		parts = append(parts, mark("Needs")+" this "+kind+".")
	}
	fixed, whole, shared := "*Fixed.*", "*Whole.*", "*Shared.*"
	if !markdown {
		fixed = "It cannot change in place: the object is deleted and created again."
		whole, shared = "One owner has all of it.", "Each element can have an owner of its own."
	}
	if f.Notes.Immutable {
		parts = append(parts, fixed)
	}
	switch f.Notes.Share {
	case api.Share_WHOLE:
		parts = append(parts, whole)
	case api.Share_ELEMENTS:
		parts = append(parts, shared)
	}
	if f.Notes.Secret {
		parts = append(parts, "Never shown again.")
	}
	return parts, nil
}

// Holds returns the values that a field accepts, in Markdown.
func Holds(f *object.Field) string {
	var text string
	switch kind := f.Desc.Kind(); {
	case f.Fields != nil:
		text = "fields below"
	case kind == protoreflect.EnumKind:
		names := object.EnumNames(f.Desc.Enum())
		text = "`" + strings.Join(names, "`, `") + "`"
	case kind == protoreflect.StringKind || kind == protoreflect.BoolKind:
		text = strings.TrimSuffix(f.Accepted(), ", such as "+f.Notes.Example)
	default:
		least, most := f.Bounds()
		switch unit := f.Notes.Unit; unit {
		case api.Unit_NONE, api.Unit_HEXADECIMAL:
			text = fmt.Sprintf("%d to %d", least, most)
		case api.Unit_BITS_PER_SECOND:
			text = fmt.Sprintf("bit/s, %s to %s", object.FormatNumber(unit, uint64(max(least, 0))), object.FormatNumber(unit, most))
		case api.Unit_BYTES:
			text = fmt.Sprintf("bytes, %d to %d", least, most)
		case api.Unit_NANOSECONDS:
			text = fmt.Sprintf("time, %s to %s", object.FormatNumber(unit, uint64(max(least, 0))), object.FormatNumber(unit, most))
		}
	}
	if f.Desc.IsList() {
		limits := "a list"
		if f.Notes.Max > 0 {
			limits = fmt.Sprintf("a list of at most %d", f.Notes.Max)
		}
		text = limits + ": each " + text
	}
	if f.Notes.Example != "" {
		text += fmt.Sprintf("; `%s`", f.Notes.Example)
	}
	return text
}

// LeftOut returns the meaning of an absent field, in Markdown; empty: the field is required.
func LeftOut(f *object.Field) string {
	switch {
	case f.Notes.Required:
		return ""
	case f.Notes.Zero != "":
		return f.Notes.Zero
	case f.Desc.IsList(), f.Fields != nil:
		return "none"
	case f.Ref != nil && len(f.Ref.Builtin) == 1:
		return "`" + f.Ref.Builtin[0] + "`"
	case f.Desc.Kind() == protoreflect.EnumKind:
		return "`" + object.EnumNames(f.Desc.Enum())[0] + "`"
	case f.Desc.Kind() == protoreflect.BoolKind:
		return "`false`"
	case f.Desc.Kind() == protoreflect.StringKind && f.Notes.Format == api.Format_TEXT && f.Ref == nil:
		return "empty"
	case f.Desc.Kind() == protoreflect.StringKind:
		return "none"
	}
	return "0"
}

// FirstSentence returns the first sentence of a comment.
func FirstSentence(s string) string {
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i+1]
	}
	return s
}

// Add makes the comments of a kind known that is not of the contract, because a module added it.
func (r *Reference) Add(k *object.Kind) error {
	return r.add(k.Message.Descriptor().ParentFile())
}

func (r *Reference) add(f protoreflect.FileDescriptor) error {
	if _, err := r.files.FindFileByPath(f.Path()); err == nil {
		return nil
	}
	for i := range f.Imports().Len() {
		if err := r.add(f.Imports().Get(i)); err != nil {
			return err
		}
	}
	return r.files.RegisterFile(f)
}
