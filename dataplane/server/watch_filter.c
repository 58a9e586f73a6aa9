// SPDX-License-Identifier: Apache-2.0
// The threads that compile filters.
#include "server/watch_filter.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pcap/pcap.h>
#include <rte_errno.h>
#include <rte_malloc.h>

enum { THREADS_MAX = 8 };

struct watch_filter {
	char filter[FILTER_MAX + 1];
	sem_t done;
	bool ready;  // the main thread has seen `done`
	int holders; // the main thread and the one that compiles: the last holder frees
	int error;
	char fault[PCAP_ERRBUF_SIZE + 64];
	struct rte_bpf *program;
};

static unsigned threads;

static int
compile(struct watch_filter *f)
{
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, UINT16_MAX);
	struct bpf_program classic;
	struct rte_bpf_prm *program;

	if (!pcap) {
		snprintf(f->fault, sizeof(f->fault), "filter: there is no memory for it");
		return -ENOMEM;
	}
	if (pcap_compile(pcap, &classic, f->filter, 1, PCAP_NETMASK_UNKNOWN)) {
		snprintf(f->fault, sizeof(f->fault), "filter: %s", pcap_geterr(pcap));
		pcap_close(pcap);
		return -EINVAL;
	}
	program = rte_bpf_convert(&classic);
	if (program)
		f->program = rte_bpf_load(program);
	if (!f->program)
		snprintf(f->fault, sizeof(f->fault), "filter: it is too complicated for the data plane: %s",
			rte_strerror(rte_errno));
	pcap_freecode(&classic);
	pcap_close(pcap);
	rte_free(program);
	return f->program ? 0 : -EINVAL;
}

static void
let_go(struct watch_filter *f)
{
	if (__atomic_sub_fetch(&f->holders, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	rte_bpf_destroy(f->program);
	sem_destroy(&f->done);
	free(f);
}

static void *
run(void *argument)
{
	struct watch_filter *f = argument;

	f->error = compile(f);
	sem_post(&f->done);
	let_go(f);
	__atomic_fetch_sub(&threads, 1, __ATOMIC_RELEASE);
	return NULL;
}

struct watch_filter *
watch_filter_begin(const char *filter, char *text, size_t size)
{
	struct watch_filter *f = NULL;
	pthread_attr_t detached;
	pthread_t thread;
	int error;

	if (strlen(filter) > FILTER_MAX) {
		snprintf(text, size, "filter: it has %zu characters; at most %d are accepted", strlen(filter),
			FILTER_MAX);
		errno = E2BIG;
		return NULL;
	}
	if (__atomic_load_n(&threads, __ATOMIC_ACQUIRE) >= THREADS_MAX) {
		snprintf(text, size, "filter: %d others are being compiled already", THREADS_MAX);
		errno = EAGAIN;
		return NULL;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		snprintf(text, size, "filter: there is no memory for it");
		errno = ENOMEM;
		return NULL;
	}
	memcpy(f->filter, filter, strlen(filter));
	sem_init(&f->done, 0, 0);
	f->holders = 2;
	__atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &detached, run, f);
	pthread_attr_destroy(&detached);
	if (error) {
		__atomic_fetch_sub(&threads, 1, __ATOMIC_RELAXED);
		snprintf(text, size, "filter: there is no thread to compile it");
		f->holders = 1;
		let_go(f);
		errno = error;
		return NULL;
	}
	return f;
}

bool
watch_filter_ready(struct watch_filter *f, unsigned milliseconds)
{
	struct timespec until;

	if (f->ready)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)milliseconds * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (sem_clockwait(&f->done, CLOCK_MONOTONIC, &until))
		if (errno != EINTR)
			return false;
	f->ready = true;
	return true;
}

int
watch_filter_take(struct watch_filter *f, struct match *match, char *text, size_t size)
{
	struct rte_bpf_jit jit;

	if (f->error) {
		snprintf(text, size, "%s", f->fault);
		return f->error;
	}
	*match = (struct match){.program = f->program};
	if (rte_bpf_get_jit(f->program, &jit) == 0 && jit.func)
		match->compiled = jit.func;
	match_words(match, f->filter);
	f->program = NULL;
	return 0;
}

void
watch_filter_end(struct watch_filter *f)
{
	let_go(f);
}
