// SPDX-License-Identifier: Apache-2.0
// Start-up, in this order, between main() and the first packet.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

struct options {
	const char *socket;      // path of the API's Unix socket, or NULL
	const char *listen;      // ADDRESS:PORT of the API with mutual TLS, or NULL
	const char *certificate; // PEM files for it
	const char *key;
	const char *authority;
	const char *client_names; // patterns of the names of clients that are let in, with commas, or NULL: all of them
	const char *cores;        // "0,2,3": the main thread's, then a worker's each; NULL: as many as there are
	const char *huge_dir;     // mount of hugetlbfs, or NULL
	const char *prefix;       // names DPDK's files in /run/dpdk
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
// No other data plane has the API's socket: parts of PART_WITH_SOCKET start. 0 or a negative errno, explained on stderr.
int core_have_socket(void);
// Parts close, workers stop, parts stop, and DPDK's files are removed. Ports are closed before.
void core_stop(void);
// Path of the API's socket, or NULL.
const char *core_socket(void);

// An option of the command line that belongs to a concept. Registered (RTE_INIT) by its folder. --help shows them behind the core's own, by name.
struct part_option {
	const char *name;     // without "--"
	const char *argument; // in capital letters, for --help
	const char *help;     // lines of --help
	// The value stays where it is. 0 or a negative errno. Before DPDK starts.
	int (*take)(const char *value);
	const char *
		accepted; // values, in words, for the message about a value that take() refuses; NULL: take() prints one
	struct part_option *next;
};
void option_register(struct part_option *option);

#define OPTION_REGISTER(option) \
	RTE_INIT(register_##option) \
	{ \
		option_register(&option); \
	}

// A part of the data plane above the core. Registered (RTE_INIT) by its folder.
enum part_phase {
	PART_BEFORE_WORKERS, // nodes, drops and punts have their numbers; no worker has a graph yet
	PART_AFTER_WORKERS,  // workers have their graphs and do not walk yet
	PART_WITH_SOCKET,    // core_have_socket(): workers walk, and no request is served yet
};
struct part {
	const char *name; // plural, for messages: "objects"
	enum part_phase phase;
	int (*start)(void);  // may be NULL
	void (*close)(void); // ports are closed, workers still walk; may be NULL
	void (*stop)(void);  // workers have stopped; may be NULL
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
