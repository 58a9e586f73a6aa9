// SPDX-License-Identifier: Apache-2.0
// Trying the ways of a look-up, and choosing one.
#include "core/fastest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>

#include "cpu/cpu.h"

enum {
	TURNS = 24, // in each turn every way runs once: the minimum of a way is its cost without interference
	WORTH = 97, // percent of an earlier way's cost that a later one may have, so that noise does not decide
};

static struct fastest *all;

void
fastest_register(struct fastest *f)
{
	struct fastest **at = &all;

	while (*at && strcmp((*at)->name, f->name) < 0)
		at = &(*at)->next;
	f->next = *at;
	*at = f;
}

struct fastest *
fastest_first(void)
{
	return all;
}

bool
fastest_has(const struct fastest *f, unsigned way)
{
	return way < FASTEST_WAYS && f->ways[way].name && !cpu_lacks(f->ways[way].needs);
}

bool
fastest_of(const struct fastest *f, const char *option)
{
	return strcmp(f->option ? f->option : "look-up", option) == 0;
}

void
fastest_use(struct fastest *f, unsigned way)
{
	f->way = way;
	if (f->use)
		f->use(way);
}

static int
refuse_way(const struct fastest *f, const char *way)
{
	const char *between = "";

	fprintf(stderr, "sluice-dataplane: --%s %s takes ", f->option ? f->option : "look-up", f->name);
	for (unsigned w = 0; w < FASTEST_WAYS; w++) {
		if (!fastest_has(f, w))
			continue;
		fprintf(stderr, "%s%s", between, f->ways[w].name);
		between = ", ";
	}
	fprintf(stderr, " on this CPU, not \"%s\"\n", way);
	return -EINVAL;
}

int
fastest_select(const char *option, const char *text)
{
	size_t length = strcspn(text, "=");
	const char *between = "";

	for (struct fastest *f = all; f; f = f->next) {
		if (!fastest_of(f, option) || text[length] != '=' || strlen(f->name) != length ||
			strncmp(f->name, text, length) != 0)
			continue;
		for (unsigned w = 0; w < FASTEST_WAYS; w++) {
			if (!fastest_has(f, w) || strcmp(f->ways[w].name, text + length + 1) != 0)
				continue;
			fastest_use(f, w);
			f->asked = true;
			return 0;
		}
		return refuse_way(f, text + length + 1);
	}
	fprintf(stderr, "sluice-dataplane: --%s takes NAME=WAY, of these names: ", option);
	for (struct fastest *f = all; f; f = f->next) {
		if (!fastest_of(f, option))
			continue;
		fprintf(stderr, "%s%s", between, f->name);
		between = ", ";
	}
	fprintf(stderr, "; not \"%s\"\n", text);
	return -EINVAL;
}

static void
try_ways(struct fastest *f, unsigned look_ups)
{
	uint64_t least[FASTEST_WAYS] = {0};
	unsigned best = 0;

	for (unsigned turn = 0; turn < TURNS; turn++)
		for (unsigned w = 0; w < FASTEST_WAYS; w++) {
			uint64_t took;

			if (!fastest_has(f, w))
				continue;
			f->use(w);
			took = rte_rdtsc_precise();
			f->run();
			took = rte_rdtsc_precise() - took;
			if (turn == 0 || took < least[w])
				least[w] = took;
		}
	for (unsigned w = 0; w < FASTEST_WAYS; w++) {
		f->cycles[w] = (double)least[w] / look_ups;
		if (least[w] != 0 && least[w] * 100 < least[best] * WORTH)
			best = w;
	}
	fastest_use(f, f->asked ? f->way : best);
}

static void
log_choice(const struct fastest *f)
{
	char text[256];
	size_t used = 0;

	for (unsigned w = 0; w < FASTEST_WAYS && used < sizeof(text); w++)
		if (f->cycles[w] != 0)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %.1f", used ? ", " : "",
				f->ways[w].name, f->cycles[w]);
	fprintf(stderr, "look-up %s: %s%s (cycles each: %s)\n", f->name, f->ways[f->way].name,
		f->asked ? ", as asked" : "", text);
}

int
fastest_start(void)
{
	for (struct fastest *f = all; f; f = f->next) {
		int look_ups;

		if (!f->prepare)
			continue;
		look_ups = f->prepare();
		if (look_ups < 0)
			return look_ups;
		try_ways(f, (unsigned)look_ups);
		f->finish();
		log_choice(f);
	}
	return 0;
}
