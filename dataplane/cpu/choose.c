// SPDX-License-Identifier: Apache-2.0
// sluice-dataplane where it is built for several kinds of CPU: looks at the one at hand and becomes the best program that this runs.
// They lie beside it: sluice-dataplane-x86-64-v2 and so on.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/cpu.h"

enum { LONGEST = 32 }; // suffix of this program's name

static const char option[] = "--cpu";

// The value of --cpu, which the program that is chosen sees, too; NULL: there is none.
static const char *
asked_for(int count, char **arguments)
{
	size_t length = strlen(option);
	const char *asked = NULL;

	for (int i = 1; i < count && strcmp(arguments[i], "--") != 0; i++) {
		if (strncmp(arguments[i], option, length) != 0)
			continue;
		if (arguments[i][length] == '=')
			asked = arguments[i] + length + 1;
		else if (arguments[i][length] == '\0' && i + 1 < count)
			asked = arguments[++i];
	}
	return asked;
}

static const struct cpu_level *
level_named(const char *name)
{
	for (unsigned i = 0; i < CPU_LEVELS; i++)
		if (strcmp(cpu_levels[i].name, name) == 0)
			return &cpu_levels[i];
	return NULL;
}

// Where this program lies, and so the others. 0 or a negative errno.
static int
own_path(char *own, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", own, size);

	if (length < 0)
		return -errno;
	if ((size_t)length == size)
		return -ENAMETOOLONG;
	own[length] = '\0';
	return 0;
}

// The best level of those that there are programs for and that this CPU has; NULL: it has none. `least`: of all that there are.
static const struct cpu_level *
best_level(const char *own, const struct cpu_level **least)
{
	const struct cpu_level *best = NULL;
	char path[PATH_MAX];

	*least = NULL;
	for (unsigned i = 0; i < CPU_LEVELS; i++) {
		snprintf(path, sizeof(path), "%s-%s", own, cpu_levels[i].name);
		if (access(path, X_OK))
			continue;
		if (!*least)
			*least = &cpu_levels[i];
		if (!cpu_lacks(cpu_levels[i].needs))
			best = &cpu_levels[i];
	}
	return best;
}

static void
cannot(const char *what, const char *why)
{
	fprintf(stderr, "sluice-dataplane: %s: %s\n", what, why);
	exit(1);
}

int
main(int count, char **arguments)
{
	const char *asked = asked_for(count, arguments);
	char own[PATH_MAX - LONGEST], path[PATH_MAX];
	const struct cpu_level *level, *least;
	int error = own_path(own, sizeof(own));

	if (error)
		cannot("/proc/self/exe does not say where the programs are", strerror(-error));
	level = best_level(own, &least);
	if (!least)
		cannot("none of the programs for a kind of CPU is beside it, such as", cpu_levels[0].name);
	if (asked) {
		const char *best = level ? level->name : "none", *lacking;

		level = level_named(asked);
		if (!level) {
			fprintf(stderr, "sluice-dataplane: --cpu takes x86-64-v2, x86-64-v3 or x86-64-v4, not \"%s\"\n",
				asked);
			return 2;
		}
		lacking = cpu_lacks(level->needs);
		if (lacking) {
			fprintf(stderr, "sluice-dataplane: --cpu %s: this CPU has no %s; the best that it runs is %s\n",
				asked, lacking, best);
			return 1;
		}
	}
	if (!level) {
		fprintf(stderr, "sluice-dataplane: this CPU has no %s; %s, the least that there is, needs it\n",
			cpu_lacks(least->needs), least->name);
		return 1;
	}
	snprintf(path, sizeof(path), "%s-%s", own, level->name);
	execv(path, arguments);
	cannot(path, strerror(errno));
}
