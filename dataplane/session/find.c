// SPDX-License-Identifier: Apache-2.0
// Look-up of sessions for operators: by circuit from an index, by address from the routes. No table has learned Ethernet addresses and the
// addresses of sessions with a core: a look-up walks the records, a cache line or two each.
#include "session/find.h"

#include <errno.h>
#include <string.h>

#include "core/slab.h"
#include "fib/hop.h"
#include "fib/look_up_api.h"
#include "fib/vrf.h"
#include "server/api.h"
#include "session/record.h"

enum { BUCKET_BITS = 18 };

// By session; numbers are indexes plus one, 0 is none.
struct entry {
	struct circuit circuit;
	bool there;
	uint32_t next;
};

static struct entry *entries;
static uint32_t *buckets;

static bool
same(const struct circuit *a, const struct circuit *b)
{
	return a->port == b->port && a->outer_vlan == b->outer_vlan && a->inner_vlan == b->inner_vlan;
}

static uint32_t *
bucket_of(const struct circuit *c)
{
	uint64_t word = (uint64_t)c->port << 32 | (uint32_t)c->outer_vlan << 16 | c->inner_vlan;

	return &buckets[word * 0x9e3779b97f4a7c15u >> (64 - BUCKET_BITS)];
}

// Without memory for the index, this look-up finds nothing. Nothing else needs the index.
static bool
start(void)
{
	if (!entries)
		entries = slab_reserve(SESSION_LIMIT * sizeof(entries[0]));
	if (!buckets)
		buckets = slab_reserve((1u << BUCKET_BITS) * sizeof(buckets[0]));
	return entries && buckets;
}

static void
take_out(uint32_t index)
{
	uint32_t *link = bucket_of(&entries[index].circuit);

	while (*link != index + 1)
		link = &entries[*link - 1].next;
	*link = entries[index].next;
	entries[index].there = false;
}

void
session_index_add(uint32_t index, const struct circuit *circuit)
{
	struct entry *e;
	uint32_t *bucket;

	if (circuit->port == NO_PORT || !start())
		return;
	e = &entries[index];
	if (e->there)
		take_out(index);
	bucket = bucket_of(circuit);
	*e = (struct entry){.circuit = *circuit, .there = true, .next = *bucket};
	*bucket = index + 1;
}

void
session_index_remove(uint32_t index, const struct circuit *circuit)
{
	const struct session_detail *d = &session_details[index];

	if (!entries || !entries[index].there || !same(&entries[index].circuit, circuit))
		return;
	take_out(index);
	// It stays where it was if nothing came of a move.
	if (d->object && !same(&d->key.circuit, circuit))
		session_index_add(index, &d->key.circuit);
}

void
session_index_each(const struct circuit *circuit, void (*each)(uint32_t index, void *argument), void *argument)
{
	if (!start())
		return;
	for (uint32_t i = *bucket_of(circuit); i != 0; i = entries[i - 1].next)
		if (same(&entries[i - 1].circuit, circuit))
			each(i - 1, argument);
}

static void
add(uint32_t index, void *argument)
{
	struct session_found *found = argument;
	const struct object *object = session_object(index);

	if (object && found->count < SESSION_FOUND_MAX)
		found->names[found->count++] = object->name;
}

static void
find_mac(const struct rte_ether_addr *mac, struct session_found *found)
{
	uint64_t word = 0;

	memcpy(&word, mac, RTE_ETHER_ADDR_LEN);
	for (uint32_t i = 0; i < sessions.used; i++)
		if ((session_at(i)->seen << (64 - SESSION_MAC_BITS)) == word << (64 - SESSION_MAC_BITS))
			add(i, found);
}

static int
find_address(const char *vrf_name, const char *text, struct session_found *found, struct fault *f)
{
	uint8_t address[16], family;
	struct object *vrf_object;
	const struct fib *fib;
	uint32_t hop = 0;
	unsigned length;
	uint16_t vrf;
	int error;

	if (address_parse(text, address, &family))
		return fault(f, EINVAL, "address: \"%.64s\" is not an IP address", text);
	error = vrf_need(vrf_name, "vrf", &vrf, &vrf_object, f);
	if (error)
		return error;
	if (vrf_object)
		object_unuse(vrf_object);
	fib = vrf_fib(vrf, family);
	if (fib)
		hop = rib_find(&fib->rib, address, family == 4 ? 32 : 128);
	if (fib && hop == 0)
		hop = rib_cover(&fib->rib, address, family == 4 ? 32 : 128, &length);
	if (hop != 0 && hop_at(hop)->session != NO_SESSION) {
		add(hop_at(hop)->session, found);
		return 0;
	}
	for (uint32_t i = 0; i < sessions.used; i++)
		if (session_details[i].has_core && session_details[i].object && session_at(i)->vrf == vrf &&
			!(session_at(i)->flags & SESSION_ANY_SOURCE) && session_holds(i, family, address))
			add(i, found);
	return 0;
}

int
session_search(const Sluice__V1__SessionSearch *query, struct session_found *found, struct fault *f)
{
	struct rte_ether_addr mac;
	struct circuit circuit = {.outer_vlan = (uint16_t)query->outer_vlan, .inner_vlan = (uint16_t)query->inner_vlan};
	struct object *port;
	int error;

	if ((query->address[0] != '\0') + (query->mac[0] != '\0') + (query->port[0] != '\0') != 1)
		return fault(f, EINVAL, "say one of: address, mac, port");
	if (query->address[0] != '\0')
		return find_address(query->vrf, query->address, found, f);
	if (query->mac[0] != '\0') {
		if (rte_ether_unformat_addr(query->mac, &mac) || rte_is_zero_ether_addr(&mac))
			return fault(f, EINVAL, "mac: \"%.64s\" is not an Ethernet address", query->mac);
		find_mac(&mac, found);
		return 0;
	}
	if (query->outer_vlan > 4094 || query->inner_vlan > 4094)
		return fault(f, EINVAL, "outer_vlan, inner_vlan: 0 to 4094 are accepted");
	error = object_need(&port_kind, query->port, "port", &port, f);
	if (error)
		return error;
	circuit.port = port_of(port)->id;
	session_index_each(&circuit, add, found);
	return 0;
}

static void
serve_session_search(struct api_call *call, const void *query)
{
	Sluice__V1__SessionNames answer = SLUICE__V1__SESSION_NAMES__INIT;
	struct session_found *found = api_memory(call, 1, sizeof(*found));
	struct fault f;
	int error;

	if (!found)
		return;
	error = session_search(query, found, &f);
	if (error) {
		api_fail(call, error, f.text);
		return;
	}
	answer.sessions = found->names;
	answer.n_sessions = found->count;
	api_answer(call, &answer.base);
}

STATE_QUERY(session_search_query, sluice__v1__session_search__descriptor, serve_session_search)

static void
tell(uint32_t hop, Sluice__V1__LookedUpHop *row, struct hop_texts *texts)
{
	uint32_t session = hop_at(hop)->session;
	const struct object *object = session == NO_SESSION ? NULL : session_object(session);

	RTE_SET_USED(texts);
	if (object)
		row->session = object->name;
}

static struct hop_describer teller = {.tell = tell};
HOP_DESCRIBER_REGISTER(teller)
