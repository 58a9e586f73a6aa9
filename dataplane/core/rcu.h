// Memory that workers may still be reading is freed when each of them has begun a new round (rte_rcu_qsbr).
// Main thread only.
#pragma once

// Call `release(memory)` when no worker can see it any more.
void rcu_retire(void (*release)(void *), void *memory);
// Wait until no worker can see what was unlinked before the call. Microseconds.
void rcu_wait(void);
