// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/agent/ike/message"
)

// strongSwan is a daemon in a network namespace, and a Machine in another one, with UDP sockets.
type strongSwan struct {
	t         *testing.T
	directory string
	here      string
	there     string
	daemon    *exec.Cmd
	ended     chan struct{}
	sockets   []*net.UDPConn

	mu      sync.Mutex
	changed *sync.Cond
	m       *Machine
	in, out map[uint32]*ChildSA
	events  []string
	answer  func(question any) any
	// Datagrams that we send are lost while this says so.
	lose func(d Datagram) bool
	// Fragments of a message arrive in the wrong order, and one of them twice, both ways.
	shuffle   bool
	fragments map[bool][]Datagram // by whether they are ours
	shuffled  map[bool]int
}

const strongSwanConfiguration = `
charon-systemd {
	load = random nonce drbg openssl gcrypt aes sha1 sha2 md5 hmac kdf gcm ctr chapoly curve25519 xcbc pem pkcs1 pkcs8 x509 revocation constraints pubkey mgf1 kernel-libipsec kernel-netlink socket-default eap-identity eap-mschapv2 eap-tls vici
	retransmit_tries = 3
	retransmit_timeout = 1
	delete_rekeyed_delay = 0
	half_open_timeout = 10
	fragment_size = 1280
	signature_authentication = RFC7427
	signature_authentication_rsa_pss = PSS
	plugins {
		vici {
			socket = unix://DIR/vici
		}
	}
	journal {
		default = -1
	}
	filelog {
		log {
			path = DIR/log
			default = 1
			ike = 2
			cfg = 2
			flush_line = yes
		}
	}
}
swanctl {
	load = pem pkcs1 pkcs8 x509 openssl pubkey revocation constraints random
}
# Its EAP-TLS with TLS 1.3 is older than RFC 9190: it ends at the protected success indication.
libtls {
	version_min = 1.2
	version_max = 1.2
}
`

func run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, arguments, err, out)
	}
	return string(out)
}

// newStrongSwan starts one. configuration is swanctl.conf; files are under the directories that swanctl reads.
func newStrongSwan(t *testing.T, configuration string, files map[string][]byte) *strongSwan {
	if os.Geteuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	if _, err := exec.LookPath("charon-systemd"); err != nil {
		t.Skip("strongSwan is not installed: tools/setup.sh")
	}
	tag := fmt.Sprintf("%d-%x", os.Getpid(), random(2))
	s := &strongSwan{t: t, directory: t.TempDir(), here: "ike-h-" + tag, there: "ike-t-" + tag, in: map[uint32]*ChildSA{}, out: map[uint32]*ChildSA{}, m: New(time.Now()), fragments: map[bool][]Datagram{}, shuffled: map[bool]int{}}
	s.changed = sync.NewCond(&s.mu)
	for _, ns := range []string{s.here, s.there} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	}
	run(t, "ip", "-n", s.here, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", s.there)
	for ns, n := range map[string]int{s.here: 1, s.there: 2} {
		run(t, "ip", "-n", ns, "addr", "add", fmt.Sprintf("192.0.2.%d/24", n), "dev", "v0")
		run(t, "ip", "-n", ns, "addr", "add", fmt.Sprintf("10.%d.0.1/16", n), "dev", "lo")
		run(t, "ip", "-n", ns, "link", "set", "v0", "up")
	}
	write := func(name string, content []byte) {
		path := filepath.Join(s.directory, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	pss, rfc7427 := "no", "yes"
	if strings.Contains(configuration, "without RFC 7427") {
		rfc7427 = "no"
	}
	if strings.Contains(configuration, "rsa/pss") {
		pss = "yes"
	}
	write("strongswan.conf", []byte(strings.NewReplacer("DIR", s.directory, "PSS", pss, "RFC7427", rfc7427).Replace(strongSwanConfiguration)))
	write("swanctl.conf", []byte(configuration))
	for name, content := range files {
		write(name, content)
	}
	t.Cleanup(func() {
		_ = s.daemon.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.ended:
		case <-time.After(5 * time.Second):
			_ = s.daemon.Process.Kill()
			<-s.ended
		}
		if t.Failed() {
			log, _ := os.ReadFile(s.directory + "/log")
			out, _ := os.ReadFile(s.directory + "/out")
			t.Logf("strongSwan's log:\n%s\n%s\nour events: %q", log, out, s.events)
		}
	})
	s.start()
	s.listen()
	return s
}

// start starts the daemon and has it read its configuration.
func (s *strongSwan) start() {
	s.t.Helper()
	s.daemon = exec.Command("ip", "netns", "exec", s.there, "charon-systemd")
	s.daemon.Env = append(os.Environ(), "STRONGSWAN_CONF="+s.directory+"/strongswan.conf")
	out, err := os.Create(s.directory + "/out")
	if err != nil {
		s.t.Fatal(err)
	}
	s.daemon.Stdout, s.daemon.Stderr = out, out
	if err := s.daemon.Start(); err != nil {
		s.t.Fatal(err)
	}
	done, daemon := make(chan struct{}), s.daemon
	s.ended = done
	go func() {
		defer close(done)
		_ = daemon.Wait()
	}()
	for deadline := time.Now().Add(20 * time.Second); ; {
		out, err := s.try("--load-all", "--file", s.directory+"/swanctl.conf")
		if err == nil {
			break
		}
		select {
		case <-s.ended:
			s.t.Fatalf("strongSwan has ended")
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("strongSwan does not start: %v: %s", err, out)
		}
	}
}

// restart kills the daemon and starts another one, which knows nothing.
func (s *strongSwan) restart() {
	s.t.Helper()
	_ = s.daemon.Process.Kill()
	<-s.ended
	s.start()
}

// try calls swanctl.
func (s *strongSwan) try(arguments ...string) (string, error) {
	c := exec.Command("swanctl", append(arguments, "--uri", "unix://"+s.directory+"/vici")...)
	c.Env = append(os.Environ(), "STRONGSWAN_CONF="+s.directory+"/strongswan.conf", "SWANCTL_DIR="+s.directory)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (s *strongSwan) swanctl(arguments ...string) string {
	s.t.Helper()
	out, err := s.try(arguments...)
	if err != nil {
		s.t.Fatalf("swanctl %q: %v: %s", arguments, err, out)
	}
	return out
}

// listen opens our sockets in our namespace, and serves the machine.
func (s *strongSwan) listen() {
	opened := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with this goroutine, and its namespace with it.
		runtime.LockOSThread()
		opened <- func() error {
			fd, err := unix.Open("/run/netns/"+s.here, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			for _, port := range []uint16{Port, NATPort} {
				c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)))
				if err != nil {
					return err
				}
				s.sockets = append(s.sockets, c)
			}
			return nil
		}()
	}()
	if err := <-opened; err != nil {
		s.t.Fatal(err)
	}
	var group sync.WaitGroup
	end := make(chan struct{})
	for i, c := range s.sockets {
		group.Add(1)
		go func() {
			defer group.Done()
			b := make([]byte, 65536)
			for {
				n, from, err := c.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				if i == 1 && n >= 4 && string(b[:4]) != "\x00\x00\x00\x00" {
					continue // ESP
				}
				d := Datagram{Local: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), []uint16{Port, NATPort}[i]), Remote: from, Data: slices.Clone(b[:n])}
				s.do(func(now time.Time) (actions []Action) {
					for _, one := range s.disordered(false, d) {
						actions = append(actions, s.m.Receive(one, now)...)
					}
					return actions
				})
			}
		}()
	}
	group.Add(1)
	go func() {
		defer group.Done()
		clock := time.NewTicker(50 * time.Millisecond)
		defer clock.Stop()
		for {
			select {
			case <-end:
				return
			case <-clock.C:
				s.do(s.m.Tick)
			}
		}
	}()
	s.t.Cleanup(func() {
		close(end)
		for _, c := range s.sockets {
			_ = c.Close()
		}
		group.Wait()
	})
}

// disordered returns what arrives when a datagram is sent: a fragment waits for the others of its message. s.mu is held.
func (s *strongSwan) disordered(ours bool, d Datagram) []Datagram {
	b := d.Data
	if d.Local.Port() == NATPort {
		b = b[min(markSize, len(b)):]
	}
	outer, err := message.Parse(b)
	if !s.shuffle || err != nil || len(outer.Payloads) == 0 {
		return []Datagram{d}
	}
	f, is := outer.Payloads[len(outer.Payloads)-1].(*message.Encrypted)
	if !is || f.Number == 0 {
		return []Datagram{d}
	}
	all := append(s.fragments[ours], d)
	if len(all) < int(f.Total) {
		s.fragments[ours] = all
		return nil
	}
	s.fragments[ours] = nil
	s.shuffled[ours]++
	slices.Reverse(all)
	return append([]Datagram{all[0]}, all...)
}

// do changes the machine, and carries out its actions.
func (s *strongSwan) do(f func(now time.Time) []Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	actions := f(time.Now())
	for len(actions) > 0 {
		one := actions[0]
		actions = actions[1:]
		switch one := one.(type) {
		case Send:
			if s.lose != nil && s.lose(one.Datagram) {
				continue
			}
			for _, d := range s.disordered(true, one.Datagram) {
				socket := s.sockets[0]
				if d.Local.Port() == NATPort {
					socket = s.sockets[1]
				}
				if _, err := socket.WriteToUDPAddrPort(d.Data, d.Remote); err != nil {
					s.t.Log(err)
				}
			}
		case Install:
			if one.Inbound {
				s.in[one.Child.SPIIn] = one.Child
			}
			if one.Outbound {
				s.out[one.Child.SPIIn] = one.Child
			}
			actions = append(actions, s.m.Installed(one.Child.SPIIn, nil, time.Now())...)
		case Remove:
			if !one.OutboundOnly {
				delete(s.in, one.Child.SPIIn)
			}
			delete(s.out, one.Child.SPIIn)
		case Ask:
			if s.answer == nil {
				s.t.Errorf("asked %+v", one.Question)
				continue
			}
			answer := s.answer(one.Question)
			actions = append(actions, s.m.Answered(one.Token, answer, time.Now())...)
		case Event:
			s.events = append(s.events, one.What+": "+one.Detail)
		}
	}
	s.changed.Broadcast()
}

// await waits for a condition.
func (s *strongSwan) await(what string, is func() bool) {
	s.t.Helper()
	expired := false
	timer := time.AfterFunc(30*time.Second, func() {
		s.mu.Lock()
		expired = true
		s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !is() {
		if expired {
			s.t.Fatalf("in 30 seconds it does not happen: %s", what)
		}
		s.changed.Wait()
	}
}

// happened counts events. s.mu is held.
func (s *strongSwan) happened(words string) (n int) {
	for _, e := range s.events {
		if strings.HasPrefix(e, words) {
			n++
		}
	}
	return n
}

// agree compares our children with strongSwan's.
func (s *strongSwan) agree(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d children, %d IKE SA", n, min(n, 1)), func() bool {
		return len(s.in) == n && len(s.out) == n && len(s.m.children) == n && (n == 0 || len(s.m.sas) == 1)
	})
	s.mu.Lock()
	var spis [][2]string
	for _, c := range s.in {
		spis = append(spis, [2]string{fmt.Sprintf("%08x", c.SPIIn), fmt.Sprintf("%08x", c.SPIOut)})
	}
	s.mu.Unlock()
	list := s.swanctl("--list-sas", "--raw")
	if got := strings.Count(list, "spi-in="); got != n {
		s.t.Errorf("strongSwan has %d children, not %d: %s", got, n, list)
	}
	for _, pair := range spis {
		if !strings.Contains(list, "spi-in="+pair[1]) || !strings.Contains(list, "spi-out="+pair[0]) {
			s.t.Errorf("strongSwan does not have %s: %s", pair, list)
		}
	}
}

// to is our connection to it.
func (s *strongSwan) to(ike, esp string) *Connection {
	return &Connection{Name: "peer", Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddr("192.0.2.2"),
		LocalID: mustIdentity(s.t, "here.example"), RemoteID: mustIdentity(s.t, "there.example"), Secret: []byte("a secret"),
		Proposals: proposals(s.t, message.ProtocolIKE, ike), Children: []*Child{{Name: "net", Proposals: proposals(s.t, message.ProtocolESP, esp),
			Local: []message.Selector{SelectorOf(netip.MustParsePrefix("10.1.0.0/16"))}, Remote: []message.Selector{SelectorOf(netip.MustParsePrefix("10.2.0.0/16"))}}}}
}

func (s *strongSwan) set(c *Connection) {
	s.do(func(now time.Time) []Action { return s.m.SetConnection(c.Name, c, now) })
}

func (s *strongSwan) initiate() {
	s.t.Helper()
	s.do(func(now time.Time) []Action {
		actions, err := s.m.Initiate("peer", "", now)
		if err != nil {
			s.t.Error(err)
		}
		return actions
	})
}

// swan is swanctl.conf with a connection to us.
func swan(ike, esp, more string) string {
	return fmt.Sprintf(`
connections {
	peer {
		version = 2
		local_addrs = 192.0.2.2
		remote_addrs = 192.0.2.1
		proposals = %s
		rekey_time = 0
		%s
		local {
			auth = psk
			id = there.example
		}
		remote {
			auth = psk
			id = here.example
		}
		children {
			net {
				local_ts = 10.2.0.0/16
				remote_ts = 10.1.0.0/16
				esp_proposals = %s
				rekey_time = 0
			}
		}
	}
}
secrets {
	ike-peer {
		id-a = here.example
		id-b = there.example
		secret = "a secret"
	}
}
`, ike, more, esp)
}

func TestStrongSwanAgreesWithEachSuite(t *testing.T) {
	suites := []struct{ ike, esp string }{
		{"aes256gcm16-prfsha256-x25519", "aes256gcm16-x25519"},
		{"aes128-sha1-modp2048", "aes128-sha1-modp2048"},
		{"aes192-sha384-ecp384", "aes192-sha384-noesn"},
		{"aes256-sha512-ecp521", "aes256-sha512"},
		{"chacha20poly1305-prfsha512-x448", "chacha20poly1305-x448"},
		{"aes128ctr-sha256-ecp256", "aes128gcm8-ecp256"},
		{"aes128gcm12-prfsha384-modp3072", "aes128gcm12"},
		{"aes256gcm8-prfsha256-x25519", "aes128-sha256"},
	}
	for _, c := range suites {
		for _, ours := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/initiator=%v", c.ike, ours), func(t *testing.T) {
				t.Parallel()
				s := newStrongSwan(t, swan(c.ike, c.esp, ""), nil)
				s.set(s.to(c.ike, c.esp))
				if ours {
					s.initiate()
				} else {
					s.swanctl("--initiate", "--child", "net")
				}
				s.agree(1)
			})
		}
	}
}

// RFC 7296 section 2.8.3, from our end: at any time there is a child that sends, and strongSwan has it.
func TestStrongSwanIsAuthenticatedAgain(t *testing.T) {
	t.Parallel()
	const ike, esp = "aes256gcm16-prfsha256-x25519", "aes256gcm16-x25519"
	s := newStrongSwan(t, swan(ike, esp, ""), nil)
	s.set(s.to(ike, esp))
	s.initiate()
	s.agree(1)
	s.do(func(now time.Time) []Action {
		for _, one := range s.m.sas {
			one.reauthAt = now
			one.schedule()
		}
		return nil
	})
	s.await("another IKE SA", func() bool { return len(s.m.sas) == 2 && len(s.in) == 2 })
	s.await("the end of the old one", func() bool {
		if len(s.in) == 0 || len(s.out) == 0 {
			t.Error("there is no child for a while")
			return true
		}
		return len(s.m.sas) == 1
	})
	s.agree(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.happened("up: ") != 2 || s.happened("down: authenticated anew") != 1 || s.happened("child-failed") != 0 {
		t.Errorf("events %q", s.events)
	}
}

func TestStrongSwanRekeys(t *testing.T) {
	const ike, esp = "aes256gcm16-prfsha256-x25519", "aes256gcm16-x25519"
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("initiator=%v", ours), func(t *testing.T) {
			t.Parallel()
			s := newStrongSwan(t, swan(ike, esp, ""), nil)
			s.set(s.to(ike, esp))
			if ours {
				s.initiate()
			} else {
				s.swanctl("--initiate", "--child", "net")
			}
			s.agree(1)
			rekeyed := func(words string, rekey func()) {
				s.mu.Lock()
				before := s.happened(words)
				s.mu.Unlock()
				rekey()
				s.await(words, func() bool { return s.happened(words) > before })
				s.agree(1)
			}
			ourRekey := func(child string) func() {
				return func() {
					s.do(func(now time.Time) []Action {
						actions, _ := s.m.Rekey("peer", child, now)
						return actions
					})
				}
			}
			theirs := func(what, name string) func() { return func() { s.swanctl("--rekey", what, name) } }
			for range 2 {
				rekeyed("child-rekeyed", ourRekey("*"))
				rekeyed("child-rekeyed", theirs("--child", "net"))
				rekeyed("rekeyed", ourRekey(""))
				rekeyed("rekeyed", theirs("--ike", "peer"))
			}
			// Both at once: our request waits until strongSwan's has come.
			for _, both := range []struct {
				words, child string
				theirs       func()
			}{{"child-rekeyed", "*", theirs("--child", "net")}, {"rekeyed", "", theirs("--ike", "peer")}} {
				s.mu.Lock()
				before, lost := s.happened(both.words), 0
				s.lose = func(d Datagram) bool {
					lost++
					return lost == 1
				}
				s.mu.Unlock()
				ourRekey(both.child)()
				both.theirs()
				s.await(both.words, func() bool { return s.happened(both.words) > before })
				s.agree(1)
			}
			s.swanctl("--terminate", "--child", "net")
			s.agree(0)
			s.initiate()
			s.agree(1)
			s.do(func(now time.Time) []Action {
				actions, _ := s.m.Terminate("peer", "", now)
				return actions
			})
			s.await("no IKE SA", func() bool { return len(s.m.sas) == 0 })
			s.agree(0)
		})
	}
}
