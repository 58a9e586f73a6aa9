// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// aServer is an IKE service without UEs.
type aServer struct {
	ike.Server
	registered map[string]*ike.Connection
	closed     []string
	// IKE SAs of before a restart.
	peers        []ike.Peer
	unregistered []string
}

func (a *aServer) Register(c *ike.Connection, _ ike.Owner) ([]ike.Peer, error) {
	a.registered[c.Name] = c
	return a.peers, nil
}
func (a *aServer) Unregister(name string) {
	delete(a.registered, name)
	a.unregistered = append(a.unregistered, name)
}
func (a *aServer) Close(_ uint64, why string) error {
	a.closed = append(a.closed, why)
	return nil
}
func (a *aServer) Registered() (names []string) {
	for name := range a.registered {
		names = append(names, name)
	}
	return names
}

// plane has all objects at once.
type plane map[object.Key]*object.Object

func (p plane) Put(o *object.Object, result func(service.Result)) {
	p[o.Key()] = o
	if result != nil {
		result(service.Result{Done: true})
	}
}

func (p plane) Delete(k object.Key, result func(service.Result)) {
	delete(p, k)
	if result != nil {
		result(service.Result{Done: true})
	}
}

// writeCertificate writes a certificate of a name and its key.
func writeCertificate(t *testing.T, directory, name string, until time.Time) *api.IkeCredential {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := &api.IkeCredential{CertificateFile: filepath.Join(directory, "n3iwf.pem"), PrivateKeyFile: filepath.Join(directory, "n3iwf.key")}
	for path, block := range map[string]*pem.Block{c.CertificateFile: {Type: "CERTIFICATE", Bytes: der}, c.PrivateKeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// newServer is the service with an Interface of each address, and a certificate.
func newServer(t *testing.T) (*serving, *aServer) {
	t.Helper()
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Dataplanes: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	s := made.(*serving)
	server := &aServer{registered: map[string]*ike.Connection{}}
	s.ike, s.objects = server, plane{}
	follow(s, "Interface", "all", &api.Interface{Addresses: []string{"192.0.2.1/24", "192.0.2.2/24", "198.51.100.1/24", "10.200.0.1/32"}})
	follow(s, "IkeCredential", "n3iwf", writeCertificate(t, t.TempDir(), "n3iwf.example", time.Now().Add(time.Hour)))
	return s, server
}

// follow brings an object; without a spec it is gone.
func follow(s *serving, kind, name string, spec proto.Message) {
	c := service.Change{Key: object.Key{Kind: kind, Name: name}}
	if spec != nil {
		c.Object = &object.Object{Kind: kind, Name: name, Spec: spec}
	}
	s.Follow(c)
	s.work()
}

func anN3iwf(change func(*api.N3Iwf)) *api.N3Iwf {
	spec := &api.N3Iwf{Node: "wifi", LocalAddress: "192.0.2.1", Credential: "n3iwf", Identity: "n3iwf.example", InnerPools: []string{"10.201.0.0/24"}, NasAddress: "10.200.0.1",
		UserPlaneAddresses: []string{"10.200.0.2"}, CoreAddress: "198.51.100.1"}
	if change != nil {
		change(spec)
	}
	return spec
}

// why is why an N3iwf is not ready: the reason and the message.
func why(t *testing.T, s *serving, name string) string {
	t.Helper()
	found, _ := s.verdicts.Load(name)
	v, is := found.(verdict)
	if !is {
		t.Fatalf("N3iwf/%s is not judged", name)
	}
	if v.why.Reason == "" {
		return ""
	}
	return v.why.Reason + " " + v.why.Message
}

func TestAnN3iwfThatUEsDoNotReachIsNotReady(t *testing.T) {
	s, server := newServer(t)
	for _, c := range []struct {
		change func(*api.N3Iwf)
		want   string
	}{
		{nil, ""},
		{func(n *api.N3Iwf) { n.LocalAddress = "192.0.2.9" }, "NotReachable localAddress: no Interface in VRF default has the address 192.0.2.9"},
		{func(n *api.N3Iwf) { n.NasAddress = "10.200.0.9" }, "NotReachable nasAddress: no Interface in VRF default has the address 10.200.0.9"},
		{func(n *api.N3Iwf) { n.CoreAddress = "198.51.100.9" }, "NotReachable coreAddress: no Interface in VRF default has the address 198.51.100.9"},
		{func(n *api.N3Iwf) { n.CoreVrf = "core" }, "NotReachable coreAddress: no Interface in VRF core has"},
		{func(n *api.N3Iwf) { n.Identity = "other.example" }, `NotReachable identity: "other.example" is not in the certificate of IkeCredential/n3iwf, which has n3iwf.example`},
		{func(n *api.N3Iwf) { n.Identity = "" }, ""},
	} {
		follow(s, "N3iwf", "wifi", anN3iwf(c.change))
		if got := why(t, s, "wifi"); c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%q instead of %q", got, c.want)
		}
		if server.registered["n3iwf-wifi"] == nil {
			t.Errorf("%q: it does not serve", c.want)
		}
	}
	follow(s, "Interface", "all", nil)
	if !s.readdressed {
		t.Error("N3iwfs are not judged again")
	}
	s.review(time.Now())
	if got := why(t, s, "wifi"); !strings.HasPrefix(got, "NotReachable localAddress") {
		t.Errorf("the Interface is gone: %q", got)
	}
}

func TestAnN3iwfWithoutAnAMFIsNotReady(t *testing.T) {
	s, core := serve(t, nil)
	if got := why(t, s, "wifi"); got != "" {
		t.Errorf("%q", got)
	}
	core.lacks = errors.New("no AMF can serve the subscriber at AccessNode/wifi: Amf/amf is not ready")
	s.reviewAMFs(time.Now())
	if got := why(t, s, "wifi"); got != "NoAmf "+core.lacks.Error() {
		t.Errorf("%q", got)
	}
	// The reason that a change of configuration can remove comes first.
	follow(s, "N3iwf", "wifi", anN3iwf(func(n *api.N3Iwf) { n.CoreVrf = "core" }))
	if got := why(t, s, "wifi"); !strings.HasPrefix(got, "NotReachable coreAddress") {
		t.Errorf("%q", got)
	}
	follow(s, "N3iwf", "wifi", anN3iwf(nil))
	core.lacks = nil
	s.reviewAMFs(time.Now())
	if got := why(t, s, "wifi"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestACertificateIsReadAgainAndJudged(t *testing.T) {
	s, server := newServer(t)
	credential := s.credentials["n3iwf"]
	follow(s, "N3iwf", "wifi", anN3iwf(nil))
	before := server.registered["n3iwf-wifi"].Credential
	s.look(time.Now().Add(2 * time.Hour))
	if got := why(t, s, "wifi"); !strings.HasPrefix(got, "NotReachable IkeCredential/n3iwf: certificateFile: UEs refuse the certificate, which expired at ") {
		t.Errorf("%q", got)
	}
	s.look(time.Now())
	if got := why(t, s, "wifi"); got != "" {
		t.Errorf("%q", got)
	}
	// A key without its certificate, as between the renewal of both files.
	kept, err := os.ReadFile(credential.PrivateKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(credential.PrivateKeyFile); err != nil {
		t.Fatal(err)
	}
	s.look(time.Now())
	s.look(time.Now())
	if got := why(t, s, "wifi"); !strings.HasPrefix(got, "NotConfigured IkeCredential/n3iwf: privateKeyFile: stat "+credential.PrivateKeyFile) || !strings.HasSuffix(got, "; the configuration of before stays in force") {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(credential.PrivateKeyFile, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	s.look(time.Now())
	if got := why(t, s, "wifi"); got != "" {
		t.Errorf("%q", got)
	}
	writeCertificate(t, filepath.Dir(credential.CertificateFile), "renewed.example", time.Now().Add(30*time.Minute))
	s.look(time.Now())
	if got := why(t, s, "wifi"); !strings.Contains(got, "which has renewed.example") || slices.Equal(server.registered["n3iwf-wifi"].Credential.Chain[0], before.Chain[0]) {
		t.Errorf("the new certificate is not used: %q", got)
	}
}

func TestUEsStayWhenTheAgentRestartsWithoutAFileOfTheCertificate(t *testing.T) {
	for _, broken := range []struct {
		damage func(path string) error
		want   string
	}{
		{os.Remove, "privateKeyFile: stat "},
		{func(path string) error { return os.WriteFile(path, []byte("half a file"), 0o600) }, "privateKeyFile is not PEM (certificateFile "},
	} {
		s, server := newServer(t)
		path := s.credentials["n3iwf"].PrivateKeyFile
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := broken.damage(path); err != nil {
			t.Fatal(err)
		}
		spec := anN3iwf(nil)
		server.peers = []ike.Peer{{ID: 7, Connection: "n3iwf-wifi", Children: []ike.ChildState{{Name: signalling}}}}
		s.restored["wifi"] = []*restoredUE{{name: "n3iwf-wifi-1", ueRecord: ueRecord{N3iwf: "wifi", Fixed: fixed(spec), Peer: 7, RAN: 1, Inner: []netip.Addr{netip.MustParseAddr("10.201.0.1")}}}}
		follow(s, "N3iwf", "wifi", spec)
		got := why(t, s, "wifi")
		if !strings.HasPrefix(got, "NotConfigured IkeCredential/n3iwf: "+broken.want) || !strings.Contains(got, path) || !strings.Contains(got, "restore the file") ||
			!strings.HasSuffix(got, "; UEs that are connected stay, and no others are taken") {
			t.Errorf("%q", got)
		}
		if c := server.registered["n3iwf-wifi"]; c == nil || !c.Frozen || c.Credential != nil {
			t.Errorf("the connection is not frozen: %+v", c)
		}
		if len(s.taken) != 1 || s.taken[0].closing != "" || s.taken[0].severed || len(server.closed)+len(server.unregistered) != 0 {
			t.Fatalf("the UE does not stay: %v %v", server.closed, server.unregistered)
		}
		u := s.taken[0]
		// Looking again at what is still broken changes nothing.
		s.look(time.Now())
		follow(s, "N3iwf", "wifi", anN3iwf(func(n *api.N3Iwf) { n.MaxUes = 5 }))
		if c := server.registered["n3iwf-wifi"]; !c.Frozen || u.in != s.instances["wifi"] || !u.in.ues[u] || len(server.closed) != 0 {
			t.Errorf("the UE ends: %v", server.closed)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		s.look(time.Now())
		if c := server.registered["n3iwf-wifi"]; c.Frozen || c.Credential == nil || why(t, s, "wifi") != "" || !u.in.ues[u] || len(server.closed) != 0 {
			t.Errorf("the N3iwf does not serve again: %q", why(t, s, "wifi"))
		}
	}
}

func TestAnN3iwfInTheWayOfAnotherDoesNotServeUntilThatOneIsGone(t *testing.T) {
	for _, c := range []struct {
		change func(*api.N3Iwf)
		want   string
	}{
		{func(n *api.N3Iwf) { n.InnerPools = []string{"10.202.0.0/24"} }, "NotConfigured localAddress: N3iwf/wifi has 192.0.2.1: set another address"},
		{func(n *api.N3Iwf) { n.LocalAddress = "192.0.2.2" }, "NotConfigured innerPools[0]: 10.201.0.0/24 overlaps 10.201.0.0/24 of N3iwf/wifi"},
	} {
		s, server := newServer(t)
		follow(s, "N3iwf", "wifi", anN3iwf(nil))
		// Its name comes first. The one that serves goes on.
		follow(s, "N3iwf", "other", anN3iwf(c.change))
		if got := why(t, s, "other"); !strings.HasPrefix(got, c.want) || server.registered["n3iwf-other"] != nil || why(t, s, "wifi") != "" {
			t.Errorf("%q instead of %q", got, c.want)
		}
		// Another agent takes up those that served.
		s.instances = map[string]*instance{}
		if got := s.ordered(); !slices.Equal(got, []string{"wifi", "other"}) {
			t.Errorf("%q", got)
		}
		for _, name := range s.ordered() {
			s.configure(name)
		}
		if got := why(t, s, "other"); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q instead of %q", got, c.want)
		}
		follow(s, "N3iwf", "wifi", nil)
		if got := why(t, s, "other"); got != "" || server.registered["n3iwf-other"] == nil {
			t.Errorf("it does not serve: %q", got)
		}
	}
}

func TestASpecThatTheServiceHasNotReadIsNotReady(t *testing.T) {
	s, _ := newServer(t)
	spec := anN3iwf(nil)
	follow(s, "N3iwf", "wifi", spec)
	found, _ := s.verdicts.Load("wifi")
	if v := found.(verdict); !proto.Equal(v.spec, spec) || v.why.Reason != "" {
		t.Errorf("%+v", v)
	}
	follow(s, "N3iwf", "wifi", nil)
	if _, judged := s.verdicts.Load("wifi"); judged {
		t.Error("a deleted N3iwf is still judged")
	}
}

func TestAUEWithoutAnAddressHearsWhy(t *testing.T) {
	for _, c := range []struct {
		asked  []uint16
		taken  bool
		notify message.NotifyType
		want   string
	}{
		{[]uint16{message.InternalIP6Address}, false, message.InternalAddressFailure, "the UE asks for no address of the family of nasAddress 10.200.0.1 of N3iwf/wifi"},
		{[]uint16{message.InternalIP4Address, message.InternalIP6Address}, true, notifyCongestion, "all addresses of innerPools of N3iwf/wifi are given"},
	} {
		s, _ := newServer(t)
		follow(s, "N3iwf", "wifi", anN3iwf(func(n *api.N3Iwf) { n.InnerPools = []string{"10.201.0.0/30"} }))
		in := s.instances["wifi"]
		for c.taken {
			if _, ok := in.take(&ue{}, false); !ok {
				break
			}
		}
		var what ike.FinishAuth
		for _, kind := range c.asked {
			what.Attributes = append(what.Attributes, message.Attribute{Type: kind})
		}
		var got ike.Finished
		(&ue{s: s, in: in, name: "n3iwf-wifi-1"}).finish(what, func(f ike.Finished) { got = f })
		if got.Err == nil || !strings.Contains(got.Err.Error(), c.want) || len(got.Notify) == 0 || got.Notify[0].Kind != c.notify || errors.Is(got.Err, errTooMany) != c.taken {
			t.Errorf("%v %v", got.Err, got.Notify)
		}
	}
}

func TestARejectionOfTheCoreIsNamed(t *testing.T) {
	for _, c := range []struct {
		octets []byte
		want   string
	}{
		{[]byte{0x7e, 0, 0x44, 11}, "the core sends REGISTRATION REJECT: " + nas.MMCause(11).String()},
		{[]byte{0x7e, 0, 0x4d, 9}, "the core sends SERVICE REJECT: " + nas.MMCause(9).String()},
		{[]byte{0x7e, 0, 0x58}, "the core sends AUTHENTICATION REJECT"},
		{[]byte{0x7e, 2, 1, 2, 3, 4, 0, 0x7e, 0, 0x44, 11}, ""},
		{[]byte{0x7e, 0, 0x44}, ""},
		{[]byte{0x7e}, ""},
		{nil, ""},
	} {
		got := ""
		if err := rejectionOf(c.octets); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%x: %q instead of %q", c.octets, got, c.want)
		}
	}
}

func TestAUEThatClosesItsSignallingSAAloneEndsAndOneWhoseIKESAEndsHasItsReason(t *testing.T) {
	s, server := newServer(t)
	follow(s, "N3iwf", "wifi", anN3iwf(nil))
	u := &ue{s: s, in: s.instances["wifi"], name: "n3iwf-wifi-1", peer: ike.Peer{ID: 7, Remote: netip.MustParseAddrPort("192.0.2.100:500")}}
	s.peers[7] = u
	owner{s, "wifi"}.ChildDown(ike.ChildDown{Peer: u.peer, Child: ike.ChildState{Name: signalling}})
	s.work()
	if u.tick(time.Now()); len(server.closed) != 0 {
		t.Errorf("%q before the reason of the IKE SA can have come", server.closed)
	}
	if u.tick(time.Now().Add(tickTime)); !slices.Equal(server.closed, []string{"the signalling SA is gone"}) {
		t.Errorf("%q", server.closed)
	}
}
