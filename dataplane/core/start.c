// SPDX-License-Identifier: Apache-2.0
// Start-up: command line, DPDK's environment, and the parts of the core in their order.
#include "core/start.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>

#include "core/fastest.h"
#include "core/memory.h"
#include "core/packet.h"
#include "core/punt.h"
#include "core/registry.h"
#include "core/watch.h"
#include "core/worker.h"
#include "cpu/cpu.h"

enum { PREFIX_MAX = 64, MAX_ERRNO = 4095 };

// Column of --help where the text of an option begins.
enum { HELP_AT = 22, OPTIONS_MAX = 64 };

static const char usage[] =
	"Usage: sluice-dataplane [OPTION]...\n"
	"Forwards packets as objects that arrive by its API say.\n"
	"\n"
	"  --socket PATH       the API's Unix socket (default /run/sluice/dataplane.sock)\n"
	"  --listen ADDR:PORT  the API on TCP, with mutual TLS by --cert, --key and --ca (PEM files)\n"
	"  --client-names LIST of these only clients whose certificate has a name (CN, or SAN of DNS, URI or\n"
	"                      email) in the list, with * for any characters: agent-*,*.example.org\n"
	"  --cpu LEVEL         the program for this kind of CPU instead of the best that runs here: x86-64-v2,\n"
	"                      x86-64-v3, x86-64-v4\n"
	"  --look-up NAME=WAY  look up in this way instead of the one that is fastest when it is tried at the start: "
	"ip4,\n"
	"                      ip6 or acl; any number of times\n"
	"  --workers N         threads that forward (default 1)\n"
	"  --cores LIST        the main thread's core, then one for each worker: 0,2,3\n"
	"  --no-huge           no huge pages: for a laptop or a test\n"
	"  --huge              huge pages (default); of this and --no-huge the last counts\n"
	"  --huge-dir DIR      a mount of hugetlbfs to use (default: none is needed)\n"
	"  --memory MB         for buffers and tables of DPDK's (default: what the buffers need)\n"
	"  --buffers N         packet buffers (default 32768): 2.7 KiB each of huge pages, else 4 KiB\n"
	"  --core-dumps        allows core dumps: they contain keys and subscribers' packets\n"
	"  --prefix NAME       tells this data plane's DPDK files from another's\n"
	"  --log-level LEVEL   error, warning, notice, info or debug (default warning)\n";

static struct part_option *part_options; // by name
static const char *socket_path;

void
option_register(struct part_option *option)
{
	struct part_option **at = &part_options;

	while (*at && strcmp((*at)->name, option->name) < 0)
		at = &(*at)->next;
	option->next = *at;
	*at = option;
}

static void
help(void)
{
	fputs(usage, stdout);
	for (const struct part_option *option = part_options; option; option = option->next) {
		const char *line = option->help;
		int at = printf("  --%s %s", option->name, option->argument);

		printf("%*s", at < HELP_AT ? HELP_AT - at : 2, "");
		for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
			printf("%.*s\n%*s", (int)(end - line), line, HELP_AT, "");
		puts(line);
	}
	puts("  --version, --help");
}

static void
refuse(const char *option, const char *value, const char *accepted)
{
	fprintf(stderr, "sluice-dataplane: %s takes %s, not \"%s\"\n", option, accepted, value);
	exit(2);
}

static unsigned
number(const char *option, const char *value, unsigned min, unsigned max)
{
	char *end, accepted[64];
	unsigned long n;

	errno = 0;
	n = strtoul(value, &end, 10);
	if (errno || end == value || *end || value[0] == '-' || n < min || n > max) {
		snprintf(accepted, sizeof(accepted), "a number from %u to %u", min, max);
		refuse(option, value, accepted);
	}
	return (unsigned)n;
}

// Checks for which DPDK's own messages are unclear.
static void
check_for_dpdk(const struct options *o)
{
	static const char *const levels[] = {"error", "warning", "notice", "info", "debug"};
	static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
	struct statfs found;
	unsigned level = 0;

	while (level < RTE_DIM(levels) && strcmp(levels[level], o->log_level) != 0)
		level++;
	if (level == RTE_DIM(levels))
		refuse("--log-level", o->log_level, "error, warning, notice, info or debug");
	if (!o->prefix[0] || o->prefix[0] == '.' || strlen(o->prefix) > PREFIX_MAX ||
		strspn(o->prefix, letters) != strlen(o->prefix))
		refuse("--prefix", o->prefix, "up to 64 letters, digits and . _ -, not beginning with a dot");
	if (o->huge && o->huge_dir &&
		(o->huge_dir[0] != '/' || statfs(o->huge_dir, &found) || found.f_type != HUGETLBFS_MAGIC))
		refuse("--huge-dir", o->huge_dir, "the path of a mount of hugetlbfs (mount -t hugetlbfs none DIR)");
}

static void
take(const char *name, const char *value)
{
	const struct part_option *option = part_options;
	char text[64];

	while (strcmp(option->name, name) != 0)
		option = option->next;
	if (option->take(value) == 0)
		return;
	if (!option->accepted)
		exit(2);
	snprintf(text, sizeof(text), "--%s", name);
	refuse(text, value, option->accepted);
}

void
options_parse(struct options *o, int count, char **arguments)
{
	static const struct option own[] = {{"socket", 1, NULL, 's'}, {"listen", 1, NULL, 'l'}, {"cert", 1, NULL, 'c'},
		{"key", 1, NULL, 'k'}, {"ca", 1, NULL, 'a'}, {"client-names", 1, NULL, 'N'}, {"workers", 1, NULL, 'w'},
		{"cores", 1, NULL, 'C'}, {"no-huge", 0, NULL, 'n'}, {"huge", 0, NULL, 'H'}, {"huge-dir", 1, NULL, 'd'},
		{"memory", 1, NULL, 'm'}, {"buffers", 1, NULL, 'b'}, {"prefix", 1, NULL, 'p'}, {"cpu", 1, NULL, 'P'},
		{"look-up", 1, NULL, 'u'}, {"core-dumps", 0, NULL, 'U'}, {"log-level", 1, NULL, 'L'},
		{"version", 0, NULL, 'v'}, {"help", 0, NULL, 'h'}};
	struct option known[OPTIONS_MAX] = {0};
	unsigned known_count = RTE_DIM(own);
	int c, at;

	memcpy(known, own, sizeof(own));
	for (const struct part_option *p = part_options; p; p = p->next) {
		if (known_count == OPTIONS_MAX - 1)
			registry_full("options", p->name, OPTIONS_MAX - 1, "OPTIONS_MAX", "core/start.c");
		known[known_count++] = (struct option){p->name, 1, NULL, 0};
	}

	*o = (struct options){.socket = "/run/sluice/dataplane.sock",
		.workers = 1,
		.huge = true,
		.buffers = 32768,
		.log_level = "warning",
		.prefix = "sluice"};
	while ((c = getopt_long(count, arguments, "", known, &at)) != -1) {
		switch (c) {
		case 0:
			take(known[at].name, optarg);
			break;
		case 's':
			o->socket = optarg;
			break;
		case 'l':
			o->listen = optarg;
			break;
		case 'c':
			o->certificate = optarg;
			break;
		case 'k':
			o->key = optarg;
			break;
		case 'a':
			o->authority = optarg;
			break;
		case 'N':
			if (!optarg[0] || optarg[0] == ',' || optarg[strlen(optarg) - 1] == ',' || strstr(optarg, ",,"))
				refuse("--client-names", optarg, "names or patterns with commas between them");
			o->client_names = optarg;
			break;
		case 'P':
			// The program's launcher set it when it chose this build (cpu/choose.c), if there are
			// several.
			if (strcmp(optarg, cpu_built_for) != 0)
				refuse("--cpu", optarg, cpu_built_for);
			break;
		case 'u':
			if (fastest_select("look-up", optarg))
				exit(2);
			break;
		case 'U':
			o->core_dumps = true;
			break;
		case 'w':
			o->workers = number("--workers", optarg, 1, WORKER_MAX);
			break;
		case 'C':
			o->cores = optarg;
			break;
		case 'n':
			o->huge = false;
			break;
		case 'H':
			o->huge = true;
			break;
		case 'd':
			o->huge_dir = optarg;
			break;
		case 'm':
			o->memory = number("--memory", optarg, 64, 1 << 20);
			break;
		case 'b':
			o->buffers = number("--buffers", optarg, 2048, 1 << 26);
			break;
		case 'p':
			o->prefix = optarg;
			break;
		case 'L':
			o->log_level = optarg;
			break;
		case 'v':
			printf("sluice-dataplane %s for %s\n", SLUICE_RELEASE, cpu_built_for);
			exit(0);
		case 'h':
			help();
			exit(0);
		default:
			fputs("sluice-dataplane --help says what is accepted\n", stderr);
			exit(2);
		}
	}
	if (optind < count)
		refuse("the command line", arguments[optind], "options only");
	if (o->listen && (!o->certificate || !o->key || !o->authority))
		refuse("--listen", o->listen, "--cert, --key and --ca beside it");
	if (o->client_names && !o->listen)
		refuse("--client-names", o->client_names, "--listen beside it");
	check_for_dpdk(o);
}

// The processors that the process may use at all, whatever its affinity at the start: those of its control group
// (cpuset) that exist.
static int
usable_cores(cpu_set_t *usable)
{
	cpu_set_t before, all;
	int error = 0;

	if (sched_getaffinity(0, sizeof(before), &before))
		return -errno;
	memset(&all, 0xff, sizeof(all));
	if (sched_setaffinity(0, sizeof(all), &all) || sched_getaffinity(0, sizeof(*usable), usable))
		error = -errno;
	sched_setaffinity(0, sizeof(before), &before);
	return error;
}

// "0-1,4"
static void
cores_text(char *text, size_t size, const cpu_set_t *set)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned c = 0, last; c < CPU_SETSIZE && used < size; c = last + 1) {
		last = c;
		if (!CPU_ISSET(c, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		used += (size_t)snprintf(text + used, size - used, "%s%u", used ? "," : "", c);
		if (last > c && used < size)
			used += (size_t)snprintf(text + used, size - used, "-%u", last);
	}
}

// The list that --cores gave. The number of cores in it; ends the process where it is wrong.
static unsigned
parse_cores(const struct options *o, unsigned cores[WORKER_MAX + 1])
{
	char there[128], accepted[192];
	unsigned found = 0;
	cpu_set_t usable;

	for (const char *rest = o->cores, *end; *rest || found == 0; rest = *end ? end + 1 : end) {
		size_t digits = strspn(rest, "0123456789");

		end = rest + digits;
		if (digits == 0 || digits > 5 || (*end && (*end != ',' || !end[1])))
			refuse("--cores", o->cores, "numbers with commas between");
		if (found > WORKER_MAX)
			break;
		cores[found++] = (unsigned)atoi(rest);
	}
	if (found != o->workers + 1)
		refuse("--cores", o->cores, "as many cores as there are workers, and one before them");
	if (usable_cores(&usable))
		return found;
	cores_text(there, sizeof(there), &usable);
	snprintf(accepted, sizeof(accepted), "cores that the data plane may use here (%s)", there);
	for (unsigned i = 0; i < found; i++)
		if (cores[i] >= CPU_SETSIZE || !CPU_ISSET(cores[i], &usable))
			refuse("--cores", o->cores, accepted);
	// A worker that has a core of its own never sleeps: another thread on this core gets little time.
	for (unsigned i = 0; i < found; i++)
		for (unsigned before = 0; before < i; before++)
			if (cores[before] == cores[i])
				refuse("--cores", o->cores, "each core once");
	return found;
}

// Which processor each thread has: the list given, or the first processors that we may use; with fewer processors than
// threads they share.
static int
core_map(const struct options *o, char *text, size_t size)
{
	unsigned available[WORKER_MAX + 1], found = 0;
	cpu_set_t set;
	size_t used = 0;

	if (o->cores) {
		found = parse_cores(o, available);
	} else if (sched_getaffinity(0, sizeof(set), &set) == 0) {
		for (unsigned c = 0; c < CPU_SETSIZE && found <= WORKER_MAX; c++)
			if (CPU_ISSET(c, &set))
				available[found++] = c;
	}
	if (found == 0)
		return -ENODEV;
	for (unsigned thread = 0; thread <= o->workers; thread++)
		used += (size_t)snprintf(
			text + used, size - used, "%s%u@%u", thread ? "," : "", thread, available[thread % found]);
	return 0;
}

static int
environment_start(const struct options *o)
{
	char map[16 * (WORKER_MAX + 1)], memory[32], log_level[32], text[PATH_MAX + 512];
	const char *arguments[24] = {"sluice-dataplane"};
	int count = 1, error = core_map(o, map, sizeof(map));

	if (error)
		return error;
	error = memory_check(o, "", text, sizeof(text));
	if (error) {
		fprintf(stderr, "sluice-dataplane: %s\n", text);
		return error;
	}
	snprintf(memory, sizeof(memory), "%u", memory_for_dpdk(o));
	snprintf(log_level, sizeof(log_level), "*:%s", o->log_level);
	arguments[count++] = "--lcores";
	arguments[count++] = map;
	arguments[count++] = "--main-lcore";
	arguments[count++] = "0";
	arguments[count++] = "--file-prefix";
	arguments[count++] = o->prefix;
	arguments[count++] = "--log-level";
	arguments[count++] = log_level;
	arguments[count++] = "--force-max-simd-bitwidth=512";
	arguments[count++] = "--no-telemetry";
	// No PCI device is ours until a Port object names it.
	arguments[count++] = "-a";
	arguments[count++] = "0000:00:00.0";
	arguments[count++] = "-m";
	arguments[count++] = memory;
	if (!o->huge) {
		arguments[count++] = "--no-huge";
		arguments[count++] = "--no-shconf";
	} else if (o->huge_dir) {
		arguments[count++] = "--huge-dir";
		arguments[count++] = o->huge_dir;
		arguments[count++] = "--huge-unlink";
	} else {
		// Huge pages without a mount, and nothing left on disk.
		arguments[count++] = "--in-memory";
		arguments[count++] = "--single-file-segments";
	}
	optind = 1;
	if (rte_eal_init(count, (char **)arguments) < 0) {
		error = rte_errno > 0 && rte_errno < MAX_ERRNO ? -rte_errno : -EIO;
		fprintf(stderr, "DPDK does not start: %s%s%s%s\n", rte_strerror(rte_errno),
			o->huge_dir ? "; does another data plane run with --prefix " : "", o->huge_dir ? o->prefix : "",
			o->huge ? "; --no-huge does without huge pages" : "");
		rmdir(rte_eal_get_runtime_dir());
		return error;
	}
	// Without shared configuration nothing is kept in the directory that DPDK made: it is gone before we can be killed.
	rmdir(rte_eal_get_runtime_dir());
	return 0;
}

static int
pool_start(const struct options *o)
{
	// Threads cache a small part of the buffers: at most 1.5 times as many for each.
	unsigned cache = RTE_MIN(o->buffers / (8 * (o->workers + 1)), 512u);

	packet_pool = rte_pktmbuf_pool_create("packets", o->buffers, cache, PACKET_SIZE, BUFFER_ROOM, SOCKET_ID_ANY);
	return packet_pool ? 0 : -rte_errno;
}

static struct part *parts;

void
part_register(struct part *part)
{
	part->next = parts;
	parts = part;
}

static int
part_start(const char *name, int (*start)(void))
{
	int error = start();

	if (error)
		fprintf(stderr, "%s cannot start: %s\n", name, strerror(-error));
	return error;
}

static int
parts_start(enum part_phase phase)
{
	int error = 0;

	for (const struct part *part = parts; part && error == 0; part = part->next)
		if (part->phase == phase && part->start)
			error = part_start(part->name, part->start);
	return error;
}

int
core_start(const struct options *o)
{
	static const struct {
		const char *name;
		int (*start)(void);
	} registries[] = {{"rcu", rcu_start}, {"look-ups", fastest_start}, {"drops", drop_start}, {"nodes", node_start},
		{"punts", punt_start}, {"packet slots", packet_slots_start}};
	int error;

	socket_path = o->socket;
	worker_count = o->workers;
	worker_has_core = o->cores != NULL;
	error = environment_start(o);
	if (error)
		return error;
	error = pool_start(o);
	if (error) {
		fprintf(stderr,
			"%u packet buffers do not fit into the %u MiB that DPDK has: give more --memory, or fewer "
			"--buffers\n",
			o->buffers, memory_for_dpdk(o));
		return error;
	}
	for (unsigned i = 0; i < RTE_DIM(registries) && error == 0; i++)
		error = part_start(registries[i].name, registries[i].start);
	if (error == 0)
		error = parts_start(PART_BEFORE_WORKERS);
	if (error == 0)
		error = part_start("workers", worker_start);
	if (error == 0)
		error = part_start("watches", watch_start);
	return error ? error : parts_start(PART_AFTER_WORKERS);
}

int
core_run(void)
{
	return worker_run();
}

int
core_have_socket(void)
{
	return parts_start(PART_WITH_SOCKET);
}

const char *
core_socket(void)
{
	return socket_path;
}

void
core_stop(void)
{
	for (const struct part *part = parts; part; part = part->next)
		if (part->close)
			part->close();
	worker_stop();
	for (const struct part *part = parts; part; part = part->next)
		if (part->stop)
			part->stop();
	rte_eal_cleanup();
	rmdir(rte_eal_get_runtime_dir());
}
