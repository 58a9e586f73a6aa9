// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
	"sluice.dev/sluice/agent/object"
)

// SecurityAssociations of children.

const associationKind = "SecurityAssociation"

// associationName is the name of one direction of a child.
func associationName(c *ChildSA, outbound bool) string {
	direction := "in"
	if outbound {
		direction = "out"
	}
	return fmt.Sprintf("ike-%s-%s-%08x-%s", strings.Trim(c.Connection[:min(len(c.Connection), 150)], "._:@-"), c.Conf.Name, c.SPIIn, direction)
}

var espEncryption = map[uint16]api.EspEncryption{suite.AESGCM8: api.EspEncryption_AES_GCM, suite.AESGCM12: api.EspEncryption_AES_GCM, suite.AESGCM16: api.EspEncryption_AES_GCM,
	suite.AESCBC: api.EspEncryption_AES_CBC, suite.AESCTR: api.EspEncryption_AES_CTR, suite.AESGMAC: api.EspEncryption_AES_GMAC,
	suite.ChaCha20Poly1305: api.EspEncryption_CHACHA20_POLY1305, suite.NULL: api.EspEncryption_NULL_ENCRYPTION, suite.SM4CBC: api.EspEncryption_SM4_CBC,
	suite.SM4GCM16: api.EspEncryption_SM4_GCM, suite.SM4CCM16: api.EspEncryption_SM4_CCM}

var espIntegrity = map[uint16]api.EspIntegrity{0: api.EspIntegrity_NO_INTEGRITY, suite.SHA1: api.EspIntegrity_HMAC_SHA1, suite.SHA256: api.EspIntegrity_HMAC_SHA256,
	suite.SHA384: api.EspIntegrity_HMAC_SHA384, suite.SHA512: api.EspIntegrity_HMAC_SHA512, suite.SM3: api.EspIntegrity_HMAC_SM3}

// serves is the use of a child; a user may have a tunnel of its own.
func (c *ChildSA) serves() Serves {
	what := c.Conf.Serves
	if c.sa.tunnel != "" {
		what.Tunnel, what.Policy = c.sa.tunnel, ""
	}
	return what
}

// association returns one direction of a child as an object.
func association(c *ChildSA, outbound, labelled bool) *object.Object {
	dataplane, vrf, local, remote, udp := c.Place()
	if vrf == "default" {
		vrf = ""
	}
	what := c.serves()
	encryption, integrity := suite.Get(c.Chosen, message.Encryption).ID, suite.Get(c.Chosen, message.Integrity).ID
	a := &api.SecurityAssociation{Spi: c.SPIIn, Vrf: vrf, LocalAddress: local.Addr().String(), RemoteAddress: remote.Addr().String(),
		Encryption: espEncryption[encryption], EncryptionKey: hex.EncodeToString(c.EncryptionIn), Integrity: espIntegrity[integrity], IntegrityKey: hex.EncodeToString(c.IntegrityIn),
		Esn: c.ESN(), Tunnel: what.Tunnel, Policy: what.Policy, Peer: associationName(c, !outbound),
		SoftBytes: what.Bytes, SoftPackets: what.Packets}
	if !c.Conf.Unselected {
		a.Selectors = trafficSelectors(c.Local, c.Remote)
	}
	switch encryption {
	case suite.AESGCM8:
		a.IcvLength = 8
	case suite.AESGCM12:
		a.IcvLength = 12
	}
	if !a.Esn && a.SoftPackets == 0 {
		// Before the numbers run out.
		a.SoftPackets = 4000000000
	}
	if c.Transport {
		a.Mode = api.SecurityMode_TRANSPORT_MODE
	}
	if udp {
		a.Udp = &api.EspInUdp{LocalPort: uint32(local.Port()), RemotePort: uint32(remote.Port())}
	}
	if outbound {
		a.Direction, a.Spi, a.Precedence = api.SecurityDirection_OUTBOUND, c.SPIOut, c.Precedence
		a.EncryptionKey, a.IntegrityKey = hex.EncodeToString(c.EncryptionOut), hex.EncodeToString(c.IntegrityOut)
		if udp {
			a.Udp.Keepalive = uint64(c.KeepAlive())
		}
	} else {
		a.ReplayWindow = what.ReplayWindow
	}
	o := &object.Object{Kind: associationKind, Name: associationName(c, outbound), Spec: a}
	if labelled {
		o.Labels = map[string]string{"dataplane": dataplane}
	}
	return o
}

// trafficSelectors are the pairs of both sides' selectors that packets can match. Without one, no packet does: no list would mean every packet.
func trafficSelectors(local, remote []message.Selector) (all []*api.TrafficSelector) {
	for _, l := range local {
		for _, r := range remote {
			if !couple(l, r) {
				continue
			}
			t := &api.TrafficSelector{LocalPorts: portsOf(l), RemotePorts: portsOf(r)}
			t.Local, t.LocalLast = addressesOf(l)
			t.Remote, t.RemoteLast = addressesOf(r)
			if p := max(l.Protocol, r.Protocol); p != 0 {
				t.Protocol = strconv.Itoa(int(p))
			}
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		nothing := netip.PrefixFrom(netip.IPv4Unspecified(), 32).String()
		all = append(all, &api.TrafficSelector{Local: nothing, Remote: nothing})
	}
	return all
}

// addressesOf returns a network, or the first and the last address of a range.
func addressesOf(s message.Selector) (first, last string) {
	if p := prefixOf(s); p.IsValid() {
		return p.String(), ""
	}
	return netip.PrefixFrom(s.Start, s.Start.BitLen()).String(), s.End.String()
}

func portsOf(s message.Selector) string {
	switch {
	case s.StartPort == 0 && s.EndPort == 65535:
		return ""
	case s.StartPort == s.EndPort:
		return strconv.Itoa(int(s.StartPort))
	}
	return fmt.Sprintf("%d-%d", s.StartPort, s.EndPort)
}

// patience is how long an answer to a peer waits for the data plane.
const patience = 2 * time.Second
