// Start-up: command line, DPDK's environment, and the parts of the core in their order.
#include "core/start.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>

#include "core/builder.h"
#include "core/fastest.h"
#include "core/packet.h"
#include "core/punt.h"
#include "core/watch.h"
#include "core/watch_api.h"
#include "core/worker.h"
#include "cpu/cpu.h"

enum { HEADROOM_AND_DATA = RTE_PKTMBUF_HEADROOM + 2304 };

static const char usage[] =
	"Usage: sluice-dataplane [OPTION]...\n"
	"Forwards packets as objects that arrive by its API say.\n"
	"\n"
	"  --socket PATH       the API's Unix socket (default /run/sluice/dataplane.sock)\n"
	"  --listen ADDR:PORT  the API on TCP, with mutual TLS by --cert, --key and --ca (PEM files)\n"
	"  --cpu LEVEL         the program for this kind of CPU instead of the best that runs here: x86-64-v2,\n"
	"                      x86-64-v3, x86-64-v4\n"
	"  --look-up NAME=WAY  look up in this way instead of the one that is fastest when it is tried at the start: "
	"ip4,\n"
	"                      ip6 or acl; any number of times\n"
	"  --workers N         threads that forward (default 1)\n"
	"  --cores LIST        the main thread's core, then one for each worker: 0,2,3\n"
	"  --no-huge           no huge pages: for a laptop or a test\n"
	"  --huge-dir DIR      a mount of hugetlbfs to use (default: none is needed)\n"
	"  --memory MB         for buffers and tables of DPDK's (default: what the buffers need)\n"
	"  --buffers N         packet buffers (default 32768)\n"
	"  --event-device DEV  what spreads packets over workers: event_dsw0 (default), event_sw0 or a PCI address\n"
	"  --prefix NAME       tells this data plane's DPDK files from another's\n"
	"  --log-level LEVEL   error, warning, notice, info or debug (default warning)\n"
	"  --version, --help\n";

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

void
options_parse(struct options *o, int count, char **arguments)
{
	static const struct option known[] = {{"socket", 1, NULL, 's'}, {"listen", 1, NULL, 'l'},
		{"cert", 1, NULL, 'c'}, {"key", 1, NULL, 'k'}, {"ca", 1, NULL, 'a'}, {"workers", 1, NULL, 'w'},
		{"cores", 1, NULL, 'C'}, {"no-huge", 0, NULL, 'n'}, {"huge-dir", 1, NULL, 'd'},
		{"memory", 1, NULL, 'm'}, {"buffers", 1, NULL, 'b'}, {"prefix", 1, NULL, 'p'},
		{"event-device", 1, NULL, 'e'}, {"cpu", 1, NULL, 'P'}, {"look-up", 1, NULL, 'u'},
		{"log-level", 1, NULL, 'L'}, {"version", 0, NULL, 'v'}, {"help", 0, NULL, 'h'}, {0}};
	int c;

	*o = (struct options){.socket = "/run/sluice/dataplane.sock",
		.workers = 1,
		.huge = true,
		.buffers = 32768,
		.log_level = "warning",
		.prefix = "sluice"};
	while ((c = getopt_long(count, arguments, "", known, NULL)) != -1) {
		switch (c) {
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
		case 'P':
			// What stands before this program chose it by that (cpu/choose.c), if there are several.
			if (strcmp(optarg, cpu_built_for) != 0)
				refuse("--cpu", optarg, cpu_built_for);
			break;
		case 'u':
			if (fastest_ask(optarg))
				exit(2);
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
		case 'e':
			o->event_device = optarg;
			break;
		case 'L':
			o->log_level = optarg;
			break;
		case 'v':
			printf("sluice-dataplane %s for %s\n", SLUICE_RELEASE, cpu_built_for);
			exit(0);
		case 'h':
			fputs(usage, stdout);
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
		const char *rest = o->cores;

		for (char *end; found <= WORKER_MAX && *rest; rest = *end ? end + 1 : end) {
			available[found++] = (unsigned)strtoul(rest, &end, 10);
			if (end == rest || (*end && *end != ','))
				refuse("--cores", o->cores, "numbers with commas between");
		}
		if (found != o->workers + 1)
			refuse("--cores", o->cores, "as many cores as there are workers, and one before them");
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
	char map[16 * (WORKER_MAX + 1)], memory[32], log_level[32];
	const char *arguments[24] = {"sluice-dataplane"};
	int count = 1, error = core_map(o, map, sizeof(map));
	unsigned mb = o->memory;

	if (error)
		return error;
	if (!mb)
		mb = 256 + (unsigned)((uint64_t)o->buffers * (HEADROOM_AND_DATA + 384) >> 20);
	snprintf(memory, sizeof(memory), "%u", mb);
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
		fprintf(stderr, "DPDK does not start: %s%s\n", rte_strerror(rte_errno),
			o->huge ? "; are there huge pages (/proc/sys/vm/nr_hugepages)? --no-huge does without" : "");
		rmdir(rte_eal_get_runtime_dir());
		return -rte_errno;
	}
	// Without shared configuration nothing is kept in the directory that DPDK made: it is gone before we can be killed.
	rmdir(rte_eal_get_runtime_dir());
	return 0;
}

static int
pool_start(const struct options *o)
{
	packet_pool = rte_pktmbuf_pool_create(
		"packets", o->buffers, 512, sizeof(struct packet), HEADROOM_AND_DATA, SOCKET_ID_ANY);
	return packet_pool ? 0 : -rte_errno;
}

int
core_start(const struct options *o)
{
	static const struct {
		const char *what;
		int (*start)(void);
	} parts[] = {{"rcu", rcu_start}, {"look-ups", fastest_start}, {"drops", drop_start}, {"nodes", node_start},
		{"punts", punt_start}, {"objects", object_start}, {"workers", worker_start}, {"watching", watch_start}};
	int error;

	worker_count = o->workers;
	worker_has_core = o->cores != NULL;
	error = environment_start(o);
	if (error)
		return error;
	error = pool_start(o);
	if (error) {
		fprintf(stderr, "the packet buffers do not fit into memory: give more --memory, or fewer --buffers\n");
		return error;
	}
	for (unsigned i = 0; i < RTE_DIM(parts); i++) {
		error = parts[i].start();
		if (error) {
			fprintf(stderr, "%s cannot start: %s\n", parts[i].what, strerror(-error));
			return error;
		}
	}
	watch_api_start();
	return 0;
}

int
core_run(void)
{
	return worker_run();
}

void
core_stop(void)
{
	worker_stop();
	builder_stop();
	rte_eal_cleanup();
	rmdir(rte_eal_get_runtime_dir());
}
