// SPDX-License-Identifier: Apache-2.0

// The user at the other end of the Unix socket.
package server

import (
	"context"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// peerCredentials asks the kernel whose process connected. Nothing is encrypted: a Unix socket stays on the machine.
type peerCredentials struct{}

// caller is the user whose process connected.
type caller struct {
	credentials.CommonAuthInfo
	uid uint32
}

func (caller) AuthType() string { return "unix" }

func (peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := caller{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return c, nil, nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var found *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { found, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, nil, err
	}
	if failed != nil {
		return nil, nil, failed
	}
	info.uid = found.Uid
	return c, info, nil
}

func (peerCredentials) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, nil, nil
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }
func (peerCredentials) OverrideServerName(string) error           { return nil }

// who returns the name of the calling user; empty: unknown.
func who(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	c, ok := p.AuthInfo.(caller)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(c.uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}
