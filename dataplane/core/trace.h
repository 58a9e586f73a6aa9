// SPDX-License-Identifier: Apache-2.0
// Following packets, and capturing them, at any node.
//
// Without a trace or a capture, nodes pay nothing for it. With one, each worker exchanges its nodes' process functions for one that looks at
// the packets first and then calls the node's own.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct worker;

// A worker calls this between two rounds: it takes up or drops the watching functions as asked.
extern uint32_t trace_generation;
void trace_change(struct worker *worker);

extern uint32_t trace_state[];

// Main thread: a followed packet ends outside of the graph. `dropped`: p->drop is the reason; otherwise the agent or
// a port's twin has it.
void trace_end(struct rte_mbuf *m, bool dropped);

#include "core/worker.h"

static inline void
trace_switch(struct worker *worker)
{
	if (unlikely(__atomic_load_n(&trace_generation, __ATOMIC_ACQUIRE) != trace_state[worker->index]))
		trace_change(worker);
}
