// SPDX-License-Identifier: Apache-2.0
// Routes of several sources for one prefix: the one in force, and those behind it. Main thread only.
#pragma once

#include <stdint.h>

enum { PRECEDENCE_SOURCES = 8 };

// One source's route for a prefix. Sources are numbered by strength, 0 the strongest.
struct precedence_route {
	uint8_t address[16]; // no bit set past `length`
	uint32_t hop;        // 0: the slot is free
	uint16_t vrf;
	uint8_t length;
	uint8_t family_source; // family << 4 | source
};

// An open-addressed hash table by prefix: all routes of a prefix lie in one run of slots.
struct precedence_table {
	struct precedence_route *slots;
	uint32_t count, mask;
};

enum { PRECEDENCE_TABLES_LOG = 6, PRECEDENCE_TABLES = 1 << PRECEDENCE_TABLES_LOG };

// Many tables, because the main thread does nothing else while one grows.
struct precedence {
	struct precedence_table tables[PRECEDENCE_TABLES]; // by the first bits of the hash
};

struct precedence_key {
	uint8_t address[16];
	uint16_t vrf;
	uint8_t family;
	uint8_t length;
};

// The hop of each source that has a route for the prefix, and which they are, a bit for each.
unsigned precedence_find(
	const struct precedence *p, const struct precedence_key *key, uint32_t hops[PRECEDENCE_SOURCES]);
// Put or replace. 0 or -ENOMEM.
int precedence_put(struct precedence *p, const struct precedence_key *key, unsigned source, uint32_t hop);
void precedence_delete(struct precedence *p, const struct precedence_key *key, unsigned source);
