// SPDX-License-Identifier: Apache-2.0

// Command sluice-associate opens an SCTP association by sluice-sctp, as the agent does, for tests of its stacks. It reads commands, one a line, and
// writes events:
//
//	open LOCAL,... REMOTE,...     up OUT IN, down REASON
//	send STREAM COUNT SIZE        COUNT messages with the numbers from 0, padded to SIZE octets; then sent STREAM COUNT
//	close, abort                  down REASON
//
// A received message is an event `message STREAM PPID NUMBER SIZE`; `path ADDRESS REACHABLE` and `restarted OUT IN` are the other events.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/agent/sctp"
)

// ngap is the payload protocol identifier of NGAP.
const ngap = 60

type events struct {
	of atomic.Pointer[sctp.Association]
}

func (*events) Up(out, in uint16) { fmt.Println("up", out, in) }
func (e *events) Restarted(out, in uint16) {
	if a := e.of.Load(); a != nil {
		a.Renew()
	}
	fmt.Println("restarted", out, in)
}
func (*events) Message(stream uint16, protocol uint32, message []byte) {
	fmt.Println("message", stream, protocol, string(bytes.TrimRight(message, ".")), len(message))
}
func (*events) Path(address netip.Addr, reachable bool) { fmt.Println("path", address, reachable) }
func (*events) Down(reason string)                      { fmt.Println("down", reason) }

func addresses(text string) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, each := range strings.Split(text, ",") {
		address, err := netip.ParseAddr(each)
		if err != nil {
			return nil, err
		}
		found = append(found, address)
	}
	return found, nil
}

func run(port uint16) error {
	program, err := sctp.Program()
	if err != nil {
		return err
	}
	transport, err := sctp.Start(context.Background(), program, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	if err != nil {
		return err
	}
	var association *sctp.Association
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 3 && words[0] == "open":
			c := sctp.Config{LocalPort: port, Port: port, Streams: 16, Heartbeat: 200 * time.Millisecond}
			if c.Local, err = addresses(words[1]); err != nil {
				return err
			}
			if c.Remote, err = addresses(words[2]); err != nil {
				return err
			}
			heard := &events{}
			if association, err = transport.Open(c, heard); err != nil {
				return err
			}
			heard.of.Store(association)
		case len(words) == 4 && words[0] == "send" && association != nil:
			var stream, count, size int
			if _, err := fmt.Sscan(strings.Join(words[1:], " "), &stream, &count, &size); err != nil {
				return err
			}
			for number := range count {
				message := append(fmt.Appendf(nil, "%d", number), bytes.Repeat([]byte("."), size)...)[:size]
				if err := association.Send(uint16(stream), ngap, message); err != nil {
					return err
				}
			}
			fmt.Println("sent", stream, count)
		case len(words) == 1 && words[0] == "close" && association != nil:
			association.Close()
		case len(words) == 1 && words[0] == "abort" && association != nil:
			association.Abort()
		default:
			return fmt.Errorf("unknown command %q", lines.Text())
		}
	}
	return nil
}

func main() {
	port := flag.Uint("port", 38412, "the port of both ends")
	flag.Parse()
	if err := run(uint16(*port)); err != nil {
		fmt.Fprintln(os.Stderr, "sluice-associate:", err)
		os.Exit(1)
	}
}
