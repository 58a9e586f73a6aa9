// SPDX-License-Identifier: Apache-2.0

// Answers leave from the address that the request came to (IP_PKTINFO, RFC 3542): a client drops those from another one.
package radius

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"
)

// tellDestination makes a socket tell with each packet which address it came to. A socket of IPv6 tells it of IPv4, too.
func tellDestination(conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_RECVPKTINFO, 1)
		if failed != nil {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_PKTINFO, 1)
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// sourceOf returns control data that gives the answer to a packet the source to which the packet came; nil: the host chooses.
func sourceOf(control []byte) []byte {
	all, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range all {
		switch {
		case m.Header.Level == syscall.IPPROTO_IPV6 && m.Header.Type == syscall.IPV6_PKTINFO && len(m.Data) >= 20:
			// struct in6_pktinfo: address, interface. The host chooses the interface, except of link-local addresses.
			info := append([]byte(nil), m.Data[:20]...)
			if address := netip.AddrFrom16([16]byte(info)); !address.IsLinkLocalUnicast() || address.Is4In6() {
				binary.NativeEndian.PutUint32(info[16:], 0)
			}
			return controlMessage(syscall.IPPROTO_IPV6, syscall.IPV6_PKTINFO, info)
		case m.Header.Level == syscall.IPPROTO_IP && m.Header.Type == syscall.IP_PKTINFO && len(m.Data) >= 12:
			// struct in_pktinfo: interface, local address, destination.
			info := make([]byte, 12)
			copy(info[4:8], m.Data[4:8])
			return controlMessage(syscall.IPPROTO_IP, syscall.IP_PKTINFO, info)
		}
	}
	return nil
}

func controlMessage(level, kind int32, data []byte) []byte {
	b := make([]byte, syscall.CmsgSpace(len(data)))
	head := (*syscall.Cmsghdr)(unsafe.Pointer(&b[0]))
	head.Level, head.Type = level, kind
	head.SetLen(syscall.CmsgLen(len(data)))
	copy(b[syscall.CmsgLen(0):], data)
	return b
}

// indexOf is the number of an interface of the host; 0: there is none. One that went and returned has another number.
func indexOf(device string) int {
	found, err := net.InterfaceByName(device)
	if err != nil {
		return 0
	}
	return found.Index
}
