// SPDX-License-Identifier: Apache-2.0

// Objects by state of the data plane: sessions by address, and routes by look-up.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

// finding are the flags of get that look for sessions, or look up a route.
type finding struct {
	address, mac, circuit, vrf, route string
}

var lookUpFlags = []string{"address", "mac", "circuit", "lookup"}

func (p *program) findingFlags(c *cobra.Command) *finding {
	f := &finding{}
	c.Flags().StringVar(&f.address, "address", "", "only the sessions that have this IP address")
	c.Flags().StringVar(&f.mac, "mac", "", "only the sessions of this Ethernet address, configured or learned")
	c.Flags().StringVar(&f.circuit, "circuit", "", "only the sessions of this circuit: PORT, PORT:OUTER or PORT:OUTER.INNER")
	c.Flags().StringVar(&f.route, "lookup", "", "with routes: where the data plane sends packets to this IP address")
	c.Flags().StringVar(&f.vrf, "vrf", "", "with --address and --lookup: the VRF of the address (default \"default\")")
	c.MarkFlagsMutuallyExclusive(lookUpFlags...)
	complete(c, "vrf", p.namesOf("Vrf"))
	return f
}

// search returns the search; nil: no search is asked for.
func (f *finding) search() (*api.SessionSearch, error) {
	switch {
	case f.address != "":
		return &api.SessionSearch{Address: f.address, Vrf: f.vrf}, nil
	case f.vrf != "" && f.route == "":
		return nil, errors.New("--vrf goes with --address or --lookup")
	case f.mac != "":
		return &api.SessionSearch{Mac: f.mac}, nil
	case f.circuit == "":
		return nil, nil
	}
	port, tags, tagged := strings.Cut(f.circuit, ":")
	q := &api.SessionSearch{Port: port}
	if !tagged {
		return q, nil
	}
	for i, text := range strings.SplitN(tags, ".", 2) {
		vlan, err := strconv.ParseUint(text, 10, 32)
		if err != nil || vlan > 4094 || port == "" {
			return nil, fmt.Errorf("--circuit %q: accepted: PORT, PORT:OUTER or PORT:OUTER.INNER, such as access:100.7", f.circuit)
		}
		if i == 0 {
			q.OuterVlan = uint32(vlan)
		} else {
			q.InnerVlan = uint32(vlan)
		}
	}
	return q, nil
}

// what describes the search.
func (f *finding) what() string {
	switch {
	case f.address != "" && f.vrf != "":
		return "address " + f.address + " in VRF " + f.vrf
	case f.address != "":
		return "address " + f.address + " in VRF default; --vrf selects another one"
	case f.mac != "":
		return "Ethernet address " + f.mac
	}
	return "circuit " + f.circuit
}

// sessions adds to a query the names of the sessions that are looked for. False: there are none.
func (f *finding) sessions(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery) (bool, error) {
	search, err := f.search()
	if err != nil || search == nil {
		return true, err
	}
	if len(query.GetKinds()) != 1 || query.GetKinds()[0] != "Session" || len(query.GetNames()) > 0 {
		return false, errors.New("--address, --mac and --circuit are for `sluice get sessions`, without names")
	}
	found, err := read[*api.SessionNames](ctx, client, search)
	if err != nil {
		return false, err
	}
	query.Names = found.GetSessions()
	return len(query.Names) > 0, nil
}

// lookUpRoute shows where packets to an address go.
func (p *program) lookUpRoute(ctx context.Context, client api.AgentClient, f *finding, query *api.ObjectsQuery, output string) error {
	if len(query.GetKinds()) != 1 || query.GetKinds()[0] != "Route" || len(query.GetNames()) > 0 || conditionText(query) != "" {
		return errors.New("--lookup is for `sluice get routes`, without names and selectors")
	}
	if output == "name" {
		return errors.New("--lookup goes with -o table, json, yaml or jsonpath: not every prefix is an object")
	}
	if output == "wide" {
		output = "table"
	}
	lookUp := &api.RouteLookUpQuery{Vrf: f.vrf, Address: f.route}
	return p.showState(ctx, client, p.registry.StateOf(lookUp.ProtoReflect().Descriptor().FullName()), lookUp, output)
}
