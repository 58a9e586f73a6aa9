// SPDX-License-Identifier: Apache-2.0
// All scenarios, in the order in which they are measured.
#include "bench/scenarios/all.h"

const struct scenario *
scenario_at(unsigned index)
{
	static const struct scenario *const lists[] = {ip_scenarios, session_scenarios, agf_scenarios, flow_scenarios,
		bng_scenarios, queue_scenarios, rate_scenarios, cipher_scenarios, ipsec_scenarios, n3iwf_scenarios};

	for (unsigned l = 0; l < RTE_DIM(lists); l++)
		for (const struct scenario *s = lists[l]; s->name; s++)
			if (index-- == 0)
				return s;
	return NULL;
}
