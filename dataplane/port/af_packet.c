// SPDX-License-Identifier: Apache-2.0
// Corrections of DPDK's net_af_packet (drivers/net/af_packet, 22.11 to 24.11).
//
// The sockets of a device share received frames as a fanout group of the kernel (packet(7)). The driver numbers the
// group by the process's id and the interface's index, one XORed with the other, so that two processes on one host
// may choose the same number for different interfaces: the second is refused. So setsockopt(2), as the driver calls
// it, is the one of this file, which tries further numbers, always in the same order: further sockets of the device
// find the number of its first.
//
// The driver also asks the kernel to reassemble IPv4 fragments before it spreads frames (PACKET_FANOUT_FLAG_DEFRAG). A reassembled
// datagram does not fit into a frame of the ring, and a fragment whose datagram stays incomplete never arrives. A router forwards
// fragments as they are (RFC 1812 section 5.2.6), so the flag is cleared. The kernel spreads frames by a hash that leaves the ports
// of fragments out, so all fragments of a datagram come to one queue.
#include <errno.h>
#include <linux/if_packet.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TRIES = 256, STEP = 40503 /* odd, so that every number has its turn */ };

int
setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
	int result = -1;
	uint32_t group;

	if (level != SOL_PACKET || option != PACKET_FANOUT || length != sizeof(group))
		return (int)syscall(SYS_setsockopt, fd, level, option, value, length);
	memcpy(&group, value, sizeof(group));
	group &= ~((uint32_t)PACKET_FANOUT_FLAG_DEFRAG << 16);
	errno = EINVAL;
	for (unsigned i = 0; i <= TRIES && result != 0 && errno == EINVAL; i++) {
		result = (int)syscall(SYS_setsockopt, fd, level, option, &group, length);
		group = (group & 0xffff0000) | ((group + STEP) & 0xffff);
	}
	return result;
}
