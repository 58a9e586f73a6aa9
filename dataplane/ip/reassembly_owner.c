// SPDX-License-Identifier: Apache-2.0
// Owners and senders of waiting fragments, by number and by held memory: each step takes the same time however many
// there are.
#include "ip/reassembly_owner.h"

#include <errno.h>
#include <stdlib.h>

enum { HASH_BITS = 10 };

static uint64_t
hash(uint64_t number)
{
	return number * 0x9e3779b97f4a7c15u >> (64 - HASH_BITS);
}

int
reassembly_owners_start(struct reassembly_owners *owners, unsigned max_senders, const uint32_t most[REASSEMBLY_KINDS])
{
	struct reassembly_owner *all = calloc(max_senders, sizeof(*all));
	struct reassembly_sender *senders = calloc(max_senders, sizeof(*senders));

	*owners = (struct reassembly_owners){0};
	owners->by_hash = calloc(1 << HASH_BITS, sizeof(owners->by_hash[0]));
	owners->senders_by_hash = calloc(1 << HASH_BITS, sizeof(owners->senders_by_hash[0]));
	for (unsigned what = 0; what < REASSEMBLY_KINDS; what++) {
		owners->by_held[what] = calloc(most[what] + 1, sizeof(owners->by_held[what][0]));
		if (!owners->by_held[what])
			return -ENOMEM;
	}
	if (!all || !senders || !owners->by_hash || !owners->senders_by_hash)
		return -ENOMEM;
	for (unsigned i = 0; i < max_senders; i++) {
		LIST_INSERT_HEAD(&owners->unused, &all[i], same_hash);
		LIST_INSERT_HEAD(&owners->unused_senders, &senders[i], same_hash);
	}
	return 0;
}

static struct reassembly_owner *
owner_of(struct reassembly_owners *owners, uint64_t number)
{
	struct reassembly_owner_list *list = &owners->by_hash[hash(number)];
	struct reassembly_owner *o;

	LIST_FOREACH(o, list, same_hash)
	if (o->number == number)
		return o;
	o = LIST_FIRST(&owners->unused);
	if (!o)
		return NULL;
	LIST_REMOVE(o, same_hash);
	*o = (struct reassembly_owner){.number = number};
	for (unsigned what = 0; what < REASSEMBLY_KINDS; what++)
		for (unsigned class = 0; class < REASSEMBLY_CLASSES; class ++)
			TAILQ_INIT(&o->classes[what][class]);
	LIST_INSERT_HEAD(list, o, same_hash);
	return o;
}

struct reassembly_sender *
reassembly_sender(struct reassembly_owners *owners, uint64_t owner, uint64_t number)
{
	struct reassembly_sender_list *list = &owners->senders_by_hash[hash(number ^ owner)];
	struct reassembly_sender *s;

	LIST_FOREACH(s, list, same_hash)
	if (s->number == number && s->owner->number == owner)
		return s;
	s = LIST_FIRST(&owners->unused_senders);
	if (!s)
		return NULL;
	LIST_REMOVE(s, same_hash);
	// There are as many owners as senders.
	*s = (struct reassembly_sender){.number = number, .owner = owner_of(owners, owner)};
	TAILQ_INIT(&s->datagrams);
	LIST_INSERT_HEAD(list, s, same_hash);
	return s;
}

static unsigned
class_of(uint32_t held)
{
	return RTE_MIN(31u - (unsigned)__builtin_clz(held), REASSEMBLY_CLASSES - 1u);
}

static void
sender_holds(struct reassembly_sender *sender, enum reassembly_held what, int more)
{
	uint32_t before = sender->held[what], now = (uint32_t)((int)before + more);

	sender->held[what] = now;
	if (before > 0 && now > 0 && class_of(before) == class_of(now))
		return;
	if (before > 0)
		TAILQ_REMOVE(&sender->owner->classes[what][class_of(before)], sender, same_class[what]);
	if (now > 0)
		TAILQ_INSERT_TAIL(&sender->owner->classes[what][class_of(now)], sender, same_class[what]);
}

static void
owner_holds(struct reassembly_owners *owners, struct reassembly_owner *owner, enum reassembly_held what, int more)
{
	uint32_t *held = &owner->held[what], *top = &owners->top[what];

	if (*held > 0)
		LIST_REMOVE(owner, same_held[what]);
	*held = (uint32_t)((int)*held + more);
	owners->held[what] = (uint32_t)((int)owners->held[what] + more);
	if (*held > 0)
		LIST_INSERT_HEAD(&owners->by_held[what][*held], owner, same_held[what]);
	if (*held > *top)
		*top = *held;
	while (*top > 0 && LIST_EMPTY(&owners->by_held[what][*top]))
		--*top;
}

void
reassembly_hold(struct reassembly_owners *owners, struct reassembly_sender *sender, enum reassembly_held what, int more)
{
	struct reassembly_owner *owner = sender->owner;

	if (more == 0)
		return;
	sender_holds(sender, what, more);
	owner_holds(owners, owner, what, more);
	if (what != REASSEMBLY_DATAGRAMS || sender->held[what] > 0)
		return;
	LIST_REMOVE(sender, same_hash);
	LIST_INSERT_HEAD(&owners->unused_senders, sender, same_hash);
	if (owner->held[what] == 0) {
		LIST_REMOVE(owner, same_hash);
		LIST_INSERT_HEAD(&owners->unused, owner, same_hash);
	}
}

struct reassembly_sender *
reassembly_largest(struct reassembly_owners *owners, enum reassembly_held what, const struct reassembly_sender *but)
{
	struct reassembly_owner *owner =
		owners->top[what] > 0 ? LIST_FIRST(&owners->by_held[what][owners->top[what]]) : NULL;
	struct reassembly_sender *s;

	for (unsigned class = REASSEMBLY_CLASSES; owner && class -- > 0;) {
		s = TAILQ_FIRST(&owner->classes[what][class]);
		if (s && s == but)
			s = TAILQ_NEXT(s, same_class[what]);
		if (s)
			return s;
	}
	return NULL;
}
