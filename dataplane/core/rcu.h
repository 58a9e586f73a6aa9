// SPDX-License-Identifier: Apache-2.0
// Memory that workers may still be reading is freed when each of them has begun a new round or sleeps (rte_rcu_qsbr).
// Main thread only.
#pragma once

// Call `release(memory)` once no worker can see it.
void rcu_retire(void (*release)(void *), void *memory);
// Wait until no worker can see memory that was unlinked before the call. Takes microseconds. Packets in rings of a sleeping worker are not
// waited for.
void rcu_wait(void);
