// SPDX-License-Identifier: Apache-2.0
// A whole data plane in the harness's own process: real nodes and tables, one object of each kind, two ports whose frames
// end in nothing. Frames lie in memory of exactly their size, so that AddressSanitizer sees each byte read beyond them.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum side { ACCESS, CORE };

// Once. Aborts when something does not start: a harness without its machine would find nothing.
void machine_start(void);
// One frame in by a port, in one or (split > 0) two segments, and everything that follows from it.
void machine_frame(enum side side, const uint8_t *bytes, size_t length, size_t split);
// Every frame was sent, dropped by name or is waiting for something within its bounds; abort if buffers went missing.
void machine_check(void);
// Counters of all frames so far: sent, and dropped by name. To stdout.
void machine_report(void);
