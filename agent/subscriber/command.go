// SPDX-License-Identifier: Apache-2.0

// Operators' commands for subscribers: the RPC and the commands beside operational state.
package subscriber

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/service"
)

// rpc is the gRPC service for operators.
var rpc = service.NewRPC[api.SubscribersServer](&api.Subscribers_ServiceDesc, map[string]service.Method{
	"DisconnectSubscribers": {Role: access.Operate, Action: "disconnect", Entry: entry},
})

// entry has the selectors of a disconnect, and the number of sessions that it ended.
func entry(e *audit.Entry, request, reply any) {
	d := request.(*api.SubscribersDisconnection)
	e.Why = d.GetWhy()
	if words := selected(d); words != "" {
		e.Attributes = []slog.Attr{slog.String("subscribers", words)}
	}
	if n, ok := reply.(*api.DisconnectedSubscribers); ok {
		e.Count = int(n.GetCount())
	}
}

// selected is a query as the command line writes it.
func selected(d *api.SubscribersDisconnection) string {
	var words []string
	if d.GetAll() {
		words = append(words, "all")
	}
	q := d.GetWhich().ProtoReflect()
	for i, all := 0, q.Descriptor().Fields(); i < all.Len(); i++ {
		// Of a list alone.
		if f := all.Get(i); q.Has(f) && f.Name() != "limit" && f.Name() != "page" {
			value := q.Get(f).String()
			if strings.ContainsFunc(value, func(r rune) bool { return r == '"' || r == ' ' || !strconv.IsPrint(r) }) {
				value = strconv.Quote(value)
			}
			words = append(words, strings.ReplaceAll(string(f.Name()), "_", "-")+"="+value)
		}
	}
	return strings.Join(words, " ")
}

// commands are the commands beside `sluice subscriber list`.
func commands(l command.Line) []*cobra.Command {
	c := &cobra.Command{
		Use:     "subscriber",
		Aliases: []string{"session"},
		Short:   "List, show and disconnect subscribers that are up",
		Long:    `List, show and disconnect subscribers: sessions that PPPoE or IPoE brought up.`,
		Example: `  sluice subscriber list
  sluice subscriber show --address 100.64.0.7
  sluice subscriber disconnect --username alice@example.net`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(showCommand(l), disconnectCommand(l))
	return []*cobra.Command{c}
}

// selectors adds flags that select subscribers.
func selectors(c *cobra.Command) *api.SubscribersQuery {
	q, f := &api.SubscribersQuery{}, c.Flags()
	f.StringVar(&q.Id, "id", "", "Acct-Session-Id")
	f.StringVar(&q.Session, "session", "", "name of the Session")
	f.StringVar(&q.Username, "username", "", "user name")
	f.StringVar(&q.Mac, "mac", "", "MAC of the subscriber")
	f.StringVar(&q.Circuit, "circuit", "", "port and VLANs, such as access:100.7; the port alone: all its circuits")
	f.StringVar(&q.Address, "address", "", "an address of the subscriber, or in its prefixes")
	f.StringVar(&q.Protocol, "protocol", "", "pppoe, dhcp4, dhcp6, dhcp-relay, first-packet or ike")
	f.StringVar(&q.Profile, "profile", "", "name of the SubscriberProfile")
	f.StringVar(&q.Vrf, "vrf", "", "VRF")
	f.StringVar(&q.CircuitId, "circuit-id", "", "circuit id that the access node added")
	f.StringVar(&q.RemoteId, "remote-id", "", "remote id that the access node added")
	f.StringVar(&q.Service, "service", "", "PPPoE Service-Name, or DHCP option 60")
	f.StringVar(&q.Portal, "portal", "", "walled garden that the subscriber is in")
	f.Uint32Var(&q.PppoeSessionId, "pppoe-session-id", 0, "PPPoE session id")
	f.Uint32Var(&q.OuterVlan, "outer-vlan", 0, "outer VLAN, or the only one")
	f.Uint32Var(&q.InnerVlan, "inner-vlan", 0, "inner VLAN")
	f.StringVar(&q.Route, "route", "", "a network that is routed to the subscriber, or an address in one")
	f.StringVar(&q.Gateway, "gateway", "", "the gateway's address on the subscriber's link")
	f.StringVar(&q.Dns, "dns", "", "a name server of the subscriber")
	return q
}

// matching returns the subscribers that match.
func matching(ctx context.Context, l command.Line, q *api.SubscribersQuery) ([]*api.SubscriberState, error) {
	found, err := l.ReadState(ctx, q)
	if err != nil {
		return nil, err
	}
	return found.(*api.SubscriberStates).GetSubscribers(), nil
}

var errNoMatch = errors.New("no subscriber that is up matches; see `sluice subscriber list`")

func showCommand(l command.Line) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show all details of subscribers",
		Example: `  sluice subscriber show --address 100.64.0.7
  sluice subscriber show --username alice@example.net -o json`,
		Args: cobra.NoArgs,
	}
	output := l.OutputFlag(c, "yaml", "json")
	q := selectors(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		all, err := matching(c.Context(), l, q)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return errNoMatch
		}
		return l.WriteState(q, &api.SubscriberStates{Subscribers: all}, *output)
	}
	return c
}

func disconnectCommand(l command.Line) *cobra.Command {
	c := &cobra.Command{
		Use:   "disconnect [SESSION]",
		Short: "End sessions of subscribers",
		Long: `End the session with this name, or the sessions of the subscribers that match all selectors. Accounting records have the cause Admin Reset, and
the audit file of the agent's configuration has the reason.`,
		Example: `  sluice subscriber disconnect pppoe-18c5d0a3b1e2f400
  sluice subscriber disconnect --username alice@example.net --why 'asked by phone'
  sluice subscriber disconnect --all`,
		Args: cobra.MaximumNArgs(1),
	}
	q := selectors(c)
	all := c.Flags().Bool("all", false, "all subscribers")
	why := c.Flags().String("why", "", "reason, for the audit")
	c.RunE = func(c *cobra.Command, names []string) error {
		if len(names) > 0 {
			if q.Session != "" {
				return fmt.Errorf("%s: the session is also in --session; accepted: one of the two", names[0])
			}
			q.Session = names[0]
		}
		connection, err := l.Connect()
		if err != nil {
			return err
		}
		if *all && selected(&api.SubscribersDisconnection{Which: q}) != "" {
			return errors.New("--all with a session or selectors; accepted: one of the two")
		}
		q.Dataplane = l.Dataplane()
		ended, err := api.NewSubscribersClient(connection).DisconnectSubscribers(c.Context(), &api.SubscribersDisconnection{Which: q, All: *all, Why: *why})
		if err != nil {
			return err
		}
		if ended.GetCount() == 0 && len(names) > 0 {
			return fmt.Errorf("no subscriber has the session %s; see `sluice subscriber list`; by user name: --username %s", names[0], names[0])
		}
		if ended.GetCount() == 0 {
			return errNoMatch
		}
		fmt.Fprintf(l.Out(), "Disconnected %s.\n", command.Plural(int(ended.GetCount()), "subscriber", "subscribers"))
		return nil
	}
	return c
}

// sessions are the subscribers' for trace, capture and top.
var sessions = &command.Sessions{
	Flag:         "subscriber",
	Usage:        "the user name, MAC or an address of a subscriber that is up",
	TraceExample: "100.64.0.7", CaptureExample: "alice@example.net",
	Find: sessionOf, Usernames: usernames,
}

// sessionOf returns the session of the one subscriber with a user name, a MAC, an address or an Acct-Session-Id.
func sessionOf(ctx context.Context, l command.Line, name string) (string, error) {
	queries := []*api.SubscribersQuery{{Username: name}, {Id: name}}
	if _, err := net.ParseMAC(name); err == nil {
		queries = []*api.SubscribersQuery{{Mac: name}, {Username: name}}
	} else if _, err := netip.ParseAddr(name); err == nil {
		queries = []*api.SubscribersQuery{{Address: name}, {Username: name}}
	}
	for _, q := range queries {
		q.Limit = 2
		found, err := matching(ctx, l, q)
		switch {
		case err != nil:
			return "", err
		case len(found) == 1:
			return found[0].GetSession(), nil
		case len(found) > 1:
			return "", fmt.Errorf("--subscriber %s: it has several sessions; choose one with --session, %s or %s or another", name,
				found[0].GetSession(), found[1].GetSession())
		}
	}
	return "", fmt.Errorf("--subscriber %s: no subscriber with this user name, MAC or address is up", name)
}

// usernamesEach is the number of sessions that are queried one by one. More are found in a list of all subscribers.
const usernamesEach = 64

// usernames returns the user names of sessions.
func usernames(ctx context.Context, l command.Line, sessions []string) (map[string]string, error) {
	queries := []*api.SubscribersQuery{{Dataplane: l.Dataplane()}}
	if len(sessions) <= usernamesEach {
		queries = nil
		for _, name := range sessions {
			queries = append(queries, &api.SubscribersQuery{Session: name, Dataplane: l.Dataplane(), Limit: 1})
		}
	}
	names := map[string]string{}
	for _, q := range queries {
		found, err := matching(ctx, l, q)
		if err != nil {
			return names, err
		}
		for _, s := range found {
			names[s.GetSession()] = s.GetUsername()
		}
	}
	return names, nil
}
