// SPDX-License-Identifier: Apache-2.0

// Writes that never wait: a path with no room delays its own packets only, and not those who wait for s.mu or for a callback of the Manager.
package radius

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// writeNow writes a packet, or fails with EAGAIN if the socket's buffer has no room: net.UDPConn.Write waits for room. to is invalid for a
// connected socket. control may be nil.
func writeNow(conn *net.UDPConn, b, control []byte, to netip.AddrPort) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		for {
			if _, sent = syscall.SendmsgN(int(fd), b, control, destination(conn, to), syscall.MSG_DONTWAIT); !errors.Is(sent, syscall.EINTR) {
				return true
			}
		}
	})
	return errors.Join(err, sent)
}

// destination returns an address in the family of the socket; nil: the socket is connected.
func destination(conn *net.UDPConn, to netip.AddrPort) syscall.Sockaddr {
	if !to.IsValid() {
		return nil
	}
	if local, is := conn.LocalAddr().(*net.UDPAddr); is && local.IP.To4() != nil {
		return &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().Unmap().As4()}
	}
	return &syscall.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: zoneOf(to.Addr().Zone())}
}

// zoneOf is the number of the interface of a link-local address.
func zoneOf(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if index := indexOf(zone); index != 0 {
		return uint32(index)
	}
	n, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(n)
}
