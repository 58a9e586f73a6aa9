// SPDX-License-Identifier: Apache-2.0
// The state machine of a neighbour (RFC 4861 sections 7.2.5 and 7.3).
#include "neighbor/neighbor_state.h"

#define SECONDS(n) ((uint64_t)(n)*1000000000)

const struct neighbor_times neighbor_times = {
	.retransmit = SECONDS(1),
	.reachable = SECONDS(30),
	.delay_first_probe = SECONDS(5),
	.unused = SECONDS(600),
	.failed = SECONDS(20),
	.multicast_solicits = 3,
	.unicast_solicits = 3,
};

static unsigned
go(struct neighbor_entry *e, enum neighbor_state state, uint64_t deadline, unsigned actions)
{
	e->state = (uint8_t)state;
	e->solicits = (actions & (NEIGHBOR_ASK_ALL | NEIGHBOR_ASK_IT)) != 0;
	e->deadline = deadline;
	return actions;
}

static unsigned
used(struct neighbor_entry *e, uint64_t now)
{
	switch (e->state) {
	case NEIGHBOR_NONE:
	case NEIGHBOR_FAILED:
		return go(e, NEIGHBOR_INCOMPLETE, now + neighbor_times.retransmit, NEIGHBOR_ASK_ALL);
	case NEIGHBOR_STALE:
		return go(e, NEIGHBOR_DELAY, now + neighbor_times.delay_first_probe, 0);
	default:
		return 0;
	}
}

static unsigned
ask_again(struct neighbor_entry *e, uint64_t now, uint8_t most, unsigned ask)
{
	if (e->solicits >= most)
		return go(e, NEIGHBOR_FAILED, now + neighbor_times.failed, NEIGHBOR_FAIL);
	e->solicits++;
	e->deadline = now + neighbor_times.retransmit;
	return ask;
}

static unsigned
timeout(struct neighbor_entry *e, uint64_t now)
{
	switch (e->state) {
	case NEIGHBOR_INCOMPLETE:
		return ask_again(e, now, neighbor_times.multicast_solicits, NEIGHBOR_ASK_ALL);
	case NEIGHBOR_PROBE:
		return ask_again(e, now, neighbor_times.unicast_solicits, NEIGHBOR_ASK_IT);
	case NEIGHBOR_REACHABLE:
		return go(e, NEIGHBOR_STALE, now + neighbor_times.unused, 0);
	case NEIGHBOR_DELAY:
		return go(e, NEIGHBOR_PROBE, now + neighbor_times.retransmit, NEIGHBOR_ASK_IT);
	case NEIGHBOR_STALE:
		e->deadline = now + neighbor_times.unused;
		return NEIGHBOR_FORGET;
	case NEIGHBOR_FAILED:
		return go(e, NEIGHBOR_NONE, UINT64_MAX, NEIGHBOR_FORGET);
	default:
		return 0;
	}
}

static unsigned
heard(struct neighbor_entry *e, const struct neighbor_advert *a, uint64_t now)
{
	bool differs = a->has_mac && !rte_is_same_ether_addr(&a->mac, &e->mac);

	switch (e->state) {
	case NEIGHBOR_NONE:
		if (!a->creates)
			return 0; // an entry comes into being because there is something to send
				  // fall through
	case NEIGHBOR_INCOMPLETE:
	case NEIGHBOR_FAILED:
		if (!a->has_mac)
			return 0;
		e->mac = a->mac;
		if (a->solicited)
			return go(e, NEIGHBOR_REACHABLE, now + neighbor_times.reachable, 0);
		return go(e, NEIGHBOR_STALE, now + neighbor_times.unused, 0);
	case NEIGHBOR_REACHABLE:
	case NEIGHBOR_STALE:
	case NEIGHBOR_DELAY:
	case NEIGHBOR_PROBE:
		if (differs && !a->override) {
			// Another host claims the address: go on sending as before, but probe soon.
			if (e->state == NEIGHBOR_REACHABLE)
				return go(e, NEIGHBOR_STALE, now + neighbor_times.unused, 0);
			return 0;
		}
		if (differs)
			e->mac = a->mac;
		if (a->solicited)
			return go(e, NEIGHBOR_REACHABLE, now + neighbor_times.reachable, 0);
		if (differs)
			return go(e, NEIGHBOR_STALE, now + neighbor_times.unused, 0);
		return 0;
	default:
		return 0;
	}
}

unsigned
neighbor_next(struct neighbor_entry *e, enum neighbor_event event, const struct neighbor_advert *advert, uint64_t now)
{
	switch (event) {
	case NEIGHBOR_USED:
		return used(e, now);
	case NEIGHBOR_TIMEOUT:
		return timeout(e, now);
	case NEIGHBOR_HEARD:
		return heard(e, advert, now);
	case NEIGHBOR_LINK_DOWN:
		// Another host may be there with the next link: its address is asked for with the first packet, not after a delay.
		if (e->state != NEIGHBOR_STATIC && neighbor_usable(e->state))
			return go(e, NEIGHBOR_NONE, UINT64_MAX, NEIGHBOR_FORGET);
		return 0;
	}
	return 0;
}
