// SPDX-License-Identifier: Apache-2.0
// The way of each look-up and the engine of each cipher, for clients. They do not change once the data plane
// has started.
#include "server/fastest_api.h"

#include "core/fastest.h"

enum { LOOK_UPS = 64 };

static Sluice__V1__LookUp look_ups[LOOK_UPS], *all[LOOK_UPS];
static Sluice__V1__LookUpWay ways[LOOK_UPS][FASTEST_WAYS], *way_of[LOOK_UPS][FASTEST_WAYS];

static void
tell(const struct fastest *f, size_t n)
{
	Sluice__V1__LookUp *answer = &look_ups[n];

	sluice__v1__look_up__init(answer);
	answer->name = (char *)f->name;
	answer->way = (char *)f->ways[f->way].name;
	answer->asked = f->asked;
	answer->ways = way_of[n];
	for (unsigned w = 0; w < FASTEST_WAYS; w++) {
		Sluice__V1__LookUpWay *way = &ways[n][answer->n_ways];

		if (f->cycles[w] == 0)
			continue;
		sluice__v1__look_up_way__init(way);
		way->name = (char *)f->ways[w].name;
		way->cycles = f->cycles[w];
		way_of[n][answer->n_ways++] = way;
	}
}

// Those of an option lie in a row.
static size_t
tell_all(const char *option, size_t from)
{
	size_t n = from;

	for (const struct fastest *f = fastest_first(); f && n < LOOK_UPS; f = f->next)
		if (fastest_of(f, option)) {
			tell(f, n);
			all[n] = &look_ups[n];
			n++;
		}
	return n - from;
}

void
fastest_report(Sluice__V1__Greeting *greeting)
{
	greeting->look_ups = all;
	greeting->n_look_ups = tell_all("look-up", 0);
	greeting->ciphers = all + greeting->n_look_ups;
	greeting->n_ciphers = tell_all("crypto", greeting->n_look_ups);
}
