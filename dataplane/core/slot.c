// SPDX-License-Identifier: Apache-2.0
// The places of concepts' slots in the second cache line of a packet's state, and the bits of their flags.
#include <errno.h>
#include <stdio.h>

#include "core/packet.h"

static struct packet_slot *registered;
static struct packet_flag *flags;

void
packet_slot_register(struct packet_slot *slot)
{
	slot->next = registered;
	registered = slot;
}

void
packet_flag_register(struct packet_flag *flag)
{
	flag->next = flags;
	flags = flag;
}

static int
number_flags(void)
{
	unsigned mask = PACKET_FLAGS_OWN;

	for (struct packet_flag *f = flags; f; f = f->next, mask <<= 1) {
		if (mask > UINT16_MAX) {
			fprintf(stderr, "packet flag %s: no bit is left; make packet->flags in core/packet.h wider\n",
				f->name);
			return -ENOSPC;
		}
		f->mask = (uint16_t)mask;
	}
	return 0;
}

// The largest first, so that each is aligned without a gap.
int
packet_slots_start(void)
{
	unsigned used = 0;

	for (struct packet_slot *s = registered; s; s = s->next)
		if (s->size == 0 || s->size > 16 || (s->size & (s->size - 1)) != 0) {
			fprintf(stderr, "packet slot %s: it has %u bytes; 1, 2, 4, 8 or 16 are accepted\n", s->name,
				s->size);
			return -EINVAL;
		}
	for (unsigned size = 16; size > 0; size /= 2)
		for (struct packet_slot *s = registered; s; s = s->next) {
			if (s->size != size)
				continue;
			if (used + size > PACKET_SLOTS_SIZE) {
				fprintf(stderr,
					"packet slot %s: its %u bytes do not fit; all slots together have %d; raise "
					"PACKET_SLOTS_SIZE in core/packet.h\n",
					s->name, size, PACKET_SLOTS_SIZE);
				return -ENOSPC;
			}
			s->offset = (uint8_t)used;
			used += size;
		}
	return number_flags();
}
