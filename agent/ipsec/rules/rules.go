// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of SecurityAssociation, IpsecTunnel, SecurityPolicy, and of Interfaces and Sessions on tunnels, that annotations cannot express.
package rules

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	ether "sluice.dev/sluice/agent/ether/rules"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.IpsecTunnel]{Check: checkIpsecTunnel, Local: localOfTunnel},
	object.Rules[*api.SecurityAssociation]{Check: checkSecurityAssociation, Warn: warnDirection, Claims: claimSecurityAssociation, Local: localOfAssociation},
	object.Rules[*api.SecurityPolicy]{Check: checkSecurityPolicy},
	object.Rules[*api.Interface]{Claims: claimInterface},
	object.Rules[*api.Session]{Claims: claimSession},
}

// InterfaceType is the type of interfaces on tunnels.
var InterfaceType = ether.InterfaceType{Field: "ipsecTunnel", Object: (*api.Interface).GetIpsecTunnel}

func claimInterface(i *api.Interface, c *object.Claimer) {
	claimTunnel(i.IpsecTunnel, "ipsecTunnel", c)
}

func claimSession(s *api.Session, c *object.Claimer) {
	claimTunnel(s.Access.GetIpsecTunnel(), "access.ipsecTunnel", c)
	claimTunnel(s.GetIpsec().GetTunnel(), "ipsec.tunnel", c)
}

// claimTunnel: all packets of a tunnel are of one interface or session.
func claimTunnel(name, field string, c *object.Claimer) {
	if name != "" {
		c.Take(append(c.Words("IpsecTunnel/"), name...), "packets", field, -1)
	}
}

// espCipher holds the accepted lengths of an encryption algorithm's keys in bytes, and the length of the salt behind
// them.
type espCipher struct {
	keys []int
	salt int
	aead bool
}

var espCiphers = map[api.EspEncryption]espCipher{
	api.EspEncryption_AES_GCM:           {[]int{16, 24, 32}, 4, true},
	api.EspEncryption_AES_CBC:           {[]int{16, 24, 32}, 0, false},
	api.EspEncryption_AES_CTR:           {[]int{16, 24, 32}, 4, false},
	api.EspEncryption_AES_GMAC:          {[]int{16, 24, 32}, 4, true},
	api.EspEncryption_CHACHA20_POLY1305: {[]int{32}, 4, true},
	api.EspEncryption_NULL_ENCRYPTION:   {[]int{0}, 0, false},
	api.EspEncryption_SM4_CBC:           {[]int{16}, 0, false},
	api.EspEncryption_SM4_GCM:           {[]int{16}, 4, true},
	api.EspEncryption_SM4_CCM:           {[]int{16}, 3, true},
}

// espHashes has the length of an integrity algorithm's key, and the largest ICV.
var espHashes = map[api.EspIntegrity]int{
	api.EspIntegrity_NO_INTEGRITY: 0,
	api.EspIntegrity_HMAC_SHA1:    20,
	api.EspIntegrity_HMAC_SHA256:  32,
	api.EspIntegrity_HMAC_SHA384:  48,
	api.EspIntegrity_HMAC_SHA512:  64,
	api.EspIntegrity_HMAC_SM3:     32,
}

func checkSecurityAssociation(s *api.SecurityAssociation, add object.Report) {
	for _, end := range []struct{ field, address string }{{"localAddress", s.LocalAddress}, {"remoteAddress", s.RemoteAddress}} {
		if end.address != "" {
			object.CheckHost(end.field, end.address, add)
		} else if s.Policy != "" && s.Tunnel == "" {
			add(end.field, "missing: a policy has no ends of its own", "", "an IP address")
		}
	}
	object.CheckSameFamily("remoteAddress", s.RemoteAddress, "localAddress", s.LocalAddress, "address", add)
	checkEspKeys(s, add)
	switch {
	case s.Tunnel == "" && s.Policy == "":
		add("tunnel", object.Missing, "", "an IpsecTunnel or a SecurityPolicy")
	case s.Tunnel != "" && s.Policy != "":
		add("policy", "an SA serves a tunnel or a policy", object.Quote(s.Policy), "tunnel or policy, not both")
	}
	if s.Mode == api.SecurityMode_TRANSPORT_MODE && s.Tunnel != "" {
		add("mode", "a tunnel has SAs in tunnel mode", "transport_mode", "tunnel_mode, or policy in place of tunnel")
	}
	if s.ReplayWindow%64 != 0 {
		add("replayWindow", "not a multiple of 64", strconv.Itoa(int(s.ReplayWindow)), "64, 128, ... 4096")
	}
	if !s.Esn && s.Sequence > 1<<32-1 {
		add("sequence", "more than 32 bits without extended sequence numbers", strconv.FormatUint(s.Sequence, 10), "at most 4294967295, or esn")
	}
	if s.Esn && s.NoReplayCheck {
		add("noReplayCheck", "no effect with extended sequence numbers: the receiver takes low numbers of a peer that starts anew for those behind a wrap", "true", "no esn")
	}
	if address, err := netip.ParseAddr(s.RemoteAddress); err == nil && address.Is6() && s.PathMtu != 0 && s.PathMtu < 1280 {
		add("pathMtu", "less than every path of IPv6 takes", strconv.Itoa(int(s.PathMtu)), "at least 1280 bytes")
	}
	checkLimits("Bytes", s.SoftBytes, s.HardBytes, add)
	checkLimits("Packets", s.SoftPackets, s.HardPackets, add)
	checkSelectors(s.Selectors, add)
	if s.Outer.GetDscpValue() != "" && s.Outer.GetDscp() != api.DscpRule_DSCP_SET {
		add("outer.dscpValue", "no effect without outer.dscp: dscp_set", object.Quote(s.Outer.DscpValue), "outer.dscp: dscp_set, too")
	}
}

// warnDirection names what has no effect in the SA's direction.
func warnDirection(s *api.SecurityAssociation, add object.Report) {
	none := func(field, found string) {
		direction, other := "inbound", "outbound"
		if s.Direction == api.SecurityDirection_OUTBOUND {
			direction, other = other, direction
		}
		add(field, "no effect on an "+direction+" SA", found, "direction: "+other+", or no "+field)
	}
	if s.Direction == api.SecurityDirection_OUTBOUND {
		if s.ReplayWindow != 0 {
			none("replayWindow", strconv.Itoa(int(s.ReplayWindow)))
		}
		if s.NoReplayCheck {
			none("noReplayCheck", "true")
		}
		return
	}
	if s.Outer != nil {
		none("outer", "")
	}
	if s.PathMtu != 0 {
		none("pathMtu", strconv.Itoa(int(s.PathMtu)))
	}
	if s.Precedence != 0 {
		none("precedence", strconv.FormatUint(uint64(s.Precedence), 10))
	}
	if s.Udp.GetKeepalive() != 0 {
		none("udp.keepalive", object.Quote(time.Duration(s.Udp.Keepalive).String()))
	}
}

// localOfTunnel is the gateway's end of a tunnel.
func localOfTunnel(t *api.IpsecTunnel) []object.Held {
	return localEnd(t.Vrf, t.LocalAddress)
}

func localOfAssociation(s *api.SecurityAssociation) []object.Held {
	if s.Direction == api.SecurityDirection_OUTBOUND {
		return nil
	}
	return localEnd(s.Vrf, s.LocalAddress)
}

func localEnd(vrf, text string) []object.Held {
	address, err := netip.ParseAddr(text)
	if err != nil || address.IsLinkLocalUnicast() {
		return nil
	}
	return []object.Held{{VRF: object.VRFName(vrf), Prefix: netip.PrefixFrom(address, address.BitLen()), Field: "localAddress", Element: -1}}
}

// claimSecurityAssociation: an inbound SPI is one SA's in a VRF, and an outbound one, which the peer chooses, one SA's to that peer.
func claimSecurityAssociation(s *api.SecurityAssociation, c *object.Claimer) {
	if s.Direction == api.SecurityDirection_INBOUND {
		c.Take(strconv.AppendUint(append(append(c.Words("inbound SPI in VRF "), object.VRFName(s.Vrf)...), ": "...), uint64(s.Spi), 10), "", "spi", -1)
		return
	}
	// The data plane compares an SA that has its tunnel's peer with those that name theirs.
	peer := "that of IpsecTunnel/" + s.Tunnel
	if address, err := netip.ParseAddr(s.RemoteAddress); err == nil {
		peer = address.String()
	}
	if s.Udp != nil {
		peer += ", UDP port " + strconv.Itoa(int(cmp.Or(s.Udp.RemotePort, 4500)))
	}
	what := append(append(c.Words("outbound SPI in VRF "), object.VRFName(s.Vrf)...), " to peer "...)
	c.Take(strconv.AppendUint(append(append(what, peer...), ": "...), uint64(s.Spi), 10), "", "spi", -1)
}

const missingKey = "missing: each apply has it again, because get and edit do not show keys"

// checkEspKeys never writes a key into an error.
func checkEspKeys(s *api.SecurityAssociation, add object.Report) {
	cipher := espCiphers[s.Encryption]
	var accepted []string
	fits := false
	length, err := hexLength(s.EncryptionKey)
	for _, key := range cipher.keys {
		fits = fits || length == key+cipher.salt
		accepted = append(accepted, strconv.Itoa(key+cipher.salt))
	}
	bytes := strings.Join(accepted, ", ") + " bytes in hexadecimal"
	if cipher.salt > 0 {
		bytes += fmt.Sprintf(", the last %d of them the salt", cipher.salt)
	}
	switch {
	case s.EncryptionKey == "" && !fits:
		add("encryptionKey", missingKey, "", bytes)
	case err != nil:
		add("encryptionKey", "not hexadecimal", "(secret)", bytes)
	case !fits:
		add("encryptionKey", "not a key of this algorithm", strconv.Itoa(length)+" bytes", bytes)
	}
	hash := espHashes[s.Integrity]
	length, err = hexLength(s.IntegrityKey)
	switch {
	case cipher.aead && s.Integrity != api.EspIntegrity_NO_INTEGRITY:
		add("integrity", "the encryption algorithm protects integrity by itself", strings.ToLower(s.Integrity.String()), "no_integrity")
	case !cipher.aead && s.Integrity == api.EspIntegrity_NO_INTEGRITY:
		add("integrity", "missing: the encryption algorithm does not protect integrity", "", "hmac_sha256, for example")
	case s.IntegrityKey == "" && hash != 0:
		add("integrityKey", missingKey, "", strconv.Itoa(hash)+" bytes in hexadecimal")
	case err != nil:
		add("integrityKey", "not hexadecimal", "(secret)", strconv.Itoa(hash)+" bytes in hexadecimal")
	case length != hash:
		add("integrityKey", "not a key of this algorithm", strconv.Itoa(length)+" bytes", strconv.Itoa(hash)+" bytes in hexadecimal")
	}
	switch {
	case s.IcvLength == 0:
	case s.Encryption == api.EspEncryption_CHACHA20_POLY1305 && s.IcvLength != 16, s.Encryption == api.EspEncryption_AES_GMAC && s.IcvLength != 16:
		add("icvLength", "not an ICV length of this algorithm", strconv.Itoa(int(s.IcvLength)), "16 bytes")
	case cipher.aead && s.IcvLength != 8 && s.IcvLength != 12 && s.IcvLength != 16:
		add("icvLength", "not an ICV length of this algorithm", strconv.Itoa(int(s.IcvLength)), "8, 12 or 16 bytes")
	case !cipher.aead && hash > 0 && (s.IcvLength < 12 || s.IcvLength%4 != 0 || int(s.IcvLength) > min(hash, 32)):
		add("icvLength", "not an ICV length of this hash", strconv.Itoa(int(s.IcvLength)), fmt.Sprintf("12, 16, ... %d bytes", min(hash, 32)))
	}
}

// hexLength returns how many bytes a text in hexadecimal has.
func hexLength(text string) (int, error) {
	b, err := hex.DecodeString(text)
	return len(b), err
}

func checkLimits(what string, soft, hard uint64, add object.Report) {
	if hard != 0 && soft >= hard {
		add("soft"+what, "not less than hard"+what, strconv.FormatUint(soft, 10), "less than "+strconv.FormatUint(hard, 10))
	}
}

func checkSelectors(selectors []*api.TrafficSelector, add object.Report) {
	for i, s := range selectors {
		at := "selectors[" + strconv.Itoa(i) + "]."
		object.CheckSameFamily(at+"remote", s.Remote, "local", s.Local, "prefix", add)
		checkRange(s.Local, s.LocalLast, at+"local", add)
		checkRange(s.Remote, s.RemoteLast, at+"remote", add)
		if (s.LocalPorts != "" || s.RemotePorts != "") && !hasPorts(s.Protocol) {
			add(at+"protocol", "ports of a protocol without ports", object.Quote(s.Protocol), "tcp, udp, 132 or 33")
		}
	}
}

// checkRange: a range goes from the only address of a prefix to another one.
func checkRange(prefix, last, field string, add object.Report) {
	if last == "" {
		return
	}
	first, err := object.ParseNetwork(prefix)
	if err != nil || !first.IsSingleIP() {
		add(field, "not the first address of a range", object.Quote(prefix), "a prefix of one address, as long as "+field+"Last is there")
		return
	}
	if end, err := netip.ParseAddr(last); err == nil && (end.Is4() != first.Addr().Is4() || end.Less(first.Addr())) {
		add(field+"Last", "not after the first address", object.Quote(last), "an address after "+first.Addr().String())
	}
}

// hasPorts: the first four bytes of the header are ports (TCP, UDP, DCCP, SCTP).
func hasPorts(protocol string) bool {
	switch protocol {
	case "tcp", "udp", "6", "17", "33", "132":
		return true
	}
	return false
}

func checkIpsecTunnel(t *api.IpsecTunnel, add object.Report) {
	if t.LocalAddress != "" {
		object.CheckHost("localAddress", t.LocalAddress, add)
	}
	if t.RemoteAddress != "" {
		object.CheckHost("remoteAddress", t.RemoteAddress, add)
	}
	object.CheckSameFamily("remoteAddress", t.RemoteAddress, "localAddress", t.LocalAddress, "address", add)
	checkSelectors(t.Selectors, add)
}

func checkSecurityPolicy(p *api.SecurityPolicy, add object.Report) {
	checkSelectors(p.Selectors, add)
}
