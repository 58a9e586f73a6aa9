// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
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
		Long: `Show the work of the data plane, live: sessions with their rates and user names, the busiest first; ports; drops by name; and by
node the cycles that each packet took. LOST are packets that a port's device missed, received damaged or could not send. On
a terminal the screen is drawn again until Ctrl-C, with as many rows as fit; elsewhere each interval is plain text.`,
		Example: `  sluice top
  sluice top --once
  sluice top --interval 5s --count 12 -o json | jq .totals`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json")
	var interval time.Duration
	spanFlag(c, &interval, "interval", time.Second, "interval over which rates are measured")
	times := c.Flags().Int("count", 0, "end after this number of intervals (0: at Ctrl-C)")
	once := c.Flags().Bool("once", false, "one interval: the same as --count 1")
	rows := c.Flags().Int("sessions", 0, "sessions shown (0: what fits the terminal, else 20)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if interval < 10*time.Millisecond {
			return fmt.Errorf("--interval %v: accepted: 10ms or more", interval)
		}
		if *once {
			*times = 1
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		return p.top(c.Context(), client, topOptions{interval, *times, *rows, *output == "json", *times > 0})
	}
	return c
}

// Sessions that are shown where there is no terminal.
const plainRows = 20

// Columns of a terminal from which on a row has the user name and the name of the session.
const bothNames = 130

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
		fmt.Fprint(p.out.to, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(p.out.to, "\x1b[?25h\x1b[?1049l")
	}
	var before *sample
	names := usernames{line: conceptLine{p}, of: p.conceptSessions(), known: map[string]string{}}
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
			// It may come back, and the screen then shows it.
			before = nil
			fmt.Fprintf(p.out.to, "\x1b[H\x1b[J%s\n", escaped(p.explain(err), "\n"))
		case err != nil:
			before = nil
			fmt.Fprintln(p.err, p.explain(err))
		case before == nil:
			before = now
		default:
			v := now.since(before)
			before = now
			shown++
			rows := len(v.Sessions)
			switch lines, _ := p.screen(); {
			case o.json:
			case o.rows > 0:
				rows = o.rows
			case screen:
				rows = lines
			default:
				rows = plainRows
			}
			names.fill(ctx, v.Sessions[:min(rows, len(v.Sessions))])
			var err error
			switch {
			case o.json:
				err = p.write("json", true, v)
			case screen:
				lines, columns := p.screen()
				var b strings.Builder
				room := lines
				if p.agent != DefaultAgent {
					// A second terminal needs it, and the screen hides earlier output.
					fmt.Fprintf(&b, "SLUICE_AGENT=%s\n", p.agent)
					room--
				}
				if err = v.print(&b, o.rows, room, columns); err == nil {
					_, err = io.WriteString(p.out.to, "\x1b[H"+fitted(escaped(b.String(), "\n"), lines, columns)+"\x1b[J")
				}
			default:
				if shown > 1 {
					fmt.Fprintln(p.out)
				}
				_, columns := p.screen()
				err = v.print(p.out, rows, 0, columns)
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

// fitted cuts text to a screen, and clears the rest of each line.
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

// print writes the view, of each part the busiest: so many sessions, and all of the rest; or, on a screen of so many lines, as
// many of each as there is room for. Columns 0: as wide as it is.
func (v *view) print(w io.Writer, rows, lines, columns int) error {
	t := v.Totals
	fmt.Fprintf(w, "%s, %d active   drops %s/s   %s UTC\nup %s %s   down %s %s\n",
		plural(t.Sessions, "session", "sessions"), t.ActiveSessions, human(t.DropRate), v.Time.Format("15:04:05"),
		withUnit(t.UpPacketRate, "pps"), bitRate(t.UpBitRate), withUnit(t.DownPacketRate, "pps"), bitRate(t.DownBitRate))
	// Headings are so short that 80 columns hold them and a name.
	heading := []string{"SESSION", ">UP PPS", ">UP BIT/S", ">DOWN PPS", ">DOWN BIT/S", ">UP PKTS", ">DOWN PKTS", ">DROPS"}
	named := slices.ContainsFunc(v.Sessions, func(r sessionRate) bool { return r.Username != "" })
	// A narrow terminal has no room for both names.
	alone := named && columns > 0 && columns < bothNames
	switch {
	case alone:
		heading[0] = "SUBSCRIBER"
	case named:
		heading = slices.Insert(heading, 0, "USERNAME")
	}
	sessions := topTable(columns, heading...)
	for _, r := range v.Sessions {
		cells := []string{r.Name, human(r.UpPacketRate), human(r.UpBitRate), human(r.DownPacketRate), human(r.DownBitRate),
			count(r.UpPackets), count(r.DownPackets), count(r.Drops)}
		switch {
		case alone:
			cells[0] = cmp.Or(r.Username, r.Name)
		case named:
			cells = slices.Insert(cells, 0, orDash(r.Username))
		}
		sessions.add(cells...)
	}
	ports := topTable(columns, "PORT", "LINK", ">RX PPS", ">RX BIT/S", ">TX PPS", ">TX BIT/S", ">RX PKTS", ">TX PKTS", ">LOST")
	for _, r := range v.Ports {
		link := "down"
		if r.LinkUp {
			link = "up"
		}
		ports.add(r.Name, link, human(r.RxPacketRate), human(r.RxBitRate), human(r.TxPacketRate), human(r.TxBitRate),
			count(r.RxPackets), count(r.TxPackets), count(r.RxMissed+r.RxNoBuffer+r.RxErrors+r.TxErrors))
	}
	drops := topTable(columns, "DROP", ">PPS", ">PACKETS", "WHAT IT MEANS")
	for _, r := range v.Drops {
		drops.add(r.Reason, human(r.Rate), count(r.Packets), r.Description)
	}
	nodes := topTable(columns, "NODE", ">PPS", ">PACKETS/CALL", ">CYCLES/PACKET")
	for _, r := range v.Nodes {
		nodes.add(r.Name, human(r.PacketRate), fmt.Sprintf("%.1f", r.PacketsPerCall), fmt.Sprintf("%.0f", r.CyclesPerPacket))
	}
	parts := []*table{sessions, ports, drops, nodes}
	if rows > 0 {
		sessions.rows = sessions.rows[:min(rows, len(sessions.rows))]
	}
	if lines > 0 {
		// Leave lines for the two above, for the note about more sessions, and for the cursor.
		share(parts, lines-4)
	}
	for _, part := range parts {
		if len(part.rows) == 0 {
			continue
		}
		more := len(v.Sessions) - len(part.rows)
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := part.write(w); err != nil {
			return err
		}
		if part == sessions && more > 0 {
			fmt.Fprintf(w, "... and %d more\n", more)
		}
	}
	return nil
}

func topTable(columns int, heading ...string) *table {
	return &table{heading: heading, gap: 2, columns: columns}
}

// share gives each table in turn room for one more row, until nothing is left of the lines or of the rows; at least one each.
func share(parts []*table, lines int) {
	room := make([]int, len(parts))
	for given := true; given; {
		given = false
		for i, part := range parts {
			price := 1
			if room[i] == 0 {
				price = 3 // an empty line and the heading
			}
			if room[i] < len(part.rows) && (lines >= price || room[i] == 0) {
				room[i]++
				lines -= price
				given = true
			}
		}
	}
	for i, part := range parts {
		part.rows = part.rows[:room[i]]
	}
}
