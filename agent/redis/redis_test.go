// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/northbound"
)

func TestASectionIsChecked(t *testing.T) {
	at := Server{Address: "127.0.0.1:6379"}
	for _, test := range []struct {
		section northbound.Section
		problem string
	}{
		{&Section{Server: at, Prefix: "a:", StatusPrefix: "b:", Interval: time.Second}, ""},
		{&Section{Server: Server{Address: "/run/redis.sock"}, Prefix: "a:", StatusPrefix: "b:", Interval: time.Second}, ""},
		{New(), "address: "},
		{&Section{Server: at, Prefix: "a:", StatusPrefix: "a:s:", Interval: time.Second}, "statusPrefix: "},
		{&Section{Server: at, StatusPrefix: "a:", Interval: time.Second}, "prefix"},
		{&Section{Server: at, Prefix: "a:", StatusPrefix: "b:"}, "interval: "},
		{&Section{Server: Server{Address: "h:1", Username: "u"}, Prefix: "a:", StatusPrefix: "b:", Interval: time.Second}, "passwordFile: "},
		{&Section{Server: Server{Address: "h:1", TLS: &northbound.TLS{Key: "k"}}, Prefix: "a:", StatusPrefix: "b:", Interval: time.Second}, "tls: "},
		{NewStream(), "stream: "},
		{&StreamSection{Server: at, Stream: "a", Events: "a.dead", EventsLength: 1}, "the same"},
		{&StreamSection{Server: at, Stream: "a", Events: "b"}, "eventsLength: "},
		{&StreamSection{Server: at, Stream: "a", Events: "b", EventsLength: 1}, ""},
	} {
		err := test.section.Check()
		if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%+v: %v; want %q", test.section, err, test.problem)
		}
	}
}

func TestNumbersOfEntriesAreInTheOrderOfTheirIDs(t *testing.T) {
	var before uint64
	for _, id := range []string{"0-1", "0-2", "1-0", "1700000000000-0", "1700000000000-7", "1700000000001-0"} {
		n, ok := number(id)
		if !ok || n <= before {
			t.Errorf("%s: %d %v; before: %d", id, n, ok, before)
		}
		before = n
	}
	for _, id := range []string{"", "-", "1", "1-1048576", "17592186044416-0", "a-b", "-1-0"} {
		if n, ok := number(id); ok {
			t.Errorf("%q: %d", id, n)
		}
	}
}

func TestAPrefixIsTakenLiterally(t *testing.T) {
	if got := glob(`a*b?[c]\`); got != `a\*b\?\[c\]\\*` {
		t.Error(got)
	}
}
