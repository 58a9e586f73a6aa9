// SPDX-License-Identifier: Apache-2.0
// Identifications of packets of our own that may be cut (RFC 791 section 3.2, RFC 8200 section 4.5). RFC 6864 section 4.3: none is used
// twice for the same source, destination and protocol as long as a packet may live. So each worker has numbers that no other uses, and goes
// through all of them before it uses one again.
#pragma once

#include <stdint.h>

#include "core/worker.h"

// The low bits of a number, which say whose it is: the worker's index.
static inline unsigned
identification_bits(void)
{
	return worker_count > 1 ? 32 - (unsigned)__builtin_clz(worker_count - 1) : 0;
}

// The `n`th number of this worker, whole for IPv6; its lower half for IPv4.
static inline uint32_t
identification(uint32_t n)
{
	return n << identification_bits() | worker_self()->index;
}
