// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of IKE's kinds that annotations cannot express.
package rules

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.IkeAuthority]{Check: checkIkeAuthority},
	object.Rules[*api.IkeConnection]{Check: checkIkeConnection, Local: localAddress[*api.IkeConnection]},
	object.Rules[*api.IkeCredential]{Check: checkIkeCredential},
	object.Rules[*api.IkePeer]{Check: checkIkePeer, Local: localAddress[*api.IkePeer]},
	object.Rules[*api.IpsecPolicy]{Check: checkIpsecPolicy},
}

// localAddress is an address that an Interface must have.
func localAddress[M interface {
	GetVrf() string
	GetLocalAddress() string
}](spec M) []object.Held {
	address, err := netip.ParseAddr(spec.GetLocalAddress())
	if err != nil || address.IsLinkLocalUnicast() {
		return nil
	}
	return []object.Held{{VRF: object.VRFName(spec.GetVrf()), Prefix: netip.PrefixFrom(address, address.BitLen()), Field: "localAddress", Element: -1}}
}

// The name of a child is part of the names of its SecurityAssociations.
const longestIkeChild = 32

const eachCertificate = "each certificate of the authorities would be accepted"

func checkIkeConnection(c *api.IkeConnection, add object.Report) {
	object.CheckHost("localAddress", c.LocalAddress, add)
	if c.RemoteAddress != "" {
		checkRemoteAddress(c.RemoteAddress, c.LocalAddress, add)
	}
	if c.LocalAuthentication == api.IkeAuthentication_EAP {
		add("localAuthentication", "only a remote user authenticates by EAP", "EAP", "SHARED_KEY or CERTIFICATE")
	}
	if c.RemoteAuthentication == api.IkeAuthentication_CERTIFICATE && len(c.Authorities) == 0 {
		add("authorities", object.Missing, "", "an IkeAuthority of the peer's certificate")
	}
	if c.RemoteAuthentication == api.IkeAuthentication_CERTIFICATE && c.RemoteIdentity == "" {
		add("remoteIdentity", eachCertificate, "", "the peer's identity, as gw-b.example.org, or %any for each certificate")
	}
	if c.RemoteAuthentication == api.IkeAuthentication_EAP && c.EapMethod == api.IkeEapMethod_EAP_TLS {
		if len(c.Authorities) == 0 {
			add("authorities", object.Missing, "", "an IkeAuthority of the users' certificates")
		}
		if c.LocalAuthentication != api.IkeAuthentication_CERTIFICATE {
			add("localAuthentication", "EAP-TLS needs a certificate of the gateway", c.LocalAuthentication.String(), "CERTIFICATE")
		}
	}
	for i, text := range c.OtherLocalAddresses {
		field := "otherLocalAddresses[" + strconv.Itoa(i) + "]"
		object.CheckHost(field, text, add)
		object.CheckSameFamily(field, text, "localAddress", c.LocalAddress, "address", add)
	}
	if c.SubscriberProfile != "" && len(c.Pools)+len(c.Dns) > 0 {
		add("pools", "subscriberProfile has pools and name servers", object.Quote(strings.Join(append(slices.Clone(c.Pools), c.Dns...), " ")), "neither pools nor dns")
	}
	CheckProposals("proposals", message.ProtocolIKE, c.Proposals, add)
	for i, child := range c.Children {
		field := "children[" + strconv.Itoa(i) + "]"
		switch {
		case len(child.Name) > longestIkeChild || strings.ContainsFunc(child.Name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
		}):
			add(field+".name", "not a name", object.Quote(child.Name), "at most 32 lower-case letters, digits and hyphens")
		case slices.ContainsFunc(c.Children[:i], func(other *api.IkeChild) bool { return other.Name == child.Name }):
			add(field+".name", "duplicate name", object.Quote(child.Name), "each name once")
		}
		switch {
		case c.SubscriberProfile != "" && child.Tunnel+child.Policy != "":
			add(field+".tunnel", "each user of subscriberProfile has a tunnel of its own", object.Quote(child.Tunnel+child.Policy), "neither tunnel nor policy")
		case c.SubscriberProfile != "" && child.Mode != api.SecurityMode_TUNNEL_MODE:
			add(field+".mode", "users of subscriberProfile have tunnels", child.Mode.String(), "TUNNEL_MODE")
		case c.SubscriberProfile == "" && (child.Tunnel == "") == (child.Policy == ""):
			add(field+".tunnel", "neither or both of tunnel and policy", object.Quote(child.Tunnel), "an IpsecTunnel or a SecurityPolicy")
		}
		if child.Start == api.IkeAction_AT_ONCE && c.RemoteAddress == "" {
			add(field+".start", "no peer to call", child.Start.String(), "NOTHING, or a connection with remoteAddress")
		}
		CheckProposals(field+".proposals", message.ProtocolESP, child.Proposals, add)
		checkNetworks(field+".local", child.Local, field+".remote", child.Remote, add)
	}
}

func checkRemoteAddress(remote, local string, add object.Report) {
	object.CheckHost("remoteAddress", remote, add)
	object.CheckSameFamily("remoteAddress", remote, "localAddress", local, "address", add)
	if a, err := netip.ParseAddr(remote); err == nil && a.String() == local {
		add("remoteAddress", "is localAddress", object.Quote(remote), "the peer's address")
	}
}

// checkNetworks checks the networks of both sides of a child: packets match only two of one family.
func checkNetworks(ours string, local []string, theirs string, remote []string, add object.Report) {
	families := func(all []string) (found [2]bool) {
		for _, text := range all {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
				found[0] = true
			} else if err == nil {
				found[1] = true
			}
		}
		return found
	}
	if len(local) == 0 || len(remote) == 0 {
		return
	}
	a, b := families(local), families(remote)
	if a != [2]bool{} && b != [2]bool{} && !(a[0] && b[0] || a[1] && b[1]) {
		add(theirs, "no network is of the family of a network in "+ours, object.Quote(remote[0]), "a network of the same family")
	}
	for i, text := range remote {
		if slices.Contains(local, text) && !strings.HasSuffix(text, "/0") {
			add(theirs+"["+strconv.Itoa(i)+"]", "is in "+ours+" too", object.Quote(text), "a network behind the peer")
		}
	}
}

func checkIkePeer(p *api.IkePeer, add object.Report) {
	object.CheckHost("localAddress", p.LocalAddress, add)
	if p.RemoteAddress != "" {
		checkRemoteAddress(p.RemoteAddress, p.LocalAddress, add)
	}
	switch {
	case p.RemoteIdentity != "":
	case len(p.Authorities) > 0:
		add("remoteIdentity", eachCertificate, "", "the peer's identity, as gw-b.example.org")
	case p.RemoteAddress == "":
		add("remoteIdentity", "without remoteAddress, remoteIdentity identifies the peer", "", "the peer's identity, as gw-b.example.org")
	}
	for i, text := range p.RemoteNetworks {
		if slices.Contains(p.RemoteNetworks[:i], text) {
			add("remoteNetworks["+strconv.Itoa(i)+"]", "duplicate network", object.Quote(text), "each network once")
		}
	}
	checkNetworks("localNetworks", p.LocalNetworks, "remoteNetworks", p.RemoteNetworks, add)
}

func checkIpsecPolicy(p *api.IpsecPolicy, add object.Report) {
	CheckProposals("proposals", message.ProtocolIKE, p.Proposals, add)
	CheckProposals("espProposals", message.ProtocolESP, p.EspProposals, add)
}

// CheckProposals checks proposals of IKE or ESP in a field.
func CheckProposals(field string, protocol message.Protocol, all []string, add object.Report) {
	for i, text := range all {
		if _, err := suite.ParseProposal(protocol, text); err != nil {
			add(field+"["+strconv.Itoa(i)+"]", err.Error(), object.Quote(text), "words of "+strings.Join(suite.Words(protocol), ", "))
		}
	}
}

func checkIkeCredential(c *api.IkeCredential, add object.Report) {
	if (c.CertificateFile == "") != (c.PrivateKeyFile == "") {
		add("privateKeyFile", "certificate and private key go together", object.Quote(c.PrivateKeyFile), "both, or neither")
	}
	checkPath("certificateFile", c.CertificateFile, add)
	checkPath("privateKeyFile", c.PrivateKeyFile, add)
	if (c.Ppk == "") != (c.PpkId == "") {
		add("ppkId", "a PPK and its name go together", object.Quote(c.PpkId), "both, or neither")
	}
}

func checkIkeAuthority(a *api.IkeAuthority, add object.Report) {
	checkPath("certificateFile", a.CertificateFile, add)
	if u, err := url.Parse(a.OcspUrl); a.OcspUrl != "" && (err != nil || u.Scheme != "http" || u.Host == "") {
		add("ocspUrl", "not a URL of HTTP", object.Quote(a.OcspUrl), "a URL such as http://ocsp.example.org")
	} else if a.OcspUrl != "" && !a.Ocsp {
		add("ocspUrl", "a responder that is not asked", object.Quote(a.OcspUrl), "ocsp: true beside it")
	}
	for i, path := range a.RevocationListFiles {
		checkPath("revocationListFiles["+strconv.Itoa(i)+"]", path, add)
	}
}

// checkPath checks the path of a file of the agent's host.
func checkPath(field, path string, add object.Report) {
	if path != "" && !filepath.IsAbs(path) {
		add(field, "not an absolute path", object.Quote(path), "a path that begins with /")
	}
}
