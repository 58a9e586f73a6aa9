// SPDX-License-Identifier: Apache-2.0
// The N3IWF's user plane: ESP with AES-128-GCM, GRE and GTP-U, with a meter and marking, one child SA a UE. "down" is
// traffic from the UPF. "up-both" has the UE's half, too, because frames of a source cannot be encrypted beforehand:
// packets in GRE go into tunnels to the gateway itself, and come out of them for their sessions. "up-ue" is the UE's
// half alone: the difference of the two is the uplink.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"
#include "bench/scenarios/subscribers.h"
#include "flow.pb-c.h"
#include "gre.pb-c.h"
#include "interface.pb-c.h"
#include "ip.pb-c.h"
#include "ipsec.pb-c.h"
#include "session.pb-c.h"

enum { UES = 4000, SPI_FIRST = 0x10000, OURS = 0x0ac80000, THEIRS = 0x0ac90000, QFI = 9, PROTOCOL_GRE = 47 };

#define KEY "000102030405060708090a0b0c0d0e0f01020304"
#define HERE "192.0.2.1"    // where the UPF's and the UE's packets come in
#define THERE "192.0.2.129" // where they leave

static const char *
text(uint32_t address, char room[32])
{
	address = htonl(address);
	return inet_ntop(AF_INET, &address, room, 32);
}

static int
put_sa(const char *name, const char *tunnel, bool outbound, uint32_t spi, const char *local, const char *remote)
{
	Sluice__V1__SecurityAssociation sa = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

	sa.direction = outbound ? SLUICE__V1__SECURITY_DIRECTION__OUTBOUND : SLUICE__V1__SECURITY_DIRECTION__INBOUND;
	sa.spi = spi;
	sa.local_address = (char *)local;
	sa.remote_address = (char *)remote;
	sa.encryption_key = KEY;
	sa.tunnel = (char *)tunnel;
	sa.path_mtu = 1600;
	sa.esn = true;
	return bench_put("SecurityAssociation", name, &sa);
}

// Marks of every QoS flow that packets have.
static int
make_flows(void)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};

	flow.qfi = QFI;
	flow.dscp = "af41";
	profile.flows = flows;
	profile.n_flows = 1;
	return bench_put("FlowProfile", "flows", &profile);
}

static int
make_user_plane(uint32_t flow, const char *tunnel, bool up)
{
	Sluice__V1__GreTunnel gre = SLUICE__V1__GRE_TUNNEL__INIT;
	Sluice__V1__GreChild child = SLUICE__V1__GRE_CHILD__INIT, *children[] = {&child};
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;
	char name[32], address[40], ours[32], theirs[32], upf[32];

	snprintf(name, sizeof(name), "ue-%u", flow);
	snprintf(upf, sizeof(upf), up ? "192.0.2.%u" : "192.0.2.%u", (up ? 129 + 16 : 16) + flow % NEIGHBORS);
	child.tunnel = (char *)tunnel;
	gre.local_address = (char *)text(OURS + flow + 1, ours);
	gre.remote_address = (char *)text(THEIRS + flow + 1, theirs);
	gre.children = children;
	gre.n_children = 1;
	text(subscriber_address(flow), address);
	strcat(address, "/32");
	access.gre_tunnel = name;
	policy.meter_up = policy.meter_down = "meter";
	policy.flow_profile = "flows";
	gtpu.local_address = up ? THERE : HERE;
	gtpu.local_teid = SUBSCRIBER_TEID + flow;
	gtpu.remote_address = upf;
	gtpu.remote_teid = SUBSCRIBER_TEID + flow;
	gtpu.pdu_session_container = true;
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){address};
	session.n_addresses = 1;
	session.gtpu = &gtpu;
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	return bench_put("GreTunnel", name, &gre) || bench_put("Session", name, &session);
}

static int
down_set_up(const struct scenario *s)
{
	Sluice__V1__IpsecTunnel tunnel = SLUICE__V1__IPSEC_TUNNEL__INIT;

	if (make_ground() || make_route(0, "11.0.0.0/8") || make_flows() || make_meter())
		return -1;
	for (uint32_t i = 0; i < s->flows; i++) {
		char name[32], remote[32];

		snprintf(name, sizeof(name), "ue-%u", i);
		if (bench_put("IpsecTunnel", name, &tunnel) ||
			put_sa(name, name, true, SPI_FIRST + i, THERE, text(0x0b000001 + i, remote)) ||
			make_user_plane(i, name, false))
			return -1;
	}
	return 0;
}

// The UE's tunnel, by a route to its gateway's user-plane address.
static int
make_ue(uint32_t flow, const char *far)
{
	Sluice__V1__IpsecTunnel tunnel = SLUICE__V1__IPSEC_TUNNEL__INIT;
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;
	char name[32], prefix[40];

	snprintf(name, sizeof(name), "far-%u", flow);
	text(OURS + flow + 1, prefix);
	strcat(prefix, "/32");
	interface.ipsec_tunnel = name;
	hop.interface = name;
	route.prefix = prefix;
	route.next_hops = hops;
	route.n_next_hops = 1;
	return bench_put("IpsecTunnel", name, &tunnel) || bench_put("Interface", name, &interface) ||
	       put_sa(name, name, true, SPI_FIRST + flow, HERE, far) || bench_put("Route", name, &route);
}

static int
ue_set_up(const struct scenario *s)
{
	if (make_ground() || make_route(0, "11.0.0.0/8"))
		return -1;
	for (uint32_t i = 0; i < s->flows; i++) {
		char remote[32];

		if (make_ue(i, text(0x0b000001 + i, remote)))
			return -1;
	}
	return 0;
}

static int
up_set_up(const struct scenario *s)
{
	Sluice__V1__IpsecTunnel tunnel = SLUICE__V1__IPSEC_TUNNEL__INIT;

	if (make_ground() || make_flows() || make_meter())
		return -1;
	for (uint32_t i = 0; i < s->flows; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ue-%u", i);
		if (make_ue(i, THERE) || bench_put("IpsecTunnel", name, &tunnel) ||
			put_sa(name, name, false, SPI_FIRST + i, THERE, HERE) || make_user_plane(i, name, true))
			return -1;
	}
	return 0;
}

// The user's packet in GRE, as it is inside of the tunnel.
static unsigned
up_gre_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	static const uint8_t gre[] = {0x20, 0, 0, 0, QFI, 0, 0, 0};
	unsigned n = ether(h, in_mac, peer_mac, 0x0800), ip = n;
	uint32_t sum = 0;

	ip4_udp(h + n, THEIRS + flow + 1, OURS + flow + 1, 0, 0, (uint16_t)(length - n));
	h[ip + 9] = PROTOCOL_GRE;
	h[ip + 10] = h[ip + 11] = 0;
	for (unsigned i = 0; i < 20; i += 2)
		sum += (uint32_t)(h[ip + i] << 8 | h[ip + i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	h[ip + 10] = (uint8_t)(sum >> 8);
	h[ip + 11] = (uint8_t)sum;
	n += 20;
	memcpy(h + n, gre, sizeof(gre));
	n += sizeof(gre);
	return n + ip4_udp(h + n, subscriber_address(flow), server_address(flow), 5000, 443, (uint16_t)(length - n));
}

// Packets of 64 to 1400 bytes downlink, in GTP-U; uplink frames have GRE instead.
const struct scenario n3iwf_scenarios[] = {
	{"n3iwf-down", UES, {126, 190, 318, 574, 1086, 1462}, down_set_up, gtpu_down_frame, "in"},
	{"n3iwf-up-both", UES, {110, 174, 302, 558, 1070, 1446}, up_set_up, up_gre_frame, "in"},
	{"n3iwf-up-ue", UES, {110, 174, 302, 558, 1070, 1446}, ue_set_up, up_gre_frame, "in"},
	{0},
};
