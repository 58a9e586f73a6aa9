// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"
)

// connectTimeout is how long an agent that is there may take to accept a connection and to begin with HTTP/2.
const connectTimeout = 20 * time.Second

// dialUnix connects to an agent's socket. The kernel refuses with EAGAIN while as many clients wait to be accepted as the agent lets wait
// (unix(7), listen(2)); then it asks again until the context ends. If there is no agent, the error comes at once.
func dialUnix(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		c, err := d.DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause/2 + rand.N(pause)): // not all at the same time
		}
	}
}
