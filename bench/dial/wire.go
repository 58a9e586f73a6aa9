// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// The ring of frames that the kernel writes (packet(7), TPACKET_V2).
	ringFrame  = 2048
	ringBlock  = 1 << 20
	ringFrames = 16384
	// Frames of one system call, and the room for each.
	sendBurst = 64
	sendRoom  = 1600

	statusUser      = 1
	statusVLANValid = 0x10
	statusTPIDValid = 0x40
	// struct tpacket2_hdr.
	offsetSnapLength = 8
	offsetMAC        = 12
	offsetTCI        = 24
	offsetTPID       = 26

	packetIgnoreOutgoing = 23
)

// wire is one end of a link for raw frames: a ring to receive and bursts to send, without a copy by the kernel on the way in.
type wire struct {
	fd       int
	ring     []byte
	next     int
	sending  int
	buffers  [sendBurst][sendRoom]byte
	vectors  [sendBurst]unix.Iovec
	messages [sendBurst]messageHeader
	frame    [ringFrame + 4]byte
	// Frames that the kernel did not take.
	unsent uint64
}

// messageHeader is struct mmsghdr.
type messageHeader struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

func swapped(v uint16) uint16 { return v<<8 | v>>8 }

func openWire(name string) (*wire, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	w := &wire{fd: fd}
	if err := w.set(device.Index); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	for i := range w.messages {
		w.vectors[i].Base = &w.buffers[i][0]
		w.messages[i].header.Iov = &w.vectors[i]
		w.messages[i].header.SetIovlen(1)
	}
	return w, nil
}

func (w *wire) set(index int) error {
	if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, packetIgnoreOutgoing, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20); err != nil {
		return err
	}
	ring := unix.TpacketReq{Block_size: ringBlock, Block_nr: ringFrames * ringFrame / ringBlock, Frame_size: ringFrame, Frame_nr: ringFrames}
	if err := unix.SetsockoptTpacketReq(w.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &ring); err != nil {
		return err
	}
	var err error
	if w.ring, err = unix.Mmap(w.fd, 0, ringFrames*ringFrame, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: swapped(unix.ETH_P_ALL), Ifindex: index})
}

// read returns the next frame with all its tags, or nil. It is valid until the next call.
func (w *wire) read() []byte {
	slot := w.ring[w.next*ringFrame : (w.next+1)*ringFrame]
	status := (*uint32)(unsafe.Pointer(&slot[0]))
	found := atomic.LoadUint32(status)
	if found&statusUser == 0 {
		return nil
	}
	length, at := int(binary.NativeEndian.Uint32(slot[offsetSnapLength:])), int(binary.NativeEndian.Uint16(slot[offsetMAC:]))
	length = min(length, len(slot)-at)
	frame := append(w.frame[:0], slot[at:at+length]...)
	if found&statusVLANValid != 0 && length >= 12 {
		tpid := uint16(0x8100)
		if found&statusTPIDValid != 0 {
			tpid = binary.NativeEndian.Uint16(slot[offsetTPID:])
		}
		// The kernel takes the outer tag out of the frame.
		frame = append(w.frame[:12], byte(tpid>>8), byte(tpid), slot[offsetTCI+1], slot[offsetTCI])
		frame = append(frame, slot[at+12:at+length]...)
	}
	atomic.StoreUint32(status, 0)
	w.next = (w.next + 1) % ringFrames
	return frame
}

// room returns a buffer for a frame of up to sendRoom bytes; queue sends it later.
func (w *wire) room() []byte {
	if w.sending == sendBurst {
		w.flush()
	}
	return w.buffers[w.sending][:0]
}

// queue sends a frame that was written to the result of room.
func (w *wire) queue(frame []byte) {
	w.vectors[w.sending].SetLen(len(frame))
	w.sending++
}

func (w *wire) flush() {
	for done, tries := 0, 0; done < w.sending; {
		n, _, err := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(w.fd), uintptr(unsafe.Pointer(&w.messages[done])), uintptr(w.sending-done), 0, 0, 0)
		switch {
		case err == 0:
			done, tries = done+int(n), 0
		case err == unix.EINTR:
		case (err == unix.ENOBUFS || err == unix.EAGAIN) && tries < 20:
			// The device on the other side takes frames out of its queue.
			tries++
			time.Sleep(100 * time.Microsecond)
		default:
			w.unsent++
			done, tries = done+1, 0
		}
	}
	w.sending = 0
}

// wait returns when there is a frame, when `other` is readable, or after a time.
func (w *wire) wait(other int, longest time.Duration) error {
	set := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}, {Fd: int32(other), Events: unix.POLLIN}}
	_, err := unix.Ppoll(set, &unix.Timespec{Nsec: max(0, longest.Nanoseconds())}, nil)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
