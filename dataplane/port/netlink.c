// SPDX-License-Identifier: Apache-2.0
// See netlink.h.
#include "port/netlink.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

// The kernel answers before send(2) returns.
static int
ask(int fd, struct nlmsghdr *request, void *answer, size_t size)
{
	const struct nlmsghdr *header = answer;
	const struct nlmsgerr *refusal;
	ssize_t length;

	if (send(fd, request, request->nlmsg_len, 0) < 0)
		return -errno;
	length = recv(fd, answer, size, MSG_DONTWAIT);
	if (length < 0)
		return -errno;
	if (!NLMSG_OK(header, (size_t)length))
		return -EBADMSG;
	if (header->nlmsg_type != NLMSG_ERROR)
		return (int)length;
	refusal = NLMSG_DATA(header);
	return header->nlmsg_len < NLMSG_LENGTH(sizeof(*refusal)) ? -EBADMSG : refusal->error;
}

int
netlink_request(struct nlmsghdr *request, void *answer, size_t size)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), result;

	if (fd < 0)
		return -errno;
	request->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	result = ask(fd, request, answer, size);
	close(fd);
	return result;
}
