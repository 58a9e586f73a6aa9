// SPDX-License-Identifier: Apache-2.0
// The API's punt reasons: limits in force, and counters.
#include "core/fair.h"
#include "core/punt_watch.h"
#include "punt.pb-c.h"
#include "server/api.h"

static void
serve_reasons(struct api_call *call, const void *query)
{
	Sluice__V1__PuntReasons answer = SLUICE__V1__PUNT_REASONS__INIT;
	const struct punt *reason;
	unsigned count = 0;
	Sluice__V1__PuntReason *rows;

	while (punt_by_id(count))
		count++;
	rows = api_rows(call, count, sizeof(*rows), &answer.reasons);
	if (!rows)
		return;
	for (; (reason = punt_by_id((unsigned)answer.n_reasons)) != NULL; answer.n_reasons++) {
		struct punt_counts counts = punt_counts(reason->id);
		Sluice__V1__PuntReason *row = &rows[answer.n_reasons];

		sluice__v1__punt_reason__init(row);
		row->reason = (char *)reason->name;
		row->rate = reason->limits.rate;
		row->rate_per_source = fair_limit(reason->limits.rate, reason->limits.each).source;
		if (reason->limits.session)
			row->rate_per_session = fair_limit(reason->limits.rate, reason->limits.session).source;
		row->punted = counts.punted;
		row->limited = counts.limited;
	}
	api_answer(call, &answer.base);
}

STATE_QUERY(reasons_query, sluice__v1__punt_reasons_query__descriptor, serve_reasons)
