// SPDX-License-Identifier: Apache-2.0
// Start-up, in this order, between main() and the first packet.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

enum { CRYPTO_DEVICES_MAX = 8 };

struct options {
	const char *socket;      // path of the API's Unix socket, or NULL
	const char *sequences;   // path of the file of ESP sequence numbers, or NULL: beside the socket
	const char *listen;      // ADDRESS:PORT of the API with mutual TLS, or NULL
	const char *certificate; // PEM files for it
	const char *key;
	const char *authority;
	const char *client_names; // patterns of the names of clients that are let in, with commas, or NULL: all of them
	const char *cores;        // "0,2,3": the main thread's, then a worker's each; NULL: as many as there are
	const char *huge_dir;     // mount of hugetlbfs, or NULL
	const char *event_device; // spreads packets over workers for ports that need it, or NULL
	const char *crypto_devices[CRYPTO_DEVICES_MAX]; // of cryptodev, the one in use last; NULL: no more
	const char *prefix;                             // names DPDK's files in /run/dpdk
	const char *log_level;
	unsigned workers;
	unsigned memory; // MiB; 0: by the number of buffers
	unsigned buffers;
	bool huge;
	bool core_dumps;
};

// Fill in from the command line. On an error, print a message and exit.
void options_parse(struct options *options, int count, char **arguments);

// DPDK, the pool, the registries of nodes, drops, punts and kinds, the graphs. 0 or a negative errno, explained on stderr.
int core_start(const struct options *options);
// Workers begin to walk.
int core_run(void);
// Workers stop; DPDK's files are removed.
void core_stop(void);

// A part of the data plane above the core that core_start() starts. Registered (RTE_INIT) by its folder.
enum part_phase {
	PART_BEFORE_WORKERS, // nodes, drops and punts have their numbers; no worker has a graph yet
	PART_AFTER_WORKERS,  // workers have their graphs and do not walk yet
};
struct part {
	const char *name; // plural, for messages: "objects"
	enum part_phase phase;
	int (*start)(void);
	void (*stop)(void); // workers have stopped; may be NULL
	struct part *next;
};
void part_register(struct part *part);

#define PART_REGISTER(part) \
	RTE_INIT(register_##part) \
	{ \
		part_register(&part); \
	}

// The core's own parts.
int node_start(void);
int drop_start(void);
int punt_start(void);
int worker_start(void);
int worker_run(void);
void worker_stop(void);
int rcu_start(void);

extern struct rte_mempool *packet_pool;
