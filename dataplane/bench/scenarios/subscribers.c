// SPDX-License-Identifier: Apache-2.0
// Subscribers' sessions, and the objects that their policies name.
#include "bench/scenarios/subscribers.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "acl.pb-c.h"
#include "bench/scenarios/ground.h"
#include "hqos.pb-c.h"
#include "meter.pb-c.h"
#include "session.pb-c.h"

enum { UPF_TEID = 0x20000, INNER_VLANS = 1000 };

// The subscriber of a flow.
uint32_t
subscriber_address(uint32_t flow)
{
	return 0x64400000 + flow + 1;
}

uint16_t
outer_vlan(uint32_t flow)
{
	return (uint16_t)(100 + flow / INNER_VLANS);
}

uint16_t
inner_vlan(uint32_t flow)
{
	return (uint16_t)(1 + flow % INNER_VLANS);
}

void
subscriber_mac(uint32_t flow, uint8_t mac[6])
{
	const uint8_t bytes[6] = {2, 1, 0, (uint8_t)(flow >> 16), (uint8_t)(flow >> 8), (uint8_t)flow};

	memcpy(mac, bytes, 6);
}

static int
make_session(uint32_t flow, unsigned with)
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
	access.port = with & TWO_PORTS && flow % 2 ? "out2" : with & DOWN_STREAM ? "out" : "in";
	access.outer_vlan = outer_vlan(flow);
	access.inner_vlan = inner_vlan(flow);
	if (with & (DOWN_STREAM | PPPOE | FIVE_WE | BY_MAC))
		access.mac = mac_text;
	if (with & PPPOE)
		access.pppoe_session_id = 1 + flow % 60000;
	if (with & ECHO) {
		access.lcp_magic = 0x01020304;
		access.lcp_echo_interval = 3600000000000;
	}
	if (with & FIVE_WE)
		access.five_we_session_id = 1 + flow % 60000;
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
		snprintf(group, sizeof(group), "olt-%s-%u", access.port, flow / INNER_VLANS);
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
		gtpu.reflective_qos = (with & REFLECTIVE) != 0;
		session.gtpu = &gtpu;
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	}
	return bench_put("Session", name, &session);
}

int
make_sessions(uint32_t count, unsigned with)
{
	for (uint32_t flow = 0; flow < count; flow++)
		if (make_session(flow, with))
			return -1;
	return 0;
}

// Rates so high that every packet passes: the cost of metering is measured.
int
make_meter(void)
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
block_list(bool counted)
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
	acl.count_hits = counted;
	return bench_put("Acl", "acl", &acl);
}

int
make_block_list(void)
{
	return block_list(false);
}

int
make_counted_block_list(void)
{
	return block_list(true);
}

uint32_t
server_address(uint32_t flow)
{
	return 0x08080000 + flow % 97;
}

// One 5-tuple for each flow to the subscribers.
int
make_allow_list(unsigned count)
{
	static Sluice__V1__AclRule rules[ALLOWED_MAX], *list[ALLOWED_MAX];
	static char text[ALLOWED_MAX][2][24];
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

// A scheduler whose rates, at every level, exceed the offered load: the cost of scheduling is measured.
int
make_schedulers(uint32_t flows, unsigned ports)
{
	static const char *const dscps[] = {"ef", "af41", "af31"}, *const names_of_ports[] = {"out", "out2"};
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
	scheduler.rate = 400000000000;
	scheduler.overhead = 24;
	profile.committed_rate = 10000000;
	profile.peak_rate = 1000000000;
	profile.overhead = 16;
	profile.classes = list;
	profile.n_classes = 4;
	if (bench_put("QosProfile", "home", &profile))
		return -1;
	for (unsigned i = 0; i < ports; i++) {
		scheduler.port = (char *)names_of_ports[i];
		if (bench_put("QosScheduler", scheduler.port, &scheduler))
			return -1;
	}
	for (unsigned i = 0; i < ports * ((flows - 1) / INNER_VLANS + 1); i++) {
		char *port = (char *)names_of_ports[i % ports];
		Sluice__V1__QosGroup group = SLUICE__V1__QOS_GROUP__INIT;

		snprintf(name, sizeof(name), "olt-%s-%u", port, i / ports);
		group.scheduler = port;
		group.committed_rate = 1000000000;
		group.peak_rate = 400000000000;
		group.overhead = 24;
		if (bench_put("QosGroup", name, &group))
			return -1;
	}
	return 0;
}
