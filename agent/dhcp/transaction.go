// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"container/list"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
)

const (
	// Exchanges that wait for a server: altogether, of one circuit and of one MAC on it. The oldest makes room.
	transactionsInAll     = 1 << 16
	transactionsOfCircuit = 256
	transactionsOfMAC     = 8
	// Time for a server to answer.
	transactionTime = 30 * time.Second
	// Servers whose offer is remembered.
	offersOfTransaction = 8
)

// exchange is the fields of a client's message that a server repeats.
type exchange struct {
	dataplane string
	// The relay's address.
	relay netip.Addr
	xid   uint32
	// IPv4: the client's MAC. IPv6: the address that it sent from, and the Interface-Id that we added.
	mac         MAC
	peer        netip.Addr
	interfaceID string
}

// transaction is a message of a client that waits for answers.
type transaction struct {
	key    exchange
	client clientKey
	// The headers of the client's frame: the answer gets the same tags.
	back  frame
	began time.Time
	// Whether the client's message carries relay information: IPv4 option 82, IPv6 a lightweight relay agent's Relay-forward.
	relayed bool
	// Type of the client's message.
	kind4 dhcpv4.MessageType
	kind  dhcpv6.MessageType
	// IPv4. clientID is the client's option 61, nil without one.
	offers   []offer
	clientID []byte

	all, circuit, mac *list.Element
}

// offer is an offer of an IPv4 server.
type offer struct{ address, server, serverID netip.Addr }

// transactions are bounded in every way in which a client could fill them.
type transactions struct {
	by  map[exchange]*transaction
	all *list.List
	// The oldest first.
	circuits map[circuit]*list.List
	macs     map[clientKey]*list.List
}

func newTransactions() *transactions {
	return &transactions{map[exchange]*transaction{}, list.New(), map[circuit]*list.List{}, map[clientKey]*list.List{}}
}

// begin returns the transaction of a client's message, which is there already if the client repeats itself; nil if another client has it.
func (t *transactions) begin(key exchange, client clientKey, back frame, now time.Time) *transaction {
	back.payload = nil
	if one := t.by[key]; one != nil {
		if one.client != client {
			return nil
		}
		one.began, one.back = now, back
		t.all.MoveToBack(one.all)
		t.circuits[client.circuit].MoveToBack(one.circuit)
		t.macs[client].MoveToBack(one.mac)
		return one
	}
	if l := t.macs[client]; l != nil && l.Len() >= transactionsOfMAC {
		t.end(l.Front().Value.(*transaction))
	}
	if l := t.circuits[client.circuit]; l != nil && l.Len() >= transactionsOfCircuit {
		t.end(l.Front().Value.(*transaction))
	}
	if t.all.Len() >= transactionsInAll {
		t.end(t.all.Front().Value.(*transaction))
	}
	one := &transaction{key: key, client: client, back: back, began: now}
	one.all = t.all.PushBack(one)
	one.circuit = push(t.circuits, client.circuit, one)
	one.mac = push(t.macs, client, one)
	t.by[key] = one
	return one
}

func push[K comparable](lists map[K]*list.List, key K, one any) *list.Element {
	l := lists[key]
	if l == nil {
		l = list.New()
		lists[key] = l
	}
	return l.PushBack(one)
}

func remove[K comparable](lists map[K]*list.List, key K, e *list.Element) {
	if l := lists[key]; l != nil {
		if l.Remove(e); l.Len() == 0 {
			delete(lists, key)
		}
	}
}

func (t *transactions) end(one *transaction) {
	if t.by[one.key] != one {
		return
	}
	delete(t.by, one.key)
	t.all.Remove(one.all)
	remove(t.circuits, one.client.circuit, one.circuit)
	remove(t.macs, one.client, one.mac)
}

// expire ends transactions that no server answers.
func (t *transactions) expire(now time.Time) {
	for e := t.all.Front(); e != nil; e = t.all.Front() {
		one := e.Value.(*transaction)
		if now.Sub(one.began) < transactionTime {
			return
		}
		t.end(one)
	}
}
