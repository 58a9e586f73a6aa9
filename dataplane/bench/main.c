// SPDX-License-Identifier: Apache-2.0
// sluice-bench: runs scenarios, prints a table and, if asked, writes JSON.
#include <getopt.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "bench.h"
#include "core/fastest.h"
#include "core/loop.h"
#include "core/start.h"
#include "core/worker.h"
#include "port/port.h"

struct asked {
	regex_t only;
	bool some;
	bool nodes;
	FILE *json;
	unsigned rounds;
	unsigned workers;
	bool scaling;
	bool first;
};

static const char usage[] =
	"Usage: sluice-bench [--only REGEX] [--scaling] [--json FILE] [--workers N] [--rounds N]\n"
	"                    [--look-up NAME=WAY]... [--crypto NAME=ENGINE]... [--nodes] [--no-huge] [--list]\n"
	"Measures TSC cycles per packet of the graph, source and sink taken off. With several workers it is\n"
	"each worker's cycles while all of them forward, and beside it each one's while the others\n"
	"sleep. --scaling: only the scenarios for that.\n";

static void
write_json(struct asked *a, const struct scenario *s, uint16_t size, const struct measured *m)
{
	bool first = true;

	if (!a->json)
		return;
	fprintf(a->json,
		"%s\n  {\"scenario\": \"%s\", \"packet_bytes\": %u, \"flows\": %u, \"workers\": %u,\n"
		"   \"cycles_per_packet\": {\"min\": %.1f, \"median\": %.1f, \"max\": %.1f}, \"bare_loop\": %.1f, "
		"\"tsc_hz\": %" PRIu64 ",\n",
		a->first ? "" : ",", s->name, size, s->flows, a->workers, m->cycles[0], m->cycles[REPEATS / 2],
		m->cycles[REPEATS - 1], m->bare, rte_get_tsc_hz());
	if (a->workers > 1)
		fprintf(a->json,
			"   \"alone\": {\"min\": %.1f, \"median\": %.1f, \"max\": %.1f}, \"compute_ratio\": "
			"%.3f,\n",
			m->alone[0], m->alone[REPEATS / 2], m->alone[REPEATS - 1], m->compute_ratio);
	if (s->rate)
		fprintf(a->json, "   \"overspent_percent\": %.5f,\n", m->overspent);
	fprintf(a->json, "   \"sent\": %lu, \"arrived\": %lu,\n   \"nodes\": {", m->sent, m->arrived);
	for (uint16_t n = 0; node_by_id(n); n++)
		if (m->nodes[n] >= 0.05) {
			fprintf(a->json, "%s\"%s\": %.1f", first ? "" : ", ", node_by_id(n)->name, m->nodes[n]);
			first = false;
		}
	fprintf(a->json, "}}");
	fflush(a->json);
	a->first = false;
}

static bool
lost(const struct scenario *s, const struct measured *m)
{
	return m->arrived != (s->consumed ? 0 : m->sent);
}

static void
print_row(const struct asked *a, const struct scenario *s, uint16_t size, const struct measured *m)
{
	char bytes[8] = "IMIX";

	if (size != SIZE_IMIX)
		snprintf(bytes, sizeof(bytes), "%u", size);
	printf("%-24s %6s %8u %7u %8.1f %8.1f %8.1f %8.1f", s->name, bytes, s->flows, a->workers, m->cycles[0],
		m->cycles[REPEATS / 2], m->cycles[REPEATS - 1], m->bare);
	if (a->workers > 1)
		printf(" %8.1f %8.2f %8.2f", m->alone[REPEATS / 2], m->cycles[REPEATS / 2] / m->alone[REPEATS / 2],
			m->compute_ratio);
	if (s->rate)
		printf(" %7.4f%% spent too much", m->overspent);
	printf(" %s\n", lost(s, m) ? "PACKETS LOST" : "");
	for (uint16_t n = 0; a->nodes && node_by_id(n); n++)
		if (m->nodes[n] >= 0.05)
			printf("%48s %8.1f\n", node_by_id(n)->name, m->nodes[n]);
	fflush(stdout);
}

static int
run_rate(struct asked *a, const struct scenario *s)
{
	static const char *const ways[RATE_WAYS] = {"lock", "atomic", "lease", "queues", "ordered"};
	static struct measured of[RATE_WAYS];
	char name[32];

	memset(of, 0, sizeof(of));
	if (rate_measure(s->flows, a->rounds, of))
		return -1;
	for (unsigned w = 0; w < RATE_WAYS; w++) {
		struct scenario row = *s;

		snprintf(name, sizeof(name), "%s-%s", s->name, ways[w]);
		row.name = name;
		print_row(a, &row, 0, &of[w]);
		write_json(a, &row, 0, &of[w]);
	}
	return 0;
}

// Scenarios that are measured with each look-up have a row for each.
static int
run_ways(struct asked *a, const struct scenario *s, const struct templates *t, struct measured *m)
{
	struct fastest *f = fastest_first();
	unsigned chosen;
	int failed = 0;

	while (f && strcmp(f->name, s->look_up) != 0)
		f = f->next;
	if (!f)
		return -1;
	chosen = f->way;
	for (unsigned way = 0; way < FASTEST_WAYS; way++) {
		struct scenario row = *s;
		char name[64];

		if (!fastest_has(f, way))
			continue;
		snprintf(name, sizeof(name), "%s-%s", s->name, f->ways[way].name);
		row.name = name;
		fastest_use(f, way);
		*m = (struct measured){0};
		measure(t, a->rounds, m);
		print_row(a, &row, s->sizes[0], m);
		write_json(a, &row, s->sizes[0], m);
		failed |= lost(&row, m);
	}
	fastest_use(f, chosen);
	return failed;
}

static int
run_scenario(struct asked *a, const struct scenario *s)
{
	int failed = 0;

	if (s->measure) {
		for (unsigned i = 0; a->workers == 1 && i < SIZES_MAX && s->sizes[i]; i++) {
			struct scenario row = *s;
			struct measured m = {0};

			row.sizes[0] = s->sizes[i];
			if (s->measure(&row, a->rounds, &m)) {
				fprintf(stderr, "%s: it cannot be measured\n", s->name);
				return -1;
			}
			print_row(a, s, s->sizes[i], &m);
			write_json(a, s, s->sizes[i], &m);
		}
		return 0;
	}
	if (s->rate)
		return run_rate(a, s);
	if (s->set_up(s)) {
		bench_clear();
		return -1;
	}
	// Links come up, retired memory goes.
	for (unsigned i = 0; i < 50; i++)
		loop_once(1);
	for (unsigned i = 0; i < SIZES_MAX && s->sizes[i]; i++) {
		struct measured m = {0};
		struct templates t;

		if (templates_make(&t, s, s->sizes[i])) {
			fprintf(stderr, "%s: its frames cannot be made\n", s->name);
			return -1;
		}
		if (s->look_up) {
			failed |= run_ways(a, s, &t, &m);
			templates_free(&t);
			continue;
		}
		if (s->one_queue)
			measure_shared(&t, a->rounds, &m);
		else if (s->schedulers && a->workers > 1)
			failed |= measure_delivered(&t, s, a->rounds, &m) != 0;
		else
			measure(&t, a->rounds, &m);
		print_row(a, s, s->sizes[i], &m);
		write_json(a, s, s->sizes[i], &m);
		failed |= lost(s, &m);
		templates_free(&t);
	}
	bench_clear();
	return failed ? -1 : 0;
}

static bool
is_selected(const struct asked *a, const struct scenario *s)
{
	return (!a->scaling || s->scaling) && ((!s->one_queue && s->schedulers < 2) || a->workers > 1) &&
	       (!a->some || regexec(&a->only, s->name, 0, NULL, 0) == 0);
}

int
main(int count, char **arguments)
{
	static const struct option known[] = {{"only", 1, NULL, 'o'}, {"json", 1, NULL, 'j'}, {"workers", 1, NULL, 'w'},
		{"rounds", 1, NULL, 'r'}, {"scaling", 0, NULL, 's'}, {"nodes", 0, NULL, 'n'}, {"no-huge", 0, NULL, 'H'},
		{"look-up", 1, NULL, 'u'}, {"crypto", 1, NULL, 'E'}, {"list", 0, NULL, 'l'}, {"help", 0, NULL, 'h'},
		{0}};
	struct asked a = {.rounds = 300, .workers = 1, .first = true};
	char prefix[32], cores[128] = "0", *no_arguments[] = {arguments[0], NULL};
	struct options o;
	int c, failed = 0;
	bool some = false;

	options_parse(&o, 1, no_arguments);
	optind = 1;
	while ((c = getopt_long(count, arguments, "", known, NULL)) != -1) {
		switch (c) {
		case 'o':
			if (regcomp(&a.only, optarg, REG_EXTENDED | REG_NOSUB)) {
				fprintf(stderr, "--only takes an extended regular expression, not \"%s\"\n", optarg);
				return 2;
			}
			a.some = true;
			break;
		case 'j':
			a.json = fopen(optarg, "w");
			if (!a.json) {
				perror(optarg);
				return 2;
			}
			break;
		case 'w':
			a.workers = (unsigned)RTE_MAX(1, RTE_MIN(atoi(optarg), WORKER_MAX));
			break;
		case 'r':
			a.rounds = (unsigned)RTE_MAX(16, atoi(optarg));
			break;
		case 's':
			a.scaling = true;
			break;
		case 'n':
			a.nodes = true;
			break;
		case 'u':
			if (fastest_select("look-up", optarg))
				return 2;
			break;
		case 'E':
			if (fastest_select("crypto", optarg))
				return 2;
			break;
		case 'H':
			o.huge = false;
			break;
		case 'l':
			for (unsigned i = 0; scenario_at(i); i++)
				puts(scenario_at(i)->name);
			return 0;
		default:
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	for (unsigned i = 0; scenario_at(i); i++)
		some |= is_selected(&a, scenario_at(i));
	if (!some) {
		if (a.json)
			fputs("[]\n", a.json);
		return 0;
	}
	snprintf(prefix, sizeof(prefix), "sluice-bench-%d", getpid());
	o.prefix = prefix;
	o.workers = a.workers;
	o.memory = 1024;
	// The first worker has a core that the main thread, which sleeps while workers measure, is not on. With fewer processors they share.
	for (unsigned w = 0; w < a.workers; w++)
		snprintf(cores + strlen(cores), sizeof(cores) - strlen(cores), ",%u",
			(w + 1) % (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
	o.cores = a.workers < (unsigned)sysconf(_SC_NPROCESSORS_ONLN) ? cores : NULL;
	if (core_start(&o))
		return 1;
	printf("%-24s %6s %8s %7s %8s %8s %8s %8s%s\n", "scenario", "bytes", "flows", "workers", "min", "median", "max",
		"bare", a.workers > 1 ? "    alone    ratio  compute" : "");
	if (a.json)
		fprintf(a.json, "[");
	for (unsigned i = 0; scenario_at(i); i++)
		if (is_selected(&a, scenario_at(i)))
			failed |= run_scenario(&a, scenario_at(i));
	if (a.json) {
		fprintf(a.json, "\n]\n");
		fclose(a.json);
	}
	core_stop();
	return failed ? 1 : 0;
}
