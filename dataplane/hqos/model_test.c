// SPDX-License-Identifier: Apache-2.0
// Random hierarchies against a slow model: the packets of each subscriber and class in a second.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/own_clock.h"
#include "hqos/model.h"

// Of a subscriber: more than it may earn during a round of all others' turns. Otherwise it loses tokens that the
// model, which has no turns, does not lose.
enum { BURST = 60000 };

// Two classes that are equals and share by weight or are not, with rates of their own or without.
static void
random_classes(struct model_subscriber *sub, struct hqos_profile *profile)
{
	profile->class_peaks = profile->class_committed = 0;
	if (chance(2)) {
		sub->classes[3].priority = sub->classes[2].priority;
		profile->classes[2].equals = profile->classes[3].equals = 0x0c;
	}
	for (unsigned c = 2; c < 4; c++) {
		struct model_rates *rates = &sub->classes[c].node.rates;
		struct hqos_class_profile *class = &profile->classes[c];

		rates->weight = 1 + (unsigned)chance(4);
		class->quantum = rates->weight * HQOS_QUANTUM;
		if (chance(3) == 0) {
			rates->peak = (double)(1 + chance(8)) * 1e6;
			profile->class_peaks |= (uint8_t)(1u << c);
			class->peak = pace_of((uint64_t)rates->peak, BURST, HZ);
		}
		if (chance(3) == 0) {
			rates->committed = (double)(1 + chance(2)) * 5e5;
			profile->class_committed |= (uint8_t)(1u << c);
			class->committed = pace_of((uint64_t)rates->committed, BURST, HZ);
		}
	}
}

// The model chooses for each packet, the scheduler for each turn. So at the end of a second a subscriber may be three turns ahead or
// behind, and one per cent for the turns of his group and of those beside him.
static void
assert_as_model(const char *who, uint64_t found, double model, double of_subscriber, uint32_t quantum)
{
	double difference = (double)found - model;

	if (difference < 0)
		difference = -difference;
	if (difference > 0.01 * of_subscriber + 3.0 * quantum)
		fail_msg("%s: %llu bytes, the model %.0f", who, (unsigned long long)found, model);
}

static void
random_groups(struct model *m)
{
	m->group_count = 1 + (unsigned)chance(4);
	for (unsigned g = 0; g < m->group_count; g++) {
		struct model_rates *rates = &m->groups[g].rates;

		*rates = (struct model_rates){.burst = 6000, .weight = 1 + (unsigned)chance(4)};
		if (chance(2))
			rates->peak = (double)(20 + chance(60)) * 1e6;
		if (chance(2))
			rates->committed = (double)(5 + chance(15)) * 1e6;
		group_profiles[g] = (struct hqos_group_profile){.peak = pace_of((uint64_t)rates->peak, 6000, HZ),
			.committed = rates->committed > 0 ? pace_of((uint64_t)rates->committed, 6000, HZ) : PACE_NEVER,
			.has_committed = rates->committed > 0,
			.quantum = rates->weight * HQOS_QUANTUM};
		hqos_set_group(s, g, (uint16_t)g, now);
	}
}

static void
random_subscribers(struct model *m)
{
	m->subscriber_count = 4 + (unsigned)chance(12);
	for (unsigned i = 0; i < m->subscriber_count; i++) {
		struct model_subscriber *sub = &m->subscribers[i];
		struct model_rates *rates = &sub->node.rates;
		struct hqos_profile *profile = &profiles[i];

		*rates = (struct model_rates){.burst = BURST, .weight = 1 + (unsigned)chance(6)};
		sub->group = (unsigned)chance(m->group_count);
		if (chance(3))
			rates->peak = (double)(3 + chance(30)) * 1e6;
		if (chance(3) == 0)
			rates->committed = (double)(1 + chance(3)) * 1e6;
		profile->peak = pace_of((uint64_t)rates->peak, BURST, HZ);
		profile->has_committed = rates->committed > 0;
		if (profile->has_committed)
			profile->committed = pace_of((uint64_t)rates->committed, BURST, HZ);
		profile->quantum = rates->weight * HQOS_QUANTUM;
		for (unsigned c = 0; c < HQOS_CLASSES; c++) {
			sub->classes[c].node.rates = (struct model_rates){.burst = BURST, .weight = 1};
			sub->classes[c].priority = c;
		}
		random_classes(sub, profile);
		hqos_set_subscriber(s, i, sub->group, (uint16_t)i, now);
	}
}

// The same packets for the model and the scheduler, and the packets that each sends, for a step.
static void
step(struct model *m)
{
	struct rte_mbuf *packets[64];
	unsigned count, subscriber, class;

	for (unsigned i = 0; i < m->subscriber_count; i++)
		for (unsigned c = 2; c < 4; c++) {
			while (hqos_waiting(&s->subscribers[i], c) < 8)
				put(i, (uint8_t)c, 400 + (uint32_t)chance(800));
			while (m->subscribers[i].classes[c].count < 8)
				model_enqueue(m, i, c, 400 + (unsigned)chance(800));
		}
	while ((count = get(packets, 64)) != 0)
		for (unsigned i = 0; i < count; i++)
			sent[packet_of(packets[i])->session][packet_of(packets[i])->qfi] += packets[i]->pkt_len;
	while (model_dequeue(m, &subscriber, &class) != 0)
		;
	model_advance(m, (double)STEP / (double)HZ);
}

static void
random_hierarchies_send_as_the_model_does(void **state)
{
	(void)state;
	for (unsigned hierarchy = 0; hierarchy < 48; hierarchy++) {
		static struct model m;
		uint64_t kept = seed;

		end(NULL);
		start(NULL);
		seed = kept + hierarchy;
		m = (struct model){.port.rates = {.peak = 100e6, .burst = 6000, .weight = 1}};
		s->peak = pace_of(100000000, 6000, HZ);
		random_groups(&m);
		random_subscribers(&m);
		model_start(&m);
		memset(sent, 0, sizeof(sent));
		for (uint64_t until = now + HZ; now < until; now += STEP)
			step(&m);
		for (unsigned i = 0; i < m.subscriber_count; i++) {
			const struct model_subscriber *sub = &m.subscribers[i];
			char who[64];

			snprintf(who, sizeof(who), "hierarchy %u, subscriber %u", hierarchy, i);
			assert_as_model(who, of(i), sub->sent, sub->sent, profiles[i].quantum);
			assert_int_equal(sent[i][4], 0);
			for (unsigned c = 2; c < 4; c++) {
				snprintf(who, sizeof(who), "hierarchy %u, subscriber %u, class %u", hierarchy, i, c);
				assert_as_model(who, sent[i][c], sub->classes[c].sent, sub->sent, profiles[i].quantum);
			}
		}
	}
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		EACH_WAY(random_hierarchies_send_as_the_model_does),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
