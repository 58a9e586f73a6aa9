// Which way each look-up is made, as clients are told. It does not change once the data plane has started.
#include "core/fastest_api.h"

#include "core/fastest.h"

enum { LOOK_UPS = 8 };

static Sluice__V1__LookUp look_ups[LOOK_UPS], *all[LOOK_UPS];
static Sluice__V1__LookUpWay ways[LOOK_UPS][FASTEST_WAYS], *way_of[LOOK_UPS][FASTEST_WAYS];

void
fastest_tell(Sluice__V1__Greeting *greeting)
{
	size_t n = 0;

	for (const struct fastest *f = fastest_first(); f && n < LOOK_UPS; f = f->next, n++) {
		Sluice__V1__LookUp *told = all[n] = &look_ups[n];

		sluice__v1__look_up__init(told);
		told->name = (char *)f->name;
		told->way = (char *)f->ways[f->way].name;
		told->asked = f->asked;
		told->ways = way_of[n];
		for (unsigned w = 0; w < FASTEST_WAYS; w++) {
			Sluice__V1__LookUpWay *way = &ways[n][told->n_ways];

			if (f->cycles[w] == 0)
				continue;
			sluice__v1__look_up_way__init(way);
			way->name = (char *)f->ways[w].name;
			way->cycles = f->cycles[w];
			way_of[n][told->n_ways++] = way;
		}
	}
	greeting->look_ups = all;
	greeting->n_look_ups = n;
}
