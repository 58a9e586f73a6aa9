// Docgen writes the object reference (docs/reference.md) from the contract's descriptors and the comments beside them:
//
//	protoc -Iapi --include_imports --include_source_info --descriptor_set_out=api.binpb api/*.proto
//	go run ./agent/docgen api.binpb > docs/reference.md
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/example"
	"sluice.dev/sluice/agent/object"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: docgen DESCRIPTORS (protoc --include_imports --include_source_info --descriptor_set_out)")
	}
	packed, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	page, err := reference(packed)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	w := bufio.NewWriter(out)
	if _, err := w.Write(page); err != nil {
		return err
	}
	return w.Flush()
}

// reference returns the page that a packed FileDescriptorSet describes.
func reference(packed []byte) ([]byte, error) {
	registry, err := object.NewRegistry()
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(packed, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	written, err := example.Objects(registry)
	if err != nil {
		return nil, err
	}
	p := &page{files: files, registry: registry, examples: map[string]string{}}
	for _, w := range written {
		text, err := exampleOf(w)
		if err != nil {
			return nil, err
		}
		if p.examples[w.Kind] != "" {
			text = "---\n" + text
		}
		p.examples[w.Kind] += text
	}
	p.introduction()
	for _, k := range registry.Kinds() {
		if p.examples[k.Name] == "" {
			return nil, fmt.Errorf("examples.yaml has no %s", k.Name)
		}
		if err := p.kind(k); err != nil {
			return nil, err
		}
	}
	return p.Bytes(), nil
}

// exampleOf returns the example as it is written, with its units and comments.
func exampleOf(w *object.Written) (string, error) {
	lines := strings.SplitAfter(example.Text(), "\n")
	if w.Line < 1 || w.Line > len(lines) {
		return "", fmt.Errorf("%s: line %d of examples.yaml", w.Key(), w.Line)
	}
	text := strings.Join(lines[w.Line-1:], "")
	if end := strings.Index(text, "\n---"); end >= 0 {
		text = text[:end+1]
	}
	return text, nil
}

type page struct {
	bytes.Buffer
	files    *protoregistry.Files
	registry *object.Registry
	examples map[string]string
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) introduction() {
	p.line("# Object reference")
	p.line("")
	p.line("<!-- Generated from api/*.proto by agent/docgen; changes are lost. -->")
	p.line("")
	p.line("An object is written in YAML or JSON:")
	p.line("")
	p.line("```yaml")
	p.line("apiVersion: %s", object.APIVersion)
	p.line("kind: Vrf")
	p.line("metadata:")
	p.line("  name: internet")
	p.line("  labels: {city: bonn}  # optional; for selecting")
	p.line("spec:")
	p.line("  description: customers' way out")
	p.line("```")
	p.line("")
	p.line("- A file may hold many objects with `---` between. Their order does not matter: what is needed is created first, and what")
	p.line("  names an object that is not there waits for it.")
	p.line("- *Needs* marks a field that names another object. *Fixed* marks a field that cannot change in place: the object is deleted")
	p.line("  and created again, and so is what needs it.")
	p.line("- Of several owners of an object each may say some of the fields ([how](how-to-change.md#several-who-want-the-same-object)). *Whole*")
	p.line("  marks fields below which there is one owner, and *Shared* lists in which each element has owners.")
	p.line("- Numbers with a unit may have a suffix: bit/s K, M, G, T; bytes KB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024);")
	p.line("  time ns, us, ms, s, m, h. Without a suffix they are bit/s, bytes and nanoseconds. What is shown with its unit in full, such as")
	p.line("  `8 kbit/s`, `1500 B` or `10 ms`, is read as well.")
	p.line("- Words for a choice may be written in either case.")
	p.line("")
	p.line("| kind | what it is | on the command line |")
	p.line("| --- | --- | --- |")
	for _, k := range p.registry.Kinds() {
		words := "`" + k.Plural + "`"
		if k.Short != "" {
			words += ", `" + k.Short + "`"
		}
		comment, _ := p.comment(k.Message.Descriptor().FullName())
		p.line("| [%s](#%s) | %s | %s |", k.Name, strings.ToLower(k.Name), cell(firstSentence(comment)), words)
	}
}

func (p *page) kind(k *object.Kind) error {
	comment, err := p.comment(k.Message.Descriptor().FullName())
	if err != nil {
		return err
	}
	p.line("\n## %s\n", k.Name)
	p.line("%s\n", comment)
	if k.Plane == api.Plane_AGENT {
		p.line("Understood by the agent alone.\n")
	}
	for _, name := range k.Builtin {
		p.line("`%s` is always there.\n", name)
	}
	if len(k.Unique) > 0 {
		var paths []string
		for _, u := range k.Unique {
			paths = append(paths, "`"+u.Text+"`")
		}
		p.line("No two have the same %s.\n", strings.Join(paths, " and "))
	}
	p.line("```yaml\n%s```\n", p.examples[k.Name])
	p.line("| field | holds | if left out | meaning |")
	p.line("| --- | --- | --- | --- |")
	return p.fields(k.Fields, "", nil)
}

func (p *page) fields(fs *object.Fields, path string, above []*object.Fields) error {
	for _, seen := range above {
		if seen == fs {
			return nil // holds itself: described where it was met first
		}
	}
	for _, f := range fs.List {
		comment, err := p.comment(f.Desc.FullName())
		if err != nil {
			return err
		}
		name := path + f.Name
		if f.Desc.IsList() {
			name += "[]"
		}
		if f.Fields != nil {
			if c, err := p.comment(f.Fields.Message.FullName()); err != nil {
				return err
			} else if comment == "" {
				comment = c
			}
		}
		if comment, err = p.marks(f, comment); err != nil {
			return err
		}
		p.line("| `%s` | %s | %s | %s |", name, cell(p.holds(f)), cell(leftOut(f)), cell(comment))
		if f.Fields != nil {
			if err := p.fields(f.Fields, name+".", append(above, fs)); err != nil {
				return err
			}
		}
	}
	return nil
}

// marks adds to a field's comment what its annotations and its choices say.
func (p *page) marks(f *object.Field, comment string) (string, error) {
	var parts []string
	if comment != "" {
		parts = append(parts, comment)
	}
	if f.Desc.Kind() == protoreflect.EnumKind {
		values := f.Desc.Enum().Values()
		for i := range values.Len() {
			c, err := p.comment(values.Get(i).FullName())
			if err != nil {
				return "", err
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
		parts = append(parts, fmt.Sprintf("*Needs* this [%s](#%s).", f.Ref.Name, strings.ToLower(f.Ref.Name)))
	}
	if f.Notes.Immutable {
		parts = append(parts, "*Fixed.*")
	}
	switch f.Notes.Share {
	case api.Share_WHOLE:
		parts = append(parts, "*Whole.*")
	case api.Share_ELEMENTS:
		parts = append(parts, "*Shared.*")
	}
	if f.Notes.Secret {
		parts = append(parts, "Never shown again.")
	}
	return strings.Join(parts, " "), nil
}

func (p *page) holds(f *object.Field) string {
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
		case api.Unit_NONE:
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

// leftOut says what leaving a field out means.
func leftOut(f *object.Field) string {
	switch {
	case f.Notes.Required:
		return "**required**"
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

// comment returns what stands above a declaration.
func (p *page) comment(name protoreflect.FullName) (string, error) {
	d, err := p.files.FindDescriptorByName(name)
	if err != nil {
		return "", fmt.Errorf("%s is not in the descriptors, which are older or newer than this program: %w", name, err)
	}
	text := strings.TrimSpace(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments)
	return strings.Join(strings.Fields(text), " "), nil
}

func firstSentence(s string) string {
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i+1]
	}
	return s
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
