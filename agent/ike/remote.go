// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/service"
)

// How remote users authenticate by EAP.

const (
	// EAP packets in IKE_AUTH, which is in fragments anyway.
	relayMTU = 1400
	// How long a user waits for the RADIUS service after the agent's start.
	relayPatience = 2 * time.Second
)

// tasks are calls that block, each in a goroutine that ends with the service.
type tasks struct {
	mu     sync.Mutex
	group  sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
	ended  bool
}

// background runs f, unless the service has ended. It returns whether f runs.
func (s *serving) background(f func(context.Context)) (begun bool) {
	t := &s.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancel(context.Background())
	}
	t.group.Add(1)
	go func() {
		defer t.group.Done()
		f(t.ctx)
	}()
	return true
}

// end ends all tasks and waits for them.
func (t *tasks) end() {
	t.mu.Lock()
	t.ended = true
	if t.cancel != nil {
		t.cancel()
	}
	t.mu.Unlock()
	t.group.Wait()
}

// converseTLS begins EAP-TLS with a remote user at an address. s.mu is held.
func (s *serving) converseTLS(c *Connection, from netip.Addr) eap.Conversation {
	config := &tls.Config{}
	if c.Credential != nil {
		config.Certificates = []tls.Certificate{{Certificate: c.Credential.Chain, PrivateKey: c.Credential.Key}}
	}
	authorities, _ := c.Trust.([]*Authority)
	return eap.NewTLS(eap.TLS{Config: config, Verify: func(chain [][]byte, identity string) error {
		id, err := ParseIdentity(identity)
		if err != nil {
			return err
		}
		if id.Any() {
			return errors.New("the user gives no identity")
		}
		var t *trusted
		if busy := s.verifications.wait(from, func() { t, err = trust(authorities, chain, id, time.Now()) }); busy != nil {
			s.drops.WithLabelValues("verifications").Inc()
			return busy
		}
		if err != nil {
			return err
		}
		return t.inForce(authorities, time.Now())
	}})
}

// relay finds the RADIUS service for each packet.
type relay struct{ *serving }

// Relay implements eap.Relay.
func (r relay) Relay(q eap.RelayRequest, done func(eap.Relayed)) {
	r.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, relayPatience)
		defer cancel()
		to, _, err := service.Find[eap.Relay](ctx, r.Environment)
		if err != nil {
			done(eap.Relayed{Err: fmt.Errorf("the RADIUS service is not running: %w", err)})
			return
		}
		to.Relay(q, done)
	})
}
