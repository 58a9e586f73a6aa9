// Memory that workers may still be reading is freed when each of them has begun a new round or sleeps (rte_rcu_qsbr).
// Main thread only.
#pragma once

// Call `release(memory)` when no worker can see it any more.
void rcu_retire(void (*release)(void *), void *memory);
// Wait until no worker can see what was unlinked before the call. Microseconds. It says nothing of what waits in rings for a worker
// that sleeps.
void rcu_wait(void);
