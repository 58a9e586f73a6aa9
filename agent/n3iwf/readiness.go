// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Why an N3iwf does not serve, or why UEs do not reach it: its condition Ready.

const (
	notConfigured = "NotConfigured"
	notReachable  = "NotReachable"
	noAMF         = "NoAmf"
	// How often the agent checks certificates, and their files for changes.
	lookAgain = 5 * time.Second
)

// verdict is what the service found of an N3iwf with a spec.
type verdict struct {
	spec *api.N3Iwf
	why  intent.NotReady
}

// judge notes why an N3iwf is not ready; "": it is.
func (s *serving) judge(name string, spec *api.N3Iwf, reason, words string) {
	before, _ := s.verdicts.Load(name)
	now := verdict{spec: spec}
	if words != "" {
		now.why = intent.NotReady{Reason: reason, Message: words, Since: time.Now(), External: reason == noAMF}
	}
	was, judged := before.(verdict)
	if judged && was.why.Reason == now.why.Reason && was.why.Message == now.why.Message && proto.Equal(was.spec, spec) {
		return
	}
	s.verdicts.Store(name, now)
	if s.Intent != nil {
		s.Intent.Touched(object.Key{Kind: "N3iwf", Name: name})
	}
}

// NotReady implements service.ReadinessReporter. A spec that the service has not read yet is not ready: who waits for it hears of its mistakes.
func (s *serving) NotReady(_ string, kept *object.StoredObject) intent.NotReady {
	if kept.KindName() != "N3iwf" {
		return intent.NotReady{}
	}
	found, _ := s.verdicts.Load(kept.Key().Name)
	if of, judged := found.(verdict); judged && proto.Equal(of.spec, kept.Object().Spec) {
		return of.why
	}
	return intent.NotReady{Reason: notConfigured, Message: "the N3IWF service has not read it yet", Since: time.Now()}
}

// interfaceAddresses are the addresses of an Interface.
type interfaceAddresses struct {
	vrf string
	all []netip.Addr
}

// addressesOf are those of an Interface; nil: it is gone.
func addressesOf(o *object.Object) (now interfaceAddresses) {
	if o == nil {
		return now
	}
	if spec, is := o.Spec.(*api.Interface); is {
		now.vrf = object.VRFName(spec.GetVrf())
		for _, text := range spec.GetAddresses() {
			if p, err := netip.ParsePrefix(text); err == nil {
				now.all = append(now.all, p.Addr())
			}
		}
	}
	return now
}

// followInterface takes an Interface. Those that UEs have are without addresses.
func (s *serving) followInterface(c service.Change) {
	now := addressesOf(c.Object)
	before, had := s.interfaces[c.Key.Name]
	if len(now.all) == 0 && !had {
		return
	}
	if len(now.all) == 0 {
		delete(s.interfaces, c.Key.Name)
	} else {
		s.interfaces[c.Key.Name] = now
	}
	// Thousands may change at once.
	s.readdressed = s.readdressed || before.vrf != now.vrf || !slices.Equal(before.all, now.all)
}

// has reports whether an Interface of a VRF has an address.
func (s *serving) has(vrf string, a netip.Addr) bool {
	for _, one := range s.interfaces {
		if one.vrf == vrf && slices.Contains(one.all, a) {
			return true
		}
	}
	return false
}

// review judges N3iwfs that serve: what UEs need of them may have changed, or a certificate expired.
func (s *serving) review(now time.Time) {
	s.readdressed = false
	for name, in := range s.instances {
		if !in.outdated {
			reason, words := in.unserved(now)
			s.judge(name, in.spec, reason, words)
		}
	}
}

// reviewAMFs judges N3iwfs of which AMFs became ready, or are not ready any more.
func (s *serving) reviewAMFs(now time.Time) {
	for name, in := range s.instances {
		if lacks := in.withoutAMF(); lacks != in.lacks && !in.outdated {
			reason, words := in.unserved(now)
			s.judge(name, in.spec, reason, words)
		}
	}
}

// unserved says why UEs cannot register with an N3IWF that serves; "": they can.
func (in *instance) unserved(now time.Time) (reason, words string) {
	in.lacks = in.withoutAMF()
	if words := in.unreachable(now); words != "" {
		return notReachable, words
	}
	return noAMF, in.lacks
}

// withoutAMF says why no AMF takes UEs; "": one does.
func (in *instance) withoutAMF() string {
	if in.s.pool == nil {
		return ""
	}
	if err := in.s.pool.Serves(in.spec.Node, nil); err != nil {
		return err.Error()
	}
	return ""
}

// unreachable says why UEs do not reach an N3IWF that serves; "": they do.
func (in *instance) unreachable(now time.Time) string {
	local, _ := netip.ParseAddr(in.spec.LocalAddress)
	for _, one := range []struct {
		field, vrf string
		a          netip.Addr
	}{{"localAddress", in.spec.Vrf, local}, {"nasAddress", in.spec.InnerVrf, in.nas}, {"coreAddress", in.spec.CoreVrf, in.core}} {
		if vrf := object.VRFName(one.vrf); !in.s.has(vrf, one.a) {
			return fmt.Sprintf("%s: no Interface in VRF %s has the address %s: add it to the addresses of one", one.field, vrf, one.a)
		}
	}
	leaf, of := in.certificate, "IkeCredential/"+in.spec.Credential
	switch {
	case leaf == nil:
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("%s: certificateFile: UEs refuse the certificate, which expired at %s: renew it", of, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf("%s: certificateFile: UEs refuse the certificate, which is not valid before %s: set the clock, or replace it", of, leaf.NotBefore.UTC().Format(time.RFC3339))
	case in.identity.Kind == message.IDFQDN && !hasName(leaf, in.identity.Data):
		return fmt.Sprintf("identity: %q is not in the certificate of %s, which has %s: UEs refuse it; set identity to a name of the certificate, or replace the certificate",
			in.identity.Data, of, strings.Join(namesOf(leaf), ", "))
	}
	return ""
}

// namesOf are the DNS names of a certificate; without any, its common name is one.
func namesOf(leaf *smx509.Certificate) []string {
	if len(leaf.DNSNames) > 0 {
		return leaf.DNSNames
	}
	return []string{leaf.Subject.CommonName}
}

func hasName(leaf *smx509.Certificate, name string) bool {
	return slices.ContainsFunc(namesOf(leaf), func(one string) bool { return strings.EqualFold(one, name) })
}

// conflict is why an N3iwf cannot serve beside those that do: UEs could not tell them apart, or would have the same addresses.
func (s *serving) conflict(in *instance) error {
	names := make([]string, 0, len(s.instances))
	for name := range s.instances {
		names = append(names, name)
	}
	slices.Sort(names)
	plane := func(of *instance) string {
		if of.plane == "" && len(s.Dataplanes) > 0 {
			return s.Dataplanes[0]
		}
		return of.plane
	}
	for _, name := range names {
		other := s.instances[name]
		if name == in.name || plane(other) != plane(in) {
			continue
		}
		mine, _ := netip.ParseAddr(in.spec.LocalAddress)
		theirs, _ := netip.ParseAddr(other.spec.LocalAddress)
		if mine == theirs && object.VRFName(in.spec.Vrf) == object.VRFName(other.spec.Vrf) {
			return fmt.Errorf("localAddress: N3iwf/%s has %s: set another address", name, mine)
		}
		if object.VRFName(in.spec.InnerVrf) != object.VRFName(other.spec.InnerVrf) {
			continue
		}
		for i, p := range in.pools {
			if at := slices.IndexFunc(other.pools, p.Overlaps); at >= 0 {
				return fmt.Errorf("innerPools[%d]: %s overlaps %s of N3iwf/%s: set another network, or another innerVrf", i, p, other.pools[at], name)
			}
		}
	}
	return nil
}

// stamp changes with a file.
func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.Size(), info.ModTime())
}

// look reads the files of certificates again that have changed, and judges certificates.
func (s *serving) look(now time.Time) {
	for _, name := range s.ordered() {
		for path, before := range s.files[name] {
			if stamp(path) != before {
				s.configure(name)
				break
			}
		}
	}
	s.review(now)
}

// ordered are the names of N3iwfs: first those that served before the agent started. They stay when others conflict with them.
func (s *serving) ordered() []string {
	names := make([]string, 0, len(s.specs))
	for name := range s.specs {
		names = append(names, name)
	}
	served := map[string]bool{}
	if s.ike != nil {
		for _, name := range s.ike.Registered() {
			served[name] = true
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if first := served[connectionPrefix+a]; first != served[connectionPrefix+b] {
			if first {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	return names
}

// readCredential reads the files of a certificate and its key.
func (in *instance) readCredential(credential *api.IkeCredential) (*ike.Credential, error) {
	of := "IkeCredential/" + in.spec.Credential
	if credential.GetCertificateFile() == "" {
		return nil, fmt.Errorf("%s has no certificate: set certificateFile and privateKeyFile", of)
	}
	files := map[string]string{}
	in.s.files[in.name] = files
	var texts [2]string
	for i, one := range []struct{ field, path string }{{"certificateFile", credential.CertificateFile}, {"privateKeyFile", credential.PrivateKeyFile}} {
		files[one.path] = stamp(one.path)
		info, err := os.Stat(one.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: restore the file, or name another one", of, one.field, err)
		}
		if !info.Mode().IsRegular() || info.Size() > certificateIn {
			return nil, fmt.Errorf("%s: %s: %s is not a file of at most %d bytes: restore it, or name another one", of, one.field, one.path, certificateIn)
		}
		b, err := os.ReadFile(one.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: restore the file, or name another one", of, one.field, err)
		}
		texts[i] = string(b)
	}
	c, err := ike.ParseCredential(texts[0], texts[1], credential.RsaPss)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (certificateFile %s, privateKeyFile %s): restore the files, or name others", of, err, credential.CertificateFile, credential.PrivateKeyFile)
	}
	if in.certificate, err = smx509.ParseCertificate(c.Chain[0]); err != nil {
		return nil, fmt.Errorf("%s: certificateFile: %w", of, err)
	}
	return c, nil
}
