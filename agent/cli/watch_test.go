// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestEventsOfServicesAreWatched(t *testing.T) {
	event := &api.ServiceEvent{Type: "toy", Kind: "Toy", Name: "car", State: "wound", Text: "The toy car is wound", Time: 1e9,
		Fields: []*api.EventField{{Name: "turns", Value: "7"}}}
	for format, want := range map[string]string{
		"table": "The toy car is wound since 1970-01-01T00:00:01Z.\n",
		"json":  `{"change":"toy","object":{"apiVersion":"sluice.dev/v1","kind":"Toy","name":"car","state":"wound","turns":"7","time":"1970-01-01T00:00:01Z"}}` + "\n",
	} {
		var out bytes.Buffer
		w := &watcher{program: &program{out: &printable{to: &out}}, output: format}
		if err := w.show(&api.ObjectChange{Change: api.ObjectChange_SERVICE, Service: event}); err != nil || out.String() != want {
			t.Errorf("%s: %s, %v", format, out.String(), err)
		}
	}
}
