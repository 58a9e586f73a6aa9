// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"an SA", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", ""},
		{"an SA with HMAC", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, policy: p, encryption: aes_cbc, encryptionKey: 000102030405060708090a0b0c0d0e0f, integrity: hmac_sha1, integrityKey: 000102030405060708090a0b0c0d0e0f10111213}", ""},
		{"an SA without salt", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f}", "encryptionKey: not a key of this algorithm: found 16 bytes; accepted: 20, 28, 36 bytes in hexadecimal, the last 4 of them the salt"},
		{"an SA whose key is no number", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: sesame}", "encryptionKey: not hexadecimal: found (secret)"},
		{"an SA without integrity", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryption: aes_cbc, encryptionKey: 000102030405060708090a0b0c0d0e0f}", "integrity: missing"},
		{"an SA that serves nothing", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "tunnel: missing; accepted: an IpsecTunnel or a SecurityPolicy"},
		{"an SA that serves both", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, policy: p, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "policy: an SA serves a tunnel or a policy: found \"p\"; accepted: tunnel or policy, not both"},
		{"an SA without a key", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t}", "encryptionKey: missing: each apply has it again, because get and edit do not show keys; accepted: 20, 28, 36 bytes"},
		{"an SA without a key for integrity", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryption: null_encryption, integrity: hmac_sha1}", "integrityKey: missing: each apply has it again, because get and edit do not show keys; accepted: 20 bytes"},
		{"an SA between families", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: '2001:db8::2', tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "remoteAddress: not of the family of localAddress"},
		{"an SA with an SPI that is reserved", "SecurityAssociation", "{spi: 255, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "spi: out of range"},
		{"an SA without replay check, with extended sequence numbers", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, esn: true, noReplayCheck: true, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "noReplayCheck: no effect with extended sequence numbers"},
		{"an SA with an odd window", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, replayWindow: 100, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "replayWindow: not a multiple of 64"},
		{"an SA with a soft limit behind the hard one", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, softPackets: 10, hardPackets: 10, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "softPackets: not less than hardPackets"},
		{"an SA with an ICV that GCM does not have", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, icvLength: 10, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "icvLength: not an ICV length of this algorithm: found 10; accepted: 8, 12 or 16 bytes"},
		{"an SA with a short ICV of GMAC", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, icvLength: 9, encryption: aes_gmac, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "icvLength: not an ICV length of this algorithm: found 9; accepted: 16 bytes"},
		{"an SA with an odd ICV of HMAC", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, icvLength: 10, encryption: aes_cbc, encryptionKey: 000102030405060708090a0b0c0d0e0f, integrity: hmac_sha1, integrityKey: 000102030405060708090a0b0c0d0e0f10111213}", "icvLength: not an ICV length of this hash: found 10; accepted: 12, 16, ... 20 bytes"},
		{"an SA with the whole hash", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, icvLength: 20, encryption: aes_cbc, encryptionKey: 000102030405060708090a0b0c0d0e0f, integrity: hmac_sha1, integrityKey: 000102030405060708090a0b0c0d0e0f10111213}", ""},
		{"an SA over IPv6 with a path for IPv4", "SecurityAssociation", "{spi: 4097, direction: outbound, localAddress: '2001:db8::1', remoteAddress: '2001:db8::2', tunnel: t, pathMtu: 1000, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "pathMtu: less than every path of IPv6 takes: found 1000; accepted: at least 1280 bytes"},
		{"a selector with ports of no protocol", "IpsecTunnel", "{selectors: [{localPorts: '80'}]}", "selectors[0].protocol: ports of a protocol without ports"},
	})
}

func TestFieldsWithoutEffectAreWarnedOf(t *testing.T) {
	objecttest.Warned(t, Rules, []objecttest.Case{
		{"an outbound SA with a window", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, direction: outbound, replayWindow: 64, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "replayWindow: no effect on an outbound SA"},
		{"an outbound SA without replay check", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, direction: outbound, noReplayCheck: true, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "noReplayCheck: no effect on an outbound SA"},
		{"an outbound SA with all that it may have", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, direction: outbound, outer: {df: df_set}, pathMtu: 1400, precedence: 1, udp: {keepalive: 20s}, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", ""},
		{"an inbound SA with an outer header", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, outer: {df: df_set}, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "outer: no effect on an inbound SA"},
		{"an inbound SA with a path", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, pathMtu: 1400, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "pathMtu: no effect on an inbound SA"},
		{"an inbound SA with a precedence", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, precedence: 1, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "precedence: no effect on an inbound SA"},
		{"an inbound SA with keepalives", "SecurityAssociation", "{spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, udp: {keepalive: 20s}, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}", "udp.keepalive: no effect on an inbound SA"},
	})
}
