// SPDX-License-Identifier: Apache-2.0
// Data planes that share a Linux interface, each with some of its queues. They have the network namespace in common, in
// which names of abstract sockets (unix(7)) are unique, and the kernel frees the name of a killed process.
#include "port/presence.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 200, LOCK_PAUSE = 10000000 /* ns */, LOCK_NAME_MAX = 64 };

// The prefix of the names of all processes on the interface.
static void
name_of(char name[LOCK_NAME_MAX], unsigned index)
{
	snprintf(name, LOCK_NAME_MAX, "sluice-link-%u-", index);
}

// A unique number of this process: its id may be that of another process in another container.
static uint64_t
own(void)
{
	static uint64_t number;

	if (number == 0 && getrandom(&number, sizeof(number), 0) != sizeof(number))
		number = (uint64_t)getpid();
	return number;
}

// A socket with this abstract name, or a negative errno.
static int
named(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), error;

	if (fd < 0)
		return -errno;
	memcpy(address.sun_path + 1, name, length);
	if (bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) ==
		0)
		return fd;
	error = -errno;
	close(fd);
	return error;
}

int
presence_begin(unsigned index)
{
	char name[LOCK_NAME_MAX];

	name_of(name, index);
	snprintf(name + strlen(name), LOCK_NAME_MAX - strlen(name), "%016" PRIx64, own());
	return named(name);
}

void
presence_end(int presence)
{
	if (presence >= 0)
		close(presence);
}

bool
presence_of_others(unsigned index)
{
	char name[LOCK_NAME_MAX], mine[32], line[512];
	FILE *in = fopen("/proc/thread-self/net/unix", "re");
	bool found = false;

	name_of(name, index);
	snprintf(mine, sizeof(mine), "%016" PRIx64 "\n", own());
	while (in && !found && fgets(line, sizeof(line), in)) {
		const char *at = strstr(line, " @"), *behind;

		if (!at || strncmp(at + 2, name, strlen(name)) != 0)
			continue;
		behind = at + 2 + strlen(name);
		found = strcmp(behind, mine) != 0 && strncmp(behind, "lock", 4) != 0;
	}
	if (in)
		fclose(in);
	return found;
}

int
presence_lock(unsigned index)
{
	char name[LOCK_NAME_MAX];
	int fd = -EBUSY;

	name_of(name, index);
	strcat(name, "lock");
	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		fd = named(name);
		if (fd != -EADDRINUSE)
			return fd;
		nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE}, NULL);
	}
	return -EBUSY;
}
