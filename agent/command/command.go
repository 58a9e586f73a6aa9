// SPDX-License-Identifier: Apache-2.0

// Package command is the interface between the command line and what concepts register with it (service.Definition).
package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Line is the command line.
type Line interface {
	// Connect returns the connection to the agent. It connects with the first request.
	Connect() (grpc.ClientConnInterface, error)
	// Out is the output. Control characters in it are escaped.
	Out() io.Writer
	// Dataplane is the data plane that --at names; empty: the user named none.
	Dataplane() string
	// ReadState reads the answer to a query of operational state, all pages of it unless the query has a limit.
	ReadState(ctx context.Context, query proto.Message) (proto.Message, error)
	// WriteState writes an answer of ReadState in a format of OutputFlag.
	WriteState(query, answer proto.Message, format string) error
	// OutputFlag adds the flag -o with these formats, of which the first is the default.
	OutputFlag(c *cobra.Command, formats ...string) *string
}

// Sessions are the sessions of a concept, for commands about any sessions.
type Sessions struct {
	// Flag of trace and capture that chooses a session, and the text about it. "subscriber": --subscriber NAME.
	Flag, Usage string
	// Names for the examples of trace and of capture.
	TraceExample, CaptureExample string
	// Find returns the one session with a name that the flag has.
	Find func(ctx context.Context, l Line, name string) (session string, err error)
	// Usernames returns the user names of sessions, for top. It leaves out sessions of others. It may return more than these sessions, and
	// a part of the names with an error.
	Usernames func(ctx context.Context, l Line, sessions []string) (map[string]string, error)
}

// Plural returns "1 object" or "3 objects".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
