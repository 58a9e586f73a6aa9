// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// responder answers all requests to a port.
func responder(b testing.TB) (port int) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	_ = conn.SetReadBuffer(4 << 20)
	go answerAll(conn)
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// answerAll answers all requests until the socket is closed.
func answerAll(conn *net.UDPConn) {
	buffer := make([]byte, maxLength)
	var grant attributes
	grant.add(typeFramedIPAddress, []byte{100, 64, 0, 7})
	grant.text(typeFramedPool, "home")
	grant.vendor(vendorMikrotik, mikrotikRateLimit, []byte("10M/50M"))
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		p, err := parse(buffer[:n])
		if err != nil {
			continue
		}
		code, all := AccountingResponse, attributes(nil)
		if p.code() == AccessRequest {
			code, all = AccessAccept, grant
		}
		_, _ = conn.WriteToUDPAddrPort(reply(code, p, []byte("testing123"), all), from)
	}
}

// BenchmarkSetUp authenticates a subscriber and accounts for him, many at once, with the durable log. The CPU time is that of both sides.
func BenchmarkSetUp(b *testing.B) {
	port := uint32(responder(b))
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(b, b.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: port, AccountingPort: port, Secret: "testing123"},
		&api.RadiusPolicy{Authentication: choices, Accounting: choices}, nil)
	var group sync.WaitGroup
	slots := make(chan struct{}, 256)
	before := cpu()
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		group.Add(1)
		r := subscriber.Request{Protocol: "pppoe", Profile: "home", ID: fmt.Sprint("s-", i), Credentials: subscriber.Credentials{Username: "alice", Password: []byte("wonderland")}}
		a.Authenticate(r, func(answer subscriber.Answer) {
			if answer.Reject != nil {
				b.Error(answer.Reject)
			}
			a.Account(subscriber.Record{Kind: subscriber.Start, At: time.Now(), Request: r, Grant: answer.Grant})
			<-slots
			group.Done()
		})
	}
	group.Wait()
	until(b, "all records are acknowledged", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.spool.count == 0
	})
	b.ReportMetric(float64(cpu()-before)/float64(time.Microsecond)/float64(b.N), "cpu-µs/op")
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
