// SPDX-License-Identifier: Apache-2.0
// Rules of rte_flow, made from a Port's `steering`.
#include "port/steering.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include "contract_limits.h"
#include "core/address.h"
#include "core/number.h"
#include "core/rcu.h"
#include "port/device.h"
#include "port/rx.h"

enum { VLAN_LAST = 4094, VLAN_BITS = 0xfff, MATCHES_MAX = CONTRACT_PORT_STEERING_MAX * 24 * 2, ITEMS = 5 };

// The frames that a rule of the device matches. Compared as bytes: unset fields are 0.
struct match {
	bool tagged, udp;
	uint8_t family, length; // of the destination; 0: any packet. Bits of it that count
	uint16_t vlan, vlan_mask;
	uint16_t ether_type, udp_port;
	uint8_t address[16];
};

static_assert(sizeof(struct match) == 28, "nothing of a match is padding, which memcmp() would see");

struct rule {
	struct match match;
	struct rte_flow *flow;
};

struct steering {
	bool isolated;
	struct rte_flow *rest; // drops frames that match no rule; NULL: such frames do not come
	unsigned count;
	struct rule rules[];
};

// ---- The spec of a Port.

static int
parse_vlans(const char *text, unsigned *first, unsigned *last)
{
	long from, to;

	if (!range_parse(text, VLAN_LAST, &from, &to) || from == 0)
		return -EINVAL;
	*first = (unsigned)from;
	*last = (unsigned)to;
	return 0;
}

// A rule without its VLANs.
static int
parse_rule(const Sluice__V1__SteeringRule *rule, size_t number, struct match *m, struct fault *f)
{
	*m = (struct match){.ether_type = (uint16_t)rule->ether_type, .udp_port = (uint16_t)rule->udp_port};
	if (!rule->outer_vlans[0] && !rule->ether_type && !rule->destination[0] && !rule->udp_port)
		return fault(f, EINVAL,
			"steering, rule %zu: it says nothing, so it would match every frame; say outerVlans, "
			"etherType, destination or udpPort, or leave the rule out",
			number);
	if (rule->destination[0] && prefix_parse(rule->destination, m->address, &m->family, &m->length))
		return fault(f, EINVAL,
			"steering, rule %zu, destination: a network like 192.0.2.102/32 is accepted, not %.64s", number,
			rule->destination);
	m->udp = rule->udp_port != 0;
	if (!m->family && !m->udp)
		return 0;
	if (m->ether_type == RTE_ETHER_TYPE_IPV4 && m->family != 6)
		m->family = 4;
	else if (m->ether_type == RTE_ETHER_TYPE_IPV6 && m->family != 4)
		m->family = 6;
	else if (m->ether_type)
		return fault(f, EINVAL,
			"steering, rule %zu, etherType: 0x%04x is not that of the packets that destination "
			"and udpPort ask for; leave it out",
			number, m->ether_type);
	m->ether_type = 0;
	return 0;
}

// A list of matches without duplicates.
static void
add(struct rule *rules, unsigned *count, const struct match *m)
{
	for (unsigned i = 0; i < *count; i++)
		if (memcmp(&rules[i].match, m, sizeof(*m)) == 0)
			return;
	rules[(*count)++].match = *m;
}

// UDP ports are in packets of either family.
static void
add_families(struct rule *rules, unsigned *count, struct match m)
{
	if (m.udp && m.family == 0) {
		m.family = 4;
		add(rules, count, &m);
		m.family = 6;
	}
	add(rules, count, &m);
}

// Devices match bits under a mask, and few of them ranges: a range of VLANs is as many blocks of powers of two.
static void
add_vlans(struct rule *rules, unsigned *count, struct match m, unsigned first, unsigned last)
{
	m.tagged = true;
	while (first <= last) {
		unsigned size = first & -first;

		while (first + size - 1 > last)
			size >>= 1;
		m.vlan = (uint16_t)first;
		m.vlan_mask = (uint16_t)(VLAN_BITS & ~(size - 1));
		add_families(rules, count, m);
		first += size;
	}
}

// The port's whole steering, for the caller to free in *made; NULL if it has none.
static int
parse(const Sluice__V1__Port *spec, struct steering **made, struct fault *f)
{
	struct steering *s;

	*made = NULL;
	if (spec->n_steering == 0)
		return 0;
	s = calloc(1, sizeof(*s) + MATCHES_MAX * sizeof(s->rules[0]));
	if (!s)
		return fault(f, ENOMEM, "steering: there is no memory for its rules");
	for (size_t i = 0; i < spec->n_steering; i++) {
		const Sluice__V1__SteeringRule *rule = spec->steering[i];
		unsigned first, last;
		struct match m;
		int error = parse_rule(rule, i + 1, &m, f);

		if (!error && rule->outer_vlans[0] && parse_vlans(rule->outer_vlans, &first, &last))
			error = fault(f, EINVAL,
				"steering, rule %zu, outerVlans: a VLAN or a range like 100-199, from 1 to %d, is "
				"accepted, not %.64s",
				i + 1, VLAN_LAST, rule->outer_vlans);
		if (error) {
			free(s);
			return error;
		}
		if (rule->outer_vlans[0])
			add_vlans(s->rules, &s->count, m, first, last);
		else
			add_families(s->rules, &s->count, m);
	}
	*made = s;
	return 0;
}

// ---- The device's rules.

// The pattern's items, and the data that they point to.
struct pattern {
	struct rte_flow_item items[ITEMS];
	unsigned count;
	struct rte_flow_item_eth eth, eth_mask;
	struct rte_flow_item_vlan vlan, vlan_mask;
	struct rte_flow_item_ipv4 ip4, ip4_mask;
	struct rte_flow_item_ipv6 ip6, ip6_mask;
	struct rte_flow_item_udp udp, udp_mask;
};

static void
add_item(struct pattern *p, enum rte_flow_item_type type, const void *spec, const void *mask)
{
	p->items[p->count++] = (struct rte_flow_item){.type = type, .spec = spec, .mask = spec ? mask : NULL};
}

static void
add_packet(struct pattern *p, const struct match *m)
{
	uint8_t mask[16];

	for (unsigned i = 0; i < sizeof(mask); i++)
		mask[i] = prefix_mask(m->length, i);
	if (m->family == 4) {
		memcpy(&p->ip4.hdr.dst_addr, m->address, 4);
		memcpy(&p->ip4_mask.hdr.dst_addr, mask, 4);
		add_item(p, RTE_FLOW_ITEM_TYPE_IPV4, m->length ? &p->ip4 : NULL, &p->ip4_mask);
	} else if (m->family == 6) {
		memcpy(&p->ip6.hdr.dst_addr, m->address, 16);
		memcpy(&p->ip6_mask.hdr.dst_addr, mask, 16);
		add_item(p, RTE_FLOW_ITEM_TYPE_IPV6, m->length ? &p->ip6 : NULL, &p->ip6_mask);
	}
	if (m->udp) {
		p->udp.hdr.dst_port = rte_cpu_to_be_16(m->udp_port);
		p->udp_mask.hdr.dst_port = UINT16_MAX;
		add_item(p, RTE_FLOW_ITEM_TYPE_UDP, &p->udp, &p->udp_mask);
	}
}

// The TPID is not looked at: with a tag behind it, the Ethernet item means either of them.
static void
make_pattern(struct pattern *p, const struct match *m)
{
	rte_be16_t type = rte_cpu_to_be_16(m->ether_type);

	memset(p, 0, sizeof(*p));
	if (m->tagged) {
		p->vlan = (struct rte_flow_item_vlan){.hdr.vlan_tci = rte_cpu_to_be_16(m->vlan), .hdr.eth_proto = type};
		p->vlan_mask = (struct rte_flow_item_vlan){
			.hdr.vlan_tci = rte_cpu_to_be_16(m->vlan_mask), .hdr.eth_proto = type ? UINT16_MAX : 0};
		add_item(p, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL);
		add_item(p, RTE_FLOW_ITEM_TYPE_VLAN, &p->vlan, &p->vlan_mask);
	} else {
		p->eth.hdr.ether_type = type;
		p->eth_mask.hdr.ether_type = UINT16_MAX;
		add_item(p, RTE_FLOW_ITEM_TYPE_ETH, type ? &p->eth : NULL, &p->eth_mask);
	}
	add_packet(p, m);
	add_item(p, RTE_FLOW_ITEM_TYPE_END, NULL, NULL);
}

// To the port's only queue, or spread over them.
struct target {
	struct rte_flow_action actions[2];
	struct rte_flow_action_queue queue;
	struct rte_flow_action_rss rss;
	uint16_t queues[UINT8_MAX];
};

static void
make_target(struct target *t, const struct port *port)
{
	struct rte_eth_dev_info info;

	memset(t, 0, sizeof(*t));
	t->actions[1].type = RTE_FLOW_ACTION_TYPE_END;
	if (port->rx_queues == 1 || rte_eth_dev_info_get(port->device, &info)) {
		t->actions[0] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &t->queue};
		return;
	}
	t->rss.types = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
	t->rss.queue_num = RTE_MIN(port->rx_queues, (uint32_t)UINT8_MAX);
	t->rss.queue = t->queues;
	for (uint16_t q = 0; q < t->rss.queue_num; q++)
		t->queues[q] = q;
	t->actions[0] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &t->rss};
}

static const char *
driver_of(const struct port *port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port->device, &info) ? "?" : info.driver_name;
}

static int
refused(const struct port *port, int error, const struct rte_flow_error *why, struct fault *f)
{
	if (error == -ENOSYS)
		return fault(f, ENOTSUP,
			"steering: the driver %s has no flow rules; leave it out, and give each data plane a virtual "
			"function, a "
			"macvlan or queues of its own",
			driver_of(port));
	return fault(f, device_errno(error), "steering: the driver %s does not take a rule (%s)", driver_of(port),
		why->message ? why->message : strerror(-error));
}

static int
make_flow(struct port *port, unsigned priority, const struct rte_flow_item *items,
	const struct rte_flow_action *actions, struct rte_flow **flow, struct fault *f)
{
	const struct rte_flow_attr attributes = {.priority = priority, .ingress = 1};
	struct rte_flow_error why = {0};
	int error = rte_flow_validate(port->device, &attributes, items, actions, &why);

	if (error)
		return refused(port, error, &why, f);
	*flow = rte_flow_create(port->device, &attributes, items, actions, &why);
	return *flow ? 0 : refused(port, rte_errno ? -rte_errno : -EIO, &why, f);
}

static int
make_rule(struct port *port, struct rule *rule, const struct target *target, struct fault *f)
{
	struct pattern pattern;

	make_pattern(&pattern, &rule->match);
	return make_flow(port, 0, pattern.items, target->actions, &rule->flow, f);
}

// Frames that match no rule, if the device cannot drop them.
static int
make_rest(struct port *port, struct rte_flow **flow, struct fault *f)
{
	const struct rte_flow_item items[] = {{.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_END}};
	const struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_DROP}, {.type = RTE_FLOW_ACTION_TYPE_END}};

	return make_flow(port, 1, items, actions, flow, f);
}

static void
destroy(const struct port *port, struct rte_flow *flow)
{
	struct rte_flow_error why;

	if (flow)
		rte_flow_destroy(port->device, flow, &why);
}

static struct rule *
find(struct steering *s, const struct match *m)
{
	for (unsigned i = 0; s && i < s->count; i++)
		if (memcmp(&s->rules[i].match, m, sizeof(*m)) == 0)
			return &s->rules[i];
	return NULL;
}

// Rules that are there already stay as they are.
static int
make_rules(struct port *port, struct steering *fresh, struct steering *old, struct fault *f)
{
	struct target target;
	int error = 0;

	make_target(&target, port);
	for (unsigned i = 0; i < fresh->count && !error; i++) {
		const struct rule *same = find(old, &fresh->rules[i].match);

		if (same)
			fresh->rules[i].flow = same->flow;
		else
			error = make_rule(port, &fresh->rules[i], &target, f);
	}
	if (!error && old && old->rest)
		fresh->rest = old->rest;
	else if (!error && !fresh->isolated)
		error = make_rest(port, &fresh->rest, f);
	return error;
}

// Rules of the first that the second does not have.
static void
destroy_rules(const struct port *port, struct steering *s, struct steering *but)
{
	for (unsigned i = 0; i < s->count; i++)
		if (!find(but, &s->rules[i].match))
			destroy(port, s->rules[i].flow);
	if (!but)
		destroy(port, s->rest);
}

int
steering_open(struct port *port, const Sluice__V1__Port *spec, struct fault *f)
{
	struct rte_flow_error why;
	int error = parse(spec, &port->steering, f);

	if (error || !port->steering)
		return error;
	port->steering->isolated = rte_flow_isolate(port->device, 1, &why) == 0;
	// None of them is in the device yet.
	port->steering->count = 0;
	return 0;
}

static int
replace(struct port *port, struct steering *fresh, struct fault *f)
{
	struct steering *old = port->steering;
	int error;

	fresh->isolated = old->isolated;
	error = make_rules(port, fresh, old, f);
	if (error) {
		destroy_rules(port, fresh, old);
		free(fresh);
		return error;
	}
	destroy_rules(port, old, fresh);
	port->steering = fresh;
	free(old);
	return 0;
}

// With the device stopped for a moment, which the call requires.
static int
isolate(struct port *port, bool requested, bool *isolated, struct fault *f)
{
	struct rte_flow_error why;
	int stopped, error;

	rx_detach(port);
	__atomic_store_n(&port->sends, false, __ATOMIC_RELEASE);
	rcu_wait();
	stopped = rte_eth_dev_stop(port->device);
	if (stopped == 0) {
		*isolated = rte_flow_isolate(port->device, requested, &why) == 0 && requested;
		error = rte_eth_dev_start(port->device);
		if (error)
			return fault(f, device_errno(error), "steering: the device does not start again (%s)",
				strerror(-error));
	}
	// Queues that did not stop continue.
	__atomic_store_n(&port->sends, true, __ATOMIC_RELEASE);
	if (rx_attach(port))
		return fault(f, ENOMEM, "steering: there is no memory for its queues");
	return stopped == 0 ? 0
			    : fault(f, device_errno(stopped), "steering: the device does not stop for it (%s)",
				      strerror(-stopped));
}

static int
begin(struct port *port, struct steering *fresh, struct fault *f)
{
	const struct rte_flow_attr attributes = {.ingress = 1};
	struct steering *none = calloc(1, sizeof(*none));
	struct rte_flow_error why = {0};
	struct pattern pattern;
	struct target target;
	int error;

	make_pattern(&pattern, &fresh->rules[0].match);
	make_target(&target, port);
	// A device that has no rules at all is not stopped for that.
	error = rte_flow_validate(port->device, &attributes, pattern.items, target.actions, &why);
	if (error == -ENOSYS)
		error = refused(port, error, &why, f);
	else
		error = none ? isolate(port, true, &none->isolated, f)
			     : fault(f, ENOMEM, "steering: there is no memory for its rules");
	if (error) {
		free(fresh);
		free(none);
		return error;
	}
	port->steering = none;
	error = replace(port, fresh, f);
	if (error) {
		struct fault unheard;
		bool isolated = none->isolated;

		steering_close(port);
		if (isolated)
			isolate(port, false, &isolated, &unheard);
	}
	return error;
}

int
steering_put(struct port *port, const Sluice__V1__Port *spec, struct fault *f)
{
	struct steering *fresh;
	bool isolated;
	int error = parse(spec, &fresh, f);

	if (error || (!fresh && !port->steering))
		return error;
	if (fresh)
		return port->steering ? replace(port, fresh, f) : begin(port, fresh, f);
	isolated = port->steering->isolated;
	steering_close(port);
	return isolated ? isolate(port, false, &isolated, f) : 0;
}

void
steering_close(struct port *port)
{
	if (!port->steering)
		return;
	destroy_rules(port, port->steering, NULL);
	free(port->steering);
	port->steering = NULL;
}
