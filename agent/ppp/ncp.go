// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"bytes"
	"encoding/binary"
)

// Options of IPCP (RFC 1332, RFC 1877) and IPv6CP (RFC 5072).
const (
	optionAddress      = 3
	optionPrimaryDNS   = 129
	optionSecondaryDNS = 131
	optionInterfaceID  = 1
)

type ipcpLayer struct{}

func (ipcpLayer) protocol() Protocol { return IPCP }

func (ipcpLayer) request(l *Link, b []byte) []byte {
	if l.noAddress || l.net == nil || l.net.gateway == [4]byte{} {
		return b
	}
	return append(append(b, optionAddress, 6), l.net.gateway[:]...)
}

func (ipcpLayer) reporter(l *Link, options []byte, lastTry bool) (uint8, []byte) {
	var nak, reject []byte
	address := false
	same := func(option []byte, value [4]byte) {
		if [4]byte(option[2:6]) != value {
			nak = append(append(nak, option[0], 6), value[:]...)
		}
	}
	for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
		option := rest[:rest[1]]
		switch {
		case option[0] == optionAddress && len(option) == 6:
			address = true
			same(option, l.net.address)
		case option[0] == optionPrimaryDNS && len(option) == 6 && l.net.dns4Count > 0:
			same(option, l.net.dns4[0])
		case option[0] == optionSecondaryDNS && len(option) == 6 && l.net.dns4Count > 0:
			// A peer that asks for two servers and gets one negotiates for ever.
			same(option, l.net.dns4[l.net.dns4Count-1])
		default:
			// Compression, NetBIOS name servers, and unknown options.
			reject = append(reject, option...)
		}
	}
	if !address && !l.asked4 {
		// RFC 1332 section 3.3: a Nak suggests the address once. A peer that leaves the option out again accepts the default.
		l.asked4 = true
		nak = append(append(nak, optionAddress, 6), l.net.address[:]...)
	}
	return answerOf(options, nak, reject, lastTry)
}

func answerOf(options, nak, reject []byte, lastTry bool) (uint8, []byte) {
	switch {
	case len(reject) > 0:
		return configureReject, reject
	case len(nak) > 0 && lastTry:
		// RFC 1661 section 4.6: of those alone that the peer sent.
		var all []byte
		for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
			for wish := nak; len(wish) > 0; wish = wish[wish[1]:] {
				if wish[0] == rest[0] {
					all = append(all, rest[:rest[1]]...)
					break
				}
			}
		}
		if len(all) > 0 {
			return configureReject, all
		}
		return configureAck, options
	case len(nak) > 0:
		return configureNak, nak
	}
	return configureAck, options
}

func (ipcpLayer) refused(l *Link, code uint8, options []byte) string {
	for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
		if rest[0] == optionAddress {
			// Our address is not the peer's to choose: it goes without.
			l.noAddress = true
		}
	}
	return ""
}

func (ipcpLayer) up(l *Link, now int64, out []Action) []Action {
	l.networkChanged(now)
	return append(out, Action{Kind: Opened, Family: 4})
}

func (ipcpLayer) down(l *Link, now int64, out []Action) []Action {
	l.asked4 = false
	return out
}

func (ipcpLayer) failed(l *Link, now int64, out []Action) []Action {
	l.ipcp.state, l.ipcp.deadline = stopped, 0
	l.networkChanged(now)
	return drop(out, "ipcp-failed")
}

type ip6cpLayer struct{}

func (ip6cpLayer) protocol() Protocol { return IPv6CP }

func (ip6cpLayer) request(l *Link, b []byte) []byte {
	if l.noID {
		return b
	}
	return append(append(b, optionInterfaceID, 10), l.ourID[:]...)
}

func (ip6cpLayer) reporter(l *Link, options []byte, lastTry bool) (uint8, []byte) {
	var nak, reject []byte
	seen := false
	wish := [8]byte{}
	for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
		option := rest[:rest[1]]
		if option[0] != optionInterfaceID || len(option) != 10 {
			reject = append(reject, option...)
			continue
		}
		seen = true
		wish = [8]byte(option[2:10])
		given := l.net.desiredID
		switch {
		case given != [8]byte{}:
		case wish == [8]byte{} || wish == l.ourID:
			// RFC 5072 section 4.1: one that is neither zero nor ours.
			given = l.newInterfaceID()
		default:
			given = wish
		}
		if wish != given {
			nak = append(append(nak, optionInterfaceID, 10), given[:]...)
		}
	}
	if !seen && !l.asked6 {
		l.asked6 = true
		given := l.net.desiredID
		if given == [8]byte{} {
			given = l.newInterfaceID()
		}
		nak = append(append(nak, optionInterfaceID, 10), given[:]...)
	}
	code, answer := answerOf(options, nak, reject, lastTry)
	if code == configureAck {
		l.peerID = wish
	}
	return code, answer
}

func (l *Link) newInterfaceID() (id [8]byte) {
	for id == [8]byte{} || id == l.ourID {
		binary.BigEndian.PutUint64(id[:], l.config.Random())
		id[0] &^= 2
	}
	return id
}

func (ip6cpLayer) refused(l *Link, code uint8, options []byte) string {
	for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
		switch {
		case rest[0] != optionInterfaceID:
		case code == configureReject:
			l.noID = true
		case rest[1] == 10 && !bytes.Equal(rest[2:10], l.ourID[:]) && !bytes.Equal(rest[2:10], make([]byte, 8)):
			l.ourID = [8]byte(rest[2:10])
		default:
			l.ourID = l.newInterfaceID()
		}
	}
	return ""
}

func (ip6cpLayer) up(l *Link, now int64, out []Action) []Action {
	l.networkChanged(now)
	l.advertised = 0
	return l.advertise(now, append(out, Action{Kind: Opened, Family: 6}))
}

func (ip6cpLayer) down(l *Link, now int64, out []Action) []Action {
	l.asked6, l.advertiseDue = false, 0
	return out
}

func (ip6cpLayer) failed(l *Link, now int64, out []Action) []Action {
	l.ip6cp.state, l.ip6cp.deadline = stopped, 0
	l.networkChanged(now)
	return drop(out, "ipv6cp-failed")
}
