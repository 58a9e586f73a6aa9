// SPDX-License-Identifier: Apache-2.0
// The counters of rounds that workers write (rcu.c, worker.c).
#pragma once

struct rte_rcu_qsbr;
extern struct rte_rcu_qsbr *worker_rcu; // NULL before the start and in unit tests: there are no readers
