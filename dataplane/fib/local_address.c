// SPDX-License-Identifier: Apache-2.0
// Local addresses, those of our interfaces, by VRF and family: lists that readers may walk at any time.
//
// A list only grows; the place of a deleted address is reused. A reader compares each place's generation before and after
// its contents, so it never mixes two addresses.
#include "fib/local_address.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/local_address_source.h"
#include "fib/vrf.h"
#include "inet/header.h"

struct local_address {
	_Atomic uint64_t address[2];
	_Atomic uint32_t interface; // NO_INTERFACE: a free place
	_Atomic uint32_t sequence;  // odd while it is being written
	uint8_t length;
};

struct local_address_list {
	_Atomic uint32_t count;
	uint32_t room;
	struct local_address places[];
};

static struct local_address_list *_Atomic lists[VRF_LIMIT][2];

static inline struct local_address_list *_Atomic *
list_of(uint16_t vrf, uint8_t family)
{
	return &lists[vrf][family == 6];
}

static void
write_place(struct local_address *place, const uint8_t *address, unsigned bytes, uint8_t length, uint32_t interface)
{
	uint64_t words[2] = {0};

	memcpy(words, address, bytes);
	atomic_store_explicit(&place->sequence, place->sequence + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&place->address[0], words[0], memory_order_relaxed);
	atomic_store_explicit(&place->address[1], words[1], memory_order_relaxed);
	atomic_store_explicit(&place->interface, interface, memory_order_relaxed);
	place->length = length;
	atomic_store_explicit(&place->sequence, place->sequence + 1, memory_order_release);
}

// False: the place is free, or just being changed.
static bool
read_place(const struct local_address *place, uint8_t address[16], uint8_t *length, uint32_t *interface)
{
	uint32_t before = atomic_load_explicit(&place->sequence, memory_order_acquire);
	uint64_t words[2];

	words[0] = atomic_load_explicit(&place->address[0], memory_order_relaxed);
	words[1] = atomic_load_explicit(&place->address[1], memory_order_relaxed);
	*interface = atomic_load_explicit(&place->interface, memory_order_relaxed);
	*length = *(const volatile uint8_t *)&place->length;
	atomic_thread_fence(memory_order_acquire);
	if (before % 2 != 0 || atomic_load_explicit(&place->sequence, memory_order_relaxed) != before)
		return false;
	memcpy(address, words, sizeof(words));
	return *interface != NO_INTERFACE;
}

// A list with room for one more.
static struct local_address_list *
roomy(struct local_address_list *_Atomic *list)
{
	struct local_address_list *old = atomic_load(list), *grown;
	uint32_t room = old ? 2 * old->room : 4;

	if (old && old->count < old->room)
		return old;
	grown = calloc(1, sizeof(*grown) + room * sizeof(grown->places[0]));
	if (!grown)
		return NULL;
	grown->room = room;
	for (uint32_t i = 0; old && i < old->count; i++) {
		uint8_t address[16], length;
		uint32_t interface;

		if (read_place(&old->places[i], address, &length, &interface))
			write_place(&grown->places[grown->count++], address, 16, length, interface);
	}
	atomic_store_explicit(list, grown, memory_order_release);
	if (old)
		rcu_retire(free, old);
	return grown;
}

int
local_address_add(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, uint32_t interface)
{
	struct local_address_list *list = roomy(list_of(vrf, family));

	if (!list)
		return -ENOMEM;
	write_place(&list->places[list->count], address, family == 4 ? 4 : 16, length, interface);
	atomic_store_explicit(&list->count, list->count + 1, memory_order_release);
	local_address_source_add(family, address, length);
	return 0;
}

void
local_address_remove(uint16_t vrf, uint8_t family, const uint8_t *address, uint32_t interface)
{
	struct local_address_list *list = atomic_load(list_of(vrf, family));
	uint8_t there[16], length;
	uint32_t whose;

	for (uint32_t i = 0; list && i < list->count; i++) {
		struct local_address *place = &list->places[i];

		if (!read_place(place, there, &length, &whose) || whose != interface ||
			memcmp(there, address, family == 4 ? 4 : 16) != 0)
			continue;
		local_address_source_remove(family, address, length);
		// The last one takes the place. A reader may see it twice or, for this moment, not; never anything else.
		place = &list->places[list->count - 1];
		if (read_place(place, there, &length, &whose) && place != &list->places[i])
			write_place(&list->places[i], there, 16, length, whose);
		write_place(place, (const uint8_t[16]){0}, 16, 0, NO_INTERFACE);
		atomic_store_explicit(&list->count, list->count - 1, memory_order_release);
		return;
	}
}

// How many of the first bits two addresses share.
static unsigned
shared_bits(const uint8_t *a, const uint8_t *b, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		if (a[i] != b[i])
			return 8 * i + (unsigned)__builtin_clz((unsigned)(a[i] ^ b[i])) - 24;
	return 8 * bytes;
}

int
vrf_local_address_at(uint16_t vrf, uint8_t family, uint32_t interface, const uint8_t *near, uint8_t address[16])
{
	struct local_address_list *list = atomic_load_explicit(list_of(vrf, family), memory_order_acquire);
	uint32_t count = list ? atomic_load_explicit(&list->count, memory_order_acquire) : 0;
	uint32_t preferred = interface == NO_INTERFACE ? interface : interface_at(interface)->addresses_of;
	int best = -1;

	for (uint32_t i = 0; i < count; i++) {
		uint8_t there[16], length;
		uint32_t whose;
		int rank;

		if (!read_place(&list->places[i], there, &length, &whose))
			continue;
		rank = (int)shared_bits(there, near, family == 4 ? 4 : 16);
		if (preferred != NO_INTERFACE && whose == preferred)
			rank += 1000;
		if (rank <= best)
			continue;
		best = rank;
		memcpy(address, there, sizeof(there));
	}
	return best < 0 ? -ENOENT : 0;
}

int
vrf_local_address(uint16_t vrf, uint8_t family, const uint8_t *near, uint8_t address[16])
{
	return vrf_local_address_at(vrf, family, NO_INTERFACE, near, address);
}

uint32_t
vrf_connected(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	struct local_address_list *list = atomic_load_explicit(list_of(vrf, family), memory_order_acquire);
	uint32_t count = list ? atomic_load_explicit(&list->count, memory_order_acquire) : 0;
	uint32_t found = NO_INTERFACE;
	unsigned bytes = family == 4 ? 4 : 16;
	int longest = -1;

	for (uint32_t i = 0; i < count; i++) {
		uint8_t there[16], length;
		uint32_t whose;

		if (!read_place(&list->places[i], there, &length, &whose))
			continue;
		if (length >= 8 * bytes || (int)length <= longest || shared_bits(there, address, bytes) < length)
			continue;
		longest = length;
		found = whose;
	}
	return found;
}
