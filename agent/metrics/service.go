// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/northbound"
)

// A scrape has so long.
const patience = 8 * time.Second

type service struct {
	section Section
}

// Run implements northbound.Northbound.
func (s *service) Run(ctx context.Context, e northbound.Environment) error {
	guard, err := s.section.Section.Open(e.Name, e.Log)
	if err != nil {
		return err
	}
	encrypted := guard.TLS("h2", "http/1.1")
	if !s.section.guarded() {
		guard = nil
	}
	listener, err := net.Listen("tcp", s.section.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if encrypted != nil {
		listener = tls.NewListener(listener, encrypted)
	}
	e.Log.Info("metrics are served", "address", listener.Addr().String())
	return serve(ctx, listener, e, guard)
}

// serve serves until the context ends, and closes the listener.
func serve(ctx context.Context, listener net.Listener, e northbound.Environment, guard *access.Guard) error {
	server := &http.Server{
		Handler: handler(e, guard), ReadHeaderTimeout: patience, WriteTimeout: 2 * patience, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:    slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		hurry, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(hurry) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if stop() {
		return fmt.Errorf("serving metrics: %w", err)
	}
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handler serves metrics to clients that the guard accepts; nil: to all. Liveness and readiness need no credentials.
func handler(e northbound.Environment, guard *access.Guard) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newCollector(e))
	all := prometheus.Gatherers{registry}
	if e.Agent.Services != nil {
		all = append(all, e.Agent.Services)
	}
	scrape := promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorLog: failures{e}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: patience + patience/4,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		e.Counters.Received(1)
		if err := admit(guard, r); err != nil {
			e.Counters.Failed()
			e.Log.Debug("a scrape was refused", "address", r.RemoteAddr, "error", err)
			forbid(w, err)
			return
		}
		scrape.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready(e)) })
	return mux
}

// ready returns the reason why the agent is not ready: each data plane must be connected and its observed state
// known.
func ready(e northbound.Environment) error {
	for _, name := range slices.Sorted(maps.Keys(e.Agent.Dataplanes)) {
		if link := e.Agent.Dataplanes[name].Link(); !link.GetConnected() {
			return fmt.Errorf("data plane %s: not connected: %s", name, link.GetError())
		}
	}
	measured := e.Intent.Measure()
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		if !measured[name].InSync {
			return fmt.Errorf("data plane %s: its observed state is being read", name)
		}
	}
	return nil
}

func admit(guard *access.Guard, r *http.Request) error {
	if guard == nil {
		return nil
	}
	caller, err := guard.Caller(r.TLS, r.Header.Values("Authorization"), r.RemoteAddr)
	if err != nil {
		return err
	}
	return caller.May(access.Read, "metrics")
}

func forbid(w http.ResponseWriter, err error) {
	code := http.StatusForbidden
	if !errors.Is(err, access.ErrForbidden) {
		code = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	http.Error(w, err.Error(), code)
}

func answer(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	text := "ok"
	if why != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = why.Error()
	}
	// The client may be gone.
	_, _ = io.WriteString(w, text+"\n")
}

// failures logs promhttp's errors of incomplete scrapes.
type failures struct{ northbound.Environment }

func (f failures) Println(what ...any) {
	f.Counters.Failed()
	f.Log.Warn("metrics could not be collected", "error", fmt.Sprint(what...))
}
