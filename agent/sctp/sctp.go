// SPDX-License-Identifier: Apache-2.0

// Package sctp is associations to peers (RFC 9260) for protocols between a gateway and a 5G core (TS 38.412). The program sluice-sctp has
// them, by the kernel's SCTP or, where it has none, by libusrsctp above raw sockets: their packets are not parsed in this process.
//
// Messages of one stream arrive in the order in which they were sent.
package sctp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// MaxMessage is the size of the largest message.
const MaxMessage = 1 << 16

// maxAddresses are those of one side of an association.
const maxAddresses = 8

// ErrDown: the association, or the process that has it, is not there.
var ErrDown = errors.New("the association is down")

// Config is an association to open.
type Config struct {
	// Of this host; none: by the routes. With several, the association uses all of them.
	Local []netip.Addr
	// Of the peer.
	Remote    []netip.Addr
	LocalPort uint16
	Port      uint16
	// Streams in each direction that we offer.
	Streams   uint16
	Heartbeat time.Duration
}

// Handler receives the events of an association. Its methods are called one at a time, and must not block.
type Handler interface {
	// Up: messages can be sent, on streams below out.
	Up(out, in uint16)
	// Restarted: the peer lost its state and opened the association anew. Nothing is sent until Association.Renew is called.
	Restarted(out, in uint16)
	Message(stream uint16, protocol uint32, message []byte)
	Path(address netip.Addr, reachable bool)
	// Down is the last call.
	Down(reason string)
}

// Commands and events of process/main.c.
const (
	commandOpen  = 1
	commandSend  = 2
	commandClose = 3
	commandAbort = 4
	commandRenew = 5

	eventUp      = 1
	eventMessage = 2
	eventDown    = 3
	eventRestart = 4
	eventPath    = 5
	eventStack   = 6
)

const head = 5

func packet(kind byte, id uint32, size int) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, head+size), kind), id)
}

func (c Config) packet(id uint32) ([]byte, error) {
	switch {
	case len(c.Remote) == 0:
		return nil, errors.New("no address of the peer")
	case len(c.Remote) > maxAddresses || len(c.Local) > maxAddresses:
		return nil, fmt.Errorf("more than %d addresses", maxAddresses)
	case c.Streams == 0 || c.Heartbeat < time.Millisecond:
		return nil, errors.New("no streams, or no heartbeat interval")
	}
	b := packet(commandOpen, id, 12+17*(len(c.Local)+len(c.Remote)))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Heartbeat.Milliseconds()))
	b = binary.BigEndian.AppendUint16(b, c.LocalPort)
	b = binary.BigEndian.AppendUint16(b, c.Port)
	b = binary.BigEndian.AppendUint16(b, c.Streams)
	b = append(b, byte(len(c.Local)), byte(len(c.Remote)))
	for _, addresses := range [][]netip.Addr{c.Local, c.Remote} {
		for _, address := range addresses {
			var octets [16]byte
			copy(octets[:], address.AsSlice())
			family := byte(4)
			if address.Is6() {
				family = 6
			}
			b = append(append(b, family), octets[:]...)
		}
	}
	return b, nil
}

// deliver calls the handler for an event; false: the association is down.
func deliver(h Handler, kind byte, data []byte) bool {
	switch {
	case kind == eventDown:
		h.Down(string(data))
		return false
	case kind == eventUp && len(data) == 4:
		h.Up(binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:]))
	case kind == eventRestart && len(data) == 4:
		h.Restarted(binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:]))
	case kind == eventMessage && len(data) >= 6:
		h.Message(binary.BigEndian.Uint16(data), binary.BigEndian.Uint32(data[2:]), data[6:])
	case kind == eventPath && len(data) == 18:
		address := netip.AddrFrom4([4]byte(data[2:]))
		if data[1] == 6 {
			address = netip.AddrFrom16([16]byte(data[2:]))
		}
		h.Path(address, data[0] == 1)
	}
	return true
}
