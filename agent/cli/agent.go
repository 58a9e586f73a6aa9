// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/affinity"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/config"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/etcd"
	"sluice.dev/sluice/agent/files"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/kafka"
	"sluice.dev/sluice/agent/metrics"
	"sluice.dev/sluice/agent/module"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/parallel"
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

// Default paths.
const (
	defaultDataplane = "unix:///run/sluice/dataplane.sock"
	defaultStore     = "/var/lib/sluice/intent.db"
	// Behind the store's path: the directory of the services' records.
	recordsSuffix = ".records"
)

func (p *program) agentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent",
		Long: `Run the agent: it stores the configuration, makes the data plane match it, and serves the other commands.

You can kill it at any time without loss of packets: the data plane goes on by itself. After a restart, the agent reads the state
of the data plane and repairs only the difference. It writes its log to standard error and ends at SIGTERM or Ctrl-C.`,
		Example: `  sluice agent
  sluice agent --dataplane unix:///tmp/dp.sock --listen unix:///tmp/agent.sock --store /tmp/intent.db
  sluice agent --config /etc/sluice/agent.yaml
  sluice agent --dataplane tcp://192.0.2.1:7700 --cert agent.crt --key agent.key --ca ca.crt`,
		Args: cobra.NoArgs,
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return mistaken{flagError(c, err)} })
	f := c.Flags()
	path := f.String("config", "", "configuration file; flags override it (docs/how-to-configure.md)")
	settings := config.Config{Listen: DefaultAgent, Store: defaultStore, Log: config.Log{Level: "info", Format: "text"}}
	flags := settings
	where := f.String("dataplane", defaultDataplane, "the data plane: unix:///PATH, or tcp://HOST:PORT with mutual TLS")
	f.StringVar(&flags.Listen, "listen", settings.Listen, "where to serve the other commands: unix:///PATH")
	f.StringVar(&flags.Store, "store", settings.Store, "file with the configuration and its history")
	anew := f.Bool("begin-anew", false, "delete objects of a data plane that are not in the configuration, even if the store does not know the data plane")
	coreDumps := f.Bool("core-dumps", false, "allow core dumps: they contain keys and passwords")
	var credentials dataplane.Credentials
	f.StringVar(&credentials.Certificate, "cert", "", "our certificate (PEM), for TCP")
	f.StringVar(&credentials.Key, "key", "", "its key (PEM)")
	f.StringVar(&credentials.CA, "ca", "", "the CA (PEM) of the data plane's certificate")
	level := &choice{value: settings.Log.Level, of: []string{"debug", "info", "warn", "error"}}
	f.Var(level, "log-level", "least severe messages in the log: "+strings.Join(level.of, ", "))
	complete(c, "log-level", func(*cobra.Command, string) []string { return level.of })
	format := &choice{value: settings.Log.Format, of: []string{"text", "json"}}
	f.Var(format, "log-format", "of the log: "+strings.Join(format.of, ", "))
	complete(c, "log-format", func(*cobra.Command, string) []string { return format.of })
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *path != "" {
			if err := settings.Load(*path, northbounds); err != nil {
				return mistaken{err}
			}
		}
		if f.Changed("listen") {
			settings.Listen = flags.Listen
		}
		if f.Changed("store") {
			settings.Store = flags.Store
		}
		if f.Changed("log-level") {
			settings.Log.Level = level.value
		}
		if f.Changed("log-format") {
			settings.Log.Format = format.value
		}
		if len(settings.Dataplanes) == 0 || f.Changed("dataplane") {
			settings.Dataplanes = []config.Dataplane{{Name: "default", Endpoint: *where,
				TLS: config.TLS{Certificate: credentials.Certificate, Key: credentials.Key, CA: credentials.CA}}}
		}
		return p.runAgent(c.Context(), settings, *anew, *coreDumps)
	}
	return c
}

func (p *program) runAgent(ctx context.Context, settings config.Config, anew, coreDumps bool) error {
	socket, ok := strings.CutPrefix(settings.Listen, "unix://")
	if !ok || !strings.HasPrefix(socket, "/") {
		return mistaken{fmt.Errorf("--listen %q: accepted: unix:///PATH", settings.Listen)}
	}
	var planes []server.Dataplane
	for _, plane := range settings.Dataplanes {
		endpoint, err := dataplane.ParseEndpoint(plane.Endpoint, dataplane.Credentials{Certificate: plane.TLS.Certificate, Key: plane.TLS.Key, CA: plane.TLS.CA, Names: plane.TLS.ServerNames})
		if err != nil {
			return mistaken{fmt.Errorf("data plane %s: %w", plane.Name, err)}
		}
		planes = append(planes, server.Dataplane{Dataplane: intent.Dataplane{Name: plane.Name, Labels: plane.Labels}, Endpoint: endpoint})
	}
	var options slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(settings.Log.Level)); err != nil {
		return err
	}
	options.Level = level
	var handler slog.Handler = slog.NewTextHandler(p.err.to, &options)
	if settings.Log.Format == "json" {
		handler = slog.NewJSONHandler(p.err.to, &options)
	}
	log := slog.New(handler)
	if !coreDumps {
		if err := refuseCoreDumps(); err != nil {
			log.Warn("core dumps cannot be refused", "error", err)
		}
	}
	written, err := audit.Open(settings.Audit.File, settings.Audit.Sync, log)
	if err != nil {
		return err
	}
	defer written.Close()
	defer onHangup(func() {
		if err := written.Reopen(); err != nil {
			log.Error("at SIGHUP", "error", err)
		}
	})()
	records, err := durable.Open(settings.Store + recordsSuffix)
	if err != nil {
		return err
	}
	defer records.Close()
	p.registry.AskFor(nil)
	modules, err := module.Open(settings.Modules, p.registry, records, Release(), log)
	if err != nil {
		return err
	}
	if settings.Modules != nil {
		if err := settings.Modules.CheckKinds(p.registry); err != nil {
			return mistaken{err}
		}
	}
	kept, err := store.Open(settings.Store, p.registry)
	if err != nil {
		return err
	}
	defer kept.Close()
	if err := kept.Full(); err != nil {
		log.Error("the store's disk is full; changes are refused until there is room", "file", settings.Store, "error", err)
	}
	ways := map[string]northbound.Northbound{}
	for _, n := range settings.Northbounds {
		ways[n.Name] = n.Section.Open()
	}
	processors, err := affinity.New()
	if err != nil {
		return err
	}
	running := parallel.New()
	defer running.End()
	return modules.While(ctx, func(ctx context.Context) error {
		return server.Run(ctx, server.Config{Affinity: processors, Parallel: running, Listen: socket, Dataplanes: planes, Registry: p.registry, Store: kept, Release: Release(),
			Priorities: settings.Priorities, Northbounds: ways, Log: log, Audit: written, BeginAnew: anew,
			Lease: settings.Lease, Services: append(slices.Clone(p.services), modules.Definitions()...), Records: records}, nil)
	})
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
