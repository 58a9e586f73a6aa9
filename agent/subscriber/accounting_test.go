// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"testing"
	"time"
)

func TestInterimRecordsOfSessionsThatCameUpTogetherAreSpread(t *testing.T) {
	for _, jitter := range []uint32{0, 10, 50} {
		half := time.Duration(jitter) * time.Second / 2
		earliest, latest := 200*time.Second, time.Duration(0)
		for range 1000 {
			after := interimAfter(began, times{interim: 100 * time.Second, jitter: jitter}).Sub(began)
			earliest, latest = min(earliest, after), max(latest, after)
		}
		// A thousand random times come close to both ends.
		if earliest < 100*time.Second-half || latest > 100*time.Second+half || latest-earliest < half {
			t.Errorf("%d %%: from %s to %s", jitter, earliest, latest)
		}
	}
	// The longest that a back end grants.
	for _, jitter := range []uint32{1, 10, 100} {
		for _, interval := range []time.Duration{1_000_000_000 * time.Second, (1<<32 - 1) * time.Second} {
			if after := interimAfter(began, times{interim: interval, jitter: jitter}).Sub(began); after < interval/2 || after > interval/2*3 {
				t.Errorf("%d %% of %s: %s", jitter, interval, after)
			}
		}
	}
	if !interimAfter(began, times{jitter: 10}).IsZero() {
		t.Error("a session without an interval has interim records")
	}
}
