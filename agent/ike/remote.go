// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
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
	return eap.NewTLS(eap.TLS{Config: config, Verify: func(chain [][]byte, identity string) (string, error) {
		return s.verifyUser(authorities, from, chain, identity)
	}})
}

// verifyUser checks the certificates of a user of EAP-TLS at an address, and returns the username.
func (s *serving) verifyUser(authorities []*Authority, from netip.Addr, chain [][]byte, identity string) (string, error) {
	id, err := ParseIdentity(identity)
	if err != nil {
		return "", err
	}
	if id.Any() {
		return "", errors.New("the user gives no identity")
	}
	var t *trusted
	if busy := s.verifications.wait(from, func() { t, err = trust(authorities, chain, id, time.Now()) }); busy != nil {
		s.drops.WithLabelValues("verifications").Inc()
		return "", busy
	}
	if err == nil {
		err = t.inForce(authorities, time.Now())
	}
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certified(t)
}

// The longest username of a certificate, as in RADIUS.
const maxUsername = 253

// certified returns the username of a user with a certificate: the name that the user gives, as the certificate has it. Whichever of the certificate's names the
// user gives, the LocalUser of one of them is the user, and a LocalUser that is disabled is refused. s.mu is held.
func (s *serving) certified(t *trusted) (string, error) {
	if len(t.name) > maxUsername || printable(t.name) != t.name {
		return "", fmt.Errorf("the name %q of the certificate is no username: it is longer than %d bytes or has control characters", printable(t.name), maxUsername)
	}
	username := ""
	for _, name := range append([]string{t.name}, t.names...) {
		for _, u := range s.usersNamed(name) {
			if u.GetDisabled() {
				return "", fmt.Errorf("user %q: the LocalUser is disabled", printable(u.GetUsername()))
			}
			username = cmp.Or(username, u.GetUsername())
		}
	}
	return cmp.Or(username, t.name), nil
}

// usersNamed are the LocalUsers of a name of a certificate, in which case counts for nothing: that of the very name, or else the others. s.mu is held.
func (s *serving) usersNamed(name string) []*api.LocalUser {
	if s.folded == nil {
		s.folded = map[string][]*api.LocalUser{}
		for _, u := range s.users {
			key := strings.ToLower(u.GetUsername())
			s.folded[key] = append(s.folded[key], u)
		}
	}
	all := s.folded[strings.ToLower(name)]
	if i := slices.IndexFunc(all, func(u *api.LocalUser) bool { return u.GetUsername() == name }); i >= 0 {
		return all[i : i+1]
	}
	slices.SortFunc(all, func(a, b *api.LocalUser) int { return cmp.Compare(a.GetUsername(), b.GetUsername()) })
	return all
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
