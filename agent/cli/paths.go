package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

type pathJSON struct {
	VRF       string    `json:"vrf"`
	Local     string    `json:"localAddress"`
	Remote    string    `json:"remoteAddress"`
	State     string    `json:"state"`
	Changed   time.Time `json:"changed"`
	Tunnels   uint32    `json:"tunnels"`
	Requests  uint64    `json:"requests"`
	Responses uint64    `json:"responses"`
	Failures  uint64    `json:"failures"`
	Restarts  uint64    `json:"restarts"`
}

func (p *program) pathsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "paths",
		Short: "Show the GTP-U paths to user plane functions, and whether they answer",
		Long: `Show the GTP-U paths to user plane functions. Each is there as long as a session's tunnel uses it, and is asked now and then
by an echo request (GtpuPeer objects say how often). "unanswered" never answered and is used all the same; "down" answered once
and does no longer: what sessions send into it is dropped.`,
		Example: `  sluice paths
  sluice paths -o json`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := p.client()
		if err != nil {
			return err
		}
		all := []pathJSON{}
		err = everyPage(func(page string) (string, error) {
			found, err := client.GetGtpuPaths(c.Context(), &api.GtpuPathsQuery{Limit: 5000, Page: page})
			for _, path := range found.GetPaths() {
				all = append(all, pathJSON{path.GetVrf(), path.GetLocalAddress(), path.GetRemoteAddress(), path.GetState(),
					time.Unix(0, int64(path.GetChanged())).UTC(), path.GetTunnels(), path.GetRequests(), path.GetResponses(),
					path.GetFailures(), path.GetRestarts()})
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
			fmt.Fprintln(p.err, "No paths: no session has a GTP-U tunnel.")
			return nil
		}
		t := table{heading: []string{"VRF", "LOCAL", "REMOTE", "STATE", "SINCE", "TUNNELS", "REQUESTS", "RESPONSES", "FAILURES", "RESTARTS"}}
		for _, path := range all {
			number := func(n uint64) string { return strconv.FormatUint(n, 10) }
			t.add(path.VRF, path.Local, path.Remote, path.State, path.Changed.Format(time.RFC3339), number(uint64(path.Tunnels)),
				number(path.Requests), number(path.Responses), number(path.Failures), number(path.Restarts))
		}
		return t.write(p.out)
	}
	return c
}
