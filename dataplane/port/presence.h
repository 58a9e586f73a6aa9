// SPDX-License-Identifier: Apache-2.0
// Other processes on this host, in this network namespace, with a port on the same Linux interface.
#pragma once

#include <stdbool.h>

// Register this process for the interface. A descriptor for presence_end(), or a negative errno.
int presence_begin(unsigned index);
void presence_end(int presence);
// Whether another process has it.
bool presence_of_others(unsigned index);
// Only one process at a time is between this and closing the descriptor that it returns: waits for 2 seconds at most, then -EBUSY.
int presence_lock(unsigned index);
