package cli

import (
	"cmp"
	"errors"
	"fmt"
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
		Long:  `Show how many packets were dropped since the data plane started, by reason. Every drop has a name; none is silent.`,
		Example: `  sluice drops
  sluice drops --session alice
  sluice drops --interface core -o json`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json", "yaml")
	query := &api.DropCountersQuery{}
	c.Flags().StringVar(&query.Interface, "interface", "", "only of packets of this interface")
	c.Flags().StringVar(&query.Session, "session", "", "only of packets of this session")
	complete(c, "interface", p.namesOf("Interface"))
	complete(c, "session", p.namesOf("Session"))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if query.GetInterface() != "" && query.GetSession() != "" {
			return errors.New("say either --interface or --session")
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		list, err := client.GetDropCounters(c.Context(), query)
		if err != nil {
			return err
		}
		sortDrops(list)
		if *output != "table" {
			all := []dropJSON{}
			for _, d := range list.GetDrops() {
				all = append(all, dropJSON{d.GetReason(), d.GetPackets(), d.GetDescription()})
			}
			return p.write(*output, false, all)
		}
		if len(list.GetDrops()) == 0 {
			fmt.Fprintln(p.err, "No packet was dropped.")
			return nil
		}
		return dropTable("", list).write(p.out)
	}
	return c
}

func sortDrops(list *api.DropCountersList) {
	slices.SortFunc(list.GetDrops(), func(a, b *api.DropCounters) int {
		return cmp.Or(cmp.Compare(b.GetPackets(), a.GetPackets()), cmp.Compare(a.GetReason(), b.GetReason()))
	})
}

func dropTable(indent string, list *api.DropCountersList) *table {
	sortDrops(list)
	t := &table{indent: indent, heading: []string{"DROP", ">PACKETS", "WHAT IT MEANS"}}
	for _, d := range list.GetDrops() {
		t.add(d.GetReason(), exact(d.GetPackets()), d.GetDescription())
	}
	return t
}

type neighborJSON struct {
	Interface string `json:"interface"`
	Address   string `json:"address"`
	MAC       string `json:"mac,omitempty"`
	State     string `json:"state"`
}

func (p *program) neighborsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "neighbors",
		Short: "Show the Ethernet addresses of neighbours, learned by ARP and ND or configured",
		Long: `Show the Ethernet addresses that the data plane uses for its neighbours: those it learned by ARP and neighbour discovery and
those that Neighbor objects configure (` + "`sluice get neighbors`" + ` shows only the latter).`,
		Example: `  sluice neighbors
  sluice neighbors --interface core`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json", "yaml")
	only := c.Flags().String("interface", "", "only those of this interface")
	complete(c, "interface", p.namesOf("Interface"))
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := p.client()
		if err != nil {
			return err
		}
		all := []neighborJSON{}
		err = everyPage(func(page string) (string, error) {
			found, err := client.GetNeighborStates(c.Context(), &api.NeighborStatesQuery{Limit: 5000, Page: page})
			for _, n := range found.GetNeighbors() {
				if *only == "" || n.GetInterface() == *only {
					all = append(all, neighborJSON{n.GetInterface(), n.GetAddress(), n.GetMac(), n.GetState()})
				}
			}
			return found.GetNextPage(), err
		})
		if err != nil {
			return err
		}
		if *output != "table" {
			return p.write(*output, false, all)
		}
		if len(all) == 0 {
			fmt.Fprintln(p.err, "No neighbours.")
			return nil
		}
		t := table{heading: []string{"INTERFACE", "ADDRESS", "MAC", "STATE"}}
		for _, n := range all {
			t.add(n.Interface, n.Address, orDash(n.MAC), n.State)
		}
		return t.write(p.out)
	}
	return c
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
	output := outputFlag(c, "table", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		type dataplaneJSON struct {
			Name      string `json:"name,omitempty"`
			Endpoint  string `json:"endpoint"`
			Connected bool   `json:"connected"`
			Error     string `json:"error,omitempty"`
			Release   string `json:"release,omitempty"`
			DPDK      string `json:"dpdk,omitempty"`
			Workers   uint32 `json:"workers,omitempty"`
			// What kind of CPU it is built for.
			CPU     string       `json:"cpu,omitempty"`
			LookUps []lookUpJSON `json:"lookUps,omitempty"`
		}
		told := struct {
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
			told.Agent, told.Objects = v.GetRelease(), v.GetObjects()
			for _, link := range v.GetDataplanes() {
				g := link.GetGreeting()
				told.Dataplanes = append(told.Dataplanes, dataplaneJSON{link.GetName(), link.GetEndpoint(), link.GetConnected(), link.GetError(),
					g.GetRelease(), g.GetDpdk(), g.GetWorkers(), g.GetCpu(), lookUps(g)})
			}
			if told.Dataplane = &told.Dataplanes[0]; len(told.Dataplanes) == 1 {
				told.Dataplane.Name, told.Dataplanes = "", nil
			}
		}
		away := func() error {
			if err != nil {
				return err
			}
			if len(told.Dataplanes) == 0 && !told.Dataplane.Connected {
				return errors.New("the agent is not connected to the data plane")
			}
			var names []string
			for _, d := range told.Dataplanes {
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
			if e := p.write(*output, false, told); e != nil {
				return e
			}
			return away()
		}
		fmt.Fprintf(p.out, "sluice      %s\n", told.Client)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "agent       %s at %s\n", told.Agent, p.agent)
		all := told.Dataplanes
		if len(all) == 0 {
			all = append(all, *told.Dataplane)
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
			} else {
				fmt.Fprintf(p.out, "data plane  %snot connected: %s\n", name, d.Error)
			}
		}
		return away()
	}
	return c
}
