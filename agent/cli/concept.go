// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/object"
)

// conceptLine is the program as commands of concepts use it.
type conceptLine struct{ *program }

// Connect implements command.Line.
func (l conceptLine) Connect() (grpc.ClientConnInterface, error) {
	_, err := l.client()
	return l.connection, err
}

// Out implements command.Line.
func (l conceptLine) Out() io.Writer { return l.out }

// Dataplane implements command.Line.
func (l conceptLine) Dataplane() string { return l.at }

// ReadState implements command.Line.
func (l conceptLine) ReadState(ctx context.Context, query proto.Message) (proto.Message, error) {
	client, err := l.client()
	if err != nil {
		return nil, err
	}
	answer, err := readAll(ctx, client, l.stateOf(query), query)
	if err != nil {
		return nil, err
	}
	return answer.Interface(), nil
}

// WriteState implements command.Line.
func (l conceptLine) WriteState(query, answer proto.Message, format string) error {
	return l.writeState(l.stateOf(query), answer.ProtoReflect(), nil, format)
}

// OutputFlag implements command.Line.
func (l conceptLine) OutputFlag(c *cobra.Command, formats ...string) *string {
	return outputFlag(c, formats...)
}

func (l conceptLine) stateOf(query proto.Message) *object.State {
	return l.registry.StateOf(query.ProtoReflect().Descriptor().FullName())
}

// conceptCommands adds the commands that services register.
func (p *program) conceptCommands(root *cobra.Command) {
	for _, d := range p.services {
		if d.Commands == nil {
			continue
		}
		for _, c := range d.Commands(conceptLine{p}) {
			c.GroupID = "look"
			explainArguments(c)
			root.AddCommand(c)
		}
	}
}

// explainArguments makes a command and those below it explain wrong arguments.
func explainArguments(c *cobra.Command) {
	if c.Args != nil {
		c.Args = explained(c.Args)
	}
	for _, sub := range c.Commands() {
		explainArguments(sub)
	}
}

// conceptSessions returns the sessions that services register.
func (p *program) conceptSessions() (all []*command.Sessions) {
	for _, d := range p.services {
		if d.Sessions != nil {
			all = append(all, d.Sessions)
		}
	}
	return all
}

// A sessionFlag chooses a session by a name that a concept has for it.
type sessionFlag struct {
	*command.Sessions
	value *string
}

// sessionFlags adds the flags of all concepts. Usage has "--session NAME", behind which the flags are.
func (p *program) sessionFlags(c *cobra.Command) (all []sessionFlag) {
	const before = "--session NAME"
	usage := before
	for _, s := range p.conceptSessions() {
		all = append(all, sessionFlag{s, c.Flags().String(s.Flag, "", "instead of --session: "+s.Usage)})
		usage += " | --" + s.Flag + " NAME"
	}
	c.Use = strings.Replace(c.Use, before, usage, 1)
	return all
}

// chosenSession returns the session of the flag that is used, and "" without one. Others are the command's other flags that choose packets:
// not more than one of all may be used.
func (p *program) chosenSession(c *cobra.Command, flags []sessionFlag, others ...string) (string, error) {
	used, names := 0, others
	for _, name := range others {
		if c.Flags().Lookup(name).Value.String() != "" {
			used++
		}
	}
	var chosen sessionFlag
	for _, f := range flags {
		names = append(names, f.Flag)
		if *f.value != "" {
			used++
			chosen = f
		}
	}
	switch last := len(names) - 1; {
	case chosen.Sessions == nil:
		return "", nil
	case used > 1 && last == 1:
		return "", fmt.Errorf("use either --%s or --%s", names[0], names[1])
	case used > 1:
		return "", fmt.Errorf("use one of --%s and --%s", strings.Join(names[:last], ", --"), names[last])
	}
	return chosen.Find(c.Context(), conceptLine{p}, *chosen.value)
}
