// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/service"
)

// Operators' commands for UEs: the RPC and the commands beside operational state.

// rpc is the gRPC service for operators.
var rpc = service.NewRPC[api.UesServer](&api.Ues_ServiceDesc, map[string]service.Method{
	"ReleaseUes": {Role: access.Operate, Action: "release", Entry: entry},
})

// entry has the UEs of a release, or their N3iwf, and how many were released.
func entry(e *audit.Entry, request, reply any) {
	r := request.(*api.UesRelease)
	e.Why = r.GetWhy()
	if r.GetN3Iwf() != "" {
		e.Objects = append(e.Objects, audit.Change{Kind: "N3iwf", Name: r.GetN3Iwf(), Step: "release"})
	}
	for _, name := range r.GetNames() {
		e.Objects = append(e.Objects, audit.Change{Kind: "UE", Name: name, Step: "release"})
	}
	if n, ok := reply.(*api.ReleasedUes); ok {
		e.Count = int(n.GetCount())
	}
}

// operated implements api.UesServer.
type operated struct {
	api.UnimplementedUesServer
	s *serving
}

// ReleaseUes implements api.UesServer.
func (o operated) ReleaseUes(ctx context.Context, r *api.UesRelease) (*api.ReleasedUes, error) {
	answer := &api.ReleasedUes{}
	err := o.s.call(ctx, func() {
		for _, name := range r.GetNames() {
			if u := o.s.names[name]; u != nil && u.up && !u.gone {
				u.operate()
				answer.Count++
			} else {
				answer.Unknown = append(answer.Unknown, name)
			}
		}
		if in := o.s.instances[r.GetN3Iwf()]; in != nil && len(r.GetNames()) == 0 {
			for u := range in.ues {
				if u.up && !u.gone {
					u.operate()
					answer.Count++
				}
			}
		}
	})
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return answer, nil
}

// operate asks the AMF to release the context, at an operator's request. Without an answer the UE is disconnected.
func (u *ue) operate() {
	u.s.Log.Info("an operator releases a UE", "name", u.name)
	if u.core == nil {
		u.end("an operator released it")
		return
	}
	cause := ngap.CauseMiscOmIntervention
	u.requestRelease(ngap.Cause{Misc: &cause}, sortedIDs(u.sessions))
	time.AfterFunc(releaseTime, func() {
		u.s.post(func() {
			if !u.gone {
				u.end("an operator released it, and the core does not answer")
			}
		})
	})
}

// commands are the commands beside `sluice get ues` and `sluice describe ue`.
func commands(l command.Line) []*cobra.Command {
	c := &cobra.Command{
		Use:     "ue",
		Short:   "Release UEs of N3IWFs",
		Long:    "Release UEs. `sluice get ues` lists them, and `sluice describe ue NAME` shows one.",
		Example: "  sluice get ues\n  sluice describe ue n3iwf-wifi-7\n  sluice ue release n3iwf-wifi-7 --why 'asked by phone'",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(releaseCommand(l))
	return []*cobra.Command{c}
}

func releaseCommand(l command.Line) *cobra.Command {
	r := &api.UesRelease{}
	c := &cobra.Command{
		Use:   "release [NAME...]",
		Short: "Release the connection of UEs",
		Long: `Ask the core to release the connection of UEs, with the cause om-intervention. They stay registered, and come back when they have something to
send. The audit file of the agent's configuration has the reason.`,
		Example: "  sluice ue release n3iwf-wifi-7\n  sluice ue release --n3iwf wifi --why 'work on the access network'",
	}
	c.Flags().StringVar(&r.N3Iwf, "n3iwf", "", "all UEs of this N3iwf")
	c.Flags().StringVar(&r.Why, "why", "", "reason, for the audit")
	c.RunE = func(c *cobra.Command, names []string) error {
		if (len(names) > 0) == (r.N3Iwf != "") {
			return errors.New("accepted: names of UEs, or --n3iwf with the name of an N3iwf")
		}
		connection, err := l.Connect()
		if err != nil {
			return err
		}
		r.Names = names
		released, err := api.NewUesClient(connection).ReleaseUes(c.Context(), r)
		switch {
		case err != nil:
			return err
		case released.GetCount() == 0 && len(names) == 0:
			return fmt.Errorf("N3iwf/%s has no UE that is connected", r.N3Iwf)
		}
		if released.GetCount() > 0 {
			fmt.Fprintf(l.Out(), "Releasing %s.\n", command.Plural(int(released.GetCount()), "UE", "UEs"))
		}
		if unknown := released.GetUnknown(); len(unknown) > 0 {
			return fmt.Errorf("no UE that is connected has the name %s; see `sluice get ues --state connected`", strings.Join(unknown, ", "))
		}
		return nil
	}
	return c
}
