// What is measured: the objects of each scenario and the frames of its flows.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ip.h>

#include "acl.pb-c.h"
#include "bench.h"
#include "hqos.pb-c.h"
#include "flow.pb-c.h"
#include "interface.pb-c.h"
#include "ip.pb-c.h"
#include "meter.pb-c.h"
#include "port.pb-c.h"
#include "session.pb-c.h"

enum { NEIGHBORS = 16, SUBSCRIBER_TEID = 0x10000, UPF_TEID = 0x20000, INNER_VLANS = 1000 };

static const uint8_t in_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 1, 0};

// How frames come from the ports' queues to workers.
static Sluice__V1__PortSpread spread;

// Ports, interfaces and neighbours that every scenario has. Frames come in by "in" and leave by "out"; downlink scenarios
// have the sessions on "out".
static int
ground(void)
{
	static const char *const names[] = {"in", "out"};
	char device[64], mac[32], address4[32], address6[64], name[32];
	int error = 0;

	for (unsigned i = 0; i < 2 && !error; i++) {
		Sluice__V1__Port port = SLUICE__V1__PORT__INIT;

		snprintf(device, sizeof(device), "net_null%u,no-rx=1", i);
		snprintf(mac, sizeof(mac), "02:00:00:00:00:0%u", i + 1);
		port.device = device;
		port.mac = mac;
		port.spread = spread;
		error = bench_put("Port", names[i], &port);
	}
	for (unsigned i = 0; i < 2 && !error; i++) {
		Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;

		snprintf(address4, sizeof(address4), "192.0.2.%u/25", 1 + 128 * i);
		snprintf(address6, sizeof(address6), "2001:db8:ffff:%u::1/64", i);
		interface.port = (char *)names[i];
		interface.addresses = (char *[]){address4, address6};
		interface.n_addresses = 2;
		error = bench_put("Interface", names[i], &interface);
	}
	for (unsigned i = 0; i < 2 * NEIGHBORS && !error; i++) {
		Sluice__V1__Neighbor neighbor = SLUICE__V1__NEIGHBOR__INIT;
		unsigned n = i / 2;

		snprintf(name, sizeof(name), "neighbor-%u", i);
		if (i % 2)
			snprintf(address6, sizeof(address6), "2001:db8:ffff:1::%x", n + 16);
		else
			snprintf(address6, sizeof(address6), "192.0.2.%u", 129 + 16 + n);
		snprintf(mac, sizeof(mac), "02:00:00:00:02:%02x", n);
		neighbor.interface = "out";
		neighbor.address = address6;
		neighbor.mac = mac;
		error = bench_put("Neighbor", name, &neighbor);
	}
	return error;
}

static int
route(unsigned n, const char *prefix)
{
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};
	char name[32], address[64];

	snprintf(name, sizeof(name), "route-%u", n);
	if (strchr(prefix, ':'))
		snprintf(address, sizeof(address), "2001:db8:ffff:1::%x", n % NEIGHBORS + 16);
	else
		snprintf(address, sizeof(address), "192.0.2.%u", 129 + 16 + n % NEIGHBORS);
	hop.address = address;
	route.prefix = (char *)prefix;
	route.next_hops = hops;
	route.n_next_hops = 1;
	return bench_put("Route", name, &route);
}

// The nth of up to 2^20 IPv4 prefixes, of the internet's lengths, mostly /24: each in a block of its own of 2,048 addresses,
// blocks scattered over 1.0.0.0 to 128.255.255.255 by a multiplication, what would be loopback's moved away.
static uint32_t
prefix4(uint32_t n, unsigned *length)
{
	static const uint8_t lengths[8] = {24, 24, 22, 24, 23, 24, 26, 21};
	uint32_t block = n * 0x9e3779b1u & 0xfffff;
	uint32_t address = (1u << 24) + (block << 11);

	*length = lengths[n % 8];
	return address >> 24 == 127 ? (address & 0xffffff) | 200u << 24 : address;
}

static int
routes4(uint32_t count)
{
	char prefix[32], text[INET_ADDRSTRLEN];

	for (uint32_t i = 0; i < count; i++) {
		unsigned length;
		uint32_t address = htonl(prefix4(i, &length));

		inet_ntop(AF_INET, &address, text, sizeof(text));
		snprintf(prefix, sizeof(prefix), "%s/%u", text, length);
		if (route(i, prefix))
			return -1;
	}
	return 0;
}

static int
ip4_set_up(const struct scenario *s)
{
	if (ground())
		return -1;
	return s->flows == 1024 ? route(0, "0.0.0.0/0") : routes4(s->flows);
}

static unsigned
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

static unsigned
udp(uint8_t *at, uint16_t from, uint16_t to, uint16_t length)
{
	const uint16_t words[] = {htons(from), htons(to), htons(length), 0};

	memcpy(at, words, 8);
	return 8;
}

// IPv4 and UDP; `length` is what is left of the frame.
static unsigned
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

static unsigned
ip4_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	uint32_t to = 0x08000000 + flow * 0x10101;
	unsigned prefix_length, n = ether(h, in_mac, peer_mac, 0x0800);

	if (s->flows != 1024)
		to = prefix4(flow, &prefix_length) + (flow * 7 & 15);
	return n + ip4_udp(h + n, 0xc0000220, to, 1000, 2000, (uint16_t)(length - n));
}

// IPv6 prefixes of the internet's lengths: /32, /40, /44, /48, some /64.
static unsigned
prefix6(uint32_t n, uint8_t address[16])
{
	static const uint8_t lengths[8] = {48, 48, 32, 48, 40, 44, 48, 64};
	uint32_t mixed = n * 0x9e3779b1u;

	memset(address, 0, 16);
	address[0] = 0x24 + (uint8_t)(n % 8);
	address[1] = (uint8_t)(mixed >> 24);
	address[2] = (uint8_t)(mixed >> 16);
	address[3] = (uint8_t)(mixed >> 8);
	if (lengths[n % 8] >= 44)
		address[4] = (uint8_t)(mixed & 0xf0);
	if (lengths[n % 8] >= 48)
		address[5] = (uint8_t)(n >> 3);
	return lengths[n % 8];
}

static int
ip6_set_up(const struct scenario *s)
{
	char prefix[64], text[INET6_ADDRSTRLEN];
	uint8_t address[16];
	uint32_t routes = s->flows == 1024 ? 1 : s->flows;

	if (ground())
		return -1;
	if (routes == 1)
		return route(0, "::/0");
	for (uint32_t i = 0; i < routes; i++) {
		unsigned length = prefix6(i, address);

		inet_ntop(AF_INET6, address, text, sizeof(text));
		snprintf(prefix, sizeof(prefix), "%s/%u", text, length);
		if (route(i, prefix))
			return -1;
	}
	return 0;
}

static unsigned
ip6_udp(uint8_t *at, const uint8_t from[16], const uint8_t to[16], uint16_t length)
{
	memset(at, 0, 40);
	at[0] = 0x60;
	at[4] = (uint8_t)((length - 40) >> 8);
	at[5] = (uint8_t)(length - 40);
	at[6] = 17;
	at[7] = 64;
	memcpy(at + 8, from, 16);
	memcpy(at + 24, to, 16);
	return 40 + udp(at + 40, 1000, 2000, (uint16_t)(length - 40));
}

static unsigned
ip6_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	static const uint8_t from[16] = {0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
	uint8_t to[16] = {0x20, 0x01, 0x48, 0x60};
	unsigned n = ether(h, in_mac, peer_mac, 0x86dd);

	if (s->flows != 1024)
		prefix6(flow, to);
	to[14] = (uint8_t)(flow >> 8);
	to[15] = (uint8_t)flow;
	return n + ip6_udp(h + n, from, to, (uint16_t)(length - n));
}

// The subscriber of a flow.
static uint32_t
subscriber_address(uint32_t flow)
{
	return 0x64400000 + flow + 1;
}

static uint16_t
outer_vlan(uint32_t flow)
{
	return (uint16_t)(100 + flow / INNER_VLANS);
}

static uint16_t
inner_vlan(uint32_t flow)
{
	return (uint16_t)(1 + flow % INNER_VLANS);
}

static void
subscriber_mac(uint32_t flow, uint8_t mac[6])
{
	const uint8_t bytes[6] = {2, 1, 0, (uint8_t)(flow >> 16), (uint8_t)(flow >> 8), (uint8_t)flow};

	memcpy(mac, bytes, 6);
}

enum {
	PPPOE = 1,
	GTPU = 2,
	METER = 4,
	ACL_UP = 8,
	ACL_DOWN = 16,
	DOWN_STREAM = 32, // sessions are on the port "out"
	FLOWS = 64,       // one of two flow profiles
	SHAPED = 128,     // queues in a scheduler
};

static int
session(uint32_t flow, unsigned with)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;
	char name[32], address[32], mac_text[32], remote[32], group[32];
	uint32_t ip = htonl(subscriber_address(flow));
	uint8_t mac[6];

	snprintf(name, sizeof(name), "session-%u", flow);
	inet_ntop(AF_INET, &ip, address, sizeof(address));
	strcat(address, "/32");
	subscriber_mac(flow, mac);
	snprintf(mac_text, sizeof(mac_text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
		mac[5]);
	access.port = with & DOWN_STREAM ? "out" : "in";
	access.outer_vlan = outer_vlan(flow);
	access.inner_vlan = inner_vlan(flow);
	if (with & (DOWN_STREAM | PPPOE))
		access.mac = mac_text;
	if (with & PPPOE)
		access.pppoe_session_id = 1 + flow % 60000;
	session.access = &access;
	session.addresses = (char *[]){address};
	session.n_addresses = 1;
	session.policy = &policy;
	if (with & METER) {
		policy.meter_up = "meter";
		policy.meter_down = "meter";
	}
	if (with & ACL_UP)
		policy.acl_up = "acl";
	if (with & ACL_DOWN)
		policy.acl_down = "acl";
	if (with & SHAPED) {
		snprintf(group, sizeof(group), "olt-%u", flow / INNER_VLANS);
		policy.qos_profile = "home";
		policy.qos_group = group;
	}
	if (with & FLOWS)
		policy.flow_profile = flow % 2 ? "flows-1" : "flows-0";
	if (with & GTPU) {
		snprintf(remote, sizeof(remote), "192.0.2.%u", (with & DOWN_STREAM ? 16 : 129 + 16) + flow % NEIGHBORS);
		gtpu.local_address = with & DOWN_STREAM ? "192.0.2.1" : "192.0.2.129";
		gtpu.local_teid = SUBSCRIBER_TEID + flow;
		gtpu.remote_address = remote;
		gtpu.remote_teid = UPF_TEID + flow;
		gtpu.pdu_session_container = true;
		gtpu.qfi = 9;
		session.gtpu = &gtpu;
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	}
	return bench_put("Session", name, &session);
}

static int
sessions(const struct scenario *s, unsigned with)
{
	for (uint32_t flow = 0; flow < s->flows; flow++)
		if (session(flow, with))
			return -1;
	return 0;
}

// Generous enough that everything passes: what is measured is the metering.
static int
meter(void)
{
	Sluice__V1__Meter meter = SLUICE__V1__METER__INIT;

	meter.algorithm = SLUICE__V1__METER_ALGORITHM__TRTCM;
	meter.committed_rate = 1000000000000;
	meter.committed_burst = 1u << 30;
	meter.peak_rate = 2000000000000;
	meter.excess_burst = 1u << 30;
	return bench_put("Meter", "meter", &meter);
}

// 150 random 5-tuples to block, of which none matches.
static int
block_list(void)
{
	Sluice__V1__Acl acl = SLUICE__V1__ACL__INIT;
	Sluice__V1__AclRule rules[150], *list[150];
	char text[150][4][40];
	uint64_t state = 42;

	for (unsigned i = 0; i < 150; i++) {
		uint32_t from = htonl((uint32_t)random_next(&state) | 0xc8000000),
			 to = htonl((uint32_t)random_next(&state) | 0xe0);
		unsigned low = (unsigned)(random_next(&state) % 60000);

		sluice__v1__acl_rule__init(&rules[i]);
		inet_ntop(AF_INET, &from, text[i][0], 20);
		strcat(text[i][0], "/32");
		inet_ntop(AF_INET, &to, text[i][1], 20);
		strcat(text[i][1], "/32");
		snprintf(text[i][2], sizeof(text[i][2]), "%u-%u", low, low + (unsigned)(random_next(&state) % 5000));
		snprintf(text[i][3], sizeof(text[i][3]), "%u", (unsigned)(random_next(&state) % 65536));
		rules[i].action = SLUICE__V1__ACL_ACTION__DENY;
		rules[i].source = text[i][0];
		rules[i].destination = text[i][1];
		rules[i].protocol = i % 2 ? "udp" : "tcp";
		rules[i].source_ports = text[i][2];
		rules[i].destination_ports = text[i][3];
		list[i] = &rules[i];
	}
	acl.rules = list;
	acl.n_rules = 150;
	acl.otherwise = SLUICE__V1__ACL_ACTION__PERMIT;
	return bench_put("Acl", "acl", &acl);
}

enum { ALLOWED = 4000, ALLOWED_MOST = 65536 };

static uint32_t
server_address(uint32_t flow)
{
	return 0x08080000 + flow % 97;
}

// One 5-tuple for each flow to the subscribers.
static int
allow_list(unsigned count)
{
	static Sluice__V1__AclRule rules[ALLOWED_MOST], *list[ALLOWED_MOST];
	static char text[ALLOWED_MOST][2][24];
	Sluice__V1__Acl acl = SLUICE__V1__ACL__INIT;

	for (unsigned i = 0; i < count; i++) {
		uint32_t from = htonl(server_address(i)), to = htonl(subscriber_address(i));

		sluice__v1__acl_rule__init(&rules[i]);
		inet_ntop(AF_INET, &from, text[i][0], 20);
		strcat(text[i][0], "/32");
		inet_ntop(AF_INET, &to, text[i][1], 20);
		strcat(text[i][1], "/32");
		rules[i].action = SLUICE__V1__ACL_ACTION__PERMIT;
		rules[i].source = text[i][0];
		rules[i].destination = text[i][1];
		rules[i].protocol = "udp";
		rules[i].source_ports = "443";
		rules[i].destination_ports = "5000";
		list[i] = &rules[i];
	}
	acl.rules = list;
	acl.n_rules = count;
	return bench_put("Acl", "acl", &acl);
}

// A rule of 15 filters that do not match, and one that does behind them.
static int
uplink_profile(const char *name)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule none = SLUICE__V1__QOS_RULE__INIT, all = SLUICE__V1__QOS_RULE__INIT,
			    *rules[] = {&none, &all};
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};
	Sluice__V1__PacketFilter filters[15], *list[15];
	char remotes[15][24], ports[15][16];

	for (unsigned i = 0; i < RTE_DIM(filters); i++) {
		sluice__v1__packet_filter__init(&filters[i]);
		snprintf(remotes[i], sizeof(remotes[i]), "198.51.%u.0/24", i);
		snprintf(ports[i], sizeof(ports[i]), "%u-%u", 1000 * i, 1000 * i + 500);
		filters[i].direction = SLUICE__V1__FILTER_DIRECTION__UPLINK;
		filters[i].protocol = i % 2 ? "udp" : "tcp";
		filters[i].remote = remotes[i];
		filters[i].remote_ports = ports[i];
		list[i] = &filters[i];
	}
	none.precedence = 1;
	none.qfi = 5;
	none.filters = list;
	none.n_filters = RTE_DIM(filters);
	all.precedence = 255;
	all.qfi = flow.qfi = 7;
	flow.dscp = "ef";
	profile.rules = rules;
	profile.n_rules = 2;
	profile.flows = flows;
	profile.n_flows = 1;
	return bench_put("FlowProfile", name, &profile);
}

// The 5-tuples of every other flow from the nth on: `count` of them, and as many as that `times` over that nobody has.
static int
downlink_profile(const char *name, unsigned n, unsigned count, unsigned times)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};
	Sluice__V1__PacketFilter *filters = calloc((size_t)count * times, sizeof(*filters)),
				 **list = calloc((size_t)count * times, sizeof(*list));
	char(*text)[3][24] = calloc((size_t)count * times, sizeof(*text));
	int error = -1;

	for (unsigned i = 0; filters && list && text && i < count * times; i++) {
		uint32_t number = n + 2 * (i % count), from = htonl(server_address(number)),
			 to = htonl(subscriber_address(number));

		sluice__v1__packet_filter__init(&filters[i]);
		inet_ntop(AF_INET, &from, text[i][0], 20);
		strcat(text[i][0], "/32");
		inet_ntop(AF_INET, &to, text[i][1], 20);
		strcat(text[i][1], "/32");
		snprintf(text[i][2], sizeof(text[i][2]), "%u", 5000 + i / count);
		filters[i].direction = SLUICE__V1__FILTER_DIRECTION__DOWNLINK;
		filters[i].protocol = "17";
		filters[i].remote = text[i][0];
		filters[i].local = text[i][1];
		filters[i].remote_ports = "443";
		filters[i].local_ports = text[i][2];
		list[i] = &filters[i];
	}
	rule.qfi = flow.qfi = 7;
	rule.filters = list;
	rule.n_filters = (size_t)count * times;
	flow.class_ = 3;
	flow.priority = 5;
	profile.rules = rules;
	profile.n_rules = 1;
	profile.flows = flows;
	profile.n_flows = 1;
	if (filters && list && text)
		error = bench_put("FlowProfile", name, &profile);
	free(filters);
	free(list);
	free(text);
	return error;
}

// Frames of subscribers, and their surroundings: the route out for routed ones.
static unsigned
up_frame_to(uint32_t to, bool pppoe, uint32_t flow, uint16_t length, uint8_t *h)
{
	uint8_t mac[6];
	unsigned n;

	subscriber_mac(flow, mac);
	n = ether(h, in_mac, mac, 0x88a8);
	n += vlan(h + n, outer_vlan(flow), 0x8100);
	n += vlan(h + n, inner_vlan(flow), pppoe ? 0x8864 : 0x0800);
	if (pppoe) {
		uint16_t id = (uint16_t)(1 + flow % 60000), inner = (uint16_t)(length - n - 6);
		const uint8_t pppoe_header[] = {
			0x11, 0, (uint8_t)(id >> 8), (uint8_t)id, (uint8_t)(inner >> 8), (uint8_t)inner, 0, 0x21};

		memcpy(h + n, pppoe_header, sizeof(pppoe_header));
		n += sizeof(pppoe_header);
	}
	return n + ip4_udp(h + n, subscriber_address(flow), to, 5000, 443, (uint16_t)(length - n));
}

static unsigned
up_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	return up_frame_to(server_address(flow), strstr(s->name, "pppoe") != NULL, flow, length, h);
}

// The papers' gateways have more routes than one: 100,000 for 128,000 subscribers, and 150,000 for 192,000.
static uint32_t
bng_routes(const struct scenario *s)
{
	return s->flows / 128 * 100;
}

static unsigned
bng_up_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned prefix_length;
	uint32_t to = prefix4((uint32_t)(flow * 7919u % bng_routes(s)), &prefix_length);

	return up_frame_to(to + 7, true, flow, length, h);
}

static unsigned
down_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned n = ether(h, in_mac, peer_mac, 0x0800);

	return n + ip4_udp(h + n, server_address(flow), subscriber_address(flow), 443, 5000, (uint16_t)(length - n));
}

static unsigned
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

static int
qinq_up(const struct scenario *s)
{
	return ground() || route(0, "0.0.0.0/0") || sessions(s, 0) ? -1 : 0;
}

static int
qinq_down(const struct scenario *s)
{
	return ground() || sessions(s, DOWN_STREAM) ? -1 : 0;
}

static int
pppoe_up(const struct scenario *s)
{
	return ground() || route(0, "0.0.0.0/0") || sessions(s, PPPOE) ? -1 : 0;
}

static int
pppoe_down(const struct scenario *s)
{
	return ground() || sessions(s, PPPOE | DOWN_STREAM) ? -1 : 0;
}

static int
gtpu_up(const struct scenario *s)
{
	return ground() || sessions(s, GTPU) ? -1 : 0;
}

static int
gtpu_down(const struct scenario *s)
{
	return ground() || sessions(s, GTPU | DOWN_STREAM) ? -1 : 0;
}

static int
acl_150(const struct scenario *s)
{
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;

	if (ground() || route(0, "0.0.0.0/0") || block_list())
		return -1;
	interface.port = "in";
	interface.addresses = (char *[]){"192.0.2.1/25", "2001:db8:ffff:0::1/64"};
	interface.n_addresses = 2;
	interface.acl_in = "acl";
	return bench_put("Interface", "in", &interface);
}

static int
meter_up(const struct scenario *s)
{
	return ground() || route(0, "0.0.0.0/0") || meter() || sessions(s, METER) ? -1 : 0;
}

static int
agf_up(const struct scenario *s)
{
	return ground() || block_list() || meter() || sessions(s, GTPU | METER | ACL_UP) ? -1 : 0;
}

static int
agf_up_one_queue(const struct scenario *s)
{
	int error;

	spread = SLUICE__V1__PORT_SPREAD__ATOMIC;
	error = agf_up(s);
	spread = SLUICE__V1__PORT_SPREAD__RSS;
	return error;
}

static int
agf_up_pppoe(const struct scenario *s)
{
	return ground() || block_list() || meter() || sessions(s, PPPOE | GTPU | METER | ACL_UP) ? -1 : 0;
}

static int
agf_down(const struct scenario *s)
{
	return ground() || allow_list(s->flows) || meter() || sessions(s, GTPU | METER | ACL_DOWN | DOWN_STREAM) ? -1
														 : 0;
}

// A scheduler whose rates, at every level, are more than what comes: what is measured is the scheduling.
static int
schedulers(uint32_t flows)
{
	static const char *const dscps[] = {"ef", "af41", "af31"};
	Sluice__V1__QosScheduler scheduler = SLUICE__V1__QOS_SCHEDULER__INIT;
	Sluice__V1__QosProfile profile = SLUICE__V1__QOS_PROFILE__INIT;
	Sluice__V1__QosClass classes[4], *list[4];
	Sluice__V1__QosMatch matches[3];
	char name[32], *dscp[3][1];

	for (unsigned i = 0; i < 4; i++) {
		static const char *const names[] = {"data", "voice", "video", "critical"};

		sluice__v1__qos_class__init(&classes[i]);
		classes[i].name = (char *)names[i];
		classes[i].priority = (i + 3) % 4;
		classes[i].queue_length = 256;
		list[i] = &classes[i];
		if (i == 0)
			continue;
		sluice__v1__qos_match__init(&matches[i - 1]);
		dscp[i - 1][0] = (char *)dscps[i - 1];
		matches[i - 1].dscp = dscp[i - 1];
		matches[i - 1].n_dscp = 1;
		classes[i].match = &matches[i - 1];
	}
	scheduler.port = "out";
	scheduler.rate = 400000000000;
	scheduler.overhead = 24;
	profile.committed_rate = 10000000;
	profile.peak_rate = 1000000000;
	profile.overhead = 16;
	profile.classes = list;
	profile.n_classes = 4;
	if (bench_put("QosScheduler", "out", &scheduler) || bench_put("QosProfile", "home", &profile))
		return -1;
	for (unsigned i = 0; i <= (flows - 1) / INNER_VLANS; i++) {
		Sluice__V1__QosGroup group = SLUICE__V1__QOS_GROUP__INIT;

		snprintf(name, sizeof(name), "olt-%u", i);
		group.scheduler = "out";
		group.committed_rate = 1000000000;
		group.peak_rate = 400000000000;
		group.overhead = 24;
		if (bench_put("QosGroup", name, &group))
			return -1;
	}
	return 0;
}

static int
agf_down_hqos(const struct scenario *s)
{
	if (ground() || allow_list(s->flows) || meter() || schedulers(s->flows))
		return -1;
	return sessions(s, GTPU | METER | ACL_DOWN | SHAPED | DOWN_STREAM);
}

static int
agf_down_hqos_pppoe(const struct scenario *s)
{
	if (ground() || allow_list(s->flows) || meter() || schedulers(s->flows))
		return -1;
	return sessions(s, PPPOE | GTPU | METER | ACL_DOWN | SHAPED | DOWN_STREAM);
}

static int
qinq_down_hqos(const struct scenario *s)
{
	return ground() || schedulers(s->flows) || sessions(s, SHAPED | DOWN_STREAM) ? -1 : 0;
}

static int
agf_down_pppoe(const struct scenario *s)
{
	if (ground() || allow_list(s->flows) || meter())
		return -1;
	return sessions(s, PPPOE | GTPU | METER | ACL_DOWN | DOWN_STREAM);
}

static int
bng_up(const struct scenario *s)
{
	return ground() || routes4(bng_routes(s)) || meter() || sessions(s, PPPOE | METER) ? -1 : 0;
}

static int
bng_down(const struct scenario *s)
{
	return ground() || routes4(bng_routes(s)) || meter() || sessions(s, PPPOE | METER | DOWN_STREAM) ? -1 : 0;
}

static int
flows_up(const struct scenario *s)
{
	return ground() || uplink_profile("flows-0") || uplink_profile("flows-1") || sessions(s, GTPU | FLOWS) ? -1 : 0;
}

static int
flows_down(const struct scenario *s)
{
	// As many as an instance can have where there are many subscribers.
	unsigned times = s->flows > ALLOWED ? 4 : 1;

	return ground() || downlink_profile("flows-0", 0, s->flows / 2, times) ||
			       downlink_profile("flows-1", 1, s->flows / 2, times) ||
			       sessions(s, GTPU | FLOWS | DOWN_STREAM)
		       ? -1
		       : 0;
}

#define SIZES \
	{ \
		64, 128, 650, 1418 \
	}
#define SIZES6 \
	{ \
		78, 128, 650, 1418 \
	}
#define SIZES_TUNNEL \
	{ \
		128, 650, 1418 \
	}

// The papers' vAGF: 128 bytes up and 504 down, or 650 both ways.
#define SIZES_AGF \
	{ \
		128, 504, 650 \
	}
#define SIZES_BNG \
	{ \
		256, 512, 1024 \
	}

#define QUEUES(title, subscribers, waiting) \
	{ \
		.name = title, .flows = subscribers, .sizes = {128}, .measure = measure_queues, .backlog = waiting \
	}

const struct scenario scenarios[] = {
	{"ip4-1", 1024, SIZES, ip4_set_up, ip4_frame, "in"},
	{"ip4-10k", 10000, SIZES, ip4_set_up, ip4_frame, "in", .scaling = true},
	{"ip4-100k", 100000, SIZES, ip4_set_up, ip4_frame, "in"},
	{"ip4-1M", 1000000, SIZES, ip4_set_up, ip4_frame, "in"},
	{"ip6-1", 1024, SIZES6, ip6_set_up, ip6_frame, "in"},
	{"ip6-100k", 100000, SIZES6, ip6_set_up, ip6_frame, "in"},
	{"qinq-up-4k", 4096, SIZES, qinq_up, up_frame, "in"},
	{"qinq-down-4k", 4096, SIZES, qinq_down, down_frame, "in"},
	{"pppoe-up-64k", 65536, SIZES, pppoe_up, up_frame, "in"},
	{"pppoe-down-64k", 65536, SIZES, pppoe_down, down_frame, "in"},
	{"gtpu-encap-4k", 4096, SIZES, gtpu_up, up_frame, "in"},
	{"gtpu-decap-4k", 4096, SIZES_TUNNEL, gtpu_down, gtpu_down_frame, "in"},
	{"acl-150", 1024, SIZES, acl_150, ip4_frame, "in"},
	{"meter-4k", 4096, SIZES, meter_up, up_frame, "in"},
	{"agf-up-4k", 4096, SIZES, agf_up, up_frame, "in", .scaling = true},
	{"agf-up-4k-pppoe", 4096, SIZES, agf_up_pppoe, up_frame, "in", .scaling = true},
	{"agf-up-64k", 65536, SIZES_AGF, agf_up, up_frame, "in"},
	{"agf-down-64k", 65000, SIZES_AGF, agf_down, gtpu_down_frame, "in"},
	{"flows-up-4k", 4096, SIZES_AGF, flows_up, up_frame, "in"},
	{"flows-down-4k", ALLOWED, SIZES_AGF, flows_down, gtpu_down_frame, "in"},
	{"flows-down-64k", 65000, SIZES_AGF, flows_down, gtpu_down_frame, "in"},
	{"agf-down-4k", ALLOWED, SIZES_AGF, agf_down, gtpu_down_frame, "in", .scaling = true},
	{"agf-down-4k-pppoe", ALLOWED, SIZES_AGF, agf_down_pppoe, gtpu_down_frame, "in", .scaling = true},
	{"bng-up-128k", 128000, SIZES_BNG, bng_up, bng_up_frame, "in"},
	{"bng-down-128k", 128000, SIZES_BNG, bng_down, down_frame, "in"},
	{"bng-up-192k", 192000, SIZES_BNG, bng_up, bng_up_frame, "in", .scaling = true},
	{"bng-down-192k", 192000, SIZES_BNG, bng_down, down_frame, "in", .scaling = true},
	{"agf-down-4k-hqos", ALLOWED, SIZES_AGF, agf_down_hqos, gtpu_down_frame, "in", .scaling = true,
		.one_owner = true},
	{"agf-down-4k-hqos-pppoe", ALLOWED, SIZES_AGF, agf_down_hqos_pppoe, gtpu_down_frame, "in", .scaling = true,
		.one_owner = true},
	{"agf-down-64k-hqos", 65000, SIZES_AGF, agf_down_hqos, gtpu_down_frame, "in"},
	{"qinq-down-4k-hqos", 4096, SIZES, qinq_down_hqos, down_frame, "in"},
	QUEUES("hqos-4k", 4096, 0),
	QUEUES("rte-sched-4k", 4096, 0),
	QUEUES("hqos-4k-backlog", 4096, 4),
	QUEUES("rte-sched-4k-backlog", 4096, 4),
	QUEUES("hqos-64k", 65536, 0),
	QUEUES("hqos-64k-backlog", 65536, 4),
	QUEUES("hqos-192k", 196608, 0),
	QUEUES("hqos-192k-backlog", 196608, 4),
	{"one-queue-agf-up-4k", 4096, SIZES, agf_up_one_queue, up_frame, "in", .one_queue = true, .scaling = true},
	{"rate-1", 1, .rate = true, .scaling = true},
	{"rate-100", 100, .rate = true, .scaling = true},
	{"rate-10k", 10000, .rate = true, .scaling = true},
	{"rate-100k", 100000, .rate = true, .scaling = true},
};
const unsigned scenario_count = RTE_DIM(scenarios);
