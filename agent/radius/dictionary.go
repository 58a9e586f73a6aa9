// SPDX-License-Identifier: Apache-2.0

// The attributes that the client sends or understands, by their numbers.
package radius

import "strconv"

// RFC 2865, 2866, 2869, 3162, 4818, 5176, 6911.
const (
	typeUserName                = 1
	typeUserPassword            = 2
	typeCHAPPassword            = 3
	typeNASIPAddress            = 4
	typeNASPort                 = 5
	typeServiceType             = 6
	typeFramedProtocol          = 7
	typeFramedIPAddress         = 8
	typeFilterID                = 11
	typeFramedMTU               = 12
	typeReplyMessage            = 18
	typeFramedRoute             = 22
	typeState                   = 24
	typeClass                   = 25
	typeVendorSpecific          = 26
	typeSessionTimeout          = 27
	typeIdleTimeout             = 28
	typeCalledStationID         = 30
	typeCallingStationID        = 31
	typeNASIdentifier           = 32
	typeProxyState              = 33
	typeAcctStatusType          = 40
	typeAcctDelayTime           = 41
	typeAcctInputOctets         = 42
	typeAcctOutputOctets        = 43
	typeAcctSessionID           = 44
	typeAcctAuthentic           = 45
	typeAcctSessionTime         = 46
	typeAcctInputPackets        = 47
	typeAcctOutputPackets       = 48
	typeAcctTerminateCause      = 49
	typeAcctInputGigawords      = 52
	typeAcctOutputGigawords     = 53
	typeEventTimestamp          = 55
	typeCHAPChallenge           = 60
	typeNASPortType             = 61
	typeMessageAuthenticator    = 80
	typeAcctInterimInterval     = 85
	typeNASPortID               = 87
	typeFramedPool              = 88
	typeNASIPv6Address          = 95
	typeFramedInterfaceID       = 96
	typeFramedIPv6Prefix        = 97
	typeFramedIPv6Route         = 99
	typeFramedIPv6Pool          = 100
	typeErrorCause              = 101
	typeDelegatedIPv6Prefix     = 123
	typeFramedIPv6Address       = 168
	typeDNSServerIPv6Address    = 169
	typeDelegatedIPv6PrefixPool = 171
	typeStatefulIPv6AddressPool = 172
	typeRouteIPv6Information    = 170
	typeFramedIPNetmask         = 9
	typeFramedCompression       = 13
	typePortLimit               = 62
	typeTerminationAction       = 29
	typeFramedRouting           = 10
	typeEAPMessage              = 79
	typeConnectInfo             = 77
	typeChargeableUserIdentity  = 89
)

// Vendors (IANA's private enterprise numbers).
const (
	vendorCisco      = 9
	vendorMicrosoft  = 311
	vendorHuawei     = 2011
	vendorBroadband  = 3561
	vendorJuniperERX = 4874
	vendorMikrotik   = 14988
)

// Attributes of vendors.
const (
	ciscoAVPair = 1

	microsoftCHAPError      = 2
	microsoftCHAPChallenge  = 11
	microsoftCHAP2Response  = 25
	microsoftCHAP2Success   = 26
	microsoftPrimaryDNS     = 28
	microsoftSecondaryDNS   = 29
	huaweiInputBurstSize    = 1
	huaweiInputAverageRate  = 2
	huaweiInputPeakRate     = 3
	huaweiOutputBurstSize   = 4
	huaweiOutputAverageRate = 5
	huaweiOutputPeakRate    = 6
	huaweiQosProfileName    = 31
	huaweiVPNInstance       = 94
	huaweiPrimaryDNS        = 135
	huaweiSecondaryDNS      = 136
	broadbandAgentCircuitID = 1
	broadbandAgentRemoteID  = 2
	erxVirtualRouterName    = 1
	erxLocalAddressPool     = 2
	erxPrimaryDNS           = 4
	erxSecondaryDNS         = 5
	erxIngressPolicyName    = 10
	erxEgressPolicyName     = 11
	erxQosProfileName       = 26
	erxInputGigapackets     = 35
	erxOutputGigapackets    = 36
	erxIPv6VirtualRouter    = 45
	erxIPv6PrimaryDNS       = 47
	erxIPv6SecondaryDNS     = 48
	mikrotikRateLimit       = 8
)

// Names for log lines and metrics.
var attributeNames = map[uint64]string{
	typeUserName: "User-Name", typeNASIPAddress: "NAS-IP-Address", typeNASPort: "NAS-Port", typeServiceType: "Service-Type",
	typeFramedIPAddress: "Framed-IP-Address", typeFilterID: "Filter-Id", typeFramedMTU: "Framed-MTU", typeFramedRoute: "Framed-Route",
	typeState: "State", typeClass: "Class", typeVendorSpecific: "Vendor-Specific", typeSessionTimeout: "Session-Timeout",
	typeIdleTimeout: "Idle-Timeout", typeCallingStationID: "Calling-Station-Id", typeNASIdentifier: "NAS-Identifier",
	typeAcctSessionID: "Acct-Session-Id", typeEventTimestamp: "Event-Timestamp", typeAcctInterimInterval: "Acct-Interim-Interval",
	typeNASPortID: "NAS-Port-Id", typeFramedPool: "Framed-Pool", typeNASIPv6Address: "NAS-IPv6-Address",
	typeFramedInterfaceID: "Framed-Interface-Id", typeFramedIPv6Prefix: "Framed-IPv6-Prefix", typeFramedIPv6Route: "Framed-IPv6-Route",
	typeFramedIPv6Pool: "Framed-IPv6-Pool", typeDelegatedIPv6Prefix: "Delegated-IPv6-Prefix", typeFramedIPv6Address: "Framed-IPv6-Address",
	typeDNSServerIPv6Address: "DNS-Server-IPv6-Address", typeDelegatedIPv6PrefixPool: "Delegated-IPv6-Prefix-Pool",
	typeStatefulIPv6AddressPool:  "Stateful-IPv6-Address-Pool",
	vendorCisco<<8 | ciscoAVPair: "Cisco-AVPair", vendorMicrosoft<<8 | microsoftPrimaryDNS: "MS-Primary-DNS-Server",
	vendorMicrosoft<<8 | microsoftSecondaryDNS: "MS-Secondary-DNS-Server", vendorMicrosoft<<8 | microsoftCHAP2Success: "MS-CHAP2-Success",
	vendorMicrosoft<<8 | microsoftCHAPError:  "MS-CHAP-Error",
	vendorHuawei<<8 | huaweiInputBurstSize:   "Huawei-Input-Burst-Size",
	vendorHuawei<<8 | huaweiInputAverageRate: "Huawei-Input-Average-Rate", vendorHuawei<<8 | huaweiInputPeakRate: "Huawei-Input-Peak-Rate",
	vendorHuawei<<8 | huaweiOutputBurstSize:   "Huawei-Output-Burst-Size",
	vendorHuawei<<8 | huaweiOutputAverageRate: "Huawei-Output-Average-Rate", vendorHuawei<<8 | huaweiOutputPeakRate: "Huawei-Output-Peak-Rate",
	vendorHuawei<<8 | huaweiPrimaryDNS: "Huawei-Primary-DNS", vendorHuawei<<8 | huaweiSecondaryDNS: "Huawei-Secondary-DNS",
	vendorJuniperERX<<8 | erxPrimaryDNS: "ERX-Primary-Dns", vendorJuniperERX<<8 | erxSecondaryDNS: "ERX-Secondary-Dns",
	vendorJuniperERX<<8 | erxIPv6PrimaryDNS: "ERX-Ipv6-Primary-Dns", vendorJuniperERX<<8 | erxIPv6SecondaryDNS: "ERX-Ipv6-Secondary-Dns",
	vendorMikrotik<<8 | mikrotikRateLimit: "Mikrotik-Rate-Limit",
}

func (a attribute) name() string {
	if name := attributeNames[uint64(a.vendor)<<8|uint64(a.kind)]; name != "" {
		return name
	}
	if a.vendor == 0 {
		return "attribute " + strconv.Itoa(int(a.kind))
	}
	return "attribute " + strconv.Itoa(int(a.kind)) + " of vendor " + strconv.FormatUint(uint64(a.vendor), 10)
}
