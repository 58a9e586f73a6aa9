// SPDX-License-Identifier: Apache-2.0

// Attributes of Access-Request and Accounting-Request for a subscriber.
package radius

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// Values of attributes (RFC 2865, RFC 2866, RFC 6911; NAS-Port-Type of PPPoE is in IANA's registry).
const (
	serviceFramed    = 2
	serviceCallCheck = 10
	framedPPP        = 1
	portEthernet     = 15
	portPPPoE        = 32
	statusStart      = 1
	statusStop       = 2
	statusInterim    = 3
	statusOn         = 7
	statusOff        = 8
	authenticRADIUS  = 1
	authenticLocal   = 2
)

// attributesUsual is room for the attributes of most requests.
const attributesUsual = 320

// nas is as whom we speak.
type nas struct {
	identifier string
	ip4, ip6   netip.Addr
}

func (n nas) add(a *attributes) {
	a.text(typeNASIdentifier, n.identifier)
	if n.ip4.IsValid() {
		a.address(typeNASIPAddress, 0, n.ip4)
	}
	if n.ip6.IsValid() {
		a.address(0, typeNASIPv6Address, n.ip6)
	}
}

// Default templates of a RadiusPolicy.
const (
	defaultNASPortID = "{port}:{outer}.{inner}"
	defaultCalling   = "{mac}"
)

// expand fills in a template, which was checked.
func expand(template string, r *subscriber.Request) string {
	if !strings.Contains(template, "{") {
		return template
	}
	var b strings.Builder
	for template != "" {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			break
		}
		word, after, _ := strings.Cut(rest, "}")
		b.WriteString(placeholder(word, r))
		template = after
	}
	return b.String()
}

func placeholder(word string, r *subscriber.Request) string {
	mac := r.Line.MAC
	switch word {
	case "username":
		return r.Username
	case "mac":
		if r.Line.Caller.IsValid() {
			return r.Line.Caller.String()
		}
		return macText(mac, ":")
	case "mac-hyphens":
		return macText(mac, "-")
	case "mac-plain":
		return macText(mac, "")
	case "dataplane":
		return r.Line.Dataplane
	case "port":
		return r.Line.Port
	case "outer":
		return strconv.Itoa(int(r.Line.OuterVLAN))
	case "inner":
		return strconv.Itoa(int(r.Line.InnerVLAN))
	case "circuit-id":
		return string(r.Line.CircuitID)
	case "remote-id":
		return string(r.Line.RemoteID)
	case "service":
		return r.Service
	case "profile":
		return r.Profile
	case "protocol":
		return r.Protocol
	}
	return ""
}

func macText(mac subscriber.MAC, between string) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, octet := range mac {
		if i > 0 {
			b = append(b, between...)
		}
		b = append(b, digits[octet>>4], digits[octet&15])
	}
	return string(b)
}

// identity adds the common attributes of a subscriber's requests and records. proved: by credentials, which a record no longer has. Username comes from the server's reply, or from the template.
func (p *policy) identity(a attributes, r *subscriber.Request, username string, proved bool) attributes {
	p.nas.add(&a)
	if username == "" {
		username = p.username(r)
	}
	a.text(typeUserName, username)
	pppoe := r.PPPoESessionID != 0 || r.Protocol == "pppoe"
	service := uint32(serviceFramed)
	if !proved && !pppoe && !r.Line.Caller.IsValid() {
		service = serviceCallCheck
	}
	a.number(typeServiceType, service)
	if pppoe {
		a.number(typeFramedProtocol, framedPPP)
	}
	a.number(typeNASPort, nasPort(r))
	kind := p.portType
	if kind == 0 {
		kind = portEthernet
		if r.Line.Caller.IsValid() {
			kind = portVirtual
		}
		if pppoe {
			kind = portPPPoE
			if r.Line.OuterVLAN != 0 {
				kind++
			}
			if r.Line.InnerVLAN != 0 {
				kind++
			}
		}
	}
	a.number(typeNASPortType, kind)
	a.text(typeNASPortID, expand(p.nasPortID, r))
	a.text(typeCallingStationID, expand(p.calling, r))
	a.text(typeCalledStationID, expand(p.called, r))
	a.text(typeAcctSessionID, r.ID)
	return a
}

// line adds the attributes of RFC 4679, whose numbers are those of the sub-options of PPPoE and DHCP. They come last: of a host that sends
// many, those are missing for which the packet has no room.
func (p *policy) line(a attributes, r *subscriber.Request) attributes {
	if len(r.Line.CircuitID) > 0 {
		a.vendor(vendorBroadband, broadbandAgentCircuitID, r.Line.CircuitID)
	}
	if len(r.Line.RemoteID) > 0 {
		a.vendor(vendorBroadband, broadbandAgentRemoteID, r.Line.RemoteID)
	}
	for kind := 0x81; kind <= 0xfe && len(r.Line.Attributes) > 0; kind++ {
		// IWF-Session has no value: it is there or not.
		if value, there := r.Line.Attributes[uint8(kind)]; there && (len(value) > 0 || kind == broadbandIWFSession) {
			a.vendor(vendorBroadband, uint8(kind), lineValue(uint8(kind), value))
		}
	}
	return a
}

// Attributes of RFC 4679 that are rates of the line. Delays follow them.
const (
	broadbandFirstRate = 0x81
	broadbandLastRate  = 0x8a
	// broadbandIWFSession is IWF-Session: the session is PPPoA to the access node (RFC 4679).
	broadbandIWFSession = 0xfe
)

// lineValue is the value of an attribute of RFC 4679. Access nodes write the rates of a line in kbit/s (TR-101 appendix A); the attributes
// have them in bit/s.
func lineValue(kind uint8, value []byte) []byte {
	if kind < broadbandFirstRate || kind > broadbandLastRate || len(value) != 4 {
		return value
	}
	return binary.BigEndian.AppendUint32(nil, uint32(min(uint64(binary.BigEndian.Uint32(value))*1000, math.MaxUint32)))
}

// nasPort is NAS-Port: the PPPoE session, or else the VLANs.
func nasPort(r *subscriber.Request) uint32 {
	if r.PPPoESessionID != 0 {
		return uint32(r.PPPoESessionID)
	}
	return uint32(r.Line.OuterVLAN)<<12 | uint32(r.Line.InnerVLAN)
}

func (p *policy) username(r *subscriber.Request) string {
	if p.userName != "" {
		return expand(p.userName, r)
	}
	if r.Username != "" {
		return r.Username
	}
	return macText(r.Line.MAC, ":")
}

// accessAttributes are those of an Access-Request, and the password to hide in it, nil if there is none.
func (p *policy) accessAttributes(r *subscriber.Request) (all attributes, password []byte, err error) {
	if n := len(p.username(r)); n > maxValue {
		return nil, nil, longName(n)
	}
	all = p.identity(make(attributes, 0, attributesUsual), r, "", r.Password != nil || r.CHAP != nil || r.MSCHAPv2 != nil)
	switch {
	case r.MSCHAPv2 != nil:
		// RFC 2548 sections 2.1.2 and 2.3.2.
		all.vendor(vendorMicrosoft, microsoftCHAPChallenge, r.MSCHAPv2.AuthenticatorChallenge[:])
		answer := make([]byte, 0, 50)
		answer = append(answer, r.MSCHAPv2.Identifier, 0)
		answer = append(answer, r.MSCHAPv2.PeerChallenge[:]...)
		answer = append(answer, make([]byte, 8)...)
		all.vendor(vendorMicrosoft, microsoftCHAP2Response, append(answer, r.MSCHAPv2.Response[:]...))
	case r.CHAP != nil:
		if n := len(r.CHAP.Challenge); n < 5 || n > maxValue {
			return nil, nil, fmt.Errorf("a CHAP challenge of %d octets", n)
		}
		all.add(typeCHAPChallenge, r.CHAP.Challenge)
		all.add(typeCHAPPassword, append([]byte{r.CHAP.Identifier}, r.CHAP.Response[:]...))
	case r.Password != nil:
		if len(r.Password) > maxPassword {
			return nil, nil, fmt.Errorf("the password has %d octets; RADIUS carries at most %d", len(r.Password), maxPassword)
		}
		password = r.Password
	}
	return p.line(all, r), password, nil
}

// longName refuses a user name: its rest may be another user's.
func longName(length int) error {
	return fmt.Errorf("the user name has %d octets; RADIUS carries at most %d", length, maxValue)
}

// accountingAttributes returns the attributes of an Accounting-Request without Acct-Delay-Time, which each try computes anew.
func (p *policy) accountingAttributes(r *subscriber.Record) attributes {
	a := p.sessionAttributes(r)
	for _, class := range r.Grant.Class {
		a.add(typeClass, class)
	}
	return p.line(a, &r.Request)
}

func (p *policy) sessionAttributes(r *subscriber.Record) attributes {
	status := [...]uint32{subscriber.Start: statusStart, subscriber.Interim: statusInterim, subscriber.Stop: statusStop}[r.Kind]
	a := make(attributes, 0, attributesUsual)
	a.number(typeAcctStatusType, status)
	a = p.identity(a, &r.Request, r.Grant.Username, r.Grant.Proved)
	a.number(typeEventTimestamp, uint32(r.At.Unix()))
	a.number(typeAcctAuthentic, authentic(&r.Grant))
	if r.Lease.IPv4.IsValid() {
		a.address(typeFramedIPAddress, 0, r.Lease.IPv4.Unmap())
	}
	a.prefix(typeFramedIPv6Prefix, r.Lease.IPv6Prefix)
	if r.Lease.IPv6.IsValid() {
		a.address(0, typeFramedIPv6Address, r.Lease.IPv6)
	}
	a.prefix(typeDelegatedIPv6Prefix, r.Lease.Delegated)
	if r.Grant.InterfaceID != [8]byte{} {
		a.add(typeFramedInterfaceID, r.Grant.InterfaceID[:])
	}
	if r.Kind == subscriber.Start {
		return a
	}
	a.number(typeAcctSessionTime, uint32(max(r.At.Sub(r.Since), 0)/time.Second))
	a.number(typeAcctInputOctets, uint32(r.UpBytes))
	a.number(typeAcctOutputOctets, uint32(r.DownBytes))
	a.number(typeAcctInputGigawords, uint32(r.UpBytes>>32))
	a.number(typeAcctOutputGigawords, uint32(r.DownBytes>>32))
	a.number(typeAcctInputPackets, uint32(r.UpPackets))
	a.number(typeAcctOutputPackets, uint32(r.DownPackets))
	// There is no standard for the upper half of these.
	if high := uint32(r.UpPackets >> 32); high != 0 {
		a.vendor(vendorJuniperERX, erxInputGigapackets, binary.BigEndian.AppendUint32(nil, high))
	}
	if high := uint32(r.DownPackets >> 32); high != 0 {
		a.vendor(vendorJuniperERX, erxOutputGigapackets, binary.BigEndian.AppendUint32(nil, high))
	}
	if r.Kind == subscriber.Stop && r.Cause != 0 {
		a.number(typeAcctTerminateCause, uint32(r.Cause))
	}
	return a
}

// authentic is who accepted the subscriber (RFC 2866 section 5.6).
func authentic(g *subscriber.Grant) uint32 {
	if g.Local {
		return authenticLocal
	}
	return authenticRADIUS
}

// nasAttributes are those of Accounting-On and Accounting-Off. Servers require an Acct-Session-Id (RFC 2866 section 5.5).
func (p *policy) nasAttributes(status uint32, id string, at time.Time) attributes {
	a := attributes{}
	a.number(typeAcctStatusType, status)
	p.nas.add(&a)
	a.text(typeAcctSessionID, id)
	a.number(typeEventTimestamp, uint32(at.Unix()))
	return a
}

// policy is a RadiusPolicy in force.
type policy struct {
	name                                 string
	spec                                 *api.RadiusPolicy
	nas                                  nas
	portType                             uint32
	userName, nasPortID, calling, called string
	// Servers by purpose, in order; nil where the RadiusServer is not there.
	authentication, accounting []choice
}

func newPolicy(name string, spec *api.RadiusPolicy, host string) *policy {
	p := &policy{name: name, spec: spec, portType: spec.NasPortType, userName: spec.UserName, nasPortID: spec.NasPortId,
		calling: spec.CallingStationId, called: spec.CalledStationId}
	p.nas.identifier = spec.NasIdentifier
	if p.nas.identifier == "" {
		p.nas.identifier = host
	}
	p.nas.ip4, _ = netip.ParseAddr(spec.NasIpAddress)
	p.nas.ip6, _ = netip.ParseAddr(spec.NasIpv6Address)
	if p.nasPortID == "" {
		p.nasPortID = defaultNASPortID
	}
	if p.calling == "" {
		p.calling = defaultCalling
	}
	return p
}
