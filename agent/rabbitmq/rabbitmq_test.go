// SPDX-License-Identifier: Apache-2.0

package rabbitmq

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/config"
)

func TestConfigurationErrorsNameTheField(t *testing.T) {
	const well = `url: "amqp://sluice@a:5672/v", passwordFile: /p, queue: intent`
	for _, c := range []struct{ text, want string }{
		{well, ""},
		{`url: "amqps://a", queue: intent, tls: {ca: /a, certificate: /c, key: /k}, deadLetter: d, events: e, prefetch: 10, memory: /m`, ""},
		{"queue: intent", "url: missing"},
		{`url: "http://a", queue: intent`, "url: not the URL of a broker"},
		{`url: "amqp://u:secret@a", queue: intent`, "url: it has a password; accepted: a passwordFile"},
		{`url: "amqp://u@a", queue: intent`, "passwordFile: missing"},
		{`url: "amqp://a", passwordFile: /p, queue: intent`, "passwordFile: the url has no user"},
		{`url: "amqp://a", queue: intent, tls: {ca: /a}`, "tls: the url is not encrypted"},
		{`url: "amqps://a", queue: intent, tls: {key: /a}`, "tls: certificate and key"},
		{`url: "amqp://a"`, "queue: missing"},
		{`url: "amqp://a", queue: intent, deadLetter: intent`, "the same"},
		{`url: "amqp://a", queue: intent, prefetch: 70000`, "prefetch: out of range: found 70000"},
		{well + ", exchange: x", "exchange"},
	} {
		said := config.Config{Listen: "unix:///s", Log: config.Log{Level: "info", Format: "text"}}
		err := said.Decode(strings.NewReader("northbounds: [{type: rabbitmq, "+c.text+"}]"), config.Types{"rabbitmq": New})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, not %q", c.text, err, c.want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("it tells the password: %v", err)
		}
	}
}
