// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/service"
)

// Events of data planes: lifetimes of SAs that are over, and traffic that needs a child.

const watchAgain = time.Second

// Connected implements service.Connector.
func (s *serving) Connected(ctx context.Context, plane service.Plane) {
	select {
	case <-ctx.Done():
		return
	case <-s.first:
	}
	s.mu.Lock()
	s.planes[plane.Name] = plane.Client
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.planes[plane.Name] == plane.Client {
			delete(s.planes, plane.Name)
			s.ended.forget(plane.Name)
		}
	}()
	s.locked(func(now time.Time) []Action {
		return s.machine.Booted(plane.Name, plane.Client.Link().GetGreeting().GetBoot(), now)
	})
	var group sync.WaitGroup
	defer group.Wait()
	group.Add(1)
	go func() {
		defer group.Done()
		s.followEnded(ctx, plane)
	}()
	for ctx.Err() == nil {
		if err := s.watch(ctx, plane); err != nil && ctx.Err() == nil {
			s.Log.Warn("the event stream of a data plane failed; trying again", "dataplane", plane.Name, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(watchAgain):
			}
		}
	}
}

// watch never ends without an error.
func (s *serving) watch(ctx context.Context, plane service.Plane) error {
	stream, err := plane.Client.Watch(ctx, &api.Watch{})
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := s.lookAtAll(ctx, plane); err != nil {
		return err
	}
	lost := stream.Lost()
	for {
		reply, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		if c := reply.GetEvent().GetSecurityAssociation(); c != nil {
			s.locked(func(now time.Time) []Action { return s.changed(plane.Name, c, now) })
		}
		if now := stream.Lost(); now != lost || reply.GetEvent().GetLost() > 0 {
			lost = now
			if err := s.lookAtAll(ctx, plane); err != nil {
				return err
			}
		}
		if a := reply.GetEvent().GetIpsecAcquire(); a != nil {
			s.locked(func(now time.Time) []Action { return s.acquire(plane.Name, a, now) })
		}
	}
}

// spiOf returns the inbound SPI that is part of the name of a child's SA.
func spiOf(name string) (spi uint32, ok bool) {
	name, out := strings.CutSuffix(name, "-out")
	if !out {
		name, _ = strings.CutSuffix(name, "-in")
	}
	if !strings.HasPrefix(name, "ike-") || len(name) < 8 {
		return 0, false
	}
	_, err := fmt.Sscanf(name[len(name)-8:], "%08x", &spi)
	return spi, err == nil
}

// negotiated reports whether an SA is a child of IKE. s.mu is held.
func (s *serving) negotiated(name string) bool {
	spi, ok := spiOf(name)
	return ok && s.machine.children[spi] != nil
}

// changed rekeys a child of which a lifetime is over, and follows a peer whose ESP packets come from elsewhere. An SA with static keys
// gets a line in the log and a condition. s.mu is held.
func (s *serving) changed(plane string, c *api.SecurityAssociationChange, now time.Time) []Action {
	if !s.negotiated(c.GetName()) {
		s.staticChanged(plane, c.GetName(), c.GetChange(), now)
		return nil
	}
	spi, _ := spiOf(c.GetName())
	if c.GetChange() == "peer-moved" {
		remote, err := netip.ParseAddr(c.GetRemoteAddress())
		if err != nil {
			return nil
		}
		return s.machine.PeerMoved(spi, netip.AddrPortFrom(remote, uint16(c.GetRemotePort())), now)
	}
	return s.machine.Expiring(spi, false, now)
}

// acquire begins the child that a packet needs. s.mu is held.
func (s *serving) acquire(plane string, a *api.IpsecAcquire, now time.Time) []Action {
	source, err := netip.ParseAddr(a.GetSource())
	if err != nil {
		return nil
	}
	destination, err := netip.ParseAddr(a.GetDestination())
	if err != nil {
		return nil
	}
	for _, c := range s.machine.sorted() {
		if c.Dataplane != plane {
			continue
		}
		for _, child := range c.Children {
			if child.Serves.Tunnel != a.GetTunnel() || child.Serves.Policy != a.GetPolicy() || !s.machine.onTraffic(c, child) {
				continue
			}
			if (len(child.Local) == 0 || within([]message.Selector{hostOf(source)}, child.Local)) &&
				(len(child.Remote) == 0 || within([]message.Selector{hostOf(destination)}, child.Remote)) {
				return s.machine.Acquire(c.Name, child.Name, now)
			}
		}
	}
	return nil
}
