// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

var extensions = []string{"yaml", "yml", "json"}

func filesFlag(c *cobra.Command) *[]string {
	files := c.Flags().StringArrayP("filename", "f", nil, "file, directory (its .yaml, .yml and .json), or - for standard input; may be repeated")
	if err := c.MarkFlagFilename("filename", extensions...); err != nil {
		panic(err) // only if the flag of the line before does not exist
	}
	return files
}

// read decodes all the objects in files and directories. It reports every mistake in every file.
func (p *program) read(paths []string) ([]*object.Written, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("no objects: use -f FILE, -f DIRECTORY or -f - for standard input")
	}
	var all []*object.Written
	var mistakes object.Errors
	for _, path := range paths {
		files, err := filesAt(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			written, err := p.readFile(file)
			if errs := object.AllErrors(err); errs != nil {
				mistakes = append(mistakes, errs...)
			} else if err != nil {
				return nil, err
			}
			all = append(all, written...)
		}
	}
	first := map[object.Key]*object.Written{}
	for _, w := range all {
		if before := first[w.Key()]; before != nil {
			mistakes = append(mistakes, &object.Error{File: w.File, Line: w.Line, Object: w.Key(),
				Problem:  fmt.Sprintf("duplicate object: also at %s:%d", before.File, before.Line),
				Accepted: "each object once"})
			continue
		}
		first[w.Key()] = w
	}
	if err := mistakes.Or(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no objects in %s", strings.Join(paths, ", "))
	}
	return all, nil
}

func filesAt(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	is, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !is.IsDir() {
		return []string{path}, nil
	}
	var files []string
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	for _, e := range entries {
		extension := strings.TrimPrefix(filepath.Ext(e.Name()), ".")
		if e.Type()&fs.ModeDir == 0 && slices.Contains(extensions, extension) && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: there is no .yaml, .yml or .json file in this directory", path)
	}
	return files, nil
}

// unreadable leaves out which call it was.
func unreadable(path string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (p *program) readFile(path string) ([]*object.Written, error) {
	in, name := p.in, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		defer f.Close()
		in, name = f, path
	}
	text := bufio.NewReaderSize(in, 64<<10)
	if err := planned(text, name); err != nil {
		return nil, err
	}
	return p.registry.Decode(text, name)
}

// The first line of a plan that `sluice plan --out` wrote, and of one that it showed.
var (
	planBegins  = regexp.MustCompile(`^\s*\{\s*"planned"\s*:`)
	stepsBegins = regexp.MustCompile(`^(\s*\[\s*\{\s*"step"\s*:|(---)?\s*- step:)`)
)

// planned is an error if a text is a plan in place of objects.
func planned(text *bufio.Reader, name string) error {
	begin, _ := text.Peek(256) // the next read returns the error
	switch {
	case planBegins.Match(begin):
		return fmt.Errorf("%s: this is a plan, not objects; apply it with `sluice apply --plan FILE`", name)
	case stepsBegins.Match(begin):
		return fmt.Errorf("%s: this is the printed form of a plan, not objects; `sluice plan --out FILE` writes one for `sluice apply --plan FILE`", name)
	}
	return nil
}

// intents packs objects for the agent.
func intents(written []*object.Written) ([]*api.Intent, error) {
	all := make([]*api.Intent, len(written))
	for i, w := range written {
		spec, err := object.Pack(w.Spec)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", w.File, w.Line, w.Key(), err)
		}
		all[i] = &api.Intent{Kind: w.Kind, Name: w.Name, Labels: w.Labels, Spec: spec, Empty: w.Empty}
	}
	return all, nil
}

// names finds the objects that "KIND NAME..." or "KIND/NAME" mean.
func (p *program) names(arguments []string) ([]*api.ObjectName, error) {
	var kind *object.Kind
	var all []*api.ObjectName
	for i, argument := range arguments {
		word, name, slash := strings.Cut(argument, "/")
		if i == 0 || slash {
			k, err := p.registry.Lookup(word)
			if err != nil {
				return nil, err
			}
			kind = k
			if !slash {
				continue
			}
		} else {
			name = argument
		}
		if strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Errorf("%q is not a name: it has control characters", name)
		}
		all = append(all, &api.ObjectName{Kind: kind.Name, Name: name})
	}
	return all, nil
}
