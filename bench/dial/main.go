// SPDX-License-Identifier: Apache-2.0

// Command dial is many subscribers at once on one interface: PPPoE hosts (discovery, LCP, CHAP or PAP, IPCP, IPv6CP, router advertisements, DHCPv6)
// and IPoE hosts (DHCPv4, DHCPv6), each with a MAC and a pair of VLANs of its own. Examples, tests and `make bench-setup` use it.
//
// It reads commands, one a line, and answers each with a line of JSON:
//
//	dial             all lines come up, and come up again when they lose their session
//	status           counters
//	lines            those that are up, with their addresses
//	traffic PPS      lines that are up send ICMP echo requests to -server4 and -server6, so many a second in all; 0: none
//	reset            counters of traffic begin at zero
//	churn SECONDS    sessions live so long on average, and end in many ways; 0: no more
//	hangup           all lines end their sessions
//
// It ends when its input does.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type settings struct {
	device              string
	pppoe, ipoe         int
	pppoeVLAN, ipoeVLAN int
	inner, move         int
	method              string
	username, password  string
	server4, server6    string
	rate                float64
	window              int
	echo                time.Duration
	without6            bool
	only6               int
	seed                uint64
}

func main() {
	var o settings
	flag.StringVar(&o.device, "interface", "", "where the lines are")
	flag.IntVar(&o.pppoe, "pppoe", 0, "PPPoE subscribers")
	flag.IntVar(&o.ipoe, "ipoe", 0, "IPoE subscribers")
	flag.IntVar(&o.pppoeVLAN, "pppoe-vlan", 200, "first outer VLAN of PPPoE subscribers")
	flag.IntVar(&o.ipoeVLAN, "ipoe-vlan", 100, "first outer VLAN of IPoE subscribers")
	flag.IntVar(&o.inner, "inner", 1000, "inner VLANs, from 1 on, of each outer one")
	flag.IntVar(&o.move, "move", 0, "bits of the outer VLAN that change when a line moves; 0: lines do not move")
	flag.StringVar(&o.method, "method", "chap", "chap or pap")
	flag.StringVar(&o.username, "username", "pppoe-{n}", "names that a PPPoE line uses in turns, separated by commas; {n}: its number")
	flag.StringVar(&o.password, "password", "secret-{n}", "password of PPPoE lines")
	flag.StringVar(&o.server4, "server4", "", "IPv4 address that traffic is for")
	flag.StringVar(&o.server6, "server6", "", "IPv6 address that traffic is for")
	flag.Float64Var(&o.rate, "rate", 0, "dials a second; 0: as many as -window allows")
	flag.IntVar(&o.window, "window", 256, "lines that dial at the same time")
	flag.DurationVar(&o.echo, "echo", 30*time.Second, "how often a PPPoE line asks for an LCP echo")
	flag.BoolVar(&o.without6, "without6", false, "IPv4 alone")
	flag.IntVar(&o.only6, "only6", 0, "IPv6 without IPv4 on each IPoE line of so many; 0: on none")
	flag.Uint64Var(&o.seed, "seed", 1, "of random numbers")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "dial:", err)
		os.Exit(1)
	}
}

func newDialer(o *settings) (*dialer, error) {
	d := &dialer{random: rand.New(rand.NewPCG(o.seed, 1)), pppoe: o.pppoe, lines: make([]line, o.pppoe+o.ipoe), desired: make([]bool, o.pppoe+o.ipoe),
		usernames: strings.Split(o.username, ","), password: o.password, without6: o.without6, echoInterval: int64(o.echo), window: max(1, o.window),
		rate: o.rate, move: uint16(o.move), method: pppCHAP}
	switch o.method {
	case "chap":
	case "pap":
		d.method = pppPAP
	default:
		return nil, fmt.Errorf("-method %s: accepted: chap, pap", o.method)
	}
	for i, text := range []string{o.server4, o.server6} {
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4() != (i == 0) {
			return nil, fmt.Errorf("%q is not an address of the family", text)
		}
		d.server[i] = a
	}
	if o.only6 < 0 || o.only6 > 0 && o.without6 {
		return nil, fmt.Errorf("-only6 %d: accepted: at least 0, and not beside -without6", o.only6)
	}
	if len(d.lines) == 0 || o.inner < 1 || o.inner > 4094 || o.echo < time.Second {
		return nil, fmt.Errorf("accepted: -pppoe or -ipoe above 0, -inner 1 to 4094, -echo of at least 1s")
	}
	for i := range d.lines {
		l := &d.lines[i]
		first := o.pppoeVLAN
		l.number, l.ipoe = uint32(i), i >= o.pppoe
		if l.ipoe {
			l.number, first = uint32(i-o.pppoe), o.ipoeVLAN
			l.only6 = o.only6 > 0 && l.number%uint32(o.only6) == 0
		}
		outer := first + int(l.number)/o.inner
		if outer > 4094 || l.number >= 1<<24 {
			return nil, fmt.Errorf("line %d: no outer VLAN is left: raise -inner", i)
		}
		l.vlans = [2]uint16{uint16(outer), uint16(1 + int(l.number)%o.inner)}
		l.setMAC()
	}
	return d, nil
}

func run(o *settings) error {
	d, err := newDialer(o)
	if err != nil {
		return err
	}
	if d.wire, err = openWire(o.device); err != nil {
		return err
	}
	runtime.LockOSThread()
	signal, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	commands := make(chan string)
	go read(commands, signal)
	out := json.NewEncoder(os.Stdout)
	for began := time.Now(); ; {
		frames := d.step(began)
		select {
		case command, more := <-commands:
			if !more {
				return nil
			}
			if err := out.Encode(d.command(strings.Fields(command))); err != nil {
				return err
			}
		default:
		}
		if frames == 0 {
			if err := d.wire.wait(signal, time.Millisecond); err != nil {
				return err
			}
		}
	}
}

// read passes on commands, and wakes the loop.
func read(commands chan<- string, signal int) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		commands <- in.Text()
	}
	close(commands)
	_, _ = unix.Write(signal, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

type failure struct {
	Error string `json:"error"`
}

func (d *dialer) command(words []string) any {
	if len(words) == 0 {
		return failure{"a command is missing"}
	}
	number := 0.0
	if len(words) > 1 {
		var err error
		if number, err = strconv.ParseFloat(words[1], 64); err != nil || number < 0 {
			return failure{words[0] + ": a number of at least 0 follows, not " + words[1]}
		}
	}
	switch words[0] {
	case "dial":
		d.latencies, d.timed, d.first, d.last = [latencySlots]uint32{}, 0, 0, 0
		for i := range d.lines {
			d.desired[i] = true
			d.enqueue(&d.lines[i])
		}
	case "status":
	case "lines":
		return d.listed()
	case "traffic":
		d.traffic, d.trafficCredit, d.lastReply = number, 0, 0
	case "reset":
		d.count.sent, d.count.received, d.longest, d.lastReply = [2]uint64{}, [2]uint64{}, 0, 0
		d.both = 0
		for i := range d.lines {
			d.lines[i].sent, d.lines[i].received = [2]uint32{}, [2]uint32{}
		}
	case "churn":
		d.churn = int64(number * 1e9)
		for i := range d.lines {
			l := &d.lines[i]
			if l.ends = 0; d.churn > 0 && l.phase == up {
				l.ends = d.now + int64(d.random.ExpFloat64()*float64(d.churn))
				d.at(l, l.ends)
			}
		}
	case "hangup":
		for i := range d.lines {
			d.desired[i] = false
			d.hangUp(&d.lines[i])
		}
		d.pending, d.waiting = d.pending[:0], 0
	default:
		return failure{"unknown command " + words[0]}
	}
	return d.status()
}

// status is the reply to the command status: sums of all lines.
type status struct {
	Setups    uint64    `json:"setups"`
	Failed    uint64    `json:"failed"`
	Rejected  uint64    `json:"rejected"`
	Refused   uint64    `json:"refused"`
	Retries   uint64    `json:"retries"`
	Ended     uint64    `json:"ended"`
	Lost      uint64    `json:"lost"`
	Hangups   uint64    `json:"hangups"`
	Crashes   uint64    `json:"crashes"`
	Moves     uint64    `json:"moves"`
	Changes   uint64    `json:"changes"`
	Sent      [2]uint64 `json:"sent"`
	Received  [2]uint64 `json:"received"`
	Strangers uint64    `json:"strangers"`

	Lines   int `json:"lines"`
	Up      int `json:"up"`
	Dialing int `json:"dialing"`
	// Lines that got replies of each family since the counters began.
	Both int `json:"both"`
	// Set-ups since `dial`: seconds from the first frame to the last line that came up; milliseconds of a line.
	Seconds float64 `json:"seconds"`
	Median  int     `json:"median_ms"`
	P99     int     `json:"p99_ms"`
	// The longest time without a reply while there was traffic, in milliseconds.
	LongestGap float64 `json:"longest_gap_ms"`
	Unsent     uint64  `json:"unsent"`
	// Of this process, user and system, in seconds.
	CPU float64 `json:"cpu"`
}

func (d *dialer) status() status {
	var use unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &use)
	c := &d.count
	return status{Setups: c.setups, Failed: c.failed, Rejected: c.rejected, Refused: c.refused, Retries: c.retries, Ended: c.ended, Lost: c.lost,
		Hangups: c.hangups, Crashes: c.crashes, Moves: c.moves, Changes: c.changes, Sent: c.sent, Received: c.received, Strangers: c.strangers,
		Lines: len(d.lines), Up: d.isUpNow, Dialing: d.active, Both: d.both, Median: d.percentile(0.5), P99: d.percentile(0.99),
		LongestGap: float64(d.longest) / 1e6, Unsent: d.wire.unsent, Seconds: float64(d.last-d.first) / 1e9,
		CPU: float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9}
}

type listedLine struct {
	Name      string `json:"name"`
	MAC       string `json:"mac"`
	VLANs     []int  `json:"vlans"`
	PPPoE     int    `json:"pppoe"`
	IP4       string `json:"ip4"`
	IP6       string `json:"ip6"`
	Delegated string `json:"delegated"`
}

func (d *dialer) listed() []listedLine {
	out := []listedLine{}
	for i := range d.lines {
		l := &d.lines[i]
		if l.phase != up {
			continue
		}
		ip6, _ := l.ip6()
		one := listedLine{Name: l.name(), MAC: fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", l.mac[0], l.mac[1], l.mac[2], l.mac[3], l.mac[4], l.mac[5]),
			VLANs: []int{int(l.vlans[0]), int(l.vlans[1])}, PPPoE: int(l.session), IP4: address4(l.ip4), IP6: address6(ip6)}
		if l.six.delegated != [16]byte{} {
			one.Delegated = fmt.Sprintf("%s/%d", address6(l.six.delegated), l.six.bits)
		}
		out = append(out, one)
	}
	return out
}
