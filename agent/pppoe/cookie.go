// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"hash"
	"time"

	"sluice.dev/sluice/agent/subscriber"
)

// The AC-Cookie proves that a host receives frames for its MAC on its circuit (RFC 2516 section 5.4). It needs no state: it is an HMAC over
// both and the time. It is good for one to two slots. The key is replaced every hour; the one before it counts for as long as cookies made with it.
const (
	cookieSlot   = 30 * time.Second
	cookieLength = 16
	keyLength    = 32
	keyTime      = time.Hour
)

// cookieKeys are the key of AC-Cookies and the one before it, and when the key was made. They outlive the agent: a host that was offered a session
// before a restart gets it afterwards.
type cookieKeys struct {
	keys [2][keyLength]byte
	made time.Time
}

func readCookieKeys(b []byte) (c cookieKeys, ok bool) {
	if len(b) != 2*keyLength+8 {
		return c, false
	}
	copy(c.keys[0][:], b)
	copy(c.keys[1][:], b[keyLength:])
	c.made = time.Unix(int64(binary.BigEndian.Uint64(b[2*keyLength:])), 0)
	return c, true
}

func (c *cookieKeys) bytes() []byte {
	b := append(append(make([]byte, 0, 2*keyLength+8), c.keys[0][:]...), c.keys[1][:]...)
	return binary.BigEndian.AppendUint64(b, uint64(c.made.Unix()))
}

// due reports whether a new key is to be made: the clock may have been set back, too.
func (c *cookieKeys) due(now time.Time) bool {
	age := now.Sub(c.made)
	return age >= keyTime || age < 0
}

// renew makes a new key.
func (c *cookieKeys) renew(now time.Time) error {
	c.keys[1] = c.keys[0]
	if _, err := rand.Read(c.keys[0][:]); err != nil {
		return err
	}
	c.made = now
	return nil
}

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
func (m *Machine) cookieRight(cookie []byte, at place, outer, inner uint16, mac subscriber.MAC) bool {
	for _, key := range m.keys {
		for _, slot := range []int64{slotOf(m.now), slotOf(m.now) - 1} {
			right := cookieOf(key, at, outer, inner, mac, slot)
			if hmac.Equal(cookie, right[:]) {
				return true
			}
		}
	}
	return false
}
