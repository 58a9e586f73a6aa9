// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

type dropJSON struct {
	Reason      string `json:"reason"`
	Packets     uint64 `json:"packets"`
	Description string `json:"description"`
}

func (p *program) dropsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drops",
		Short: "Show how many packets were dropped, by reason",
		Long: `Show how many packets were dropped since the data plane started, by reason. Every drop has a reason.

Packets that the data plane consumes, such as ARP replies that it learns from, are not drops. They are shown separately, and as
JSON or YAML with --consumed. They are not counted by session.`,
		Example: `  sluice drops
  sluice drops --session alice
  sluice drops --interface core -o json`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json", "yaml", jsonPathFormat)
	query := &api.DropCountersQuery{}
	c.Flags().StringVar(&query.Interface, "interface", "", "only of packets of this interface")
	c.Flags().StringVar(&query.Session, "session", "", "only of packets of this session")
	consumed := c.Flags().Bool("consumed", false, "only consumed packets, which are not drops")
	complete(c, "interface", p.namesOf("Interface"))
	complete(c, "session", p.namesOf("Session"))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if query.GetInterface() != "" && query.GetSession() != "" {
			return errors.New("use either --interface or --session")
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		list, err := read[*api.DropCountersList](c.Context(), client, query)
		if err != nil {
			return err
		}
		sortDrops(list)
		shown := list.GetDrops()
		if *consumed {
			shown = list.GetConsumed()
		}
		if *output != "table" {
			all := []dropJSON{}
			for _, d := range shown {
				all = append(all, dropJSON{d.GetReason(), d.GetPackets(), d.GetDescription()})
			}
			return p.write(*output, false, all)
		}
		if *consumed {
			list.Drops = nil
		} else if len(list.GetDrops()) == 0 {
			fmt.Fprintln(p.err, "No packet was dropped.")
		}
		return writeDrops(p.out, "", list)
	}
	return c
}

func sortDrops(list *api.DropCountersList) {
	for _, all := range [][]*api.DropCounters{list.GetDrops(), list.GetConsumed()} {
		slices.SortFunc(all, func(a, b *api.DropCounters) int {
			return cmp.Or(cmp.Compare(b.GetPackets(), a.GetPackets()), cmp.Compare(a.GetReason(), b.GetReason()))
		})
	}
}

// writeDrops writes a table of drops, and one of packets that are none.
func writeDrops(w io.Writer, indent string, list *api.DropCountersList) error {
	sortDrops(list)
	if len(list.GetDrops()) > 0 {
		if err := dropTable(indent, "DROP", list.GetDrops()).write(w); err != nil {
			return err
		}
	}
	if len(list.GetConsumed()) == 0 {
		return nil
	}
	if len(list.GetDrops()) > 0 {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	return dropTable(indent, "CONSUMED, NOT DROPPED", list.GetConsumed()).write(w)
}

func dropTable(indent, heading string, all []*api.DropCounters) *table {
	t := &table{indent: indent, heading: []string{heading, ">PACKETS", "WHAT IT MEANS"}}
	for _, d := range all {
		t.add(d.GetReason(), exact(d.GetPackets()), d.GetDescription())
	}
	return t
}

func (p *program) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program, the agent and the data plane",
		Long: `Show the versions of this program, the agent and the data plane. It fails, with exit status 1, if the agent does not answer or
is not connected to all its data planes.`,
		Example: `  sluice version
  sluice version -o json`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json", "yaml", jsonPathFormat)
	c.RunE = func(c *cobra.Command, _ []string) error {
		type dataplaneJSON struct {
			Name      string `json:"name,omitempty"`
			Endpoint  string `json:"endpoint"`
			Connected bool   `json:"connected"`
			Error     string `json:"error,omitempty"`
			Release   string `json:"release,omitempty"`
			DPDK      string `json:"dpdk,omitempty"`
			Workers   uint32 `json:"workers,omitempty"`
			// The CPU that the data plane is built for.
			CPU     string       `json:"cpu,omitempty"`
			LookUps []lookUpJSON `json:"lookUps,omitempty"`
			// The engine of each algorithm.
			Ciphers []lookUpJSON `json:"ciphers,omitempty"`
		}
		version := struct {
			Client    string            `json:"client"`
			Agent     string            `json:"agent,omitempty"`
			Objects   map[string]uint32 `json:"objects,omitempty"`
			Dataplane *dataplaneJSON    `json:"dataplane,omitempty"`
			// If there are several.
			Dataplanes []dataplaneJSON `json:"dataplanes,omitempty"`
		}{Client: Release()}
		client, err := p.client()
		var v *api.Version
		if err == nil {
			v, err = client.GetVersion(c.Context(), &api.VersionQuery{})
		}
		if err == nil {
			version.Agent, version.Objects = v.GetRelease(), v.GetObjects()
			for _, link := range v.GetDataplanes() {
				g := link.GetGreeting()
				version.Dataplanes = append(version.Dataplanes, dataplaneJSON{link.GetName(), link.GetEndpoint(), link.GetConnected(), link.GetError(),
					g.GetRelease(), g.GetDpdk(), g.GetWorkers(), g.GetCpu(), lookUps(g.GetLookUps()), lookUps(g.GetCiphers())})
			}
			if version.Dataplane = &version.Dataplanes[0]; len(version.Dataplanes) == 1 {
				version.Dataplane.Name, version.Dataplanes = "", nil
			}
		}
		away := func() error {
			if err != nil {
				return err
			}
			if len(version.Dataplanes) == 0 && !version.Dataplane.Connected {
				return errors.New("the agent is not connected to the data plane")
			}
			var names []string
			for _, d := range version.Dataplanes {
				if !d.Connected {
					names = append(names, d.Name)
				}
			}
			if len(names) > 0 {
				return fmt.Errorf("the agent is not connected to %s", strings.Join(names, ", "))
			}
			return nil
		}
		if *output != "table" {
			if e := p.write(*output, false, version); e != nil {
				return e
			}
			return away()
		}
		fmt.Fprintf(p.out, "sluice      %s\n", version.Client)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "agent       %s at %s\n", version.Agent, p.agent)
		all := version.Dataplanes
		if len(all) == 0 {
			all = append(all, *version.Dataplane)
		}
		for _, d := range all {
			name := ""
			if d.Name != "" {
				name = d.Name + ": "
			}
			if d.Connected {
				fmt.Fprintf(p.out, "data plane  %s%s at %s, DPDK %s, %s, built for %s\n", name, d.Release, d.Endpoint, strings.TrimPrefix(d.DPDK, "DPDK "),
					plural(int(d.Workers), "worker", "workers"), d.CPU)
				if len(d.LookUps) > 0 {
					fmt.Fprintf(p.out, "            looks up %s\n", lookUpsText(d.LookUps))
				}
				if len(d.Ciphers) > 0 {
					fmt.Fprintf(p.out, "            encrypts by %s\n", ciphersText(d.Ciphers))
				}
			} else {
				fmt.Fprintf(p.out, "data plane  %snot connected: %s\n", name, d.Error)
			}
		}
		return away()
	}
	return c
}
