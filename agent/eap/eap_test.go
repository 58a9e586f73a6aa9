// SPDX-License-Identifier: Apache-2.0

package eap

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
)

// RFC 2759 section 9.2, and RFC 3079 section 3.5.3.
func TestMSCHAPv2HasTheKeysOfTheRFCs(t *testing.T) {
	unhex := func(text string) []byte {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ours, peer := [16]byte(unhex("5B5D7C7D7B3F2F3E3C2C602132262628")), [16]byte(unhex("21402324255E262A28295F2B3A337C7E"))
	hash := passwordHash("clientPass")
	challenge := challengeHash(peer, ours, "User")
	response := responseTo(challenge, hash)
	if !bytes.Equal(response, unhex("82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF")) {
		t.Errorf("response %X", response)
	}
	twice := md4Sum(hash[:])
	if got := proof(twice, [24]byte(response), challenge); !bytes.Equal(got, unhex("407A5589115FD0D6209F510FE9C04566932CDA56")) {
		t.Errorf("proof %X", got)
	}
	// The key to send with at the server.
	if key := masterKeys(twice, [24]byte(response)); !bytes.Equal(key[16:32], unhex("8B7CDC149B993A1BA118CB153F56DCCB")) || len(key) != 64 {
		t.Errorf("keys %X", key)
	}
}

// peer answers as a client with a password.
func peer(t *testing.T, c Conversation, username, password string) Step {
	var step Step
	c.Next(nil, func(s Step) { step = s })
	for range 8 {
		if step.Success || step.Err != nil {
			return step
		}
		p, err := Parse(step.Packet)
		if err != nil || p.Code != Request {
			t.Fatalf("%x: %v", step.Packet, err)
		}
		answer := Packet{Code: Response, Identifier: p.Identifier, Type: p.Type}
		switch {
		case p.Type == TypeIdentity:
			answer.Data = []byte(username)
		case p.Data[0] == opChallenge:
			challenge := challengeHash([16]byte{1}, [16]byte(p.Data[5:21]), username)
			answer.Data = append([]byte{opResponse, p.Data[1], 0, 0, responseLength, 1}, make([]byte, 23)...)
			answer.Data = append(append(append(answer.Data, responseTo(challenge, passwordHash(password))...), 0), username...)
			binary.BigEndian.PutUint16(answer.Data[2:], uint16(len(answer.Data)))
		default:
			answer.Data = p.Data[:1]
		}
		c.Next(answer.Append(nil), func(s Step) { step = s })
	}
	t.Fatal("the conversation does not end")
	return step
}

func passwords(username string) (string, bool) { return "secret", username == "alice" }

func TestAPeerThatKnowsThePasswordIsAccepted(t *testing.T) {
	if s := peer(t, NewMSCHAPv2("gateway", passwords), "alice", "secret"); !s.Success || len(s.MSK) != 64 || s.Username != "alice" {
		t.Errorf("%+v", s)
	}
	for _, wrong := range [][2]string{{"alice", "other"}, {"bob", "secret"}, {"", ""}} {
		if s := peer(t, NewMSCHAPv2("gateway", passwords), wrong[0], wrong[1]); s.Success || s.Err == nil || s.Packet[0] != Failure {
			t.Errorf("%q: %+v", wrong, s)
		}
	}
}

func TestAPacketThatWasNotAskedForEndsTheConversation(t *testing.T) {
	for name, packet := range map[string][]byte{"short": {2}, "a request": {1, 1, 0, 5, 1}, "another identifier": {2, 9, 0, 5, 1}, "another type": {2, 1, 0, 6, 26, 3}} {
		c := NewMSCHAPv2("gateway", passwords)
		c.Next(nil, func(Step) {})
		c.Next(packet, func(s Step) {
			if s.Success || s.Err == nil {
				t.Errorf("%s: %+v", name, s)
			}
		})
	}
	c := NewMSCHAPv2("gateway", passwords)
	c.Next(nil, func(Step) {})
	c.Next([]byte{9}, func(s Step) {
		if !errors.Is(s.Err, ErrPacket) {
			t.Error(s.Err)
		}
	})
}

func FuzzMSCHAPv2(f *testing.F) {
	f.Add([]byte{2, 1, 0, 10, 1, 'a', 'l', 'i', 'c', 'e'}, append([]byte{2, 2, 0, 63, 26, 2, 2, 0, 58, 49}, make([]byte, 53)...))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c := NewMSCHAPv2("gateway", passwords)
		c.Next(nil, func(Step) {})
		ended := false
		for _, p := range [][]byte{first, second} {
			if p == nil || ended {
				continue
			}
			c.Next(p, func(s Step) {
				if ended = s.Err != nil; s.Success {
					t.Fatal("a peer without the password is accepted")
				}
			})
		}
	})
}
