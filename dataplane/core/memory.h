// SPDX-License-Identifier: Apache-2.0
// How much memory the packet buffers take, and how much there is: ordinary memory (proc(5)) or huge pages (the kernel's hugetlbpage),
// within the limits of the process's control groups (cgroups(7), both versions).
#pragma once

#include <stdint.h>

#include <rte_mbuf.h>

#include "core/start.h"

// Bytes of packet that a buffer has room for.
enum { BUFFER_ROOM = RTE_PKTMBUF_HEADROOM + 2304 };

// MiB to ask DPDK for: the value of --memory, or the size of the buffers and of DPDK's tables.
unsigned memory_for_dpdk(const struct options *o);
// 0; or -ENOMEM with a text that has the memory needed, the memory available, and the number of buffers that fit. `root` is a prefix of each
// path that is read: "" except in tests.
int memory_check(const struct options *o, const char *root, char *text, size_t size);
