// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"errors"
	"net/netip"
	"sync"
)

// Certificates of peers that are not authenticated yet cost signatures to verify. Few are verified at once, and few wait: an address that sends many
// waits for itself. A peer whose request is refused sends it again (RFC 7296 section 2.1).

const (
	// Chains that wait, altogether and of one address.
	maxVerifications          = 256
	maxVerificationsOfAddress = 4
)

// errBusy: too many chains of certificates wait.
var errBusy = errors.New("too many certificates wait to be verified")

// verifications are the chains that are verified, in their order.
type verifications struct {
	// Chains that are verified at once.
	limit int
	// start runs a function in a goroutine that the service waits for; false: the service has ended.
	start func(func()) bool

	mu      sync.Mutex
	running int
	queue   []verification
	of      map[netip.Addr]int
}

type verification struct {
	from netip.Addr
	work func()
}

// submit has work done for the peer at an address, or for a peer that we call: the zero Addr, which is not refused. It returns errBusy if too many wait.
func (v *verifications) submit(from netip.Addr, work func()) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if from.IsValid() {
		from = source(from)
		if len(v.queue) >= maxVerifications || v.of[from] >= maxVerificationsOfAddress {
			return errBusy
		}
	}
	if v.running < v.limit {
		if !v.start(v.run) {
			return errBusy
		}
		v.running++
	}
	if v.of == nil {
		v.of = map[netip.Addr]int{}
	}
	v.of[from]++
	v.queue = append(v.queue, verification{from, work})
	return nil
}

// wait is submit that returns when the work is done.
func (v *verifications) wait(from netip.Addr, work func()) error {
	done := make(chan struct{})
	if err := v.submit(from, func() {
		defer close(done)
		work()
	}); err != nil {
		return err
	}
	<-done
	return nil
}

// run does work until none waits.
func (v *verifications) run() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.queue) > 0 {
		one := v.queue[0]
		v.queue[0] = verification{}
		v.queue = v.queue[1:]
		v.mu.Unlock()
		one.work()
		v.mu.Lock()
		if v.of[one.from]--; v.of[one.from] <= 0 {
			delete(v.of, one.from)
		}
	}
	v.running--
}
