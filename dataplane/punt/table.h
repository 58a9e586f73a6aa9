// SPDX-License-Identifier: Apache-2.0
// Which Punt takes a protocol from a circuit. The main thread writes, workers read.
#pragma once

#include <stdbool.h>

#include "core/fair.h"
#include "port/port.h"
#include "punt.pb-c.h"
#include "punt/protocol.h"
#include "server/object.h"

enum {
	PUNT_VLANS = 4096,
	PUNT_VLAN_LAST = 4094,
	PUNT_WORDS = PUNT_VLANS / 64,
	PUNTS_OF_VLAN = 16, // Punts that share an outer VLAN of a port: a look-up reads as many at most
};

// The frames of one Punt. It does not change after workers see it. In `outer`, VLAN 0 means untagged; in `inner`, no
// second tag.
struct punt_rule {
	const struct object *object;
	uint16_t port;
	uint32_t protocols;           // a bit for each (PuntProtocol)
	uint32_t rate, each, circuit; // circuit 0: half of rate
	struct fair_rate *limits;     // by worker
	uint64_t outer[PUNT_WORDS], inner[PUNT_WORDS];
};

// The rules of one port by outer VLAN: those of VLAN v are rules[start[v]] to rules[start[v + 1] - 1].
struct punt_table {
	uint32_t start[PUNT_VLANS + 1];
	const struct punt_rule *rules[];
};

extern struct punt_table *punt_tables[PORT_MAX]; // NULL: the port has no Punt

static inline bool
punt_bit(const uint64_t *bits, uint16_t vlan)
{
	return bits[(vlan % PUNT_VLANS) / 64] >> vlan % 64 & 1;
}

// Any thread. NULL: none.
static inline const struct punt_rule *
punt_find(uint16_t port, uint16_t outer, uint16_t inner, unsigned protocol)
{
	const struct punt_table *t = port < PORT_MAX ? __atomic_load_n(&punt_tables[port], __ATOMIC_ACQUIRE) : NULL;

	if (!t || protocol >= PUNT_PROTOCOLS_MAX)
		return NULL;
	outer %= PUNT_VLANS;
	for (uint32_t i = t->start[outer]; i < t->start[outer + 1]; i++)
		if (t->rules[i]->protocols >> protocol & 1 && punt_bit(t->rules[i]->inner, inner))
			return t->rules[i];
	return NULL;
}

// Fill in the fields of a spec, except object, port and limits. 0, or -EINVAL with the fault explained.
int punt_parse(const char *name, const Sluice__V1__Punt *spec, struct punt_rule *rule, struct fault *f);
// Workers see `rule` in place of `old` from now on. Either may be NULL. 0; -EEXIST: another Punt has part of it; -ENOSPC; -ENOMEM.
int punt_table_change(const struct punt_rule *old, const struct punt_rule *rule, struct fault *f);
