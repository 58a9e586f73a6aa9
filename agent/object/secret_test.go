// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
)

func TestErrorsOfASecretDoNotShowIt(t *testing.T) {
	r := objecttest.Secretive(t)
	const secret = "correct-horse"
	for _, spec := range []string{
		"{password: {a: correct-horse}}", "{password: [correct-horse]}", "{password: \"correct-horse\\u0007\"}", "{login: correct-horse}",
		"{login: [correct-horse]}", "{old: correct-horse}", "{old: [{a: correct-horse}]}", "{login: {key: {a: correct-horse}}}", "{password: correct-horse, password: correct-horse}", "{password: *correct-horse}",
		"{password: correct-horse, pasword: correct-horse}", "{password: correct-horse" + strings.Repeat("x", 2000) + "}",
		"{password: !!binary correct-horse}", "{password: %correct-horse}", "{password: \"correct-horse}", "{password: correct-horse: x}",
	} {
		text := "{apiVersion: sluice.dev/v1, kind: Peer, metadata: {name: p}, spec: " + spec + "}"
		_, err := r.Decode(strings.NewReader(text), "")
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{`{"password":{"a":"correct-horse"}}`, `{"password":["correct-horse"]}`, `{"login":"correct-horse"}`, `{"password":correct-horse}`,
		`{"password":"correct-horse","password":"correct-horse"}`, `{"password":"correct-horse\u0007"}`, `{"password":"correct-horse`,
		`{"password":"correct-horse" "correct-horse"}`} {
		n, err := object.ParseJSON([]byte(`{"apiVersion":"sluice.dev/v1","kind":"Peer","metadata":{"name":"p"},"spec":` + spec + `}`))
		if err == nil {
			_, errs := r.Object(n)
			err = errs.Or()
		}
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
