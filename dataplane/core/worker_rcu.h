// What workers report their rounds to (rcu.c, worker.c).
#pragma once

struct rte_rcu_qsbr;
extern struct rte_rcu_qsbr *worker_rcu; // NULL before the start and in unit tests: nobody reads
