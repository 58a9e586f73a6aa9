// SPDX-License-Identifier: Apache-2.0
// The builder's threads and queues: work to do, for each thread, and work that is done.
#include "server/builder.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rte_common.h>

#include "core/loop.h"

// The main thread answers ARP while we build: with one processor for both, it comes first.
enum { NICE = 10 };

struct queue {
	struct build *first, **end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue finished = {.end = &finished.first};
static bool stopping;

static struct site {
	const char *name;
	pthread_t thread;
	pthread_cond_t more;
	struct queue waiting;
	struct build *at_work;
	bool running;
} sites[] = {
	{.name = "builder", .more = PTHREAD_COND_INITIALIZER, .waiting.end = &sites[0].waiting.first},
	{.name = "builder-small", .more = PTHREAD_COND_INITIALIZER, .waiting.end = &sites[1].waiting.first},
};

static int wake_fd = -1; // readable when something is finished

static void
append(struct queue *queue, struct build *build)
{
	build->next = NULL;
	*queue->end = build;
	queue->end = &build->next;
}

static struct build *
take_first(struct queue *queue)
{
	struct build *build = queue->first;

	if (build)
		queue->first = build->next;
	if (!queue->first)
		queue->end = &queue->first;
	return build;
}

static void *
build_all(void *argument)
{
	struct site *site = argument;
	struct build *build;

	// Of this thread alone, as Linux has it.
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!stopping && !site->waiting.first)
			pthread_cond_wait(&site->more, &lock);
		if (stopping)
			break;
		build = site->at_work = take_first(&site->waiting);
		pthread_mutex_unlock(&lock);
		build->work(build);
		pthread_mutex_lock(&lock);
		site->at_work = NULL;
		append(&finished, build);
		eventfd_write(wake_fd, 1);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void
finish(int fd, uint32_t events, void *unused)
{
	eventfd_t count;
	struct build *build;

	eventfd_read(fd, &count);
	for (;;) {
		pthread_mutex_lock(&lock);
		build = take_first(&finished);
		pthread_mutex_unlock(&lock);
		if (!build)
			return;
		build->done(build);
	}
}

// To be woken by the threads.
static int
listen_to_them(void)
{
	int error;

	if (wake_fd >= 0)
		return 0;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	error = loop_add(wake_fd, EPOLLIN, finish, NULL);
	if (error) {
		close(wake_fd);
		wake_fd = -1;
	}
	return error;
}

static int
start_thread(struct site *site)
{
	sigset_t all, before;
	int error = listen_to_them();

	if (error)
		return error;
	// Signals are the main thread's.
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&site->thread, NULL, build_all, site);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -error;
	pthread_setname_np(site->thread, site->name);
	site->running = true;
	return 0;
}

int
builder_add(struct build *build)
{
	struct site *site = &sites[build->small];
	int error = site->running ? 0 : start_thread(site);

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	append(&site->waiting, build);
	pthread_cond_signal(&site->more);
	pthread_mutex_unlock(&lock);
	return 0;
}

bool
builder_drop(struct build *build)
{
	struct queue *waiting = &sites[build->small].waiting;
	struct build **link = &waiting->first;
	bool found;

	pthread_mutex_lock(&lock);
	while (*link && *link != build)
		link = &(*link)->next;
	found = *link != NULL;
	if (found) {
		*link = build->next;
		if (waiting->end == &build->next)
			waiting->end = link;
	}
	pthread_mutex_unlock(&lock);
	if (!found)
		atomic_store(&build->unwanted, true);
	return found;
}

void
builder_stop(void)
{
	pthread_mutex_lock(&lock);
	stopping = true;
	for (unsigned i = 0; i < RTE_DIM(sites); i++) {
		if (sites[i].at_work)
			atomic_store(&sites[i].at_work->unwanted, true);
		pthread_cond_signal(&sites[i].more);
	}
	pthread_mutex_unlock(&lock);
	for (unsigned i = 0; i < RTE_DIM(sites); i++)
		if (sites[i].running)
			pthread_join(sites[i].thread, NULL);
	if (wake_fd >= 0)
		loop_remove(wake_fd);
	for (unsigned i = 0; i < RTE_DIM(sites); i++)
		sites[i].running = false;
}
