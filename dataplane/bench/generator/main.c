// SPDX-License-Identifier: Apache-2.0
// sluice-generator: sends marked frames at an exact rate by one port, receives by the others, and counts loss, order
// and latency (RFC 2544, RFC 4737). It reads a command a line from its standard input and answers each with a line of
// JSON:
//
//     stream FILE FROM TO LENGTH HEADER    frames of LENGTH bytes without FCS from port FROM to port TO; FILE has the first
//                                          HEADER bytes of each flow's frame, flows in the order in which they are sent
//     links                                which ports have a link
//     trial SECONDS DRAIN RATE...          all streams for SECONDS, each at its RATE in packets a second; then at most DRAIN
//                                          seconds for what is under way
//     speed PROCESSOR                      cycles that arithmetic takes here, and at the same time on that processor
//
// It ends with its standard input.
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "speed.h"
#include "trial.h"

enum { PORTS_LIMIT = 4, BUFFERS = 16384, RING = 1024 };

static const char usage[] =
	"Usage: sluice-generator --port DEVICE [--port DEVICE]... [--core N] [--no-huge] [--prefix NAME]\n"
	"DEVICE is a DPDK device string. Commands come on the standard input.\n";

static struct stream streams[STREAMS_MAX];
static unsigned streams_open;
static uint16_t ports;
static struct rte_mempool *pool;

static int
environment_start(char **devices, unsigned count, const char *core, bool huge, const char *prefix)
{
	char lcores[32], vdev[PORTS_LIMIT][512];
	char *arguments[32] = {"sluice-generator", "--file-prefix", (char *)prefix, "--no-pci", "--no-telemetry",
		"--log-level", "*:warning", "-m", "256", "--lcores", lcores};
	int n = 11;

	snprintf(lcores, sizeof(lcores), "0@%s", core);
	for (unsigned i = 0; i < count; i++) {
		snprintf(vdev[i], sizeof(vdev[i]), "--vdev=%s", devices[i]);
		arguments[n++] = vdev[i];
	}
	if (huge) {
		arguments[n++] = "--in-memory";
	} else {
		arguments[n++] = "--no-huge";
		arguments[n++] = "--no-shconf";
	}
	optind = 1;
	if (rte_eal_init(n, arguments) < 0) {
		fprintf(stderr, "DPDK does not start: %s\n", rte_strerror(rte_errno));
		return -rte_errno;
	}
	pool = rte_pktmbuf_pool_create(
		"frames", BUFFERS, 512, 0, RTE_PKTMBUF_HEADROOM + FRAME_LENGTH_MAX + 304, SOCKET_ID_ANY);
	if (!pool) {
		fprintf(stderr, "there is no memory for %d buffers\n", BUFFERS);
		return -ENOMEM;
	}
	return 0;
}

static int
ports_start(void)
{
	const struct rte_eth_conf plain = {0};
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port)
	{
		uint16_t receive = RING, send = RING;
		int error = rte_eth_dev_configure(port, 1, 1, &plain);

		if (!error)
			error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
		if (!error)
			error = rte_eth_rx_queue_setup(port, 0, receive, SOCKET_ID_ANY, NULL, pool);
		if (!error)
			error = rte_eth_tx_queue_setup(port, 0, send, SOCKET_ID_ANY, NULL);
		if (!error)
			error = rte_eth_dev_start(port);
		if (error) {
			fprintf(stderr, "port %u cannot be started: %s\n", port, rte_strerror(-error));
			return error;
		}
		ports++;
	}
	return 0;
}

static void
failed(const char *what)
{
	printf("{\"error\": \"%s\"}\n", what);
}

static void
command_stream(const char *line)
{
	struct stream *s = &streams[streams_open];
	char file[512];
	unsigned from, to, length, header;
	const char *wrong;

	if (sscanf(line, "stream %511s %u %u %u %u", file, &from, &to, &length, &header) != 5 || from >= ports ||
		to >= ports || length > FRAME_LENGTH_MAX || header > length) {
		failed("stream takes FILE FROM TO LENGTH HEADER");
		return;
	}
	if (streams_open == STREAMS_MAX) {
		failed("there are as many streams as there can be");
		return;
	}
	*s = (struct stream){
		.from = (uint16_t)from, .to = (uint16_t)to, .length = (uint16_t)length, .header = (uint16_t)header};
	wrong = stream_open(s, file);
	if (wrong)
		failed(wrong);
	else
		printf("{\"stream\": %u, \"flows\": %u}\n", streams_open++, s->flows);
}

static void
command_links(void)
{
	printf("{\"links\": [");
	for (uint16_t port = 0; port < ports; port++) {
		struct rte_eth_link link = {0};

		printf("%s%s", port ? ", " : "",
			rte_eth_link_get_nowait(port, &link) == 0 && link.link_status ? "true" : "false");
	}
	printf("]}\n");
}

static void
print_latency(const struct histogram *h)
{
	static const struct {
		const char *name;
		double share;
	} percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}};
	double nanoseconds = 1e9 / (double)rte_get_tsc_hz();

	printf("{\"min\": %.0f", (double)h->least * nanoseconds);
	for (unsigned i = 0; i < RTE_DIM(percentiles); i++)
		printf(", \"%s\": %.0f", percentiles[i].name,
			(double)histogram_percentile(h, percentiles[i].share) * nanoseconds);
	printf(", \"max\": %.0f}", (double)h->most * nanoseconds);
}

static void
command_trial(const char *line)
{
	struct trial t = {0};
	struct outcome o = {0};
	int used = 0;

	if (sscanf(line, "trial %lf %lf%n", &t.seconds, &t.drain, &used) != 2 || !(t.seconds > 0 && t.seconds <= 60) ||
		!(t.drain >= 0 && t.drain <= 10) || streams_open == 0) {
		failed("trial takes SECONDS (up to 60) DRAIN (up to 10) and a RATE for each stream");
		return;
	}
	for (unsigned i = 0; i < streams_open; i++) {
		int more = 0;

		if (sscanf(line + used, "%lf%n", &t.rates[i], &more) != 1 || !(t.rates[i] >= 0 && t.rates[i] < 1e9) ||
			t.rates[i] * t.seconds > 4e9) {
			failed("trial takes a RATE for each stream, each below 1e9, for 4e9 packets at most");
			return;
		}
		used += more;
	}
	trial_run(&t, streams, streams_open, ports, pool, &o);
	printf("{\"seconds\": %.9f, \"stalled\": %.9f, \"strangers\": %lu, \"streams\": [", o.seconds, o.stalled,
		o.strangers);
	for (unsigned i = 0; i < streams_open; i++) {
		const struct stream *s = &streams[i];

		printf("%s{\"intended\": %lu, \"offered\": %lu, \"refused\": %lu, \"received\": %lu, "
		       "\"received_bytes\": %lu, "
		       "\"reordered\": %lu, \"duplicates\": %lu, \"latency_ns\": ",
			i ? ", " : "", s->intended, s->offered, s->refused, s->received, s->received_bytes,
			s->reordered, s->duplicates);
		print_latency(&s->latency);
		printf("}");
	}
	printf("]}\n");
}

static void
command_speed(const char *line)
{
	unsigned processor;
	uint64_t cycles[2];
	int error;

	if (sscanf(line, "speed %u", &processor) != 1 || processor >= CPU_SETSIZE) {
		failed("speed takes PROCESSOR");
		return;
	}
	error = speed_measure(processor, cycles);
	if (error)
		failed(strerror(-error));
	else
		printf("{\"speed\": [%lu, %lu]}\n", cycles[0], cycles[1]);
}

static void
serve(void)
{
	char line[4096];

	printf("{\"ports\": %u, \"tsc_hz\": %lu}\n", ports, rte_get_tsc_hz());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (strncmp(line, "stream ", 7) == 0)
			command_stream(line);
		else if (strncmp(line, "links", 5) == 0)
			command_links();
		else if (strncmp(line, "trial ", 6) == 0)
			command_trial(line);
		else if (strncmp(line, "speed ", 6) == 0)
			command_speed(line);
		else
			failed("accepted: stream, links, trial, speed");
		fflush(stdout);
	}
}

static void
ports_stop(void)
{
	uint16_t port;

	for (unsigned i = 0; i < streams_open; i++)
		stream_close(&streams[i]);
	RTE_ETH_FOREACH_DEV(port)
	{
		rte_eth_dev_stop(port);
		rte_eth_dev_close(port);
	}
}

int
main(int count, char **arguments)
{
	static const struct option known[] = {{"port", 1, NULL, 'p'}, {"core", 1, NULL, 'c'}, {"no-huge", 0, NULL, 'n'},
		{"prefix", 1, NULL, 'f'}, {"help", 0, NULL, 'h'}, {0}};
	char *devices[PORTS_LIMIT];
	const char *core = "0";
	char prefix[64];
	unsigned named = 0;
	bool huge = true;
	int c, error;

	snprintf(prefix, sizeof(prefix), "sluice-generator-%d", getpid());
	while ((c = getopt_long(count, arguments, "", known, NULL)) != -1) {
		if (c == 'p' && named < PORTS_LIMIT) {
			devices[named++] = optarg;
		} else if (c == 'c' && strspn(optarg, "0123456789") == strlen(optarg) && *optarg) {
			core = optarg;
		} else if (c == 'n') {
			huge = false;
		} else if (c == 'f') {
			snprintf(prefix, sizeof(prefix), "%s", optarg);
		} else {
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (named == 0 || optind < count) {
		fputs(usage, stderr);
		return 2;
	}
	error = environment_start(devices, named, core, huge, prefix);
	if (!error)
		error = ports_start();
	if (!error)
		serve();
	ports_stop();
	rte_eal_cleanup();
	rmdir(rte_eal_get_runtime_dir());
	return error ? 1 : 0;
}
