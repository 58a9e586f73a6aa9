// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/service"
)

// rpc is the gRPC service for operators.
var rpc = service.NewRPC[api.IkeServer](&api.Ike_ServiceDesc, map[string]service.Method{
	"TerminateIke": {Role: access.Operate, Action: "terminate", Entry: entry("terminate")},
	"RekeyIke":     {Role: access.Operate, Action: "rekey", Entry: entry("rekey")},
	"InitiateIke":  {Role: access.Operate, Action: "initiate", Entry: entry("initiate")},
})

// entry names the IkeConnection or IkePeer in the audit entry of a call, and counts its SAs.
func entry(step string) func(*audit.Entry, any, any) {
	return func(e *audit.Entry, request, reply any) {
		e.Objects = []audit.Change{{Kind: "IkeConnection", Name: request.(*api.IkeQuery).GetConnection(), Step: step}}
		if n, ok := reply.(*api.IkeCount); ok {
			e.Count = int(n.GetCount())
			e.Objects[0].Kind = cmp.Or(n.GetKind(), e.Objects[0].Kind)
		}
	}
}

// commands are the commands beside `sluice ike list`.
func commands(l command.Line) []*cobra.Command {
	c := &cobra.Command{
		Use:   "ike",
		Short: "List, initiate, rekey and terminate IKE SAs and their children",
		Example: `  sluice ike list
  sluice ike initiate office
  sluice ike rekey office --child net
  sluice ike terminate office`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		changeCommand(l, "initiate", "Initiating", "Open the IKE SA of an IkeConnection or IkePeer", "Open the IKE SA of an IkeConnection or IkePeer with the children that it does not have, or one child.",
			"has all of its children already", api.IkeClient.InitiateIke),
		changeCommand(l, "rekey", "Rekeying", "Negotiate new keys of an IkeConnection or IkePeer", "Negotiate new keys of the IKE SA of an IkeConnection or IkePeer, or of its children.", "has no such SA", api.IkeClient.RekeyIke),
		changeCommand(l, "terminate", "Terminating", "Delete the IKE SAs of an IkeConnection or IkePeer", "Delete the IKE SAs of an IkeConnection or IkePeer with their children, or single children.", "has no such SA", api.IkeClient.TerminateIke))
	return []*cobra.Command{c}
}

func changeCommand(l command.Line, use, doing, short, long, none string, call func(api.IkeClient, context.Context, *api.IkeQuery, ...grpc.CallOption) (*api.IkeCount, error)) *cobra.Command {
	q := &api.IkeQuery{}
	c := &cobra.Command{
		Use:     use + " CONNECTION",
		Short:   short,
		Long:    long,
		Example: "  sluice ike " + use + " office\n  sluice ike " + use + " office --child net",
		Args:    cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&q.Child, "child", "", "a child; \"*\": all children")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		connection, err := l.Connect()
		if err != nil {
			return err
		}
		q.Connection = arguments[0]
		n, err := call(api.NewIkeClient(connection), c.Context(), q)
		if err != nil {
			return err
		}
		if n.GetCount() == 0 {
			return fmt.Errorf("%s/%s %s", cmp.Or(n.GetKind(), "IkeConnection"), q.Connection, none)
		}
		what := command.Plural(int(n.GetCount()), "IKE SA", "IKE SAs")
		if q.Child != "" || use == "initiate" {
			what = command.Plural(int(n.GetCount()), "child SA", "child SAs")
		}
		fmt.Fprintf(l.Out(), "%s %s.\n", doing, what)
		return nil
	}
	return c
}
