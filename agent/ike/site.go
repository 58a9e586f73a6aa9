// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// An IkePeer is a connection with one child, and the volatile objects that bring a site's packets into its tunnel.

const (
	siteChild = "net"
	siteMSS   = 1360
	siteMSS6  = 1340
	// A name that is longer ends with so many bytes of its hash.
	longestSite = 150
	siteSum     = 8
)

// siteName is the name of a site's IpsecTunnel and of its Interface. Those of its Routes have the prefix behind it.
func siteName(peer string) string {
	if len(peer) > longestSite {
		sum := sha256.Sum256([]byte(peer))
		peer = peer[:longestSite-2*siteSum-1] + "-" + hex.EncodeToString(sum[:siteSum])
	}
	return "peer-" + peer
}

// site is an IkePeer.
type site struct {
	peer *object.Object
	// The objects that the agent has made of it.
	made map[object.Key]proto.Message
	// Why an object was refused, and since when.
	refused map[object.Key]string
	since   time.Time
}

// connectionOfSite is the IkeConnection that an IkePeer stands for.
func connectionOfSite(name string, peer *api.IkePeer, policy *api.IpsecPolicy, credential *api.IkeCredential) *api.IkeConnection {
	c := &api.IkeConnection{Vrf: peer.GetVrf(), LocalAddress: peer.GetLocalAddress(), RemoteAddress: peer.GetRemoteAddress(), LocalIdentity: peer.GetLocalIdentity(),
		RemoteIdentity: peer.GetRemoteIdentity(), Credential: peer.GetCredential(), Authorities: peer.GetAuthorities(), Proposals: policy.GetProposals(),
		RekeyTime: policy.GetRekeyTime(), DpdDelay: policy.GetDpdDelay(), ForceEncapsulation: policy.GetForceEncapsulation(), AllowSha1: policy.GetAllowSha1()}
	if credential.GetCertificateFile() != "" {
		c.LocalAuthentication = api.IkeAuthentication_CERTIFICATE
	}
	if len(peer.GetAuthorities()) > 0 {
		c.RemoteAuthentication = api.IkeAuthentication_CERTIFICATE
	}
	child := &api.IkeChild{Name: siteChild, Tunnel: siteName(name), Proposals: policy.GetEspProposals(), Local: peer.GetLocalNetworks(), Remote: peer.GetRemoteNetworks(),
		RekeyTime: policy.GetChildRekeyTime(), RekeyBytes: policy.GetRekeyBytes(), RekeyPackets: policy.GetRekeyPackets(), ReplayWindow: policy.GetReplayWindow()}
	if len(child.Local) == 0 {
		child.Local = []string{"0.0.0.0/0", "::/0"}
	}
	if peer.GetRemoteAddress() != "" && !peer.GetPassive() {
		child.Start, child.OnClose, child.OnDeadPeer = api.IkeAction_AT_ONCE, api.IkeAction_AT_ONCE, api.IkeAction_AT_ONCE
	}
	c.Children = []*api.IkeChild{child}
	return c
}

// objectsOfSite are the objects that bring the packets of a site into its tunnel.
func objectsOfSite(name string, peer *api.IkePeer, policy *api.IpsecPolicy) map[object.Key]proto.Message {
	tunnel := siteName(name)
	mss := uint32(siteMSS)
	if a, err := netip.ParseAddr(peer.GetLocalAddress()); err == nil && a.Is6() {
		mss = siteMSS6
	}
	all := map[object.Key]proto.Message{
		{Kind: "IpsecTunnel", Name: tunnel}: &api.IpsecTunnel{Vrf: peer.GetVrf(), Mss: cmp.Or(policy.GetMss(), mss)},
		{Kind: "Interface", Name: tunnel}: &api.Interface{Vrf: peer.GetInsideVrf(), IpsecTunnel: tunnel, Addresses: peer.GetAddresses(), AclIn: peer.GetAclIn(),
			AclOut: peer.GetAclOut(), MeterIn: peer.GetMeterIn(), MeterOut: peer.GetMeterOut()},
	}
	for _, text := range peer.GetRemoteNetworks() {
		all[object.Key{Kind: "Route", Name: tunnel + "-" + strings.NewReplacer("/", "-", ":", "-").Replace(text)}] = &api.Route{Vrf: peer.GetInsideVrf(), Prefix: text,
			NextHops: []*api.NextHop{{Interface: tunnel}}}
	}
	return all
}

// expand makes the connection and the objects of an IkePeer, or changes them. An IkeConnection of the same name goes first. s.mu is held.
func (s *serving) expand(name string) {
	one := s.sites[name]
	if one == nil || !s.synced {
		return
	}
	if o := s.specs[name]; o != nil && o.Kind == "IkeConnection" {
		s.withdraw(one, nil)
		return
	}
	peer, _ := one.peer.Spec.(*api.IkePeer)
	policy := s.policies[peer.GetPolicy()]
	s.specs[name] = &object.Object{Kind: "IkePeer", Name: name, Labels: one.peer.Labels, Spec: connectionOfSite(name, peer, policy, s.credentials[peer.GetCredential()])}
	all := objectsOfSite(name, peer, policy)
	s.withdraw(one, all)
	for k, spec := range all {
		if before := one.made[k]; before != nil && proto.Equal(before, spec) && one.refused[k] == "" {
			continue
		}
		one.made[k] = spec
		s.Objects.Put(&object.Object{Kind: k.Kind, Name: k.Name, Labels: labelsOfSite(one.peer), Spec: spec}, func(r service.Result) {
			s.locked(func(now time.Time) []Action {
				if one.made[k] != spec {
					return nil
				}
				s.refusedOfSite(one, name, k, r.Err)
				return nil
			})
		})
	}
}

// refusedOfSite keeps why an object of a site was refused; nil: it was not. s.mu is held.
func (s *serving) refusedOfSite(one *site, name string, k object.Key, err error) {
	before := one.refused[k]
	delete(one.refused, k)
	if err != nil {
		one.refused[k] = s.refusalOfSite(one, k, err)
	}
	if one.refused[k] == before {
		return
	}
	if err != nil {
		s.Log.Error("an object of an IkePeer is refused", "name", name, "object", k.String(), "error", one.refused[k])
	}
	one.since = time.Now()
	if s.Intent != nil {
		s.later = append(s.later, func() { s.Intent.Touched(object.Key{Kind: "IkePeer", Name: name}) })
	}
}

// refusalOfSite says why an object of a site was refused: by the IkePeer that has the network, if it is one. s.mu is held.
func (s *serving) refusalOfSite(one *site, k object.Key, err error) string {
	if ours, is := one.made[k].(*api.Route); is {
		for _, other := range slices.Sorted(maps.Keys(s.sites)) {
			for held, spec := range s.sites[other].made {
				theirs, is := spec.(*api.Route)
				if is && s.sites[other] != one && s.sites[other].refused[held] == "" && samePrefix(ours.GetPrefix(), theirs.GetPrefix()) && cmp.Or(ours.GetVrf(), "default") == cmp.Or(theirs.GetVrf(), "default") {
					return fmt.Sprintf("remoteNetworks: IkePeer/%s has %s in VRF %s: leave it out of one of the two, or set insideVrf", other, ours.GetPrefix(), cmp.Or(ours.GetVrf(), "default"))
				}
			}
		}
	}
	// An error of the checks names the object.
	return k.String() + ": " + strings.TrimPrefix(err.Error(), k.String()+": ")
}

func samePrefix(a, b string) bool {
	p, err := netip.ParsePrefix(a)
	q, failed := netip.ParsePrefix(b)
	return err == nil && failed == nil && p.Masked() == q.Masked()
}

// MadeFor implements service.Maker.
func (s *serving) MadeFor(k object.Key) (object.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spi, is := spiOf(k.Name); is && k.Kind == associationKind && s.machine.children[spi] != nil {
		o := s.specs[s.machine.children[spi].Connection]
		if o == nil {
			return object.Key{}, false
		}
		return o.Key(), true
	}
	for name, one := range s.sites {
		if one.made[k] != nil {
			return object.Key{Kind: "IkePeer", Name: name}, true
		}
	}
	return object.Key{}, false
}

// siteNotReady says why an IkePeer does not serve. s.mu is held.
func (s *serving) siteNotReady(name string) intent.NotReady {
	one := s.sites[name]
	if one == nil {
		return intent.NotReady{}
	}
	if o := s.specs[name]; o != nil && o.Kind == "IkeConnection" {
		return intent.NotReady{Reason: notConfigured, Message: "an IkeConnection has this name: give one of the two another name", Since: one.since}
	}
	for _, k := range slices.SortedFunc(maps.Keys(one.refused), object.Key.Compare) {
		return intent.NotReady{Reason: notConfigured, Message: one.refused[k], Since: one.since}
	}
	return s.connectionNotReady(name)
}

// followSite follows an IkePeer. s.mu is held.
func (s *serving) followSite(name string, peer *object.Object, now time.Time) []Action {
	if peer == nil {
		if one := s.sites[name]; one != nil {
			s.withdraw(one, nil)
		}
		delete(s.sites, name)
		if o := s.specs[name]; o == nil || o.Kind != "IkePeer" {
			return nil
		}
		actions := s.forget(name, now)
		if o := s.shadowed[name]; o != nil {
			s.specs[name] = o
			delete(s.shadowed, name)
		}
		return append(actions, s.configure(name, now)...)
	}
	if s.sites[name] == nil {
		s.sites[name] = &site{made: map[object.Key]proto.Message{}, refused: map[object.Key]string{}, since: now}
	}
	s.sites[name].peer = peer
	s.anew(name)
	s.expand(name)
	return s.configure(name, now)
}

func everySite(*api.IkePeer) bool { return true }

// expandEach expands IkePeers anew, and returns their names. s.mu is held.
func (s *serving) expandEach(which func(peer *api.IkePeer) bool) (names []string) {
	for name, one := range s.sites {
		if peer, _ := one.peer.Spec.(*api.IkePeer); which(peer) {
			s.expand(name)
			names = append(names, name)
		}
	}
	return names
}

// labelsOfSite says which data plane has the objects of an IkePeer.
func labelsOfSite(peer *object.Object) map[string]string {
	if plane := peer.Labels["dataplane"]; plane != "" {
		return map[string]string{"dataplane": plane}
	}
	return nil
}

// withdraw deletes the objects of a site that it does not keep. s.mu is held.
func (s *serving) withdraw(one *site, kept map[object.Key]proto.Message) {
	for k := range one.made {
		if kept[k] == nil {
			delete(one.made, k)
			delete(one.refused, k)
			s.Objects.Delete(k, nil)
		}
	}
}
