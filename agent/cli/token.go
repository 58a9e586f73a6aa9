// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/access"
)

func (p *program) tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for access over the network",
		Long: `Make a token for access over the network, through gRPC or REST.

The token is random, and shown only once. Add the line below it, which has the token's hash, to the agent's file of tokens; the
agent reads the file when it changes. To revoke the token, delete that line.`,
		Example: `  sluice token alice --role operate
  sluice token grafana              # may only read`,
		Args: cobra.ExactArgs(1),
	}
	role := &choice{value: access.Read.String(), of: []string{"read", "operate", "admin"}}
	c.Flags().Var(role, "role", "rights of the bearer: read, operate (change the configuration) or admin")
	complete(c, "role", func(*cobra.Command, string) []string { return role.of })
	c.RunE = func(_ *cobra.Command, arguments []string) error {
		what, err := access.ParseRole(role.value)
		if err != nil {
			return err
		}
		token, line, err := access.NewToken(arguments[0], what)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "token:    %s\nin file:  %s\n", token, line)
		return err
	}
	return c
}
