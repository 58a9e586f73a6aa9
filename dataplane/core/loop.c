// SPDX-License-Identifier: Apache-2.0
// epoll, timers and pollers of the main thread.
#include "core/loop.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "core/registry.h"

enum { MAX_EVENTS = 64, MAX_POLLERS = 32, MAX_TIMERS = 64 };

struct watched {
	loop_fd_fn call;
	void *argument;
};

struct timer {
	uint64_t interval, next;
	loop_fn call;
	void *argument;
};

static int epoll_fd = -1;
static struct watched *watched; // by file descriptor
static int watched_room;
static struct timer timers[MAX_TIMERS];
static struct timer pollers[MAX_POLLERS];
static unsigned timer_count, poller_count;
static volatile bool stopped;

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int
open_epoll(void)
{
	if (epoll_fd < 0)
		epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_fd < 0 ? -errno : 0;
}

int
loop_add(int fd, uint32_t events, loop_fd_fn call, void *argument)
{
	struct epoll_event e = {.events = events, .data.fd = fd};
	int error = open_epoll();

	if (error)
		return error;
	if (fd >= watched_room) {
		int room = fd + 64;
		struct watched *grown = realloc(watched, (size_t)room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		for (int i = watched_room; i < room; i++)
			grown[i] = (struct watched){0};
		watched = grown;
		watched_room = room;
	}
	watched[fd] = (struct watched){call, argument};
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

int
loop_change(int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &e) ? -errno : 0;
}

void
loop_remove(int fd)
{
	if (fd < 0 || fd >= watched_room)
		return;
	watched[fd] = (struct watched){0};
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void
loop_every(uint64_t interval, loop_fn call, void *argument)
{
	if (timer_count == MAX_TIMERS)
		registry_full("timers of the main thread", "another", MAX_TIMERS, "MAX_TIMERS", "core/loop.c");
	timers[timer_count++] = (struct timer){interval, now() + interval, call, argument};
}

void
loop_poll(loop_fn call, void *argument)
{
	if (poller_count == MAX_POLLERS)
		registry_full("pollers of the main thread", "another", MAX_POLLERS, "MAX_POLLERS", "core/loop.c");
	pollers[poller_count++] = (struct timer){.call = call, .argument = argument};
}

void
loop_once(int timeout_ms)
{
	struct epoll_event events[MAX_EVENTS];
	uint64_t time;
	int count;

	if (open_epoll())
		return;
	count = epoll_wait(epoll_fd, events, MAX_EVENTS, timeout_ms);
	for (int i = 0; i < count; i++) {
		struct watched w = watched[events[i].data.fd];

		// An earlier event of this round may have closed this one.
		if (w.call)
			w.call(events[i].data.fd, events[i].events, w.argument);
	}
	for (unsigned i = 0; i < poller_count; i++)
		pollers[i].call(pollers[i].argument);
	time = now();
	for (unsigned i = 0; i < timer_count; i++)
		if (time >= timers[i].next) {
			timers[i].next = time + timers[i].interval;
			timers[i].call(timers[i].argument);
		}
}

void
loop_run(void)
{
	while (!stopped)
		loop_once(1);
}

void
loop_stop(void)
{
	stopped = true;
}
