// SPDX-License-Identifier: Apache-2.0
// Corrections of DPDK's net_af_xdp of 22.11. A device that is closed, or that could not be set up, takes the XDP
// program off its interface, even if other processes get packets by it. This file prevents that, and link.c removes the program for the last one.
//
// A closed device (drivers/net/af_xdp, with libxdp 1.3) leaves its socket open and bound to its queue, so that the next
// bind(2) fails with EBUSY, and its buffers in the fill ring are lost. This file closes the sockets. The buffers stay lost, so no
// device may take so many that packets can no longer wait for a neighbour.
#include "port/xdp.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_mempool.h>

#include "core/start.h"

enum { FILL_RING = 2048, FD_MAX = 65536 };

static uint16_t owner[FD_MAX]; // port + 1, by file descriptor

// In place of libbpf's, which net_af_xdp calls.
int bpf_xdp_detach(int ifindex, uint32_t flags, const void *options);

int
bpf_xdp_detach(int ifindex, uint32_t flags, const void *options)
{
	(void)ifindex;
	(void)flags;
	(void)options;
	return 0;
}

int
xdp_check_buffers(const struct rte_eth_dev_info *info, unsigned queues, struct fault *f)
{
	unsigned needed = queues * FILL_RING, available = rte_mempool_avail_count(packet_pool);

	if (strcmp(info->driver_name, "net_af_xdp") || available >= needed + packet_pool->size / 2)
		return 0;
	return fault(f, ENOBUFS,
		"device: net_af_xdp takes %u packet buffers, which are lost when the port goes, and too few of the %u "
		"would "
		"stay free (%u are now); start the data plane with more --buffers",
		needed, packet_pool->size, available);
}

// Call for each AF_XDP socket of the process.
static void
each_socket(uint16_t port, void (*call)(int fd, uint16_t port))
{
	DIR *directory = opendir("/proc/self/fd");

	for (const struct dirent *e; directory && (e = readdir(directory)) != NULL;) {
		int fd = atoi(e->d_name), domain = 0;
		socklen_t length = sizeof(domain);

		if (fd > 0 && fd < FD_MAX && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
			domain == AF_XDP)
			call(fd, port);
	}
	if (directory)
		closedir(directory);
}

static void
keep(int fd, uint16_t port)
{
	if (owner[fd] == 0)
		owner[fd] = (uint16_t)(port + 1);
}

static void
close_left(int fd, uint16_t port)
{
	if (owner[fd] == 0 || owner[fd] == port + 1)
		close(fd);
}

void
xdp_keep_sockets(uint16_t port)
{
	each_socket(port, keep);
}

void
xdp_close_sockets(uint16_t port)
{
	each_socket(port, close_left);
	for (unsigned fd = 0; fd < FD_MAX; fd++)
		if (owner[fd] == port + 1)
			owner[fd] = 0;
}
