package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
)

func (p *program) topCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Show sessions, ports, drops and cycles per packet, live",
		Long: `Show what the data plane does, live: sessions with their rates, the busiest first; ports; drops by name; and by node the cycles
that each packet took. On a terminal the screen is drawn again until Ctrl-C; elsewhere each interval is plain text.`,
		Example: `  sluice top
  sluice top --once
  sluice top --interval 5s --count 12 -o json | jq .totals`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json")
	interval := c.Flags().Duration("interval", time.Second, "time between two looks, over which rates are")
	times := c.Flags().Int("count", 0, "end after so many looks (0: when you end it)")
	once := c.Flags().Bool("once", false, "look once: the same as --count 1")
	rows := c.Flags().Int("sessions", 0, "sessions shown (0: what fits the terminal, else 20)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *interval < 10*time.Millisecond {
			return fmt.Errorf("--interval %v: want at least 10ms", *interval)
		}
		if *once {
			*times = 1
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		return p.top(c.Context(), client, topOptions{*interval, *times, *rows, *output == "json", *times > 0})
	}
	return c
}

type topOptions struct {
	interval time.Duration
	times    int
	rows     int
	json     bool
	plain    bool
}

func (p *program) top(ctx context.Context, client api.AgentClient, o topOptions) error {
	height, _ := p.screen()
	screen := height > 0 && !o.json && !o.plain
	if screen {
		// The other screen, without a cursor; and back.
		fmt.Fprint(p.out, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(p.out, "\x1b[?25h\x1b[?1049l")
	}
	var before *sample
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for shown := 0; o.times == 0 || shown < o.times; {
		now, err := takeSample(ctx, client, p.now)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (o.times > 0 || before == nil && !screen || status.Code(err) != codes.Unavailable):
			return err
		case err != nil && screen:
			// It may come back, and whoever looks at a screen wants to see that.
			before = nil
			fmt.Fprintf(p.out, "\x1b[H\x1b[J%s\n", p.explain(err))
		case err != nil:
			before = nil
			fmt.Fprintln(p.err, p.explain(err))
		case before == nil:
			before = now
		default:
			v := now.since(before)
			before = now
			shown++
			var err error
			switch {
			case o.json:
				err = p.write("json", true, v)
			case screen:
				lines, columns := p.screen()
				var b strings.Builder
				if err = v.print(&b, o.rows, lines); err == nil {
					_, err = io.WriteString(p.out, "\x1b[H"+fitted(b.String(), lines, columns)+"\x1b[J")
				}
			default:
				rows := o.rows
				if rows == 0 {
					rows = 20
				}
				if shown > 1 {
					fmt.Fprintln(p.out)
				}
				err = v.print(p.out, rows, 0)
			}
			if err != nil {
				return err
			}
			if shown == o.times {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// fitted cuts text to a screen, and makes each line end what was drawn there before.
func fitted(text string, lines, columns int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	all = all[:min(len(all), max(lines-1, 1))]
	for i, line := range all {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns])
		}
		all[i] = line + "\x1b[K"
	}
	return strings.Join(all, "\n") + "\n"
}

// print writes the view; so many sessions, or, if 0, as many as the lines leave room for.
func (v *view) print(w io.Writer, rows, lines int) error {
	t := v.Totals
	fmt.Fprintf(w, "%s, %d active   up %s %s   down %s %s   drops %s/s   %s UTC\n\n",
		plural(t.Sessions, "session", "sessions"), t.ActiveSessions, withUnit(t.UpPacketRate, "pps"), bitRate(t.UpBitRate),
		withUnit(t.DownPacketRate, "pps"), bitRate(t.DownBitRate), human(t.DropRate), v.Time.Format("15:04:05"))
	var tail strings.Builder
	ports := table{heading: []string{"PORT", "LINK", ">RX PPS", ">RX BIT/S", ">TX PPS", ">TX BIT/S", ">RX PACKETS", ">TX PACKETS", ">MISSED", ">ERRORS"}}
	for _, r := range v.Ports {
		link := "down"
		if r.LinkUp {
			link = "up"
		}
		ports.add(r.Name, link, human(r.RxPacketRate), human(r.RxBitRate), human(r.TxPacketRate), human(r.TxBitRate),
			count(r.RxPackets), count(r.TxPackets), count(r.RxMissed+r.RxNoBuffer), count(r.RxErrors+r.TxErrors))
	}
	drops := table{heading: []string{"DROP", ">PPS", ">PACKETS", "WHAT IT MEANS"}}
	for _, r := range v.Drops {
		drops.add(r.Reason, human(r.Rate), count(r.Packets), r.Description)
	}
	nodes := table{heading: []string{"NODE", ">PPS", ">PACKETS/CALL", ">CYCLES/PACKET"}}
	for _, r := range v.Nodes {
		nodes.add(r.Name, human(r.PacketRate), fmt.Sprintf("%.1f", r.PacketsPerCall), fmt.Sprintf("%.0f", r.CyclesPerPacket))
	}
	for _, part := range []*table{&ports, &drops, &nodes} {
		if len(part.rows) == 0 {
			continue
		}
		tail.WriteString("\n")
		if err := part.write(&tail); err != nil {
			return err
		}
	}
	if rows == 0 {
		// The first line, an empty one, the heading, and what says that there are more.
		rows = max(lines-5-strings.Count(tail.String(), "\n"), 5)
	}
	sessions := table{heading: []string{"SESSION", ">UP PPS", ">UP BIT/S", ">DOWN PPS", ">DOWN BIT/S", ">UP PACKETS", ">DOWN PACKETS", ">DROPS"}}
	for i, r := range v.Sessions {
		if i == rows {
			break
		}
		sessions.add(r.Name, human(r.UpPacketRate), human(r.UpBitRate), human(r.DownPacketRate), human(r.DownBitRate),
			count(r.UpPackets), count(r.DownPackets), count(r.Drops))
	}
	if len(v.Sessions) > 0 {
		if err := sessions.write(w); err != nil {
			return err
		}
	}
	if more := len(v.Sessions) - rows; more > 0 {
		fmt.Fprintf(w, "... and %d more\n", more)
	}
	_, err := io.WriteString(w, tail.String())
	return err
}
