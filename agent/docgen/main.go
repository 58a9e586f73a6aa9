// SPDX-License-Identifier: Apache-2.0

// Docgen writes the object reference (docs/reference.md) from the comments and annotations of the contract (package reference):
//
//	go run ./agent/docgen > docs/reference.md
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/example"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reference"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	text, err := document()
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Flush()
}

// document returns the page.
func document() ([]byte, error) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		return nil, err
	}
	comments, err := reference.New()
	if err != nil {
		return nil, err
	}
	written, err := example.Objects(registry)
	if err != nil {
		return nil, err
	}
	p := &page{comments: comments, registry: registry, examples: map[string]string{}}
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
	if err := p.introduction(); err != nil {
		return nil, err
	}
	for _, k := range registry.Kinds() {
		if p.examples[k.Name] == "" {
			return nil, fmt.Errorf("agent/example has no %s: add a file", k.Name)
		}
		if err := p.kind(k); err != nil {
			return nil, err
		}
	}
	return p.Bytes(), nil
}

// exampleOf returns the example as it is written, with its units and comments.
func exampleOf(w *object.Written) (string, error) {
	all, err := example.Text()
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(all, "\n")
	if w.Line < 1 || w.Line > len(lines) {
		return "", fmt.Errorf("%s: the examples have no line %d", w.Key(), w.Line)
	}
	text := strings.Join(lines[w.Line-1:], "")
	if end := strings.Index(text, "\n---"); end >= 0 {
		text = text[:end+1]
	}
	return text, nil
}

type page struct {
	bytes.Buffer
	comments *reference.Reference
	registry *object.Registry
	examples map[string]string
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) introduction() error {
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
	p.line("- A file may hold many objects with `---` between. Their order does not matter: objects are created after those that they name, and")
	p.line("  an object that names a missing one waits for it.")
	p.line("- *Needs* marks a field that names another object. *Fixed* marks a field that cannot change in place: the object is deleted")
	p.line("  and created again, and so is what needs it.")
	p.line("- An object may have several owners, each with fields of its own ([how](how-to-change.md#several-owners-of-one-object)). *Whole*")
	p.line("  marks fields below which there is one owner, and *Shared* lists in which each element has owners.")
	p.line("- Numbers with a unit may have a suffix: bit/s K, M, G, T; bytes KB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024);")
	p.line("  time ns, us, ms, s, m, h. Without a suffix they are bit/s, bytes and nanoseconds. Values with their unit in full, such as")
	p.line("  `8 kbit/s`, `1500 B` or `10 ms`, are read as well.")
	p.line("- Words for a choice may be written in either case.")
	p.line("")
	p.line("| kind | what it is | on the command line |")
	p.line("| --- | --- | --- |")
	for _, k := range p.registry.Kinds() {
		words := "`" + k.Plural + "`"
		if k.Short != "" {
			words += ", `" + k.Short + "`"
		}
		comment, err := p.comments.Kind(k)
		if err != nil {
			return err
		}
		p.line("| [%s](#%s) | %s | %s |", k.Name, strings.ToLower(k.Name), cell(reference.FirstSentence(comment)), words)
	}
	return nil
}

func (p *page) kind(k *object.Kind) error {
	comment, err := p.comments.Kind(k)
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
	for _, st := range p.registry.StatesOf(k.Name) {
		p.line("State: `sluice get %s --state=%s`, `GET /v1/%s`: %s.\n", k.Plural, st.Notes.GetName(), st.Notes.GetPath(), st.Notes.GetSummary())
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
		name := path + f.Name
		if f.Desc.IsList() {
			name += "[]"
		}
		meaning, err := p.comments.Meaning(f, true)
		if err != nil {
			return err
		}
		leftOut := reference.LeftOut(f)
		if leftOut == "" {
			leftOut = "**required**"
		}
		p.line("| `%s` | %s | %s | %s |", name, cell(reference.Holds(f)), cell(leftOut), cell(strings.Join(meaning, " ")))
		if f.Fields != nil {
			if err := p.fields(f.Fields, name+".", append(above, fs)); err != nil {
				return err
			}
		}
	}
	return nil
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
