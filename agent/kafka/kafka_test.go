// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/config"
)

func TestConfigurationErrorsNameTheField(t *testing.T) {
	const well = "brokers: [a:9092], topic: intent"
	for _, c := range []struct{ text, want string }{
		{well, ""},
		{well + ", group: g, deadLetter: d, events: e, memory: /m, tls: {}, sasl: {mechanism: scram-sha-512, user: u, passwordFile: /p}", ""},
		{"topic: intent", "brokers: missing"},
		{"brokers: [a], topic: intent", `brokers: not an address: found "a"; accepted: HOST:PORT`},
		{"brokers: [a:9092]", "topic: missing"},
		{well + ", deadLetter: intent", "two of them are the same"},
		{well + ", events: intent.dead", "two of them are the same"},
		{well + ", tls: {certificate: /c}", "tls: certificate and key"},
		{well + ", sasl: {mechanism: gssapi}", `sasl.mechanism: there is no such mechanism: found "gssapi"; accepted: plain, scram-sha-256, scram-sha-512`},
		{well + ", sasl: {mechanism: plain}", "sasl.user: missing"},
		{well + ", sasl: {mechanism: plain, user: u}", "sasl.passwordFile: missing"},
		{well + ", password: x", "password"},
	} {
		said := config.Config{Listen: "unix:///s", Log: config.Log{Level: "info", Format: "text"}}
		err := said.Decode(strings.NewReader("northbounds: [{type: kafka, "+c.text+"}]"), config.Types{"kafka": New})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, not %q", c.text, err, c.want)
		}
	}
}
