// SPDX-License-Identifier: Apache-2.0

// Opens IKE SAs with a responder from a range of addresses, rekeys their child SAs and takes them down: as many peers as one likes, without a data
// plane. Each phase begins with its name on standard input ("up", "rekey", "down") and ends with a line of JSON on standard output.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

type load struct {
	count, window int
	sockets       map[netip.AddrPort]*net.UDPConn

	mu      sync.Mutex
	machine *ike.Machine
	// The event that a phase waits for, of the connections that are under way.
	event   string
	started int
	under   map[string]bool
	done    int
	failed  int
	ended   chan struct{}
	begin   func(name string, now time.Time) []ike.Action
}

type outcome struct {
	Phase   string  `json:"phase"`
	Count   int     `json:"count"`
	Failed  int     `json:"failed"`
	Seconds float64 `json:"seconds"`
}

func name(i int) string { return fmt.Sprintf("peer-%06d", i) }

func proposal(protocol message.Protocol, text string) []message.Proposal {
	p, err := suite.ParseProposal(protocol, text)
	if err != nil {
		log.Fatal(err)
	}
	return []message.Proposal{p}
}

// do changes the machine and carries out its actions.
func (l *load) do(f func(now time.Time) []ike.Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carryOut(f(time.Now()))
}

// carryOut carries out actions. l.mu is held.
func (l *load) carryOut(actions []ike.Action) {
	for len(actions) > 0 {
		one := actions[0]
		actions = actions[1:]
		switch one := one.(type) {
		case ike.Send:
			if s := l.sockets[one.Local]; s != nil {
				if _, err := s.WriteToUDPAddrPort(one.Data, one.Remote); err != nil {
					log.Print(err)
				}
			}
		case ike.Install:
			actions = append(actions, l.machine.Installed(one.Child.SPIIn, nil, time.Now())...)
		case ike.Event:
			if !l.under[one.Connection] || one.What != l.event && !strings.HasSuffix(one.What, "failed") {
				continue
			}
			delete(l.under, one.Connection)
			l.done++
			if one.What != l.event {
				l.failed++
				log.Print(one.Connection, ": ", one.Detail)
			}
			actions = append(actions, l.next()...)
			if l.done == l.count {
				close(l.ended)
			}
		}
	}
}

// next begins as many as the window has room for. l.mu is held.
func (l *load) next() (actions []ike.Action) {
	for len(l.under) < l.window && l.started < l.count {
		n := name(l.started)
		l.started++
		l.under[n] = true
		actions = append(actions, l.begin(n, time.Now())...)
	}
	return actions
}

// phase does something with each connection.
func (l *load) phase(what, event string, begin func(name string, now time.Time) []ike.Action) {
	start := time.Now()
	l.mu.Lock()
	l.event, l.begin, l.started, l.done, l.failed, l.under, l.ended = event, begin, 0, 0, 0, map[string]bool{}, make(chan struct{})
	ended := l.ended
	l.carryOut(l.next())
	l.mu.Unlock()
	<-ended
	line, err := json.Marshal(outcome{what, l.done, l.failed, time.Since(start).Seconds()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

func main() {
	remote := flag.String("remote", "192.0.2.1", "address of the responder")
	first := flag.String("local", "192.0.2.16", "first address of the peers")
	addresses := flag.Int("addresses", 32, "addresses of the peers")
	count := flag.Int("count", 1000, "IKE SAs")
	window := flag.Int("window", 32, "exchanges under way at once")
	secret := flag.String("secret", "secret", "shared key")
	network := flag.String("network", "10.1.0.0/16", "network behind the responder")
	inner := flag.String("inner", "10.128.0.1", "first inner address of the peers")
	proposalIKE := flag.String("ike", "aes256gcm16-prfsha256-x25519", "proposal of the IKE SA")
	proposalESP := flag.String("esp", "aes256gcm16-x25519", "proposal of the child SA")
	flag.Parse()
	l := &load{count: *count, window: *window, sockets: map[netip.AddrPort]*net.UDPConn{}, machine: ike.New(time.Now()), under: map[string]bool{}}
	var locals []netip.Addr
	for a := netip.MustParseAddr(*first); len(locals) < *addresses; a = a.Next() {
		locals = append(locals, a)
		for _, port := range []uint16{ike.Port, ike.NATPort} {
			at := netip.AddrPortFrom(a, port)
			s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			if err != nil {
				log.Fatal(err)
			}
			_ = s.SetReadBuffer(4 << 20)
			l.sockets[at] = s
			go func() {
				b := make([]byte, 65536)
				for {
					n, from, err := s.ReadFromUDPAddrPort(b)
					if err != nil {
						return
					}
					data := append([]byte(nil), b[:n]...)
					l.do(func(now time.Time) []ike.Action {
						return l.machine.Receive(ike.Datagram{Local: at, Remote: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), Data: data}, now)
					})
				}
			}()
		}
	}
	identity, err := ike.ParseIdentity("gateway.load.example")
	if err != nil {
		log.Fatal(err)
	}
	behind, peer := []message.Selector{ike.SelectorOf(netip.MustParsePrefix(*network))}, netip.MustParseAddr(*inner)
	for i := range *count {
		ours, err := ike.ParseIdentity(fmt.Sprintf("%s.load.example", name(i)))
		if err != nil {
			log.Fatal(err)
		}
		c := &ike.Connection{Name: name(i), Local: locals[i%len(locals)], Remote: netip.MustParseAddr(*remote), LocalID: ours, RemoteID: identity, Secret: []byte(*secret),
			Proposals: proposal(message.ProtocolIKE, *proposalIKE), NoMOBIKE: true,
			Children: []*ike.Child{{Name: "net", Proposals: proposal(message.ProtocolESP, *proposalESP), Local: []message.Selector{ike.SelectorOf(netip.PrefixFrom(peer, 32))}, Remote: behind}}}
		l.do(func(now time.Time) []ike.Action { return l.machine.SetConnection(c.Name, c, now) })
		peer = peer.Next()
	}
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			l.do(l.machine.Tick)
		}
	}()
	fmt.Println("{}")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "up":
			l.phase("up", "child-up", func(name string, now time.Time) []ike.Action {
				actions, err := l.machine.Initiate(name, "", now)
				if err != nil {
					log.Fatal(err)
				}
				return actions
			})
		case "rekey":
			l.phase("rekey", "child-rekeyed", func(name string, now time.Time) []ike.Action {
				actions, _ := l.machine.Rekey(name, "*", now)
				return actions
			})
		case "down":
			l.phase("down", "down", func(name string, now time.Time) []ike.Action {
				actions, _ := l.machine.Terminate(name, "", now)
				return actions
			})
		default:
			log.Fatalf("unknown phase %q", lines.Text())
		}
	}
}
