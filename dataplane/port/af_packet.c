// What DPDK's net_af_packet leaves out (drivers/net/af_packet, 22.11 to 24.11).
//
// The sockets of a device share what comes in as a fanout group of the kernel (packet(7)). The driver numbers the group by the
// process's id and the interface's index, one XORed with the other, so that two processes on one host may choose the same number
// for different interfaces: the second is refused. So setsockopt(2), which the driver calls as everybody does, is ours, and
// goes on to other numbers, always in the same order: further sockets of the device find the number of its first.
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
	int result = (int)syscall(SYS_setsockopt, fd, level, option, value, length);
	uint32_t group;

	if (result == 0 || errno != EINVAL || level != SOL_PACKET || option != PACKET_FANOUT || length != sizeof(group))
		return result;
	memcpy(&group, value, sizeof(group));
	for (unsigned i = 0; i < TRIES && result != 0 && errno == EINVAL; i++) {
		group = (group & 0xffff0000) | ((group + STEP) & 0xffff);
		result = (int)syscall(SYS_setsockopt, fd, level, option, &group, length);
	}
	return result;
}
