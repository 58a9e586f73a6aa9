package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/config"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/etcd"
	"sluice.dev/sluice/agent/files"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/kafka"
	"sluice.dev/sluice/agent/metrics"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/rabbitmq"
	"sluice.dev/sluice/agent/redis"
	"sluice.dev/sluice/agent/remote"
	"sluice.dev/sluice/agent/rest"
	"sluice.dev/sluice/agent/server"
	"sluice.dev/sluice/agent/store"
)

// The northbounds that there are.
var northbounds = config.Types{
	"etcd":         etcd.New,
	"files":        files.New,
	"redis":        redis.New,
	"redis-stream": redis.NewStream,
	"kafka":        kafka.New,
	"rabbitmq":     rabbitmq.New,
	"metrics":      metrics.New,
	"grpc":         remote.New,
	"rest":         rest.New,
}

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
  sluice agent --config /etc/sluice/agent.yaml
  sluice agent --dataplane tcp://192.0.2.1:7700 --cert agent.crt --key agent.key --ca ca.crt`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	path := f.String("config", "", "configuration file; what the flags say counts more (docs/how-to-configure.md)")
	said := config.Config{Listen: DefaultAgent, Store: defaultStore, Log: config.Log{Level: "info", Format: "text"}}
	flags := said
	where := f.String("dataplane", defaultDataplane, "the data plane: unix:///PATH, or tcp://HOST:PORT with mutual TLS")
	f.StringVar(&flags.Listen, "listen", said.Listen, "where to serve the other commands: unix:///PATH")
	f.StringVar(&flags.Store, "store", said.Store, "file that keeps what is wanted")
	anew := f.Bool("begin-anew", false, "delete what a data plane has and nobody wants even if the store does not know that data plane")
	var credentials dataplane.Credentials
	f.StringVar(&credentials.Certificate, "cert", "", "our certificate (PEM), for TCP")
	f.StringVar(&credentials.Key, "key", "", "its key (PEM)")
	f.StringVar(&credentials.CA, "ca", "", "the CA (PEM) of the data plane's certificate")
	level := &choice{value: said.Log.Level, of: []string{"debug", "info", "warn", "error"}}
	f.Var(level, "log-level", "least severe messages in the log: "+strings.Join(level.of, ", "))
	complete(c, "log-level", func(*cobra.Command, string) []string { return level.of })
	format := &choice{value: said.Log.Format, of: []string{"text", "json"}}
	f.Var(format, "log-format", "of the log: "+strings.Join(format.of, ", "))
	complete(c, "log-format", func(*cobra.Command, string) []string { return format.of })
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *path != "" {
			if err := said.Load(*path, northbounds); err != nil {
				return err
			}
		}
		if f.Changed("listen") {
			said.Listen = flags.Listen
		}
		if f.Changed("store") {
			said.Store = flags.Store
		}
		if f.Changed("log-level") {
			said.Log.Level = level.value
		}
		if f.Changed("log-format") {
			said.Log.Format = format.value
		}
		if len(said.Dataplanes) == 0 || f.Changed("dataplane") {
			said.Dataplanes = []config.Dataplane{{Name: "default", Endpoint: *where,
				TLS: config.TLS{Certificate: credentials.Certificate, Key: credentials.Key, CA: credentials.CA}}}
		}
		return p.runAgent(c.Context(), said, *anew)
	}
	return c
}

func (p *program) runAgent(ctx context.Context, said config.Config, anew bool) error {
	socket, ok := strings.CutPrefix(said.Listen, "unix://")
	if !ok || !strings.HasPrefix(socket, "/") {
		return fmt.Errorf("--listen %q: want unix:///PATH", said.Listen)
	}
	var planes []server.Dataplane
	for _, plane := range said.Dataplanes {
		endpoint, err := dataplane.ParseEndpoint(plane.Endpoint, dataplane.Credentials{Certificate: plane.TLS.Certificate, Key: plane.TLS.Key, CA: plane.TLS.CA})
		if err != nil {
			return fmt.Errorf("data plane %s: %w", plane.Name, err)
		}
		planes = append(planes, server.Dataplane{Dataplane: intent.Dataplane{Name: plane.Name, Labels: plane.Labels}, Endpoint: endpoint})
	}
	var options slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(said.Log.Level)); err != nil {
		return err
	}
	options.Level = level
	var handler slog.Handler = slog.NewTextHandler(p.err, &options)
	if said.Log.Format == "json" {
		handler = slog.NewJSONHandler(p.err, &options)
	}
	log := slog.New(handler)
	written, err := audit.Open(said.Audit.File, said.Audit.Sync, log)
	if err != nil {
		return err
	}
	defer written.Close()
	defer onHangup(func() {
		if err := written.Reopen(); err != nil {
			log.Error("at SIGHUP", "error", err)
		}
	})()
	kept, err := store.Open(said.Store, p.registry)
	if err != nil {
		return err
	}
	defer kept.Close()
	ways := map[string]northbound.Northbound{}
	for _, n := range said.Northbounds {
		ways[n.Name] = n.Section.Open()
	}
	return server.Run(ctx, server.Config{Listen: socket, Dataplanes: planes, Registry: p.registry, Store: kept, Release: Release(),
		Priorities: said.Priorities, Northbounds: ways, Log: log, Audit: written, BeginAnew: anew}, nil)
}

// onHangup calls f at each SIGHUP until the returned function is called.
func onHangup(f func()) (stop func()) {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range signals {
			f()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-ended
	}
}
