// SPDX-License-Identifier: Apache-2.0
#include "core/encapsulation.h"

static struct encapsulation *registered;

void
encapsulation_register(struct encapsulation *encapsulation)
{
	encapsulation->next = registered;
	registered = encapsulation;
}

bool
encapsulation_read_ether(
	uint16_t ether_type, const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found)
{
	for (const struct encapsulation *e = registered; e; e = e->next)
		if (e->ether_type && e->ether_type == ether_type && e->read(bytes, available, total, found))
			return true;
	return false;
}

bool
encapsulation_read_udp(uint16_t port, const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found)
{
	for (const struct encapsulation *e = registered; e; e = e->next)
		if (e->udp_port && e->udp_port == port && e->read(bytes, available, total, found))
			return true;
	return false;
}

bool
encapsulation_named(bool (*has)(const char *filter, const char *word), const char *filter)
{
	for (const struct encapsulation *e = registered; e; e = e->next)
		for (const char *const *word = e->words; word && *word; word++)
			if (has(filter, *word))
				return true;
	return false;
}
