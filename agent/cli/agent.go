package cli

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/server"
	"sluice.dev/sluice/agent/store"
)

// Where things are if nothing else is said.
const (
	defaultDataplane = "unix:///run/sluice/dataplane.sock"
	defaultStore     = "/var/lib/sluice/intent.db"
)

func (p *program) agentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent",
		Long: `Run the agent: it keeps what is wanted, makes the data plane match, and serves the other commands.

It may be killed at any time without a packet lost: the data plane goes on by itself. Started again, it reads what the data
plane has and repairs only the difference. It writes its log to standard error and ends at SIGTERM or Ctrl-C.`,
		Example: `  sluice agent
  sluice agent --dataplane unix:///tmp/dp.sock --listen unix:///tmp/agent.sock --store /tmp/intent.db
  sluice agent --dataplane tcp://192.0.2.1:7700 --cert agent.crt --key agent.key --ca ca.crt`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	where := f.String("dataplane", defaultDataplane, "the data plane: unix:///PATH, or tcp://HOST:PORT with mutual TLS")
	listen := f.String("listen", DefaultAgent, "where to serve the other commands: unix:///PATH")
	path := f.String("store", defaultStore, "file that keeps what is wanted")
	var credentials dataplane.Credentials
	f.StringVar(&credentials.Certificate, "cert", "", "our certificate (PEM), for TCP")
	f.StringVar(&credentials.Key, "key", "", "its key (PEM)")
	f.StringVar(&credentials.CA, "ca", "", "the CA (PEM) of the data plane's certificate")
	level := &choice{value: "info", of: []string{"debug", "info", "warn", "error"}}
	f.Var(level, "log-level", "least severe messages in the log: "+strings.Join(level.of, ", "))
	complete(c, "log-level", func(*cobra.Command, string) []string { return level.of })
	c.RunE = func(c *cobra.Command, _ []string) error {
		socket, ok := strings.CutPrefix(*listen, "unix://")
		if !ok || !strings.HasPrefix(socket, "/") {
			return fmt.Errorf("--listen %q: want unix:///PATH", *listen)
		}
		endpoint, err := dataplane.ParseEndpoint(*where, credentials)
		if err != nil {
			return err
		}
		var least slog.Level
		if err := least.UnmarshalText([]byte(level.value)); err != nil {
			return err
		}
		intents, err := store.Open(*path, p.registry)
		if err != nil {
			return err
		}
		defer intents.Close()
		return server.Run(c.Context(), server.Config{Listen: socket, Dataplane: endpoint, Registry: p.registry, Store: intents,
			Release: Release(), Log: slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{Level: least}))}, nil)
	}
	return c
}
