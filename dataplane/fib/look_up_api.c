// SPDX-License-Identifier: Apache-2.0
// The API's look-up of a route: where packets to an address go.
#include "fib/look_up_api.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>

#include "core/drop.h"
#include "core/packet.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/next_hop.h"
#include "fib/vrf.h"
#include "server/api.h"

static struct hop_describer *describers;

void
hop_describer_register(struct hop_describer *teller)
{
	teller->next = describers;
	describers = teller;
}

static const char *const actions[HOP_KINDS] = {
	[HOP_NONE] = "unreachable",
	[HOP_FORWARD] = "forward",
	[HOP_RESOLVE] = "forward",
	[HOP_LOCAL] = "local",
	[HOP_DROP] = "drop",
	[HOP_PROHIBIT] = "prohibit",
	[HOP_SPREAD] = "forward",
};

static void
add_hop(struct route_answer *a, uint32_t index, uint32_t share)
{
	const struct hop *hop = hop_at(index);
	size_t n = a->answer.n_next_hops++;
	Sluice__V1__LookedUpHop *row = &a->rows[n];
	const struct object *interface =
		hop->interface < INTERFACE_LIMIT ? interface_detail(hop->interface)->object : NULL;

	sluice__v1__looked_up_hop__init(row);
	row->share = share;
	if (interface)
		row->interface = interface->name;
	for (struct hop_describer *t = describers; t; t = t->next)
		t->tell(index, row, &a->texts[n]);
	a->list[n] = row;
}

// Each hop of a spread once, with its share of the slots.
static void
add_spread(struct route_answer *a, const struct hop *spread)
{
	unsigned slots = 1u << spread->spread_bits, counts[RTE_DIM(a->rows)] = {0}, known = 0;
	uint32_t members[RTE_DIM(a->rows)];

	for (unsigned i = 0; i < slots; i++) {
		uint32_t member = atomic_load_explicit(&spread->spread[i], memory_order_relaxed);
		unsigned k = 0;

		while (k < known && members[k] != member)
			k++;
		if (k == RTE_DIM(members))
			continue;
		if (k == known)
			members[known++] = member;
		counts[k]++;
	}
	for (unsigned k = 0; k < known; k++)
		add_hop(a, members[k], (1000 * counts[k] + slots / 2) / slots);
}

int
route_look_up(const char *vrf_name, const char *text, struct route_answer *a, struct fault *f)
{
	uint8_t address[16], family;
	unsigned bits, length;
	struct object *vrf_object;
	const struct fib *fib;
	const struct hop *hop;
	uint32_t index;
	uint16_t vrf;
	int error;

	memset(a, 0, sizeof(*a));
	sluice__v1__route_look_up__init(&a->answer);
	a->answer.next_hops = a->list;
	if (address_parse(text, address, &family))
		return fault(f, EINVAL, "address: \"%.64s\" is not an IP address", text);
	error = vrf_need(vrf_name, "vrf", &vrf, &vrf_object, f);
	if (error)
		return error;
	if (vrf_object)
		object_unuse(vrf_object);
	a->answer.vrf = vrf_object ? vrf_object->name : (char *)"default";
	fib = vrf_fib(vrf, family);
	bits = length = family == 4 ? 32 : 128;
	index = fib ? rib_find(&fib->rib, address, bits) : 0;
	if (fib && index == 0)
		index = rib_cover(&fib->rib, address, bits, &length);
	if (index == 0) {
		a->answer.action = (char *)actions[HOP_NONE];
		return 0;
	}
	for (unsigned i = 0; i < sizeof(address); i++)
		address[i] &= prefix_mask(length, i);
	inet_ntop(family == 4 ? AF_INET : AF_INET6, address, a->prefix, INET6_ADDRSTRLEN);
	snprintf(a->prefix + strlen(a->prefix), 5, "/%u", length);
	a->answer.prefix = a->prefix;
	hop = hop_at(index);
	a->answer.action = (char *)(hop->session != NO_SESSION ? "session" : actions[hop->kind]);
	if (hop->kind == HOP_DROP)
		a->answer.drop = (char *)drop_by_id(hop->drop)->name;
	else if (hop->kind == HOP_SPREAD)
		add_spread(a, hop);
	else if (hop->kind != HOP_NONE && hop->kind != HOP_PROHIBIT)
		add_hop(a, index, 1000);
	return 0;
}

static void
serve_route_look_up(struct api_call *call, const void *asked)
{
	const Sluice__V1__RouteLookUpQuery *query = asked;
	struct route_answer *a = api_memory(call, 1, sizeof(*a));
	struct fault f;
	int error;

	if (!a)
		return;
	error = route_look_up(query->vrf, query->address, a, &f);
	if (error)
		api_fail(call, error, f.text);
	else
		api_answer(call, &a->answer.base);
}

STATE_QUERY(route_look_up_query, sluice__v1__route_look_up_query__descriptor, serve_route_look_up)
