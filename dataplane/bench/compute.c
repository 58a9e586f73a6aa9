// SPDX-License-Identifier: Apache-2.0
// How fast a processor is when nothing but itself is in its way.
#include "bench/compute.h"

#include <rte_cycles.h>

enum { STEPS = 1000000 };

uint64_t
compute(void)
{
	uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, start = rte_rdtsc();

	for (unsigned i = 0; i < STEPS; i++) {
		a += a >> 3;
		b += b >> 5;
		c += c >> 7;
		d ^= d << 3;
		e ^= e << 5;
		f ^= f << 7;
		// Six chains in six registers, rather than one vector.
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
	}
	return rte_rdtsc() - start;
}
