// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Messages for an operator when a peer is not up.

// operated is a service without a data plane, with its log.
type operated struct {
	*serving
	query
	t   *testing.T
	log bytes.Buffer
	dir string
}

func newOperated(t *testing.T) *operated {
	o := &operated{t: t, dir: t.TempDir()}
	made, err := newServing(service.Environment{Log: slog.New(slog.NewTextHandler(&o.log, nil)), Metrics: prometheus.NewRegistry(), Objects: &service.Objects{}})
	if err != nil {
		t.Fatal(err)
	}
	o.serving, _ = made.(*serving)
	o.query = query{serving: o.serving}
	o.synced = true
	o.followAddresses("wan", &object.Object{Kind: "Interface", Name: "wan", Spec: &api.Interface{Addresses: []string{"192.0.2.1/24"}}})
	return o
}

func (o *operated) path(name string) string { return filepath.Join(o.dir, name) }

func (o *operated) write(name, content string) string {
	if err := os.WriteFile(o.path(name), []byte(content), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return o.path(name)
}

// follow gives an object to the service.
func (o *operated) follow(kind, name string, spec any) {
	one := &object.Object{Kind: kind, Name: name}
	switch spec := spec.(type) {
	case *api.IkePeer:
		one.Spec = spec
		// Its objects are there.
		o.sites[name] = &site{peer: one, made: objectsOfSite(name, spec, nil), refused: map[object.Key]string{}}
	case *api.IkeCredential:
		one.Spec = spec
	case *api.IkeAuthority:
		one.Spec = spec
	case *api.IkeConnection:
		one.Spec = spec
	}
	o.serving.Follow(service.Change{Key: one.Key(), Object: one})
}

func (o *operated) problem(name string) string {
	o.serving.mu.Lock()
	defer o.serving.mu.Unlock()
	return o.siteNotReady(name).Message
}

func (o *operated) contains(words, found string) {
	o.t.Helper()
	if !strings.Contains(found, words) {
		o.t.Errorf("%q is not in %q", words, found)
	}
}

// warnings are how many lines of the log have a text.
func (o *operated) warnings(words string) int {
	return len(slices.DeleteFunc(strings.Split(o.log.String(), "\n"), func(line string) bool { return !strings.Contains(line, "level=WARN") || !strings.Contains(line, words) }))
}

var aSite = &api.IkePeer{LocalAddress: "192.0.2.1", RemoteAddress: "192.0.2.2", LocalIdentity: "west.example", RemoteIdentity: "east.example", Credential: "sites",
	RemoteNetworks: []string{"10.2.0.0/16"}}

func TestACommandForAPeerThatIsNotConfiguredNamesObjectFieldAndReason(t *testing.T) {
	o := newOperated(t)
	o.follow("IkePeer", "eight", aSite)
	n, err := o.InitiateIke(t.Context(), &api.IkeQuery{Connection: "eight"})
	if words := status.Convert(err).Message(); words != "IkePeer/eight is not configured: credential: IkeCredential/sites does not exist" {
		t.Errorf("%q", words)
	}
	var e audit.Entry
	rpc.Methods["InitiateIke"].Entry(&e, &api.IkeQuery{Connection: "eight"}, n)
	if e.Objects[0] != (audit.Change{Kind: "IkePeer", Name: "eight", Step: "initiate"}) {
		t.Errorf("%+v", e)
	}
	for range 3 {
		o.follow("IkePeer", "eight", aSite)
	}
	if o.warnings("IkeCredential/sites does not exist") != 1 {
		t.Errorf("the log is %s", o.log.String())
	}
	o.follow("IkeCredential", "sites", &api.IkeCredential{SharedKey: "key"})
	o.contains("the peer has not answered yet", o.problem("eight"))
	if _, err := o.InitiateIke(t.Context(), &api.IkeQuery{Connection: "eight", Child: "nochild"}); status.Convert(err).Message() != `IkePeer/eight has no child "nochild"; it has: net` {
		t.Error(err)
	}
}

func TestARekeyOfWhatIsNotThereNamesWhatIsThere(t *testing.T) {
	o := newOperated(t)
	o.follow("IkePeer", "seven", aSite)
	for what, call := range map[string]func(context.Context, *api.IkeQuery) (*api.IkeCount, error){"rekey": o.RekeyIke, "terminate": o.TerminateIke} {
		if _, err := call(t.Context(), &api.IkeQuery{Connection: "seven"}); status.Convert(err).Message() != "IkePeer/seven is not connected: credential: IkeCredential/sites does not exist" {
			t.Errorf("%s: %v", what, err)
		}
	}
	p := newPair(t)
	p.configure()
	p.initiate()
	o.machine = p.a.m
	if _, err := o.RekeyIke(t.Context(), &api.IkeQuery{Connection: "peer", Child: "nochild"}); status.Convert(err).Message() != `IkeConnection/peer has no child SA "nochild"; it has: net` {
		t.Error(err)
	}
	if _, err := o.RekeyIke(t.Context(), &api.IkeQuery{Connection: "nobody"}); status.Convert(err).Message() != `there is no IkeConnection or IkePeer "nobody"` {
		t.Error(err)
	}
}

func TestErrorsOfFilesNameFieldAndPath(t *testing.T) {
	o := newOperated(t)
	ca := newIssuer(t, "ecdsa", "CA", nil)
	certificate, key := ca.issue("ecdsa", "west.example")
	_, other := ca.issue("ecdsa", "other.example")
	pem, ours := o.write("here.pem", pemOf(certificate)), o.write("here.key", pemOfKey(t, key))
	wrong, nothing := o.write("other.key", pemOfKey(t, other)), o.write("nothing", "hello")
	missing := o.path("missing")
	authority := o.write("ca.pem", pemOf(ca.certificate))
	site := &api.IkePeer{LocalAddress: "192.0.2.1", LocalIdentity: "west.example", RemoteIdentity: "east.example", Credential: "sites", Authorities: []string{"ca"},
		RemoteNetworks: []string{"10.2.0.0/16"}}
	o.follow("IkePeer", "site", site)
	o.contains("IkeCredential/sites does not exist", o.problem("site"))
	o.follow("IkeCredential", "sites", &api.IkeCredential{CertificateFile: pem, PrivateKeyFile: ours})
	o.contains("authorities: IkeAuthority/ca does not exist", o.problem("site"))
	for _, c := range []struct {
		spec *api.IkeAuthority
		why  string
	}{
		{&api.IkeAuthority{CertificateFile: missing}, "certificateFile " + missing + ": no such file or directory"},
		{&api.IkeAuthority{CertificateFile: nothing}, "certificateFile " + nothing + ": is not PEM"},
		{&api.IkeAuthority{CertificateFile: ours}, "certificateFile " + ours + ": holds a private key, not a certificate"},
		{&api.IkeAuthority{CertificateFile: pem}, "certificateFile " + pem + `: the certificate of "CN=west.example" is not that of an authority`},
		{&api.IkeAuthority{CertificateFile: authority, RevocationListFiles: []string{pem}}, "revocationListFiles[0] " + pem + ": holds a certificate, not a revocation list"},
		{&api.IkeAuthority{CertificateFile: authority}, ""},
	} {
		o.follow("IkeAuthority", "ca", c.spec)
		m := o.materials[object.Key{Kind: "IkeAuthority", Name: "ca"}].shown
		if c.why == "" {
			if p := o.problem("site"); p != "" || m.Reason != "" {
				t.Errorf("%q, %+v", p, m)
			}
			continue
		}
		o.contains("authorities: IkeAuthority/ca: "+c.why, o.problem("site"))
		if !strings.HasPrefix(m.Message, c.why) {
			t.Errorf("%q is shown as %q", c.why, m.Message)
		}
		if o.warnings("authorities: IkeAuthority/ca: "+strings.ReplaceAll(c.why, `"`, `\"`)) != 1 {
			t.Errorf("%q: the log is %s", c.why, o.log.String())
		}
	}
	for why, spec := range map[string]*api.IkeCredential{
		"privateKeyFile is missing": {CertificateFile: pem},
		"privateKeyFile " + pem + ": holds a certificate, not a private key":   {CertificateFile: pem, PrivateKeyFile: pem},
		"privateKeyFile " + wrong + ": is not the key of the certificate":      {CertificateFile: pem, PrivateKeyFile: wrong},
		"privateKeyFile " + missing + ": no such file or directory":            {CertificateFile: pem, PrivateKeyFile: missing},
		"certificateFile " + ours + ": holds a private key, not a certificate": {CertificateFile: ours, PrivateKeyFile: ours},
	} {
		o.follow("IkeCredential", "sites", spec)
		o.contains("credential: IkeCredential/sites: "+why, o.problem("site"))
		o.contains(why, o.materials[object.Key{Kind: "IkeCredential", Name: "sites"}].shown.Message)
	}
	// A credential of a certificate alone, and no authorities.
	site.Authorities = nil
	o.follow("IkePeer", "site", site)
	o.follow("IkeCredential", "sites", &api.IkeCredential{CertificateFile: pem, PrivateKeyFile: ours})
	o.contains("IkeCredential/sites has no shared key: set its sharedKey, or name authorities of the IkePeer", o.problem("site"))
}

func TestACertificateOfTheGatewayThatPeersRefuseIsAConditionBeforeTheyDo(t *testing.T) {
	o := newOperated(t)
	ca := newIssuer(t, "ecdsa", "CA", nil)
	o.follow("IkeAuthority", "ca", &api.IkeAuthority{CertificateFile: o.write("ca.pem", pemOf(ca.certificate))})
	o.follow("IkePeer", "site", &api.IkePeer{LocalAddress: "192.0.2.1", LocalIdentity: "gw.example", RemoteIdentity: "east.example", Credential: "sites", Authorities: []string{"ca"},
		RemoteNetworks: []string{"10.2.0.0/16"}})
	shown := func() string { return o.materials[object.Key{Kind: "IkeCredential", Name: "sites"}].shown.Message }
	issue := func(change func(*x509.Certificate)) {
		certificate, key := ca.issue("ecdsa", "west.example", change)
		o.follow("IkeCredential", "sites", &api.IkeCredential{CertificateFile: o.write("here.pem", pemOf(certificate)), PrivateKeyFile: o.write("here.key", pemOfKey(t, key))})
	}
	issue(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	o.contains("the certificate expired on ", shown())
	o.contains("IkeCredential/sites: certificateFile "+o.path("here.pem")+": the certificate expired on ", o.problem("site"))
	issue(func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	})
	o.contains("the certificate is not valid before ", shown())
	// An hour later.
	o.serving.mu.Lock()
	o.judgeMaterials(time.Now().Add(61 * time.Minute))
	o.serving.mu.Unlock()
	if shown() != "" {
		t.Error(shown())
	}
	issue(func(*x509.Certificate) {})
	o.contains("localIdentity gw.example is not in the certificate", o.problem("site"))
	o.contains("it is for west.example", o.problem("site"))
	o.follow("IkePeer", "site", &api.IkePeer{LocalAddress: "192.0.2.1", LocalIdentity: "west.example", RemoteIdentity: "east.example", Credential: "sites", Authorities: []string{"ca"},
		RemoteNetworks: []string{"10.2.0.0/16"}})
	if p := o.problem("site"); p != "" || shown() != "" {
		t.Errorf("%q, %q", p, shown())
	}
}

func TestARefusedAuthenticationSaysWhatToCompare(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, _ *Connection) { a.Secret = []byte("another key") })
	p.initiate()
	if why := p.a.events[len(p.a.events)-1]; !strings.Contains(why, "by the shared key and expects") || !strings.Contains(why, "compare localIdentity, remoteIdentity and the credential") {
		t.Errorf("%q", why)
	}
	if p.a.counts["failure AUTHENTICATION_FAILED"] != 1 {
		t.Errorf("%v", p.a.counts)
	}
}

func TestARefusedIdentityNamesTheConnectionsThatTakeCallsFromThere(t *testing.T) {
	p := newPair(t)
	p.configure(func(_, b *Connection) { b.RemoteID = mustIdentity(t, "west.example") })
	p.initiate()
	why := p.b.events[len(p.b.events)-1]
	if !strings.Contains(why, "no connection is for ") || !strings.Contains(why, "; from this address are accepted: peer (remoteIdentity west.example, by the shared key)") {
		t.Errorf("%q", why)
	}
	if p.b.counts["failure unknown-identity"] != 1 {
		t.Errorf("%v", p.b.counts)
	}
}

func TestTheNetworkOfAnotherIkePeerIsAConditionThatNamesIt(t *testing.T) {
	o := newOperated(t)
	for _, name := range []string{"seven", "eleven"} {
		o.follow("IkePeer", name, aSite)
	}
	one := o.sites["eleven"]
	k := object.Key{Kind: "Route", Name: "peer-eleven-10.2.0.0-16"}
	o.serving.mu.Lock()
	o.refusedOfSite(one, "eleven", k, &object.Error{Object: k, Field: "prefix", Problem: "Route/peer-seven-10.2.0.0-16 already has it"})
	o.serving.mu.Unlock()
	o.contains("remoteNetworks: IkePeer/seven has 10.2.0.0/16 in VRF default", o.problem("eleven"))
	// Another error is as the checks say it.
	o.serving.mu.Lock()
	clear(one.refused)
	k = object.Key{Kind: "Interface", Name: "peer-eleven"}
	o.refusedOfSite(one, "eleven", k, &object.Error{Object: k, Field: "addresses", Problem: "wrong"})
	o.serving.mu.Unlock()
	if p := o.problem("eleven"); p != "Interface/peer-eleven: addresses: wrong" {
		t.Errorf("%q", p)
	}
	if of, is := o.MadeFor(object.Key{Kind: "IpsecTunnel", Name: "peer-seven"}); !is || of != (object.Key{Kind: "IkePeer", Name: "seven"}) {
		t.Errorf("made for %v", of)
	}
	if of, is := o.MadeFor(object.Key{Kind: "IpsecTunnel", Name: "branch"}); is {
		t.Errorf("made for %v", of)
	}
}

func TestTheAgeOfAConnectionOutlivesRekeysAndTheAgent(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	before := p.a.m.States("", "")[0]
	if before.GetConnected() == 0 || before.GetHeard() == 0 || before.GetIkeRekey() == 0 || before.GetChildRekey() == 0 || before.GetNextRekey() != min(before.GetIkeRekey(), before.GetChildRekey()) {
		t.Errorf("%v", before)
	}
	if before.GetLocalAddress() == "" || before.GetLocalIdentity() == "" {
		t.Errorf("%v", before)
	}
	for range 2 {
		p.pass(time.Minute)
		x, _ := p.a.m.Rekey("peer", "", p.now)
		p.do(p.a, x)
		p.run()
		p.pass(time.Minute)
		for _, e := range []*end{p.a, p.b} {
			if now := e.m.States("", "")[0]; now.GetConnected() != before.GetConnected() || now.GetSince() == before.GetSince() {
				t.Errorf("%v was %v", now, before)
			}
		}
	}
	c := p.connection(p.a, p.b, ikeSuite, espSuite)
	p.restart(p.a, func(m *Machine) { m.SetConnection("peer", c, p.now) })
	p.run()
	if now := p.a.m.States("", "")[0]; now.GetConnected() != before.GetConnected() {
		t.Errorf("%v was %v", now, before)
	}
}

func TestAPeerThatDoesNotAnswerShowsTheConfiguredIdentityAndItsAttempts(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, _ *Connection) { a.RemoteID, a.Children[0].StartAction = mustIdentity(t, "east.example"), Start })
	p.filter = func(*Datagram) bool { return false }
	p.initiate()
	one := p.a.m.States("", "")[0]
	if one.GetRemoteIdentity() != "east.example" || one.GetConnected() != 0 || one.GetHeard() != 0 || one.GetFailedAttempts() != 0 {
		t.Errorf("%v", one)
	}
	p.a.m.connections["peer"].RemoteID = Identity{}
	if id := p.a.m.States("", "")[0].GetRemoteIdentity(); id != "" {
		t.Errorf("the identity is %q", id)
	}
	for len(p.a.m.sas) > 0 {
		p.pass(time.Second)
	}
	s := &serving{machine: p.a.m}
	t1 := &api.TunnelState{Connection: "peer", State: "down"}
	query{serving: s}.addIKE(t1)
	if t1.GetFailedAttempts() != 1 || t1.GetNextAttempt() == 0 {
		t.Errorf("%v", t1)
	}
}

func TestTheCountersAreThoseOfTheMetrics(t *testing.T) {
	o := newOperated(t)
	o.carryOut([]Action{Count{"drop", "no-connection"}, Count{"drop", "no-connection"}, Count{"packet", "IKE_AUTH"}, Count{"failure", "unknown-identity"}})
	answer, err := o.query.counters(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range answer.GetCounters() {
		all = append(all, strings.Join([]string{c.GetWhat(), c.GetReason(), strings.Repeat("|", int(c.GetCount()))}, " "))
	}
	if !slices.Equal(all, []string{"packets IKE_AUTH |", "drops no-connection ||", "failures unknown-identity |"}) {
		t.Errorf("%q", all)
	}
}

func TestACallFromAnUnknownAddressHasALineInTheLog(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.b.m.SetConnection("peer", nil, p.now)
	p.initiate()
	if p.b.counts["drop no-connection"] == 0 || len(p.b.events) != 1 || !strings.Contains(p.b.events[0], "takes calls from this address") {
		t.Errorf("%v, %q", p.b.counts, p.b.events)
	}
}
