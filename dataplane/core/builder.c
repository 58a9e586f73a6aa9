// The builder's thread and its two queues: what is to do, and what was done.
#include "core/builder.h"

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

#include "core/loop.h"

// The main thread answers ARP while we build: with one processor for both, it comes first.
enum { NICE = 10 };

struct queue {
	struct build *first, **end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct queue waiting = {.end = &waiting.first}, finished = {.end = &finished.first};
static struct build *at_work;
static bool stopping;

static pthread_t thread;
static bool running;
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
build_all(void *unused)
{
	struct build *build;

	// Of this thread alone, as Linux has it.
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!stopping && !waiting.first)
			pthread_cond_wait(&more, &lock);
		if (stopping)
			break;
		build = at_work = take_first(&waiting);
		pthread_mutex_unlock(&lock);
		build->work(build);
		pthread_mutex_lock(&lock);
		at_work = NULL;
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

static int
start_thread(void)
{
	sigset_t all, before;
	int error;

	if (wake_fd < 0)
		wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	error = loop_add(wake_fd, EPOLLIN, finish, NULL);
	if (error)
		return error;
	// Signals are the main thread's.
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, build_all, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		loop_remove(wake_fd);
		return -error;
	}
	pthread_setname_np(thread, "builder");
	running = true;
	return 0;
}

int
builder_add(struct build *build)
{
	int error = running ? 0 : start_thread();

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	append(&waiting, build);
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
	return 0;
}

bool
builder_drop(struct build *build)
{
	struct build **link = &waiting.first;
	bool found;

	pthread_mutex_lock(&lock);
	while (*link && *link != build)
		link = &(*link)->next;
	found = *link != NULL;
	if (found) {
		*link = build->next;
		if (waiting.end == &build->next)
			waiting.end = link;
	}
	pthread_mutex_unlock(&lock);
	if (!found)
		atomic_store(&build->unwanted, true);
	return found;
}

void
builder_stop(void)
{
	if (!running)
		return;
	pthread_mutex_lock(&lock);
	stopping = true;
	if (at_work)
		atomic_store(&at_work->unwanted, true);
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	loop_remove(wake_fd);
	running = false;
}
