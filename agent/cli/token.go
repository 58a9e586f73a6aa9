package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/access"
)

func (p *program) tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token that lets a program or a person in over the network",
		Long: `Make a token that lets a program or a person in over the network, through gRPC or REST.

It is random, and shown this once. The agent's file of tokens gets only the line below it, which has the token's hash; the agent
sees at once that the file has changed. To lock the bearer out again, take that line away.`,
		Example: `  sluice token alice --role operate
  sluice token grafana              # may only read`,
		Args: cobra.ExactArgs(1),
	}
	role := &choice{value: access.Read.String(), of: []string{"read", "operate", "admin"}}
	c.Flags().Var(role, "role", "what its bearer may do: read, operate (change what is wanted) or admin")
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
