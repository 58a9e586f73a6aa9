// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"a peer", "GtpuPeer", "{address: 192.0.2.2, echoInterval: 60s, responseTime: 3s, requests: 5}", ""},
		{"a peer that is asked too often", "GtpuPeer", "{address: 192.0.2.2, echoInterval: 1ms}", "echoInterval: out of range"},
		{"a peer that is a group", "GtpuPeer", "{address: 224.0.0.1}", "address: not an address of a host"},
		{"a peer that is asked nothing every second", "GtpuPeer", "{address: 192.0.2.2, echoInterval: 1s, noEcho: true}", "noEcho: the peer gets no Echo Requests, so their times have no effect"},
		{"a GTP-U of two families", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: '2001:db8::1', remoteTeid: 1}}",
			"gtpu.remoteAddress: not of the family of gtpu.localAddress"},
		{"a session of frames", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true}}", ""},
		{"a session of frames with reflective QoS", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true, pduSessionContainer: true, reflectiveQos: true}}", ""},
		{"a session of frames with an address", "Session", "{access: {port: p}, addresses: [10.0.0.1/32], gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true}}", "addresses: not used by sessions of type Ethernet"},
		{"a GTP-U without TEID", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, remoteTeid: 1}}", "gtpu.localTeid: missing"},
		{"QFI 0", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, qfi: 0}}", ""},
	})
}
