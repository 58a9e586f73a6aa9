// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"

	"sluice.dev/sluice/agent/command"
)

// usernames remembers the user names of sessions: a session keeps its own.
type usernames struct {
	line  command.Line
	of    []*command.Sessions
	known map[string]string
}

// fill adds user names to sessions. A session that no concept has, such as a configured one, has none. An error leaves names out:
// rates are shown all the same.
func (u *usernames) fill(ctx context.Context, sessions []sessionRate) {
	var unknown []string
	for i := range sessions {
		if _, is := u.known[sessions[i].Name]; !is {
			unknown = append(unknown, sessions[i].Name)
		}
	}
	if len(unknown) > 0 && u.ask(ctx, unknown) {
		for _, name := range unknown {
			u.known[name] += ""
		}
	}
	for i := range sessions {
		sessions[i].Username = u.known[sessions[i].Name]
	}
}

// ask learns the user names of sessions. false: the agent does not answer.
func (u *usernames) ask(ctx context.Context, sessions []string) bool {
	for _, s := range u.of {
		names, err := s.Usernames(ctx, u.line, sessions)
		maps.Copy(u.known, names)
		if err != nil {
			return false
		}
	}
	return true
}
