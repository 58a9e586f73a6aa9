// SPDX-License-Identifier: Apache-2.0
// The kind Punt, and frames of circuits without an interface or a session.
#include "punt/circuit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_ether.h>

#include "core/drop.h"
#include "core/punt_watch.h"
#include "core/rcu.h"
#include "core/slab.h"
#include "ether/unknown.h"
#include "punt/table.h"

DROP(drop_rate, "punt-circuit-rate-limited",
	"More packets of circuits without a session than the rates of their Punt, of their circuit and of their MAC "
	"allow.")

uint16_t
punt_from_circuit(struct rte_mbuf *m, struct packet *p, const struct punt_protocol *protocol)
{
	const struct punt_rule *rule =
		protocol ? punt_find(p->port, p->outer_vlan, p->inner_vlan, protocol->number) : NULL;
	struct fair_source source = {
		.where = (uint64_t)p->port << 32 | (uint32_t)p->outer_vlan << 16 | p->inner_vlan, .shared = true};
	struct fair_limit limit;
	bool quiet;

	p->session = NO_SESSION;
	p->interface = NO_INTERFACE;
	if (!rule)
		return packet_drop(p, &ether_unknown_circuit);
	memcpy(&source.who, rte_pktmbuf_mtod(m, const uint8_t *) - p->l2_length + RTE_ETHER_ADDR_LEN,
		RTE_ETHER_ADDR_LEN);
	limit = fair_limit(rule->rate, rule->each);
	// As that of a source, it is not divided by workers: the frames of a circuit mostly arrive in one queue.
	limit.place = rule->circuit ? RTE_MIN(rule->circuit, RTE_MAX(limit.total / 2, 1u)) : 0;
	if (!fair_spend_at(&rule->limits[worker_self()->index], limit, &source, rte_rdtsc(), rte_get_tsc_hz(), &quiet))
		return packet_drop(p, &drop_rate);
	return packet_punt(p, protocol->reason);
}

static uint16_t
circuit_punt(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t start = 0; start < count; start = (uint16_t)(start + BURST)) {
		uint16_t part = (uint16_t)RTE_MIN(count - start, BURST), next[BURST];

		for (uint16_t i = 0; i < part; i++) {
			struct rte_mbuf *m = packets[start + i];
			struct packet *p = packet_of(m);
			const struct punt_protocol *protocol =
				punt_protocol_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, p->l2_length);

			packet_advance(m, p->l2_length);
			next[i] = punt_from_circuit(m, p, protocol);
		}
		node_dispatch(graph, node, packets + start, next, part);
	}
	return count;
}

static void
circuit_punt_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct punt_protocol *protocol = punt_protocol_of(data, (uint32_t)length, p->l2_length);
	const struct punt_rule *rule =
		protocol ? punt_find(p->port, p->outer_vlan, p->inner_vlan, protocol->number) : NULL;

	if (!protocol)
		snprintf(text, size, "nothing that a Punt takes");
	else if (!rule)
		snprintf(text, size, "%s: no Punt takes it from here", protocol->name);
	else
		snprintf(text, size, "%s: Punt %.63s", protocol->name, rule->object->name);
}

struct node circuit_punt_node = {.name = "circuit-punt",
	.process = circuit_punt,
	.describe = circuit_punt_describe,
	.edges = NODE_EDGES(&punt_node)};
NODE_REGISTER(circuit_punt_node)

// ---- The kind

static size_t
limits_size(void)
{
	return (worker_count + 1) * sizeof(struct fair_rate);
}

static void
release(void *rule)
{
	slab_unreserve(((struct punt_rule *)rule)->limits, limits_size());
	free(rule);
}

static int
put(struct object *object, const void *spec_, const void *old_, struct fault *f)
{
	const Sluice__V1__Punt *spec = spec_;
	struct punt_rule *old = old_ ? object->state : NULL, *rule = calloc(1, sizeof(*rule));
	struct object *port = NULL;
	int error;

	if (!rule)
		return fault(f, ENOMEM, "Punt %.63s: there is no memory for it", object->name);
	error = punt_parse(object->name, spec, rule, f);
	if (error == 0)
		error = object_need(&port_kind, spec->port, "port", &port, f);
	if (error == 0 && !port)
		error = fault(f, EINVAL, "Punt %.63s, port: it must name a Port", object->name);
	if (error == 0 && old && port_of(port)->id != old->port)
		error = fault(f, EINVAL, "Punt %.63s, port: it cannot be changed; delete the Punt and create it again",
			object->name);
	if (error) {
		free(rule);
		return error;
	}
	rule->object = object;
	rule->port = port_of(port)->id;
	rule->limits = old ? old->limits : slab_reserve(limits_size());
	if (!rule->limits) {
		free(rule);
		return fault(f, ENOMEM, "Punt %.63s: there is no memory for its rate limits", object->name);
	}
	error = punt_table_change(old, rule, f);
	if (error) {
		if (old)
			free(rule);
		else
			release(rule);
		return error;
	}
	object->state = rule;
	if (old)
		rcu_retire(free, old);
	else
		object_use(port);
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct punt_rule *rule = object->state;
	int error = punt_table_change(rule, NULL, f);

	if (error)
		return error;
	object_unuse(ports[rule->port].object);
	rcu_retire(release, rule);
	return 0;
}

static int
start(void)
{
	int error = punt_protocols_start();

	if (error)
		return error;
	ether_unknown_register(&circuit_punt_node);
	return 0;
}

static struct kind punt_kind = {
	.name = "Punt", .spec = &sluice__v1__punt__descriptor, .put = put, .delete = delete, .start = start};
KIND_REGISTER(punt_kind)
