// SPDX-License-Identifier: Apache-2.0
// The harnesses' data plane.
#include "machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "acl.pb-c.h"
#include "core/drop.h"
#include "core/loop.h"
#include "core/start.h"
#include "core/trace.h"
#include "core/watch.h"
#include "core/worker.h"
#include "ether/circuit.h"
#include "flow.pb-c.h"
#include "fuzz/part.h"
#include "hqos.pb-c.h"
#include "interface.pb-c.h"
#include "ip.pb-c.h"
#include "ipsec.pb-c.h"
#include "meter.pb-c.h"
#include "port.pb-c.h"
#include "punt.pb-c.h"
#include "server/watch_filter.h"
#include "session.pb-c.h"

enum { BUFFERS = 16384, WAITING_MAX = 12000 };

// Memory that only DPDK's memory refers to looks lost to LeakSanitizer; machine_check() counts buffers instead.
const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

static struct rte_mbuf *pending;
static uint16_t port_ids[2];

static uint16_t
source_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	if (!pending)
		return 0;
	node->objs[0] = pending;
	node->idx = 1;
	pending = NULL;
	rte_node_next_stream_move(graph, node, ether_input_node.id);
	return 1;
}

static struct node source_node = {
	.name = "fuzz-source", .process = source_process, .source = true, .edges = NODE_EDGES(&ether_input_node)};
NODE_REGISTER(source_node)

static struct fuzz_part *parts;

void
fuzz_part_register(struct fuzz_part *part)
{
	part->next = parts;
	parts = part;
}

void
fuzz_put(const char *kind, const char *name, const void *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(length + 1);
	struct fault f = {0};

	protobuf_c_message_pack(message, packed);
	if (object_put(kind, name, packed, length, &f)) {
		fprintf(stderr, "the harness cannot put %s %s: %s\n", kind, name, f.text);
		abort();
	}
	free(packed);
}

static void
put_ports(void)
{
	static const char *const names[] = {"access", "core"};

	for (unsigned i = 0; i < 2; i++) {
		Sluice__V1__Port port = SLUICE__V1__PORT__INIT;
		char device[64], mac[32];

		snprintf(device, sizeof(device), "net_null%u,no-rx=1", i);
		snprintf(mac, sizeof(mac), "02:00:00:00:00:0%u", i + 1);
		port.device = device;
		port.mac = mac;
		fuzz_put("Port", names[i], &port);
		port_ids[i] = port_of(object_find(&port_kind, names[i]))->id;
	}
}

static void
put_interface(
	const char *name, const char *port, unsigned outer, const char *address4, const char *address6, const char *acl)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.port = (char *)port;
	i.outer_vlan = outer;
	i.addresses = (char *[]){(char *)address4, (char *)address6};
	i.n_addresses = 2;
	i.acl_in = (char *)acl;
	i.acl_out = (char *)acl;
	fuzz_put("Interface", name, &i);
}

static void
put_policies(void)
{
	Sluice__V1__Acl acl = SLUICE__V1__ACL__INIT;
	Sluice__V1__AclRule rules[4], *list[4];
	Sluice__V1__Meter meter = SLUICE__V1__METER__INIT;

	for (unsigned i = 0; i < 4; i++) {
		sluice__v1__acl_rule__init(&rules[i]);
		list[i] = &rules[i];
	}
	rules[0].source = "198.51.100.0/24";
	rules[0].protocol = "tcp";
	rules[0].tcp_flags = "syn,!ack";
	rules[0].destination_ports = "25";
	rules[1].source = "2001:db8:bad::/48";
	rules[1].protocol = "udp";
	rules[1].source_ports = "1000-2000";
	rules[2].protocol = "icmp";
	rules[2].icmp_type = "5";
	rules[3].dscp = "af43";
	acl.rules = list;
	acl.n_rules = 4;
	acl.otherwise = SLUICE__V1__ACL_ACTION__PERMIT;
	fuzz_put("Acl", "acl", &acl);
	meter.algorithm = SLUICE__V1__METER_ALGORITHM__SRTCM;
	meter.committed_rate = 4000000000000;
	meter.committed_burst = 1u << 30;
	meter.excess_burst = 1u << 30;
	fuzz_put("Meter", "meter", &meter);
	meter.scope = SLUICE__V1__METER_SCOPE__GLOBAL;
	fuzz_put("Meter", "all", &meter);
	meter.scope = SLUICE__V1__METER_SCOPE__FLOW;
	meter.flows = 1024;
	fuzz_put("Meter", "by-flow", &meter);
}

// Every field of a filter, and a flow with every mark.
static void
put_flows(void)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rules[2] = {SLUICE__V1__QOS_RULE__INIT, SLUICE__V1__QOS_RULE__INIT}, *list[2];
	Sluice__V1__PacketFilter filters[6], *all[6];
	const uint32_t priorities[] = {3};
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};

	for (unsigned i = 0; i < RTE_DIM(filters); i++) {
		sluice__v1__packet_filter__init(&filters[i]);
		all[i] = &filters[i];
	}
	filters[0].protocol = "udp";
	filters[0].remote_ports = "443";
	filters[1].spi = 7;
	filters[2].flow_label = 0xabcde;
	filters[3].dscp = "ef";
	// Of frames, and of the packets in them.
	filters[4].s_vlan = 9;
	filters[4].c_priorities = (uint32_t *)priorities;
	filters[4].n_c_priorities = 1;
	filters[5].ether_type = 0x0800;
	filters[5].remote = "203.0.113.0/24";
	filters[5].local_ports = "1-4000";
	for (unsigned i = 0; i < RTE_DIM(rules); i++) {
		rules[i].precedence = i * 100;
		rules[i].qfi = 9 + i;
		rules[i].filters = &all[i * 3];
		rules[i].n_filters = 3;
		list[i] = &rules[i];
	}
	flow.qfi = 9;
	flow.dscp = "ef";
	flow.class_ = 3;
	flow.priority = 5;
	profile.rules = list;
	profile.n_rules = 2;
	profile.flows = flows;
	profile.n_flows = 1;
	fuzz_put("FlowProfile", "flows", &profile);
}

// All packets for the access port wait while they are examined.
static void
put_queues(void)
{
	Sluice__V1__QosScheduler scheduler = SLUICE__V1__QOS_SCHEDULER__INIT;
	Sluice__V1__QosGroup group = SLUICE__V1__QOS_GROUP__INIT;
	Sluice__V1__QosProfile profile = SLUICE__V1__QOS_PROFILE__INIT;
	Sluice__V1__QosClass classes[2] = {SLUICE__V1__QOS_CLASS__INIT, SLUICE__V1__QOS_CLASS__INIT};
	Sluice__V1__QosClass *list[] = {&classes[0], &classes[1]};
	Sluice__V1__QosMatch match = SLUICE__V1__QOS_MATCH__INIT;
	Sluice__V1__QosMark mark = SLUICE__V1__QOS_MARK__INIT;

	scheduler.port = "access";
	fuzz_put("QosScheduler", "access", &scheduler);
	group.scheduler = "access";
	fuzz_put("QosGroup", "olt", &group);
	match.acl = "acl";
	mark.dscp = "af31";
	mark.vlan_priority = 5;
	mark.qfi = 3;
	classes[0].name = "rest";
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__CODEL;
	classes[1].name = "marked";
	classes[1].drop_policy = SLUICE__V1__QOS_DROP_POLICY__WRED;
	classes[1].match = &match;
	classes[1].mark = &mark;
	profile.classes = list;
	profile.n_classes = 2;
	profile.atm_cells = true;
	fuzz_put("QosProfile", "queues", &profile);
}

struct shape {
	const char *name, *mac, *address4, *address6;
	unsigned outer, inner, pppoe, teid;
	bool outer6;
	unsigned pdu_session;
	bool ethernet;
	unsigned five_we;
};

static void
put_session(const struct shape *s)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	access.port = "access";
	access.outer_vlan = s->outer;
	access.inner_vlan = s->inner;
	access.pppoe_session_id = s->pppoe;
	access.five_we_session_id = s->five_we;
	access.lcp_magic = s->pppoe ? 0x11223344 : 0;
	access.lcp_echo_interval = s->pppoe ? UINT64_C(30000000000) : 0;
	access.mac = (char *)s->mac;
	access.proxy_arp = s->teid != 0 && !s->ethernet;
	access.pdu_session_id = s->pdu_session;
	policy.meter_up = "meter";
	policy.meter_down = "by-flow";
	policy.flow_profile = "flows";
	if (!s->ethernet) {
		policy.acl_up = policy.acl_down = "acl";
		policy.mss = 1400;
		policy.qos_profile = "queues";
		policy.qos_group = "olt";
	}
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){(char *)s->address4, (char *)s->address6};
	session.n_addresses = s->ethernet ? 0 : 2;
	if (s->teid) {
		gtpu.local_address = s->outer6 ? "2001:db8:c::1" : "192.0.2.1";
		gtpu.remote_address = s->outer6 ? "2001:db8:c::2" : "192.0.2.2";
		gtpu.local_teid = s->teid;
		gtpu.remote_teid = s->teid + 1;
		gtpu.pdu_session_container = true;
		gtpu.qfi = 9;
		gtpu.reflective_qos = true;
		gtpu.ethernet = s->ethernet;
		session.gtpu = &gtpu;
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	}
	fuzz_put("Session", s->name, &session);
}

static void
put_routes(void)
{
	Sluice__V1__Neighbor neighbor = SLUICE__V1__NEIGHBOR__INIT;
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, second = SLUICE__V1__NEXT_HOP__INIT,
			    *hops[] = {&hop, &second};

	neighbor.interface = "core";
	neighbor.address = "192.0.2.2";
	neighbor.mac = "02:00:00:00:01:02";
	fuzz_put("Neighbor", "upf4", &neighbor);
	neighbor.address = "2001:db8:c::2";
	fuzz_put("Neighbor", "upf6", &neighbor);
	hop.address = "192.0.2.2";
	second.address = "192.0.2.3";
	route.next_hops = hops;
	route.n_next_hops = 2;
	route.prefix = "0.0.0.0/0";
	fuzz_put("Route", "out4", &route);
	hop.address = "2001:db8:c::2";
	route.prefix = "::/0";
	route.n_next_hops = 1;
	fuzz_put("Route", "out6", &route);
	route.n_next_hops = 0;
	route.prefix = "203.0.113.0/24";
	route.action = SLUICE__V1__ROUTE_ACTION__PROHIBIT;
	fuzz_put("Route", "prohibited", &route);
	route.prefix = "2001:db8:dead::/48";
	route.action = SLUICE__V1__ROUTE_ACTION__BLACKHOLE;
	fuzz_put("Route", "nowhere", &route);
}

// A tunnel with an SA of each form (esp.c), whose keys are zeros.
static void
put_ipsec(void)
{
	static char zeros[129];
	static const struct {
		const char *name;
		bool outbound, six, udp;
		Sluice__V1__EspEncryption encryption;
		int key;
		bool hmac;
	} forms[] = {
		{"esp-0", false, false, true, SLUICE__V1__ESP_ENCRYPTION__AES_GCM, 40, false},
		{"esp-1", false, true, false, SLUICE__V1__ESP_ENCRYPTION__AES_CBC, 32, true},
		{"esp-2", false, false, true, SLUICE__V1__ESP_ENCRYPTION__NULL_ENCRYPTION, 0, true},
		{"esp-out", true, false, false, SLUICE__V1__ESP_ENCRYPTION__AES_GCM, 40, false},
		{"gre-in", false, false, false, SLUICE__V1__ESP_ENCRYPTION__NULL_ENCRYPTION, 0, true},
		{"gre-out", true, false, false, SLUICE__V1__ESP_ENCRYPTION__AES_GCM, 40, false},
	};
	Sluice__V1__IpsecTunnel tunnel = SLUICE__V1__IPSEC_TUNNEL__INIT;
	Sluice__V1__Interface interface = SLUICE__V1__INTERFACE__INIT;
	Sluice__V1__EspInUdp udp = SLUICE__V1__ESP_IN_UDP__INIT;

	memset(zeros, '0', sizeof(zeros) - 1);
	tunnel.mss = 1300;
	fuzz_put("IpsecTunnel", "esp", &tunnel);
	interface.ipsec_tunnel = "esp";
	interface.addresses = (char *[]){"10.9.9.1/24", "2001:db8:99::1/64"};
	interface.n_addresses = 2;
	interface.acl_in = "acl";
	interface.meter_in = interface.meter_out = "all";
	fuzz_put("Interface", "esp", &interface);
	fuzz_put("IpsecTunnel", "gre", &tunnel);
	for (unsigned i = 0; i < RTE_DIM(forms); i++) {
		Sluice__V1__SecurityAssociation sa = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

		sa.direction = forms[i].outbound ? SLUICE__V1__SECURITY_DIRECTION__OUTBOUND
						 : SLUICE__V1__SECURITY_DIRECTION__INBOUND;
		sa.spi = 5000 + i;
		sa.local_address = forms[i].six ? "2001:db8:c::1" : "192.0.2.1";
		sa.remote_address = forms[i].six ? "2001:db8:c::2" : "192.0.2.2";
		sa.udp = forms[i].udp ? &udp : NULL;
		sa.encryption = forms[i].encryption;
		sa.encryption_key = zeros + sizeof(zeros) - 1 - forms[i].key;
		if (forms[i].hmac) {
			sa.integrity = SLUICE__V1__ESP_INTEGRITY__HMAC_SHA256;
			sa.integrity_key = zeros + sizeof(zeros) - 1 - 64;
		}
		sa.no_replay_check = i == 2;
		sa.tunnel = forms[i].name[0] == 'g' ? "gre" : "esp";
		fuzz_put("SecurityAssociation", forms[i].name, &sa);
	}
}

// Circuits without a session whose packets go up: untagged, and with two tags.
static void
put_punts(void)
{
	Sluice__V1__Punt punt = SLUICE__V1__PUNT__INIT;
	Sluice__V1__PuntProtocol all[] = {SLUICE__V1__PUNT_PROTOCOL__PPPOE_DISCOVERY, SLUICE__V1__PUNT_PROTOCOL__DHCP4,
		SLUICE__V1__PUNT_PROTOCOL__DHCP6, SLUICE__V1__PUNT_PROTOCOL__ARP, SLUICE__V1__PUNT_PROTOCOL__ND,
		SLUICE__V1__PUNT_PROTOCOL__FIRST_PACKET, SLUICE__V1__PUNT_PROTOCOL__PPP_CONTROL};

	punt.port = "access";
	punt.protocols = all;
	punt.n_protocols = RTE_DIM(all);
	// No limit keeps a harness from a line of code.
	punt.rate = punt.rate_per_mac = 1000000;
	fuzz_put("Punt", "untagged", &punt);
	punt.outer_vlans = (char *[]){"1-99", "100-499"};
	punt.n_outer_vlans = 2;
	punt.inner_vlans = (char *[]){"1-50"};
	punt.n_inner_vlans = 1;
	fuzz_put("Punt", "double", &punt);
}

// Every frame is compared with a filter, and followed until it is known not to be of the session with this number.
static void
watch_frames(void)
{
	struct watch watch = {.kind = WATCH_TRACE, .node = -1, .session = 4, .remaining = INT64_MAX};
	char text[256];
	struct watch_filter *f = watch_filter_begin("icmp[7] = 1 or tcp[13] = 2 or ip6 or arp", text, sizeof(text));

	while (f && !watch_filter_ready(f, 100))
		;
	if (!f || watch_filter_take(f, &watch.filter, text, sizeof(text)) || !watch_begin(&watch, text, sizeof(text))) {
		fprintf(stderr, "the harness cannot watch: %s\n", text);
		abort();
	}
	watch_filter_end(f);
	trace_change(&workers[0]);
}

void
machine_start(void)
{
	static const struct shape shapes[] = {
		{"ipoe", "", "100.64.0.1/32", "2001:db8:1:1::/64", 100, 1, 0, 0, false},
		{"ipoe-mac", "02:01:00:00:00:02", "100.64.0.2/32", "2001:db8:1:2::/64", 100, 2, 0, 0, false},
		{"pppoe", "02:01:00:00:00:03", "100.64.0.3/32", "2001:db8:1:3::/64", 100, 3, 3, 0, false},
		{"ipoe-gtpu", "02:01:00:00:00:04", "100.64.0.4/32", "2001:db8:1:4::/64", 100, 4, 0, 4, false},
		{"pppoe-gtpu", "02:01:00:00:00:05", "100.64.0.5/32", "2001:db8:1:5::/64", 100, 5, 5, 6, true},
		{"pdu-1", "", "100.64.0.6/32", "2001:db8:1:6::/64", 100, 6, 0, 8, false, 1},
		{"pdu-2", "", "100.64.0.7/32", "2001:db8:1:7::/64", 100, 6, 0, 9, true, 2},
		{"frames", "", "", "", 100, 8, 0, 10, false, 0, true},
		{"frames-single", "", "", "", 300, 0, 0, 11, true, 0, true},
		{"five-we", "02:01:00:00:00:03", "100.64.0.10/32", "2001:db8:1:10::/64", 100, 3, 0, 12, false, 0, false,
			3},
		{"five-we-frames", "02:01:00:00:00:03", "", "", 100, 3, 0, 14, false, 0, true, 4},
	};
	char prefix[32];
	struct options o = {.workers = 1, .buffers = BUFFERS, .log_level = "error", .prefix = prefix, .memory = 256};

	// Devices of any input are made in a network namespace of their own.
	if (unshare(CLONE_NEWNET))
		perror("fuzz: no network namespace of our own");
	snprintf(prefix, sizeof(prefix), "sluice-fuzz-%d", getpid());
	if (core_start(&o))
		abort();
	put_ports();
	put_policies();
	put_queues();
	put_flows();
	put_interface("core", "core", 0, "192.0.2.1/24", "2001:db8:c::1/64", "acl");
	put_interface("lan", "access", 200, "198.51.100.1/24", "2001:db8:2::1/64", "");
	put_interface("gateway", "", 0, "100.64.255.1/32", "2001:db8:1::1/128", "");
	for (unsigned i = 0; i < RTE_DIM(shapes); i++)
		put_session(&shapes[i]);
	put_routes();
	put_punts();
	put_ipsec();
	for (const struct fuzz_part *p = parts; p; p = p->next)
		p->put();
	for (unsigned i = 0; i < 20; i++)
		loop_once(1);
	watch_frames();
}

static void
release(void *address, void *unused)
{
	free(address);
}

// A segment whose buffer ends where the bytes do.
static struct rte_mbuf *
segment(const uint8_t *bytes, size_t length)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(packet_pool);
	size_t room = RTE_PKTMBUF_HEADROOM + length;
	struct rte_mbuf_ext_shared_info *info;
	uint8_t *buffer = m ? malloc(room) : NULL;

	if (!buffer)
		abort();
	memset(buffer, 0xa5, RTE_PKTMBUF_HEADROOM);
	memcpy(buffer + RTE_PKTMBUF_HEADROOM, bytes, length);
	// The mbuf's own room is not used now and lives as long as the mbuf does: the reference count is kept there.
	info = (struct rte_mbuf_ext_shared_info *)RTE_PTR_ALIGN((char *)m->buf_addr + 64, 8);
	info->free_cb = release;
	info->fcb_opaque = NULL;
	rte_mbuf_ext_refcnt_set(info, 1);
	rte_pktmbuf_attach_extbuf(m, buffer, RTE_BAD_IOVA, (uint16_t)room, info);
	m->data_off = RTE_PKTMBUF_HEADROOM;
	m->data_len = (uint16_t)length;
	m->pkt_len = (uint32_t)length;
	return m;
}

void
machine_frame(enum side side, const uint8_t *bytes, size_t length, size_t split)
{
	struct worker *main_thread = worker_self();
	struct rte_mbuf *m;

	if (length == 0 || length > 9000)
		return;
	if (split == 0 || split >= length) {
		m = segment(bytes, length);
	} else {
		m = segment(bytes, split);
		m->next = segment(bytes + split, length - split);
		m->nb_segs = 2;
		m->pkt_len = (uint32_t)length;
	}
	packet_reset(m);
	packet_of(m)->port = port_ids[side];
	m->port = port_ids[side];
	pending = m;
	RTE_PER_LCORE(worker) = &workers[0];
	for (unsigned i = 0; i < 2; i++)
		rte_graph_walk(workers[0].graph);
	RTE_PER_LCORE(worker) = main_thread;
	loop_once(0);
	RTE_PER_LCORE(worker) = &workers[0];
	rte_graph_walk(workers[0].graph);
	RTE_PER_LCORE(worker) = main_thread;
}

void
machine_check(void)
{
	if (rte_mempool_in_use_count(packet_pool) > WAITING_MAX) {
		fprintf(stderr, "%u buffers are missing\n", rte_mempool_in_use_count(packet_pool));
		abort();
	}
}

void
machine_report(void)
{
	const struct rte_node *tx = rte_graph_node_get_by_name(workers[0].graph->name, tx_node.name);

	printf("%12lu sent\n", tx->total_objs);
	for (uint16_t id = 0; id < drop_count(); id++)
		if (drop_total(id) > 0)
			printf("%12lu %s\n", drop_total(id), drop_by_id(id)->name);
}
