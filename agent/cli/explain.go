// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reference"
)

// usualWidth is how wide text is where there is no terminal, and the most that is easy to read in one.
const usualWidth = 100

func (p *program) explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [KIND[.FIELD[.FIELD...]]]",
		Short: "Explain a kind of object or one of its fields",
		Long: `Explain a kind of object and its fields, or one field and the fields below it. Without a kind, list the kinds. The text is
that of the reference. Only kinds of modules need a running agent.`,
		Example: `  sluice explain session
  sluice explain session.access.outerVlan
  sluice explain route --recursive`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.completeFields,
	}
	recursive := c.Flags().BoolP("recursive", "r", false, "also the fields below these fields")
	c.RunE = func(_ *cobra.Command, arguments []string) error {
		comments, err := reference.New()
		if err != nil {
			return err
		}
		_, columns := p.screen()
		e := &explanation{comments: comments, width: usualWidth, recursive: *recursive}
		if columns > 0 && columns < usualWidth {
			e.width = columns
		}
		if len(arguments) == 0 {
			err = e.kinds(p.registry, columns)
		} else {
			err = e.named(p.registry, arguments[0])
		}
		if err != nil {
			return err
		}
		_, err = io.WriteString(p.out, e.text.String())
		return err
	}
	return c
}

// explanation writes the output of explain.
type explanation struct {
	comments  *reference.Reference
	width     int
	recursive bool
	text      strings.Builder
}

func (e *explanation) kinds(r *object.Registry, columns int) error {
	t := table{heading: []string{"KIND", "NAMES", "MEANING"}, columns: columns}
	r.Ask()
	for _, k := range r.Kinds() {
		if err := e.comments.Add(k); err != nil {
			return err
		}
		comment, err := e.comments.Kind(k)
		if err != nil {
			return err
		}
		t.add(k.Name, words(k), plainText(reference.FirstSentence(comment)))
	}
	return t.write(&e.text)
}

// words are the names of a kind on the command line.
func words(k *object.Kind) string {
	if k.Short == "" {
		return k.Plural
	}
	return k.Plural + ", " + k.Short
}

// named explains "session" or "session.access".
func (e *explanation) named(r *object.Registry, text string) error {
	word, path, below := strings.Cut(text, ".")
	k, err := r.Lookup(word)
	if err != nil {
		return err
	}
	if err := e.comments.Add(k); err != nil {
		return err
	}
	if !below {
		return e.kind(k)
	}
	found, err := k.Find(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(&e.text, "Field %s.%s\n\n", k.Name, path)
	f := found.Field()
	if err := e.field(f, "", "", nil); err != nil {
		return err
	}
	if f.Fields == nil || e.recursive {
		return nil
	}
	e.text.WriteString("\nFields\n\n")
	return e.fields(f.Fields, "  ", "", nil)
}

func (e *explanation) kind(k *object.Kind) error {
	comment, err := e.comments.Kind(k)
	if err != nil {
		return err
	}
	fmt.Fprintf(&e.text, "Kind %s (%s)\n\n", k.Name, words(k))
	e.wrap("  ", comment)
	if k.Plane == api.Plane_AGENT {
		e.wrap("  ", "The agent alone uses it. The data plane does not have it.")
	}
	for _, name := range k.Builtin {
		e.wrap("  ", name+" always exists.")
	}
	if len(k.Unique) > 0 {
		var paths []string
		for _, u := range k.Unique {
			paths = append(paths, u.Text)
		}
		e.wrap("  ", "No two objects have the same "+strings.Join(paths, " and ")+".")
	}
	e.text.WriteString("\nFields\n\n")
	return e.fields(k.Fields, "  ", "", nil)
}

func (e *explanation) fields(fs *object.Fields, indent, path string, above []*object.Fields) error {
	for _, f := range fs.List {
		if err := e.field(f, indent, path, append(above, fs)); err != nil {
			return err
		}
	}
	return nil
}

// field writes a field with its meaning and, if recursive, its fields. A message that contains itself is explained
// once.
func (e *explanation) field(f *object.Field, indent, path string, above []*object.Fields) error {
	name := path + f.Name
	if f.Desc.IsList() {
		name += "[]"
	}
	holds := plainText(reference.Holds(f))
	if f.Fields != nil {
		holds = "fields: " + strings.Join(f.Fields.Names(), ", ")
		if f.Desc.IsList() {
			holds = "a list: each has the " + holds
		}
	}
	leftOut := reference.LeftOut(f)
	if leftOut == "" {
		leftOut = "required"
	} else {
		leftOut = "if left out: " + plainText(leftOut)
	}
	fmt.Fprintf(&e.text, "%s%s\n", indent, name)
	e.wrap(indent+"    ", holds+" ("+leftOut+")")
	meaning, err := e.comments.Meaning(f, false)
	if err != nil {
		return err
	}
	for _, sentence := range meaning {
		e.wrap(indent+"    ", plainText(sentence))
	}
	if f.Fields == nil || !e.recursive {
		return nil
	}
	for _, seen := range above {
		if seen == f.Fields {
			return nil
		}
	}
	return e.fields(f.Fields, indent, name+".", above)
}

// plainText leaves out the marks of Markdown.
func plainText(s string) string { return strings.ReplaceAll(s, "`", "") }

// wrap writes words in lines that are not longer than the width, but for a word that is.
func (e *explanation) wrap(indent, text string) {
	column := 0
	for _, word := range strings.Fields(text) {
		letters := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			e.text.WriteString(indent)
			column = len(indent)
		case column+1+letters > e.width:
			e.text.WriteString("\n" + indent)
			column = len(indent)
		default:
			e.text.WriteByte(' ')
			column++
		}
		e.text.WriteString(word)
		column += letters
	}
	if column > 0 {
		e.text.WriteByte('\n')
	}
}

// completeFields offers kinds, and then the fields of one.
func (p *program) completeFields(c *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(before) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	word, path, dot := strings.Cut(typed, ".")
	if !dot {
		return p.completeNames(0)(c, nil, typed)
	}
	kind, err := p.registry.Lookup(word)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	fields, done := kind.Fields, ""
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		found, err := kind.Find(path[:i])
		if err != nil || found.Field().Fields == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		fields, done = found.Field().Fields, path[:i+1]
	}
	var all []string
	for _, name := range fields.Names() {
		all = append(all, word+"."+done+name)
	}
	return starting(all, typed), cobra.ShellCompDirectiveNoFileComp
}
