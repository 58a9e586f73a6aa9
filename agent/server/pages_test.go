// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
)

// slowly lists when it is let, and counts how many do at once.
type slowly struct {
	intent.Interface
	begun chan struct{}
	let   chan struct{}

	mu        sync.Mutex
	now, most int
}

func (s *slowly) List(intent.Query) (*intent.Page, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	s.begun <- struct{}{}
	<-s.let
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return nil, errors.New("there is nothing")
}

func TestOfManyListsOnlySomeAreMadeAtATime(t *testing.T) {
	list := &slowly{begun: make(chan struct{}, 100), let: make(chan struct{})}
	s := &server{desired: list, pages: make(chan struct{}, 3)}
	var group sync.WaitGroup
	for range 100 {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := s.Get(t.Context(), &api.ObjectsQuery{}); status.Code(err) != codes.Internal {
				t.Errorf("error %v", err)
			}
		}()
	}
	for range 3 {
		<-list.begun
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(gone, &api.ObjectsQuery{}); status.Code(err) != codes.Canceled {
		t.Errorf("who does not wait any more: %v", err)
	}
	close(list.let)
	group.Wait()
	if list.most != 3 {
		t.Errorf("%d at a time", list.most)
	}
}
