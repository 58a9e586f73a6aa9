// SPDX-License-Identifier: Apache-2.0
// Chains of sessions: the longest that there can be is walked to its end, both ways, and by packets that the main thread had meanwhile.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "acl.pb-c.h"
#include "acl/acl.h"
#include "fib/hop.h"
#include "flow.pb-c.h"
#include "flow/flow.h"
#include "gtpu/tunnel.h"
#include "hqos.pb-c.h"
#include "hqos/hqos.h"
#include "ip/fragment.h"
#include "ip/nodes.h"
#include "meter.pb-c.h"
#include "meter/meter.h"
#include "neighbor/arp.h"
#include "session/all_sessions.h"
#include "session/record.h"

enum { TEID = 20, PEER = 2, FAR_PEER = 7, SMALL_MTU = 1280 };

#define ADDRESS4 "100.64.0.1"
#define ADDRESS6 "2001:db8:1::1"

// ---- How often each step was taken.

static struct step {
	struct node *node;
	uint16_t (*process)(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count);
	unsigned packets;
} up[] = {{&acl_up_node}, {&flow_up_node}, {&meter_up_node}, {&mss_clamp_node}, {&hqos_classify_node},
	{&gtpu_encap_node}},
  down[] = {{&acl_down_node}, {&flow_down_node}, {&meter_down_node}, {&session_out_node}};

static struct step *
step_of(const struct rte_node *node)
{
	for (unsigned i = 0; i < RTE_DIM(up); i++)
		if (strcmp(up[i].node->name, node->name) == 0)
			return &up[i];
	for (unsigned i = 0; i < RTE_DIM(down); i++)
		if (strcmp(down[i].node->name, node->name) == 0)
			return &down[i];
	abort();
}

static uint16_t
count_packets(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct step *step = step_of(node);

	step->packets += count;
	return step->process(graph, node, packets, count);
}

static void
watch_steps(struct step *steps, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		steps[i].process = steps[i].node->process;
		steps[i].node->process = count_packets;
	}
}

static void
forget_steps(void)
{
	for (unsigned i = 0; i < RTE_DIM(up); i++)
		up[i].packets = 0;
	for (unsigned i = 0; i < RTE_DIM(down); i++)
		down[i].packets = 0;
	sent_count = 0;
}

// Each step of one direction was taken by this many packets. MSS and classification are steps of both.
static void
assert_steps(enum direction direction, unsigned packets)
{
	for (unsigned i = 0; i < RTE_DIM(up); i++) {
		bool both = up[i].node == &mss_clamp_node || up[i].node == &hqos_classify_node;

		assert_int_equal(up[i].packets, direction == UP || both ? packets : 0);
	}
	for (unsigned i = 0; i < RTE_DIM(down); i++)
		assert_int_equal(down[i].packets, direction == DOWN ? packets : 0);
}

// ---- A session with everything.

struct wish {
	const char *name, *address4, *address6, *mac;
	uint16_t inner;
	uint32_t teid;
	unsigned peer, mtu;
	bool without_mss;
};

static const struct wish all = {"all", ADDRESS4 "/32", ADDRESS6 "/128", "02:01:00:00:00:09", 1, TEID, PEER};

static int
put_wish(const struct wish *wish)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;
	char remote[32];

	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = wish->inner;
	access.mac = (char *)(wish->mac ? wish->mac : "");
	policy.acl_up = policy.acl_down = "all";
	policy.meter_up = policy.meter_down = "all";
	policy.flow_profile = "all";
	policy.mss = wish->without_mss ? 0 : 1400;
	policy.mtu = wish->mtu;
	policy.qos_profile = policy.qos_profile_up = "all";
	policy.qos_group = "access";
	policy.qos_group_up = "core";
	snprintf(remote, sizeof(remote), "192.0.2.%u", wish->peer);
	gtpu.local_address = "192.0.2.1";
	gtpu.remote_address = remote;
	gtpu.local_teid = wish->teid;
	gtpu.remote_teid = wish->teid + 1;
	gtpu.pdu_session_container = true;
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){(char *)wish->address4, (char *)wish->address6};
	session.n_addresses = wish->address6 ? 2 : 1;
	session.gtpu = &gtpu;
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	return put("Session", wish->name, &session);
}

static int
put_queues(const char *port)
{
	Sluice__V1__QosScheduler scheduler = SLUICE__V1__QOS_SCHEDULER__INIT;
	Sluice__V1__QosGroup group = SLUICE__V1__QOS_GROUP__INIT;

	scheduler.port = group.scheduler = (char *)port;
	return put("QosScheduler", port, &scheduler) || put("QosGroup", port, &group);
}

static int
put_policy(void)
{
	Sluice__V1__Acl acl = SLUICE__V1__ACL__INIT;
	Sluice__V1__Meter meter = SLUICE__V1__METER__INIT;
	Sluice__V1__FlowProfile flows = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	Sluice__V1__QosProfile profile = SLUICE__V1__QOS_PROFILE__INIT;
	Sluice__V1__QosClass class = SLUICE__V1__QOS_CLASS__INIT, *classes[] = {&class};
	Sluice__V1__QosMark mark = SLUICE__V1__QOS_MARK__INIT;

	acl.otherwise = SLUICE__V1__ACL_ACTION__PERMIT;
	meter.committed_rate = 1000000000;
	meter.committed_burst = 1000000;
	rule.qfi = 7;
	flows.rules = rules;
	flows.n_rules = 1;
	class.name = "all";
	class.mark = &mark;
	mark.qfi = 5;
	mark.vlan_priority = 3;
	profile.classes = classes;
	profile.n_classes = 1;
	return put("Acl", "all", &acl) || put("Meter", "all", &meter) || put("FlowProfile", "all", &flows) ||
	       put("QosProfile", "all", &profile) || put_queues("access") || put_queues("core");
}

static int
start(void **state)
{
	watch_steps(up, RTE_DIM(up));
	watch_steps(down, RTE_DIM(down));
	return all_sessions_start(1) || put_policy() || put_wish(&all) ? -1 : 0;
}

static uint32_t
session_named(const char *name)
{
	return session_of(object_find(&session_kind, name));
}

// The packet on the core's side is in the tunnel, with the QFI of its class.
static void
assert_tunnelled(uint32_t teid)
{
	const uint8_t *gtpu = sent[0].bytes + RTE_ETHER_HDR_LEN + 20 + UDP;

	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(gtpu[6] << 8 | gtpu[7], teid + 1);
	assert_int_equal(gtpu[14] & 0x3f, 5);
}

// The packet on the access side has the priority of its class in both tags.
static void
assert_tagged(const struct sent *frame)
{
	assert_int_equal(frame->port, port_number("access"));
	assert_int_equal(frame->bytes[14] >> 5, 3);
	assert_int_equal(frame->bytes[18] >> 5, 3);
}

static void
send_up6(void)
{
	uint8_t frame[256], *end;

	end = write_packet6(write_access(frame, 100, all.inner, 0x86dd), ADDRESS6, "2001:db8:f::1", PAYLOAD);
	receive("access", frame, (size_t)(end - frame));
}

static void
the_longest_chain_is_walked_to_its_end_both_ways(void **state)
{
	const struct session *s = session_at(session_named("all"));

	assert_int_equal(chain_length(s->up4), 6);
	assert_int_equal(chain_length(s->up6), 6);
	assert_int_equal(chain_length(s->down4), 6);
	assert_int_equal(chain_length(s->down6), 6);
	forget_steps();
	send_up(100, all.inner, ADDRESS4);
	assert_steps(UP, 1);
	assert_tunnelled(TEID);
	forget_steps();
	send_up6();
	assert_steps(UP, 1);
	assert_tunnelled(TEID);
	forget_steps();
	send_tunnelled(TEID, ADDRESS4);
	assert_steps(DOWN, 1);
	assert_int_equal(sent_to("access"), 1);
	assert_tagged(&sent[0]);
}

// The node where the packet enters the graph is before all the steps.
static void
a_packet_that_comes_back_from_the_main_thread_takes_all_its_steps(void **state)
{
	const struct session *s = session_at(session_named("all"));

	for (enum direction direction = UP; direction <= DOWN; direction++) {
		struct rte_mbuf *m = packet_new();
		uint8_t *at = (uint8_t *)rte_pktmbuf_append(m, 20 + UDP + PAYLOAD);
		struct packet *p = packet_of(m);

		write_packet4(at, direction == UP ? ADDRESS4 : "203.0.113.9",
			direction == UP ? "203.0.113.9" : ADDRESS4, PAYLOAD);
		p->session = session_named("all");
		p->direction = direction;
		p->family = 4;
		p->qfi = NO_QFI;
		p->chain = direction == UP ? s->up4 : s->down4;
		forget_steps();
		node_edge(&inject_node, &ip4_input_node);
		inject(m, &ip4_input_node);
		walk();
		assert_steps(direction, 1);
		assert_int_equal(sent_to(direction == UP ? "core" : "access"), 1);
	}
}

static void
receive_arp_reply(const char *from, const uint8_t mac[6])
{
	uint8_t frame[64], *at = write_core(frame, RTE_ETHER_TYPE_ARP);
	struct arp_message arp = {.hardware = htons(1),
		.protocol = htons(RTE_ETHER_TYPE_IPV4),
		.hardware_length = 6,
		.protocol_length = 4,
		.operation = htons(ARP_REPLY),
		.target_mac = {{2, 0, 0, 0, 0, 2}},
		.target = {192, 0, 2, 1}};

	memcpy(frame + 6, mac, 6);
	memcpy(&arp.sender_mac, mac, 6);
	inet_pton(AF_INET, from, arp.sender);
	memcpy(at, &arp, sizeof(arp));
	receive("core", frame, (size_t)(at + sizeof(arp) - frame));
}

static void
a_packet_up_waits_for_the_peer_s_ethernet_address_and_goes_on(void **state)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 1, 7};
	const struct wish wish = {"far", "100.64.0.7/32", NULL, "02:01:00:00:00:09", 7, 70, FAR_PEER};

	assert_int_equal(put_wish(&wish), 0);
	forget_steps();
	send_up(100, 7, "100.64.0.7");
	assert_steps(UP, 1);
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].bytes[12] << 8 | sent[0].bytes[13], RTE_ETHER_TYPE_ARP);
	forget_steps();
	receive_arp_reply("192.0.2.7", mac);
	assert_steps(UP, 0);
	assert_tunnelled(70);
	assert_memory_equal(sent[0].bytes, mac, 6);
	assert_int_equal(delete_session("far"), 0);
}

static void
a_packet_down_waits_for_the_subscriber_s_ethernet_address_and_goes_on(void **state)
{
	const struct wish wish = {"late", "100.64.0.8/32", NULL, NULL, 8, 80, PEER};

	assert_int_equal(put_wish(&wish), 0);
	forget_steps();
	send_tunnelled(80, "100.64.0.8");
	assert_steps(DOWN, 1);
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(sent[0].bytes[20] << 8 | sent[0].bytes[21], RTE_ETHER_TYPE_ARP);
	send_up(100, 8, "100.64.0.8");
	// Workers do not report learned addresses: the main thread looks from time to time.
	while (sent_to("access") == 0)
		walk();
	assert_tagged(&sent[sent_count - 1]);
	assert_int_equal(delete_session("late"), 0);
}

static void
fragments_to_the_subscriber_are_cut_behind_all_steps(void **state)
{
	enum { LARGE = 1400 };
	struct wish wish = all;
	const struct session *s = session_at(session_named("all"));
	struct rte_mbuf *m = packet_new();
	struct packet *p = packet_of(m);

	wish.mtu = SMALL_MTU;
	assert_int_equal(put_wish(&wish), 0);
	write_packet4((uint8_t *)rte_pktmbuf_append(m, 20 + UDP + LARGE), "203.0.113.9", ADDRESS4, LARGE);
	p->session = session_named("all");
	p->direction = DOWN;
	p->family = 4;
	p->qfi = NO_QFI;
	p->chain = s->down4;
	forget_steps();
	node_edge(&inject_node, &ip4_input_node);
	inject(m, &ip4_input_node);
	walk();
	assert_int_equal(down[0].packets, 1);
	assert_int_equal(sent_to("access"), 2);
	assert_tagged(&sent[0]);
	assert_tagged(&sent[1]);
	assert_int_equal(put_wish(&all), 0);
}

static void
a_session_with_too_many_steps_is_refused_and_stays_as_it_was(void **state)
{
	struct wish wish = all;

	session_steps_max = 5;
	wish.mtu = SMALL_MTU;
	assert_int_equal(put_wish(&wish), -EINVAL);
	assert_string_equal(fault_of_put.text,
		"policy: packets from the subscriber would take 6 steps, and 5 is the most; leave out 1 of aclUp, "
		"flowProfile, meterUp, mss, qosProfileUp");
	forget_steps();
	send_up(100, all.inner, ADDRESS4);
	assert_steps(UP, 1);
	assert_tunnelled(TEID);
	wish.without_mss = true;
	assert_int_equal(put_wish(&wish), 0);
	session_steps_max = CHAIN_MAX;
	assert_int_equal(put_wish(&all), 0);
}

// Such as one whose access has only fields of a later release.
static void
a_session_without_a_port_is_refused(void **state)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;

	session.access = &access;
	session.addresses = (char *[]){"100.64.0.21/32"};
	session.n_addresses = 1;
	assert_int_equal(put("Session", "new", &session), -EINVAL);
	assert_string_equal(fault_of_put.text, "access.port: must name a Port, unless the access is of another type");
}

static void
a_chain_has_up_to_64_steps_and_is_shared_by_all_that_have_the_same(void **state)
{
	const struct node *steps[CHAIN_MAX + 1];
	struct node nodes[CHAIN_MAX + 1], first = {.id = 99};
	struct packet p;

	for (unsigned i = 0; i <= CHAIN_MAX; i++) {
		nodes[i] = (struct node){.id = (uint16_t)(i + 1)};
		steps[i] = &nodes[i];
	}
	p.chain = chain_of(steps, CHAIN_MAX);
	assert_int_equal(chain_length(p.chain), CHAIN_MAX);
	assert_int_equal(chain_of(steps, CHAIN_MAX), p.chain);
	assert_int_equal(chain_of(steps + 1, CHAIN_MAX - 1), chain_steps[p.chain].rest);
	packet_push(&p, &first);
	assert_int_equal(packet_pop(&p), 99);
	for (unsigned i = 0; i < CHAIN_MAX; i++)
		assert_int_equal(packet_step(&p), i + 1);
	assert_int_equal(packet_step(&p), 0);
	assert_int_equal(chain_of(steps, CHAIN_MAX + 1), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_chain_is_walked_to_its_end_both_ways),
		cmocka_unit_test(a_packet_that_comes_back_from_the_main_thread_takes_all_its_steps),
		cmocka_unit_test(a_packet_up_waits_for_the_peer_s_ethernet_address_and_goes_on),
		cmocka_unit_test(a_packet_down_waits_for_the_subscriber_s_ethernet_address_and_goes_on),
		cmocka_unit_test(fragments_to_the_subscriber_are_cut_behind_all_steps),
		cmocka_unit_test(a_session_with_too_many_steps_is_refused_and_stays_as_it_was),
		cmocka_unit_test(a_session_without_a_port_is_refused),
		cmocka_unit_test(a_chain_has_up_to_64_steps_and_is_shared_by_all_that_have_the_same),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
