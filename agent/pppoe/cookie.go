// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"crypto/hmac"
	"encoding/binary"
	"hash"
	"time"

	"sluice.dev/sluice/agent/subscriber"
)

// The AC-Cookie proves that a host receives frames for its MAC on its circuit (RFC 2516 section 5.4). It needs no state: it is an HMAC over
// both and the time. It is good for one to two slots.
const (
	cookieSlot   = 30 * time.Second
	cookieLength = 16
)

func cookieOf(secret hash.Hash, at place, outer, inner uint16, mac subscriber.MAC, slot int64) [cookieLength]byte {
	b := make([]byte, 0, 96)
	b = binary.BigEndian.AppendUint64(b, uint64(slot))
	b = append(b, mac[:]...)
	b = binary.BigEndian.AppendUint16(b, outer)
	b = binary.BigEndian.AppendUint16(b, inner)
	b = append(append(append(b, at.dataplane...), 0), at.port...)
	secret.Reset()
	secret.Write(b)
	return [cookieLength]byte(secret.Sum(nil))
}

func slotOf(now int64) int64 { return now / int64(cookieSlot) }

// cookieRight reports whether this host got the cookie a moment ago.
func cookieRight(cookie []byte, secret hash.Hash, at place, outer, inner uint16, mac subscriber.MAC, now int64) bool {
	for _, slot := range []int64{slotOf(now), slotOf(now) - 1} {
		right := cookieOf(secret, at, outer, inner, mac, slot)
		if hmac.Equal(cookie, right[:]) {
			return true
		}
	}
	return false
}
