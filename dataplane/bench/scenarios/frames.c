// SPDX-License-Identifier: Apache-2.0
// Writes the starts of frames.
#include "bench/scenarios/frames.h"

#include <arpa/inet.h>
#include <string.h>

#include <rte_ip.h>

#include "bench/scenarios/ground.h"
#include "bench/scenarios/subscribers.h"

const uint8_t in_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 1, 0};

unsigned
ether(uint8_t *at, const uint8_t *to, const uint8_t *from, uint16_t type)
{
	memcpy(at, to, 6);
	memcpy(at + 6, from, 6);
	at[12] = (uint8_t)(type >> 8);
	at[13] = (uint8_t)type;
	return 14;
}

static unsigned
vlan(uint8_t *at, uint16_t id, uint16_t type)
{
	at[0] = (uint8_t)(id >> 8);
	at[1] = (uint8_t)id;
	at[2] = (uint8_t)(type >> 8);
	at[3] = (uint8_t)type;
	return 4;
}

unsigned
udp(uint8_t *at, uint16_t from, uint16_t to, uint16_t length)
{
	const uint16_t words[] = {htons(from), htons(to), htons(length), 0};

	memcpy(at, words, 8);
	return 8;
}

// IPv4 and UDP; `length` is the rest of the frame.
unsigned
ip4_udp(uint8_t *at, uint32_t from, uint32_t to, uint16_t from_port, uint16_t to_port, uint16_t length)
{
	struct rte_ipv4_hdr ip = {.version_ihl = 0x45,
		.total_length = htons(length),
		.time_to_live = 64,
		.next_proto_id = 17,
		.src_addr = htonl(from),
		.dst_addr = htonl(to)};

	ip.hdr_checksum = rte_ipv4_cksum(&ip);
	memcpy(at, &ip, sizeof(ip));
	return sizeof(ip) + udp(at + sizeof(ip), from_port, to_port, (uint16_t)(length - 20));
}

// Frames of subscribers, and their surroundings: the route out for routed ones.
// Ethernet and VLANs of a subscriber.
static unsigned
line(uint32_t flow, uint16_t type, uint8_t *h)
{
	uint8_t mac[6];
	unsigned n;

	subscriber_mac(flow, mac);
	n = ether(h, in_mac, mac, 0x88a8);
	n += vlan(h + n, outer_vlan(flow), 0x8100);
	return n + vlan(h + n, inner_vlan(flow), type);
}

unsigned
up_frame_to(uint32_t to, uint16_t pppoe, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned n = line(flow, pppoe ? 0x8864 : 0x0800, h);

	if (pppoe) {
		uint16_t id = (uint16_t)(1 + flow % 60000), inner = (uint16_t)(length - n - 6);
		const uint8_t pppoe_header[] = {(uint8_t)(pppoe >> 8), (uint8_t)pppoe, (uint8_t)(id >> 8), (uint8_t)id,
			(uint8_t)(inner >> 8), (uint8_t)inner, 0, 0x21};

		memcpy(h + n, pppoe_header, sizeof(pppoe_header));
		n += sizeof(pppoe_header);
	}
	return n + ip4_udp(h + n, subscriber_address(flow), to, 5000, 443, (uint16_t)(length - n));
}

unsigned
up_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	// Version, type, and code, or QFI 5.
	uint16_t pppoe = strstr(s->name, "pppoe") ? 0x1100 : strstr(s->name, "5we") ? 0x2100 | 5 << 2 : 0;

	return up_frame_to(server_address(flow), pppoe, flow, length, h);
}

unsigned
echo_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	uint16_t id = (uint16_t)(1 + flow % 60000);
	const uint8_t reply[] = {0x11, 0, (uint8_t)(id >> 8), (uint8_t)id, 0, 10, 0xc0, 0x21, 10, 1, 0, 8, 9, 9, 9, 9};
	unsigned n = line(flow, 0x8864, h);

	(void)s;
	(void)length;
	memcpy(h + n, reply, sizeof(reply));
	return n + sizeof(reply);
}

unsigned
down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned n = ether(h, in_mac, peer_mac, 0x0800);

	return n + ip4_udp(h + n, server_address(flow), subscriber_address(flow), 443, 5000, (uint16_t)(length - n));
}

unsigned
gtpu_down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned n = ether(h, in_mac, peer_mac, 0x0800);
	uint32_t teid = SUBSCRIBER_TEID + flow;
	// Next extension: PDU session container, type 0 (downlink), QFI 9.
	const uint8_t header[] = {0x34, 255, 0, 0, (uint8_t)(teid >> 24), (uint8_t)(teid >> 16), (uint8_t)(teid >> 8),
		(uint8_t)teid, 0, 0, 0, 0x85, 1, 0, 9, 0};

	n += ip4_udp(h + n, 0xc0000210 + flow % NEIGHBORS, 0xc0000201, 2152, 2152, (uint16_t)(length - n));
	memcpy(h + n, header, sizeof(header));
	h[n + 2] = (uint8_t)((length - n - 8) >> 8);
	h[n + 3] = (uint8_t)(length - n - 8);
	n += sizeof(header);
	return n + ip4_udp(h + n, server_address(flow), subscriber_address(flow), 443, 5000, (uint16_t)(length - n));
}

// To an address in a route, each flow in another.
unsigned
ip4_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	uint32_t to = 0x08000000 + flow * 0x10101;
	unsigned prefix_length, n = ether(h, in_mac, peer_mac, 0x0800);

	if (s->flows != 1024)
		to = prefix4(flow, &prefix_length) + (flow * 7 & 15);
	return n + ip4_udp(h + n, 0xc0000220, to, 1000, 2000, (uint16_t)(length - n));
}
