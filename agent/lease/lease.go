// SPDX-License-Identifier: Apache-2.0

// Package lease lets one of several agents drive the data planes: the one that holds a key in etcd. Its term is the revision at which etcd
// wrote the key, so that each holder has a higher term than all before. Data planes obey the highest term.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"sluice.dev/sluice/agent/etcd"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Section is the lease's part of the configuration.
type Section struct {
	// As of the northbound etcd.
	Endpoints    []string        `yaml:"endpoints"`
	Username     string          `yaml:"username"`
	PasswordFile string          `yaml:"passwordFile"`
	TLS          *northbound.TLS `yaml:"tls"`
	// The key that all agents of the same data planes share.
	Key string `yaml:"key"`
	// How long the key stays after the holder's last sign of life; 0: ten seconds.
	TTL time.Duration `yaml:"ttl"`
}

const (
	defaultTTL      = 10 * time.Second
	leastTTL        = 2 * time.Second
	mostTTL         = 10 * time.Minute
	patience        = 5 * time.Second
	again           = time.Second
	acceptedKey     = "a key such as /sluice/lease/bonn"
	acceptedTTLText = "whole seconds from 2s to 10m"
)

// Check reports errors of the section.
func (s *Section) Check() error {
	if err := s.server().Check(); err != nil {
		return err
	}
	if !strings.HasPrefix(s.Key, "/") || strings.HasSuffix(s.Key, "/") {
		return object.Mistake("key", "not a key", strconv.Quote(s.Key), acceptedKey)
	}
	if s.TTL != 0 && (s.TTL < leastTTL || s.TTL > mostTTL || s.TTL%time.Second != 0) {
		return object.Mistake("ttl", "out of range", s.TTL.String(), acceptedTTLText)
	}
	return nil
}

func (s *Section) server() *etcd.Section {
	server, _ := etcd.New().(*etcd.Section)
	server.Endpoints, server.Username, server.PasswordFile, server.TLS = s.Endpoints, s.Username, s.PasswordFile, s.TLS
	return server
}

// ErrLost is the cause of a context that ends with its lease.
var ErrLost = errors.New("this agent lost the lease")

// Agent describes the holder of a lease.
type Agent struct {
	// Written into the key, for others to read.
	Name string
	Log  *slog.Logger
	// Called with why the agent does not hold the lease, whenever that is something else.
	Waits func(error)
	// Runs while the agent holds the lease, and returns when its context ends.
	Drive func(ctx context.Context, term uint64)
}

// Run waits for the lease and has the agent drive while it holds it, until the context ends. Then the lease is free at once.
func (s *Section) Run(ctx context.Context, a Agent) {
	logged := ""
	for ctx.Err() == nil {
		err := s.once(ctx, &a)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.Waits(err)
			if err.Error() != logged {
				a.Log.Warn("this agent does not hold the lease", "key", s.Key, "error", err)
				logged = err.Error()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// once tries to take the lease, and returns when it is lost, or when another that holds it gave it up.
func (s *Section) once(ctx context.Context, a *Agent) error {
	client, err := s.server().Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now, err := client.Get(asking, s.Key)
	if err != nil {
		return unanswered(err)
	}
	if len(now.Kvs) > 0 {
		return s.stand(ctx, client, a, string(now.Kvs[0].Value), now.Header.Revision)
	}
	ttl := s.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	granted, err := client.Grant(asking, int64(ttl/time.Second))
	if err != nil {
		return unanswered(err)
	}
	defer func() {
		// If etcd does not answer, the lease runs out by itself.
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, _ = client.Revoke(giving, granted.ID)
	}()
	taken, err := client.Txn(asking).If(clientv3.Compare(clientv3.CreateRevision(s.Key), "=", 0)).
		Then(clientv3.OpPut(s.Key, a.Name, clientv3.WithLease(granted.ID))).Commit()
	if err != nil {
		return unanswered(err)
	}
	if !taken.Succeeded {
		return nil // another was faster
	}
	return s.hold(ctx, client, a, granted.ID, taken.Header.Revision)
}

// stand waits until the key of another agent is gone.
func (s *Section) stand(ctx context.Context, client *clientv3.Client, a *Agent, holder string, revision int64) error {
	waits := fmt.Errorf("%s holds the lease", holder)
	a.Waits(waits)
	a.Log.Info("another agent holds the lease", "key", s.Key, "holder", holder)
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for answer := range client.Watch(watching, s.Key, clientv3.WithRev(revision+1), clientv3.WithFilterPut()) {
		if err := answer.Err(); err != nil {
			return unanswered(err)
		}
		if len(answer.Events) > 0 {
			return nil
		}
	}
	return nil
}

// hold returns when the lease is lost.
func (s *Section) hold(ctx context.Context, client *clientv3.Client, a *Agent, id clientv3.LeaseID, term int64) error {
	holding, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	alive, err := client.KeepAlive(holding, id)
	if err != nil {
		return unanswered(err)
	}
	a.Log.Info("this agent holds the lease", "key", s.Key, "term", term)
	driven := make(chan struct{})
	go func() {
		defer close(driven)
		a.Drive(holding, uint64(term))
	}()
	// Another client may delete the key.
	gone := client.Watch(holding, s.Key, clientv3.WithRev(term+1))
	for lost := false; !lost && ctx.Err() == nil; {
		select {
		case _, open := <-alive:
			lost = !open
		case answer, open := <-gone:
			if !open {
				gone = nil
			}
			lost = len(answer.Events) > 0
		}
	}
	lose(ErrLost)
	<-driven
	if ctx.Err() == nil {
		a.Log.Error("this agent lost the lease, and data planes go on without it", "key", s.Key, "term", term)
		return ErrLost
	}
	return nil
}

func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer")
	}
	return fmt.Errorf("etcd, which has the lease: %w", err)
}
