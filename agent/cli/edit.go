// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func (p *program) editCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Change one object in an editor",
		Long: `Change one object in an editor: $VISUAL, $EDITOR or vi. You edit the fields of one owner, as YAML. When the
editor ends, the object is applied, unless you changed nothing. If the object is not acceptable, the editor opens again with the
reasons at the top; leave it without a change to give up. If the object changed meanwhile, nothing is applied. In both cases the
file stays, and the error names it.`,
		Example: `  sluice edit session alice
  EDITOR=nano sluice edit acl/web --confirm 5m`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeNames(1),
	}
	var s changeFlags
	s.owned(c)
	s.confirmed(c)
	c.RunE = func(c *cobra.Command, arguments []string) error {
		if err := s.check(c); err != nil {
			return err
		}
		names, err := p.names(arguments)
		if err != nil {
			return err
		}
		if len(names) != 1 {
			return fmt.Errorf("the name is missing: sluice edit %s NAME", arguments[0])
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		e := &edit{program: p, client: client, changeFlags: &s, key: object.Key{Kind: names[0].GetKind(), Name: names[0].GetName()}}
		if err := e.begin(c.Context()); err != nil {
			return err
		}
		err = e.run(c.Context())
		if e.done {
			return errors.Join(err, os.Remove(e.path))
		}
		return fmt.Errorf("%w\nnothing is applied; the file is %s", err, e.path)
	}
	return c
}

// edit is one object that is being changed.
type edit struct {
	*program
	client      api.AgentClient
	changeFlags *changeFlags
	key         object.Key
	// The text before editing, and its revision.
	before   []byte
	revision uint64
	path     string
	// It is applied, or there is nothing to apply: the file is not needed any more.
	done bool
}

// begin gets the owner's layer of the object.
func (e *edit) begin(ctx context.Context) error {
	query := &api.ObjectsQuery{Kinds: []string{e.key.Kind}, Names: []string{e.key.Name}, Owner: e.changeFlags.owner, AsOwnerSays: true}
	page, err := e.client.Get(ctx, query)
	if err != nil {
		return err
	}
	if len(page.GetObjects()) == 0 {
		return e.nothing(ctx)
	}
	o := page.GetObjects()[0]
	i := o.GetIntent()
	known, err := e.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
	if err != nil {
		return fmt.Errorf("the agent sent an object that this program cannot decode: %w", err)
	}
	known.Empty = i.GetEmpty()
	var b bytes.Buffer
	if err := e.registry.YAML(&b, known); err != nil {
		return err
	}
	e.before, e.revision = b.Bytes(), o.GetStatus().GetRevision()
	f, err := os.CreateTemp("", "sluice-edit-*.yaml")
	if err != nil {
		return err
	}
	e.path = f.Name()
	return f.Close()
}

// nothing is the error for an object without a layer of the owner.
func (e *edit) nothing(ctx context.Context) error {
	d, err := e.client.Describe(ctx, &api.ObjectName{Kind: e.key.Kind, Name: e.key.Name})
	if err != nil {
		return err
	}
	of := "this owner"
	if e.changeFlags.owner != "" {
		of = "owner " + e.changeFlags.owner
	}
	return fmt.Errorf("%s has no fields of %s; its owners are: %s.\nChoose one of them with --owner, or add fields of your own with `sluice apply`",
		of, e.key, orDash(ownersText(d.GetObject())))
}

// run opens the editor until there is something to apply, or nothing.
func (e *edit) run(ctx context.Context) error {
	body := e.before
	var wrong error
	for {
		text := append(e.head(wrong), body...)
		if err := os.WriteFile(e.path, text, 0o600); err != nil {
			return err
		}
		if err := e.open(); err != nil {
			return err
		}
		after, err := os.ReadFile(e.path)
		if err != nil {
			return unreadable(e.path, err)
		}
		switch {
		case wrong != nil && bytes.Equal(uncommented(after), uncommented(text)):
			return wrong
		case bytes.Equal(uncommented(after), uncommented(e.before)), len(uncommented(after)) == 0:
			fmt.Fprintln(e.err, "Nothing is changed.")
			e.done = true
			return nil
		}
		body = bytes.TrimPrefix(after, text[:len(text)-len(body)])
		if wrong, err = e.apply(ctx); wrong == nil {
			return err
		}
	}
}

// head is the comment above the object.
func (e *edit) head(wrong error) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s at revision %d. It is applied when the editor ends; without a change, nothing is applied.\n", e.key, e.revision)
	if wrong != nil {
		b.WriteString("#\n# It was not applied:\n")
		for _, line := range strings.Split(e.explain(wrong), "\n") {
			b.WriteString("# " + escaped(line, "") + "\n")
		}
	}
	return b.Bytes()
}

// uncommented leaves out lines that are comments, or empty.
func uncommented(text []byte) []byte {
	lines := slices.DeleteFunc(bytes.SplitAfter(text, []byte("\n")), func(line []byte) bool {
		line = bytes.TrimSpace(line)
		return len(line) == 0 || line[0] == '#'
	})
	return bytes.Join(lines, nil)
}

// open runs the editor, which has the terminal.
func (e *edit) open() error {
	editor := ""
	for _, variable := range []string{"EDITOR", "VISUAL"} {
		if set := os.Getenv(variable); set != "" {
			editor = set
		}
	}
	if editor == "" {
		// vi does not end without a terminal.
		if f, is := e.in.(*os.File); !is || !terminal(f) {
			return errors.New("there is no terminal; set EDITOR to a program that edits the file")
		}
		editor = "vi"
	}
	// It may have arguments.
	command := exec.Command("sh", "-c", editor+` "$1"`, "sh", e.path)
	command.Stdin, command.Stdout, command.Stderr = e.in, e.out.to, e.err.to
	if err := command.Run(); err != nil {
		return fmt.Errorf("editor %s: %w", editor, err)
	}
	return nil
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// apply applies the file. wrong is an error that the user can mend in the editor; err is any other error.
func (e *edit) apply(before context.Context) (wrong, err error) {
	// An interrupt that was meant for the editor does not count.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(before), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	written, err := e.read([]string{e.path})
	if err != nil {
		return err, nil
	}
	if len(written) != 1 || written[0].Key() != e.key {
		return fmt.Errorf("the file does not hold %s and nothing else", e.key), nil
	}
	changes := e.changeFlags.changes()
	if changes.Put, err = intents(written); err != nil {
		return err, nil
	}
	changes.Expect = []*api.ObjectRevision{{Kind: e.key.Kind, Name: e.key.Name, Revision: e.revision}}
	applied, err := e.client.Apply(ctx, changes)
	switch status.Code(err) {
	case codes.OK:
	case codes.Aborted:
		return nil, fmt.Errorf("%s changed while you edited it; edit it again", e.key)
	case codes.InvalidArgument:
		return e.problems(err, written), nil
	default:
		return nil, e.refused(err, written)
	}
	e.done = !applied.GetUndone()
	if err := e.waited(ctx, e.client, applied, e.changeFlags); err != nil {
		return nil, err
	}
	e.warn(applied.GetWarnings(), written)
	return nil, e.printApplied(applied, "table", expected{waited: e.changeFlags.wait > 0, accepted: e.changeFlags.noWait})
}
