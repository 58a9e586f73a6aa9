// SPDX-License-Identifier: Apache-2.0
// Paths: sets of next hops that routes share.
#include "fib/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "core/packet.h"
#include "core/rcu.h"
#include "fib/hop.h"
#include "fib/spread.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "port/port.h"

enum { BUCKETS_SMALLEST = 256, NO_PATH = UINT32_MAX };

struct member {
	struct next_hop next_hop;
	const struct next_hop_type *type;
	uint32_t interface; // that it is reached by, or NO_INTERFACE
	uint32_t hop;       // the type's; 0: it is not reached
};

struct path {
	uint32_t users;
	uint32_t hop;
	uint32_t next; // of the same bucket, or NO_PATH
	uint32_t count;
	uint64_t hash;
	_Atomic uint32_t *slots; // of a hop of its own: the hop's table, and whose each slot is
	uint8_t *owners;
	uint8_t *homes; // and whose it is when all can be used: they come back to their flows
	bool single;    // made by path_make(): in no bucket, with room for all members
	uint16_t vrf;
	uint8_t family;
	bool moved;
	struct member members[];
};

static struct path **paths; // by number; NULL: free
static uint32_t paths_used, paths_room;
static uint32_t *unused;
static uint32_t unused_count;
static uint32_t *buckets;
static uint32_t bucket_mask, path_count;
// Next hops without an interface of their own, and paths of several: only these ever change by themselves.
static uint32_t floating, spreads;

static inline uint64_t
mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

static uint64_t
hash_of(uint16_t vrf, uint8_t family, const struct next_hop *hops, unsigned count)
{
	uint64_t h = (uint64_t)vrf << 8 | family;

	for (unsigned i = 0; i < count; i++) {
		uint64_t words[3] = {[2] = (uint64_t)hops[i].interface << 8 | hops[i].weight};

		memcpy(words, hops[i].address, 16);
		for (unsigned k = 0; k < RTE_DIM(words); k++)
			h = mix(h, words[k]);
		for (size_t k = 0; hops[i].part && k < hops[i].type->size; k++)
			h = mix(h, ((const uint8_t *)hops[i].part)[k]);
	}
	return h;
}

static bool
same(const struct path *path, uint16_t vrf, uint8_t family, const struct next_hop *hops, unsigned count)
{
	if (path->vrf != vrf || path->family != family || path->count != count)
		return false;
	for (unsigned i = 0; i < count; i++) {
		const struct next_hop *n = &path->members[i].next_hop;

		if (!next_hop_equal(n, &hops[i]) || n->weight != hops[i].weight)
			return false;
	}
	return true;
}

static const char *
text_of(uint8_t family, const uint8_t *address, char text[INET6_ADDRSTRLEN])
{
	const char *t = inet_ntop(family == 4 ? AF_INET : AF_INET6, address, text, INET6_ADDRSTRLEN);

	return t ? t : "";
}

static uint32_t
way_to(const struct path *path, const struct member *member)
{
	if (member->next_hop.interface != NO_INTERFACE || next_hop_is_elsewhere(&member->next_hop))
		return member->next_hop.interface;
	return vrf_connected(path->vrf, path->family, member->next_hop.address);
}

// The member's hop on the interface found for it.
static int
reach(const struct path *path, struct member *member, uint32_t interface, struct fault *f)
{
	const struct next_hop_type *type = member->next_hop.type;
	bool elsewhere = next_hop_is_elsewhere(&member->next_hop);
	char text[INET6_ADDRSTRLEN];
	uint32_t hop;

	if (interface == NO_INTERFACE && !elsewhere)
		return fault(f, ENOENT, "nextHops: no network of an interface in this VRF holds %s",
			text_of(path->family, member->next_hop.address, text));
	if (!elsewhere && interface_at(interface)->link == INTERFACE_LOOPBACK)
		return fault(f, EINVAL, "nextHops: the interface is a loopback; name one that has a port");
	if (!type)
		type = next_hop_type_of(&member->next_hop, interface);
	else if (!elsewhere && type->takes && !type->takes(&member->next_hop, interface))
		return fault(f, EINVAL, "nextHops: a %s does not lead to %s by this interface; name another interface",
			type->name, text_of(path->family, member->next_hop.address, text));
	member->type = type;
	if (!type)
		return fault(f, EINVAL, "nextHops: no type of next hop leads to %s by this interface",
			text_of(path->family, member->next_hop.address, text));
	hop = member->type->hop(interface, path->family, &member->next_hop);
	if (hop == UINT32_MAX)
		return fault(f, ENOSPC, "nextHops: there is no room for another %s", member->type->name);
	member->interface = interface;
	member->hop = hop;
	return 0;
}

static void
release_member(const struct member *member)
{
	if (member->hop != 0 && member->type->release)
		member->type->release(member->hop);
}

// Its link is up, and it is not known to be silent.
static bool
is_up(const struct member *member)
{
	return member->hop && (member->interface == NO_INTERFACE || interface_is_up(member->interface)) &&
	       !(member->type->silent && member->type->silent(member->hop));
}

// Give the slots to the next hops that can be used: those that are up or, if there is none, those that are reached.
static void
spread_out(struct path *path, unsigned slots)
{
	uint8_t up[PATH_MEMBERS], reached[PATH_MEMBERS];
	unsigned any_up = 0, any_reached = 0;

	for (unsigned i = 0; i < path->count; i++) {
		const struct member *m = &path->members[i];

		reached[i] = m->hop ? m->next_hop.weight : 0;
		up[i] = is_up(m) ? m->next_hop.weight : 0;
		any_reached |= reached[i];
		any_up |= up[i];
	}
	if (any_reached != 0)
		spread_assign(path->owners, path->homes, slots, any_up != 0 ? up : reached, path->count);
	for (unsigned i = 0; i < slots; i++)
		atomic_store_explicit(&path->slots[i],
			any_reached != 0 ? path->members[path->owners[i]].hop : hop_unreachable(),
			memory_order_release);
}

static unsigned
weights_of(const struct path *path, uint8_t weights[PATH_MEMBERS])
{
	for (unsigned i = 0; i < path->count; i++)
		weights[i] = path->members[i].next_hop.weight;
	return spread_bits(weights, path->count);
}

static int
make_spread(struct path *path, struct fault *f)
{
	uint8_t weights[PATH_MEMBERS];
	unsigned bits = weights_of(path, weights), index;

	path->slots = calloc(1u << bits, sizeof(path->slots[0]));
	path->owners = malloc(1u << bits);
	path->homes = malloc(1u << bits);
	index = path->slots && path->owners && path->homes ? hop_new(HOP_SPREAD) : UINT32_MAX;
	if (index == UINT32_MAX)
		return fault(f, ENOMEM, "nextHops: there is no room for a hop of its own");
	memset(path->homes, SPREAD_NOBODY, 1u << bits);
	spread_assign(path->homes, NULL, 1u << bits, weights, path->count);
	memcpy(path->owners, path->homes, 1u << bits);
	hop_at(index)->spread_bits = (uint8_t)bits;
	hop_at(index)->spread = path->slots;
	path->hop = index;
	spread_out(path, 1u << bits);
	spreads++;
	return 0;
}

static void
free_slots(void *slots)
{
	free(slots);
}

static void
release_members(struct member *members, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct member *m = &members[i];

		release_member(m);
		floating -= m->next_hop.interface == NO_INTERFACE;
		next_hop_unuse(&m->next_hop);
	}
}

// A path that no route uses, wholly or partly made.
static void
destroy(struct path *path)
{
	if (path->slots && path->hop != 0) {
		hop_retire(path->hop);
		rcu_retire(free_slots, (void *)path->slots);
		spreads--;
	} else {
		free((void *)path->slots);
	}
	free(path->owners);
	free(path->homes);
	release_members(path->members, path->count);
	free(path);
}

// Put members into the path, a user of each of their hops. `path->count` counts those that release_members() gives back, also after
// an error.
static int
take_members(struct path *path, const struct next_hop *hops, unsigned count, struct fault *f)
{
	int error = 0;

	path->count = count;
	for (unsigned i = 0; i < count; i++) {
		path->members[i] = (struct member){.interface = NO_INTERFACE};
		floating += hops[i].interface == NO_INTERFACE;
		if (next_hop_use(&path->members[i].next_hop, &hops[i]))
			error = fault(f, ENOMEM, "nextHops: there is no memory for them");
	}
	for (unsigned i = 0; i < count && error == 0; i++) {
		uint32_t way = way_to(path, &path->members[i]);

		if (way != NO_INTERFACE || !path->single || next_hop_is_elsewhere(&hops[i]))
			error = reach(path, &path->members[i], way, f);
	}
	return error;
}

static struct path *
make(uint16_t vrf, uint8_t family, const struct next_hop *hops, unsigned count, bool single, struct fault *f)
{
	struct path *path = calloc(1, sizeof(*path) + (single ? PATH_MEMBERS : count) * sizeof(path->members[0]));
	int error = path ? 0 : fault(f, ENOMEM, "nextHops: there is no memory for them");

	if (error)
		return NULL;
	*path = (struct path){
		.vrf = vrf, .family = family, .hash = hash_of(vrf, family, hops, count), .single = single};
	error = take_members(path, hops, count, f);
	if (error == 0 && (count > 1 || single))
		error = make_spread(path, f);
	else if (error == 0)
		path->hop = path->members[0].hop;
	if (error == 0)
		return path;
	destroy(path);
	errno = -error;
	return NULL;
}

static int
rehash(void)
{
	uint32_t size = buckets ? 4 * (bucket_mask + 1) : BUCKETS_SMALLEST;
	uint32_t *grown = malloc(size * sizeof(grown[0]));

	if (!grown)
		return -ENOMEM;
	memset(grown, 0xff, size * sizeof(grown[0]));
	for (uint32_t i = 0; i < paths_used; i++) {
		if (!paths[i] || paths[i]->single)
			continue;
		paths[i]->next = grown[paths[i]->hash & (size - 1)];
		grown[paths[i]->hash & (size - 1)] = i;
	}
	free(buckets);
	buckets = grown;
	bucket_mask = size - 1;
	return 0;
}

// Room for one more path and its number.
static int
roomy(void)
{
	if (unused_count == 0 && paths_used == paths_room) {
		uint32_t room = paths_room ? 2 * paths_room : 64;
		struct path **grown = realloc(paths, room * sizeof(grown[0]));
		uint32_t *list;

		if (!grown)
			return -ENOMEM;
		paths = grown;
		list = realloc(unused, room * sizeof(list[0]));
		if (!list)
			return -ENOMEM;
		unused = list;
		paths_room = room;
	}
	return !buckets || path_count > bucket_mask ? rehash() : 0;
}

static uint32_t
number_for(struct path *path)
{
	uint32_t number = unused_count > 0 ? unused[--unused_count] : paths_used++;

	path->users = 1;
	paths[number] = path;
	return number;
}

int
path_take(uint16_t vrf, uint8_t family, const struct next_hop *next_hops, unsigned count, uint32_t *number,
	struct fault *f)
{
	uint64_t hash = hash_of(vrf, family, next_hops, count);
	struct path *path;

	if (roomy())
		return fault(f, ENOMEM, "nextHops: there is no memory for them");
	for (uint32_t i = buckets[hash & bucket_mask]; i != NO_PATH; i = paths[i]->next) {
		if (paths[i]->hash != hash || !same(paths[i], vrf, family, next_hops, count))
			continue;
		paths[i]->users++;
		*number = i;
		return 0;
	}
	errno = ENOMEM;
	path = make(vrf, family, next_hops, count, false, f);
	if (!path)
		return -errno;
	*number = number_for(path);
	path->next = buckets[hash & bucket_mask];
	buckets[hash & bucket_mask] = *number;
	path_count++;
	return 0;
}

int
path_make(uint16_t vrf, uint8_t family, const struct next_hop *next_hops, unsigned count, uint32_t *number,
	struct fault *f)
{
	struct path *path;

	if (roomy())
		return fault(f, ENOMEM, "nextHops: there is no memory for them");
	errno = ENOMEM;
	path = make(vrf, family, next_hops, count, true, f);
	if (!path)
		return -errno;
	*number = number_for(path);
	return 0;
}

// Whose each of `slots` slots of the changed path is: the member's that it was, by its new number.
static void
renumber(uint8_t *to, unsigned slots, const uint8_t *from, unsigned from_slots, const uint8_t number[PATH_MEMBERS])
{
	for (unsigned i = 0; i < slots; i++) {
		uint8_t owner = from[i & (from_slots - 1)];

		to[i] = owner == SPREAD_NOBODY ? owner : number[owner];
	}
}

// The hop's table for the path's members, which were `before`. It only ever grows: a worker that reads the hop's old size finds all of
// its slots in the new table.
static int
change_spread(struct path *path, const struct member *before, unsigned before_count, struct fault *f)
{
	struct hop *hop = hop_at(path->hop);
	uint8_t weights[PATH_MEMBERS], number[PATH_MEMBERS];
	unsigned bits = RTE_MAX(weights_of(path, weights), (unsigned)hop->spread_bits);
	unsigned slots = 1u << bits, old_slots = 1u << hop->spread_bits;
	_Atomic uint32_t *old_table = path->slots;
	uint8_t *owners = malloc(slots), *homes = malloc(slots);
	_Atomic uint32_t *table = bits == hop->spread_bits ? old_table : calloc(slots, sizeof(table[0]));

	if (!owners || !homes || !table) {
		free(owners);
		free(homes);
		if (table != old_table)
			free((void *)table);
		return fault(f, ENOMEM, "nextHops: there is no memory for them");
	}
	for (unsigned i = 0; i < before_count; i++) {
		number[i] = SPREAD_NOBODY;
		for (unsigned k = 0; k < path->count; k++)
			if (next_hop_equal(&before[i].next_hop, &path->members[k].next_hop))
				number[i] = (uint8_t)k;
	}
	renumber(owners, slots, path->owners, old_slots, number);
	renumber(homes, slots, path->homes, old_slots, number);
	spread_assign(homes, NULL, slots, weights, path->count);
	free(path->owners);
	free(path->homes);
	path->owners = owners;
	path->homes = homes;
	path->slots = table;
	spread_out(path, slots);
	if (table == old_table)
		return 0;
	__atomic_store_n(&hop->spread, table, __ATOMIC_RELEASE);
	rcu_wait();
	__atomic_store_n(&hop->spread_bits, (uint8_t)bits, __ATOMIC_RELEASE);
	free((void *)old_table);
	return 0;
}

int
path_change(uint32_t number, const struct next_hop *next_hops, unsigned count, struct fault *f)
{
	struct path *path = paths[number];
	unsigned before_count = path->count;
	struct member before[PATH_MEMBERS];
	int error;

	memcpy(before, path->members, before_count * sizeof(before[0]));
	error = take_members(path, next_hops, count, f);
	if (error == 0)
		error = change_spread(path, before, before_count, f);
	if (error) {
		release_members(path->members, path->count);
		memcpy(path->members, before, before_count * sizeof(before[0]));
		path->count = before_count;
		return error;
	}
	release_members(before, before_count);
	return 0;
}

void
path_use(uint32_t number)
{
	paths[number]->users++;
}

uint32_t
path_users(uint32_t number)
{
	return paths[number]->users;
}

void
path_release(uint32_t number)
{
	struct path *path = paths[number];

	if (--path->users > 0)
		return;
	if (!path->single) {
		uint32_t *link = &buckets[path->hash & bucket_mask];

		while (*link != number)
			link = &paths[*link]->next;
		*link = path->next;
		path_count--;
	}
	paths[number] = NULL;
	unused[unused_count++] = number;
	destroy(path);
}

uint32_t
path_hop(uint32_t number)
{
	return paths[number]->hop;
}

bool
path_moved(uint32_t number)
{
	return paths[number]->moved;
}

static bool
within(const struct next_hop *n, uint8_t family, const struct interface_address *networks, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned differs = 0;

		for (unsigned b = 0; b < (family == 4 ? 4 : 16); b++)
			differs |= (n->address[b] ^ networks[i].bytes[b]) & prefix_mask(networks[i].length, b);
		if (networks[i].family == family && differs == 0)
			return true;
	}
	return false;
}

// Members whose hop is exchanged have the old one in `*old` until nothing leads there.
static unsigned
reach_again(
	struct path *path, const struct interface_address *networks, unsigned count, struct member old[PATH_MEMBERS])
{
	unsigned exchanged = 0;
	struct fault ignored;

	for (unsigned i = 0; i < path->count; i++) {
		struct member *m = &path->members[i];
		uint32_t interface;

		if (m->next_hop.interface != NO_INTERFACE || next_hop_is_elsewhere(&m->next_hop) ||
			!within(&m->next_hop, path->family, networks, count))
			continue;
		interface = way_to(path, m);
		if (interface == m->interface && m->hop != 0)
			continue;
		old[exchanged++] = *m;
		m->interface = NO_INTERFACE;
		m->hop = 0;
		reach(path, m, interface, &ignored);
	}
	return exchanged;
}

void
path_refresh(const struct interface_address *networks, unsigned count)
{
	struct member *old = NULL, some[PATH_MEMBERS];
	size_t old_count = 0, old_room = 0;
	bool any_moved = false;

	if (count > 0 ? floating == 0 : spreads == 0)
		return;
	for (uint32_t i = 0; i < paths_used; i++) {
		struct path *path = paths[i];
		unsigned exchanged;

		if (!path || (count == 0 && !path->slots))
			continue;
		exchanged = reach_again(path, networks, count, some);
		if (path->slots) {
			if (exchanged > 0 || count == 0)
				spread_out(path, 1u << hop_at(path->hop)->spread_bits);
		} else if (exchanged > 0) {
			path->hop = path->members[0].hop ? path->members[0].hop : hop_unreachable();
			path->moved = true;
			any_moved = true;
		}
		if (old_count + exchanged > old_room) {
			size_t room = 2 * (old_count + exchanged) + 64;
			struct member *grown = realloc(old, room * sizeof(old[0]));

			// Without memory the old neighbours stay for ever, unused.
			if (!grown)
				continue;
			old = grown;
			old_room = room;
		}
		if (exchanged > 0)
			memcpy(old + old_count, some, exchanged * sizeof(some[0]));
		old_count += exchanged;
	}
	if (any_moved)
		routes_follow();
	for (uint32_t i = 0; i < paths_used && any_moved; i++)
		if (paths[i])
			paths[i]->moved = false;
	for (size_t i = 0; i < old_count; i++)
		release_member(&old[i]);
	free(old);
}
