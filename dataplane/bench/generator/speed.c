// SPDX-License-Identifier: Apache-2.0
// Arithmetic on two processors at the same time.
#include "speed.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "bench/compute.h"

enum { TURNS = 2 };

struct runner {
	unsigned processor;
	uint64_t cycles;
	int error;
};

// Both start when both are there, and neither is done before the other.
static atomic_uint arrived, done;

static uint64_t
compute_beside(void)
{
	uint64_t least = UINT64_MAX;

	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < 2)
		;
	for (unsigned i = 0; i < TURNS; i++) {
		uint64_t took = compute();

		least = took < least ? took : least;
	}
	atomic_fetch_add(&done, 1);
	while (atomic_load(&done) < 2)
		compute();
	return least;
}

static void *
run(void *argument)
{
	const struct sched_param first = {.sched_priority = 99};
	struct runner *r = argument;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(r->processor, &set);
	r->error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (!r->error)
		r->error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
	r->cycles = compute_beside();
	return NULL;
}

int
speed_measure(unsigned other, uint64_t cycles[2])
{
	struct runner runners[2] = {{.processor = (unsigned)sched_getcpu()}, {.processor = other}};
	pthread_t threads[2];
	int error;

	atomic_store(&arrived, 0);
	atomic_store(&done, 0);
	// The one on this processor comes last: nothing else runs here once it waits for the other.
	error = pthread_create(&threads[1], NULL, run, &runners[1]);
	if (error)
		return -error;
	error = pthread_create(&threads[0], NULL, run, &runners[0]);
	if (error) {
		// The other does not wait for ever.
		atomic_fetch_add(&arrived, 1);
		atomic_fetch_add(&done, 1);
	} else {
		pthread_join(threads[0], NULL);
	}
	pthread_join(threads[1], NULL);
	for (unsigned i = 0; i < 2; i++) {
		cycles[i] = runners[i].cycles;
		error = error ? error : runners[i].error;
	}
	return -error;
}
