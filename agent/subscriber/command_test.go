// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/command"
)

// line is a command line whose agent has subscribers.
type line struct {
	grpc.ClientConnInterface
	bytes.Buffer
	all     []*api.SubscriberState
	queries []*api.SubscribersQuery
	err     error
	// The request of a disconnect, and how many it ends.
	ended *api.SubscribersDisconnection
	count uint32
}

func (l *line) Connect() (grpc.ClientConnInterface, error) { return l, nil }
func (l *line) Out() io.Writer                             { return &l.Buffer }
func (l *line) Dataplane() string                          { return "north" }
func (l *line) OutputFlag(c *cobra.Command, formats ...string) *string {
	return c.Flags().StringP("output", "o", formats[0], "")
}

func (l *line) ReadState(_ context.Context, query proto.Message) (proto.Message, error) {
	q := query.(*api.SubscribersQuery)
	l.queries = append(l.queries, q)
	if l.err != nil {
		return nil, l.err
	}
	found := &api.SubscriberStates{}
	for _, s := range l.all {
		if (q.Session == "" || q.Session == s.Session) && (q.Username == "" || q.Username == s.Username) && (q.Mac == "" || q.Mac == s.Mac) &&
			(q.Address == "" || q.Address == s.Ipv4Address) && (q.Id == "" || q.Id == s.Id) {
			found.Subscribers = append(found.Subscribers, s)
		}
	}
	return found, nil
}

func (l *line) WriteState(_, answer proto.Message, format string) error {
	fmt.Fprintf(l, "%s of %d\n", format, len(answer.(*api.SubscriberStates).Subscribers))
	return nil
}

func (l *line) Invoke(_ context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	l.ended = request.(*api.SubscribersDisconnection)
	reply.(*api.DisconnectedSubscribers).Count = l.count
	return nil
}

func TestOperatorsShowAndDisconnectSubscribers(t *testing.T) {
	for _, c := range []struct {
		words    string
		count    uint32
		out, err string
	}{
		{"show --username alice", 0, "yaml of 1\n", ""},
		{"show --address 100.64.0.8 -o json", 0, "json of 1\n", ""},
		{"show --username carol", 0, "", "no subscriber that is up matches; see `sluice subscriber list`"},
		{"disconnect --username alice", 1, "Disconnected 1 subscriber.\n", ""},
		{"disconnect --all", 2, "Disconnected 2 subscribers.\n", ""},
		{"disconnect --username carol", 0, "", "no subscriber that is up matches; see `sluice subscriber list`"},
		{"disconnect carol", 0, "", "no subscriber has the session carol; see `sluice subscriber list`; by user name: --username carol"},
	} {
		l := &line{count: c.count, all: []*api.SubscriberState{{Username: "alice"}, {Username: "bob", Ipv4Address: "100.64.0.8"}}}
		command := commands(l)[0]
		if !command.HasAlias("session") {
			t.Error(command.Aliases)
		}
		command.SilenceErrors, command.SilenceUsage = true, true
		command.SetArgs(strings.Fields(c.words))
		problem := ""
		if err := command.Execute(); err != nil {
			problem = err.Error()
		}
		if problem != c.err || l.String() != c.out {
			t.Errorf("%s: %q, %q", c.words, l.String(), problem)
		}
		if ends := strings.HasPrefix(c.words, "disconnect"); ends != (l.ended != nil) || ends && l.ended.GetWhich().GetDataplane() != "north" {
			t.Errorf("%s: %v", c.words, l.ended)
		}
	}
}

func TestASessionIsFoundByWhatASubscriberHas(t *testing.T) {
	l := &line{all: []*api.SubscriberState{{Session: "pppoe-1", Id: "7", Username: "alice", Mac: "02:00:00:00:00:01", Ipv4Address: "100.64.0.7"},
		{Session: "pppoe-2", Id: "8", Username: "bob"}, {Session: "pppoe-3", Id: "9", Username: "bob"}, {Session: "ipoe-1", Id: "10", Username: "02:00:00:00:00:09"}}}
	for name, want := range map[string]string{
		"alice": "pppoe-1", "7": "pppoe-1", "02:00:00:00:00:01": "pppoe-1", "100.64.0.7": "pppoe-1", "02:00:00:00:00:09": "ipoe-1",
		"bob":   "--subscriber bob: it has several sessions; choose one with --session, pppoe-2 or pppoe-3 or another",
		"carol": "--subscriber carol: no subscriber with this user name, MAC or address is up",
	} {
		session, err := sessions.Find(t.Context(), l, name)
		if err != nil {
			session = err.Error()
		}
		if session != want {
			t.Errorf("%s: %s", name, session)
		}
	}
}

func TestUserNamesOfFewSessionsAreQueriedOneByOne(t *testing.T) {
	l, names := &line{}, []string{}
	for i := range usernamesEach + 1 {
		l.all = append(l.all, &api.SubscriberState{Session: fmt.Sprint("s", i), Username: fmt.Sprint("u", i)})
		names = append(names, fmt.Sprint("s", i))
	}
	for n, queries := range map[int]int{3: 3, usernamesEach: usernamesEach, usernamesEach + 1: 1} {
		l.queries = nil
		found, err := sessions.Usernames(t.Context(), l, append([]string{"static"}, names[1:n]...))
		if err != nil || len(l.queries) != queries || found["static"] != "" || found["s2"] != "u2" || l.queries[0].GetDataplane() != "north" {
			t.Errorf("%d sessions: %d queries, %v, %v", n, len(l.queries), found, err)
		}
	}
	l.err = status.Error(codes.Unavailable, "")
	if _, err := sessions.Usernames(t.Context(), l, names[:1]); err == nil {
		t.Error("no error although the agent does not answer")
	}
}

func TestTheAuditLogHasTheSelectorsOfADisconnect(t *testing.T) {
	for want, q := range map[string]*api.SubscribersDisconnection{
		"all":                                    {All: true},
		"username=alice dataplane=north vrf=red": {Which: &api.SubscribersQuery{Username: "alice", Vrf: "red", Dataplane: "north"}},
		"all dataplane=north":                    {All: true, Which: &api.SubscribersQuery{Dataplane: "north"}},
		`service="a b" outer-vlan=7`:             {Which: &api.SubscribersQuery{Service: "a b", OuterVlan: 7, Limit: 9, Page: "p"}},
	} {
		var e audit.Entry
		rpc.Methods["DisconnectSubscribers"].Entry(&e, q, &api.DisconnectedSubscribers{Count: 2})
		if e.Count != 2 || len(e.Attributes) != 1 || !e.Attributes[0].Equal(slog.String("subscribers", want)) {
			t.Errorf("%+v, not %s", e, want)
		}
	}
	// Each flag of the command.
	l := &line{count: 1}
	flags, _, err := commands(l)[0].Find([]string{"disconnect"})
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	flags.LocalFlags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	for _, name := range known {
		if name == "all" || name == "help" || name == "why" {
			continue
		}
		l := &line{count: 1}
		command := commands(l)[0]
		command.SetArgs([]string{"disconnect", "--" + name + "=1"})
		if err := command.Execute(); err != nil {
			t.Fatal(err)
		}
		if got, want := selected(l.ended), name+"=1"; !slices.Contains(strings.Fields(got), want) {
			t.Errorf("%q, not %s", got, want)
		}
	}
	if len(known) < 20 {
		t.Error(known)
	}
	// A session by its name, and the reason.
	command := commands(l)[0]
	command.SetArgs([]string{"disconnect", "pppoe-1", "--why=asked by phone"})
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	var e audit.Entry
	rpc.Methods["DisconnectSubscribers"].Entry(&e, l.ended, nil)
	if selected(l.ended) != "session=pppoe-1 dataplane=north" || e.Why != "asked by phone" {
		t.Error(l.ended)
	}
	command = commands(l)[0]
	command.SetArgs([]string{"disconnect", "pppoe-1", "--session=pppoe-2"})
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "--session") {
		t.Error(err)
	}
	l.ended = nil
	command = commands(l)[0]
	command.SetArgs([]string{"disconnect", "pppoe-1", "--all"})
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "--all") || l.ended != nil {
		t.Error(err)
	}
	e = audit.Entry{}
	rpc.Methods["DisconnectSubscribers"].Entry(&e, &api.SubscribersDisconnection{}, (*api.DisconnectedSubscribers)(nil))
	if e.Count != 0 || len(e.Attributes) != 0 {
		t.Errorf("%+v", e)
	}
}

var _ command.Line = (*line)(nil)
