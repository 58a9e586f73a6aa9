// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/server"
)

const filterHelp = `FILTER is one of tcpdump's (pcap-filter(7)); several words need no quotes unless the shell needs them. Without one, every
packet matches. A filter sees the packet behind up to two VLAN tags and PPPoE, and also the packet in a GTP-U tunnel:
'host 192.0.2.9 and icmp' needs no more. A filter that names VLAN tags sees the frame as tcpdump does, and has to name all of
them: 'vlan 100 and vlan 7 and ip', or whatever their numbers 'vlan and vlan and pppoes'.`

func (p *program) traceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "trace [--session NAME] [FILTER]",
		Short: "Follow packets through the data plane, node by node",
		Long: `Follow packets that match the filter: each node they visit with the fields that it sees, and at the end the port by which they
left or the drop reason. With --session, only packets from and to this subscriber.

` + filterHelp,
		Example: `  sluice trace 'host 192.0.2.9 and icmp'
  sluice trace --session alice
  sluice trace --session alice --count 1 icmp6
  sluice trace 'vlan 100 and vlan 7 and host 192.0.2.9'
  sluice trace --count 100 -o json 'vlan and vlan and pppoes' | jq -r .end | sort | uniq -c`,
	}
	output := outputFlag(c, "table", "json")
	packets := c.Flags().Uint32("count", 10, "end after this number of packets, at most 10,000")
	session := c.Flags().String("session", "", "only packets of this session, in both directions")
	concepts := p.sessionFlags(c)
	for _, s := range concepts {
		c.Example = strings.Replace(c.Example, "alice\n", "alice\n  sluice trace --"+s.Flag+" "+s.TraceExample+"\n", 1)
	}
	complete(c, "session", p.namesOf("Session"))
	c.RunE = func(c *cobra.Command, arguments []string) error {
		if *packets == 0 || *packets > 10000 {
			return fmt.Errorf("--count %d: accepted: 1 to 10000", *packets)
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		if found, err := p.chosenSession(c, concepts, "session"); err != nil {
			return err
		} else if found != "" {
			*session = found
		}
		stream, err := client.FollowPackets(c.Context(), &api.Trace{Filter: strings.Join(arguments, " "), Count: *packets, Session: *session})
		if err == nil {
			err = begun(c.Context(), stream)
		}
		if err != nil {
			return filtered(err, strings.Join(arguments, " "))
		}
		fmt.Fprintf(p.err, "Waiting for %s; Ctrl-C ends.\n", plural(int(*packets), "packet", "packets"))
		n, err := receive(c.Context(), stream, func(packet *api.TracedPacket) error {
			if *output == "json" {
				return p.write("json", true, traceJSON(packet))
			}
			return p.printTrace(packet)
		})
		if err == nil && n == 0 && c.Context().Err() != nil {
			fmt.Fprintln(p.err, "No packet matched.")
		}
		return err
	}
	return c
}

// filtered adds the filter to its error.
func filtered(err error, filter string) error {
	why := wrongWith(status.Convert(err), "filter")
	if why == "" {
		return err
	}
	why = strings.TrimPrefix(strings.TrimSuffix(why, fmt.Sprintf(" in %q", filter)), "can't parse filter expression: ")
	return fmt.Errorf("filter %q: %s; see pcap-filter(7)", filter, why)
}

// begun waits until the data plane has begun with a stream, or refused it.
func begun[M any](ctx context.Context, stream grpc.ServerStreamingClient[M]) error {
	header, err := stream.Header()
	if err == nil && header == nil {
		_, err = stream.Recv()
	}
	if ctx.Err() != nil {
		// Ctrl-C came first; receive notices.
		return nil
	}
	return err
}

// receive calls each for every message of a stream until its end, Ctrl-C included, and reports missing packets.
func receive[M any](ctx context.Context, stream grpc.ServerStreamingClient[M], each func(*M) error) (int, error) {
	for n := 0; ; n++ {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			if lost := stream.Trailer().Get(server.LostTrailer); len(lost) == 1 && lost[0] != "0" {
				return n, fmt.Errorf("%s packets are missing, because they came faster than they could be written", lost[0])
			}
			return n, nil
		case err != nil:
			return n, err
		}
		if err := each(m); err != nil {
			return n, err
		}
	}
}

type stepTraceJSON struct {
	Node string `json:"node"`
	Saw  string `json:"saw"`
	At   uint64 `json:"at"`
}

func traceJSON(packet *api.TracedPacket) any {
	steps := []stepTraceJSON{}
	for _, s := range packet.GetSteps() {
		steps = append(steps, stepTraceJSON{s.GetNode(), s.GetSaw(), s.GetAt()})
	}
	return struct {
		Steps []stepTraceJSON `json:"steps"`
		End   string          `json:"end"`
	}{steps, packet.GetEnd()}
}

func (p *program) printTrace(packet *api.TracedPacket) error {
	p.traced++
	var b strings.Builder
	if p.traced > 1 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "packet %d\n", p.traced)
	t := table{indent: "  ", heading: []string{">NS", "NODE", "SAW"}}
	for _, s := range packet.GetSteps() {
		t.add(fmt.Sprint(s.GetAt()), s.GetNode(), strings.ReplaceAll(s.GetSaw(), "\n", " "))
	}
	if err := t.write(&b); err != nil {
		return err
	}
	fmt.Fprintf(&b, "  => %s\n", packet.GetEnd())
	_, err := io.WriteString(p.out, b.String())
	return err
}
