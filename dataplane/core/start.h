// What happens once, in this order, between main() and the first packet.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct options {
	const char *socket;      // path of the API's Unix socket, or NULL
	const char *listen;      // ADDRESS:PORT of the API with mutual TLS, or NULL
	const char *certificate; // PEM files for it
	const char *key;
	const char *authority;
	const char *cores;        // "0,2,3": the main thread's, then a worker's each; NULL: as many as there are
	const char *huge_dir;     // mount of hugetlbfs, or NULL
	const char *event_device; // that spreads packets over workers where a port wants it, or NULL
	const char *prefix;       // names what DPDK keeps in /run/dpdk
	const char *log_level;
	unsigned workers;
	unsigned memory; // MiB; 0: by the number of buffers
	unsigned buffers;
	bool huge;
};

// Fill in from the command line; exits with a message about what is wrong.
void options_parse(struct options *options, int count, char **arguments);

// DPDK, the pool, the registries of nodes, drops, punts and kinds, the graphs. 0 or a negative errno, explained on stderr.
int core_start(const struct options *options);
// Workers begin to walk.
int core_run(void);
// Workers stop; what DPDK keeps on disk is removed.
void core_stop(void);

// The parts that core_start() calls.
int node_start(void);
int drop_start(void);
int punt_start(void);
int object_start(void);
int object_registry_start(void); // its first half: kinds have numbers, and none has been started
int worker_start(void);
int worker_run(void);
void worker_stop(void);
int rcu_start(void);

extern struct rte_mempool *packet_pool;
