// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheExampleOfRFC2759IsAccepted(t *testing.T) {
	c := &MSCHAPv2{AuthenticatorChallenge: [16]byte(unhex(t, "5B5D7C7D7B3F2F3E3C2C602132262628")),
		PeerChallenge: [16]byte(unhex(t, "21402324255E262A28295F2B3A337C7E")),
		Response:      [24]byte(unhex(t, "82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF"))}
	users := map[string]*api.LocalUser{"User": {Username: "User", Password: "clientPass"}}
	a := authenticateLocal(users, &Request{Credentials: Credentials{Username: "User", MSCHAPv2: c}})
	if a.Reject != nil || a.Message != "S=407A5589115FD0D6209F510FE9C04566932CDA56" {
		t.Errorf("%+v", a)
	}
	wrong := *c
	wrong.Response[3] ^= 1
	if a := authenticateLocal(users, &Request{Credentials: Credentials{Username: "User", MSCHAPv2: &wrong}}); a.Reject == nil || a.Message != failure2759 {
		t.Errorf("%+v", a)
	}
	domain := map[string]*api.LocalUser{`DOMAIN\User`: {Username: `DOMAIN\User`, Password: "clientPass"}}
	if a := authenticateLocal(domain, &Request{Credentials: Credentials{Username: `DOMAIN\User`, MSCHAPv2: c}}); a.Reject != nil {
		t.Errorf("the domain is not part of the challenge: %+v", a)
	}
}

func TestOnlyTheRightPasswordIsAccepted(t *testing.T) {
	users := map[string]*api.LocalUser{
		"alice": {Username: "alice", Password: "secret", Profile: "fast", Ipv4Address: "100.64.7.7"}, "line": {Username: "line"},
		"gone": {Username: "gone", Password: "secret", Disabled: true}}
	chap := func(password string) *CHAP {
		return &CHAP{Identifier: 7, Challenge: []byte("0123456789abcdef"), Response: md5.Sum([]byte("\x07" + password + "0123456789abcdef"))}
	}
	for _, c := range []struct {
		sentence string
		said     Credentials
		want     error
	}{
		{"PAP", Credentials{Username: "alice", Password: []byte("secret")}, nil},
		{"PAP, wrong", Credentials{Username: "alice", Password: []byte("secreT")}, errPassword},
		{"PAP, shorter", Credentials{Username: "alice", Password: []byte{}}, errPassword},
		{"CHAP", Credentials{Username: "alice", CHAP: chap("secret")}, nil},
		{"CHAP, wrong", Credentials{Username: "alice", CHAP: chap("other")}, errPassword},
		{"nothing where a password is needed", Credentials{Username: "alice"}, errPassword},
		{"a line", Credentials{Username: "line"}, nil},
		{"an empty password proves nothing", Credentials{Username: "line", Password: []byte{}}, errPassword},
		{"an empty password proves nothing by CHAP", Credentials{Username: "line", CHAP: chap("")}, errPassword},
		{"unknown", Credentials{Username: "bob", Password: []byte("secret")}, ErrUnknownUser},
		{"disabled", Credentials{Username: "gone", Password: []byte("secret")}, errDisabled},
	} {
		a := authenticateLocal(users, &Request{Credentials: c.said})
		if !errors.Is(a.Reject, c.want) || c.want == nil && a.Reject != nil {
			t.Errorf("%s: %v, not %v", c.sentence, a.Reject, c.want)
		}
		if a.Reject == nil && c.said.Username == "alice" && (a.Grant.Profile != "fast" || a.Grant.IPv4.String() != "100.64.7.7") {
			t.Errorf("%s: %+v", c.sentence, a.Grant)
		}
	}
}
