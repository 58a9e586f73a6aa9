// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

func (p *program) captureCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "capture [--node NODE | --session NAME] -w FILE|- [FILTER]",
		Short: "Write packets to a pcap file",
		Long: `Write packets to a pcap file (nanoseconds, Ethernet) until --count or Ctrl-C: the packets of a node; the packets of a session,
each once, as it comes in from the subscriber or leaves to the subscriber; or without either all packets, as they come in and
again as they leave.

` + filterHelp,
		Example: `  sluice capture -w all.pcap
  sluice capture --session alice -w alice.pcap --count 1000
  sluice capture --node gtpu-encap -w - 'udp port 53' | tcpdump -nr -`,
	}
	query := &api.Capture{}
	c.Flags().StringVar(&query.Node, "node", "", "the packets that enter this node of the graph")
	c.Flags().StringVar(&query.Session, "session", "", "the packets of this session")
	c.Flags().Uint64Var(&query.Count, "count", 0, "end after this number of packets (0: at Ctrl-C)")
	c.Flags().Uint32Var(&query.SnapLength, "snap-length", 0, "bytes of each packet (0: all)")
	concepts := p.sessionFlags(c)
	for _, s := range concepts {
		c.Example = strings.Replace(c.Example, "1000\n", "1000\n  sluice capture --"+s.Flag+" "+s.CaptureExample+" -w alice.pcap\n", 1)
	}
	path := c.Flags().StringP("write", "w", "", "pcap file, or - for standard output")
	if err := c.MarkFlagFilename("write", "pcap"); err != nil {
		panic(err) // only if the flag of the line before does not exist
	}
	complete(c, "node", p.nodeNames)
	complete(c, "session", p.namesOf("Session"))
	c.RunE = func(c *cobra.Command, arguments []string) (err error) {
		if *path == "" {
			return errors.New("the file is missing: -w FILE, or -w - for standard output")
		}
		if query.GetNode() != "" && query.GetSession() != "" {
			return errors.New("use either --node or --session")
		}
		if _, columns := p.screen(); *path == "-" && columns > 0 {
			return errors.New("-w -: a terminal cannot show a pcap file; send it to a file or to tcpdump -nr -")
		}
		if found, err := p.chosenSession(c, concepts, "node", "session"); err != nil {
			return err
		} else if found != "" {
			query.Session = found
		}
		query.Filter = strings.Join(arguments, " ")
		client, err := p.client()
		if err != nil {
			return err
		}
		stream, err := client.CapturePackets(c.Context(), query)
		if err == nil {
			err = begun(c.Context(), stream)
		}
		if err != nil {
			return filtered(err, query.GetFilter())
		}
		out := p.out.to
		if *path != "-" {
			// Captures hold packets of subscribers.
			f, e := os.OpenFile(*path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			if e != nil {
				return e
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			out = f
		}
		w := bufio.NewWriterSize(out, 1<<16)
		if err := pcapHeader(w, query.GetSnapLength()); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(p.err, "Capturing; Ctrl-C ends.")
		n, err := receive(c.Context(), stream, func(packet *api.CapturedPacket) error {
			if err := pcapPacket(w, packet.GetTime(), packet.GetLength(), packet.GetBytes()); err != nil {
				return err
			}
			// The reader of a pipe may show packets live.
			return w.Flush()
		})
		if err := ignorePipe(err); err != nil {
			return err
		}
		fmt.Fprintf(p.err, "%s captured.\n", plural(n, "packet", "packets"))
		return nil
	}
	return c
}

// ignorePipe removes the error of a reader that closed the pipe.
func ignorePipe(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
