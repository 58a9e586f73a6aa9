// SPDX-License-Identifier: Apache-2.0
// Schedulers by themselves, beside DPDK's rte_sched, and token buckets by themselves.
#include "bench/scenarios/all.h"

enum { WAITING = 4 };

const struct scenario queue_scenarios[] = {
	{.name = "hqos-4k", .flows = 4096, .sizes = {128}, .measure = measure_queues},
	{.name = "rte-sched-4k", .flows = 4096, .sizes = {128}, .measure = measure_queues},
	{.name = "hqos-4k-backlog", .flows = 4096, .sizes = {128}, .measure = measure_queues, .backlog = WAITING},
	{.name = "rte-sched-4k-backlog", .flows = 4096, .sizes = {128}, .measure = measure_queues, .backlog = WAITING},
	{.name = "hqos-64k", .flows = 65536, .sizes = {128}, .measure = measure_queues},
	{.name = "hqos-64k-backlog", .flows = 65536, .sizes = {128}, .measure = measure_queues, .backlog = WAITING},
	{.name = "hqos-192k", .flows = 196608, .sizes = {128}, .measure = measure_queues},
	{.name = "hqos-192k-backlog", .flows = 196608, .sizes = {128}, .measure = measure_queues, .backlog = WAITING},
	{0},
};

const struct scenario rate_scenarios[] = {
	{"rate-1", 1, .rate = true, .scaling = true},
	{"rate-100", 100, .rate = true, .scaling = true},
	{"rate-10k", 10000, .rate = true, .scaling = true},
	{"rate-100k", 100000, .rate = true, .scaling = true},
	{0},
};
