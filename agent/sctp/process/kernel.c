// SPDX-License-Identifier: Apache-2.0

// SCTP of the kernel, by its sockets (RFC 6458): a one-to-one socket for each association.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include <linux/sctp.h>

#include "sockets.h"

static int
set(const struct association *a, int option, const void *value, socklen_t length)
{
	return setsockopt(a->fd, IPPROTO_SCTP, option, value, length);
}

// Open a->fd with the options that an association needs.
static int
open_socket(struct association *a, const struct request *r)
{
	const int on = 1, room = 1 << 20;

	a->fd = socket(r->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_SCTP);
	if (a->fd < 0 || !prepare(a, r) || set(a, SCTP_RECVRCVINFO, &on, sizeof(on)) < 0)
		return -1;
	// As much of it as the host permits.
	setsockopt(a->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	setsockopt(a->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	return 0;
}

// Whether the kernel has SCTP, and it knows the options. The first socket loads the module.
static bool
usable(void)
{
	const struct request r = {.heartbeat = 1000, .streams = 1, .remotes = 1};
	struct association a = {.fd = -1};
	bool opened = open_socket(&a, &r) == 0;

	if (a.fd >= 0)
		close(a.fd);
	return opened;
}

static void
start(void)
{
}

static void
open_association(struct association *a, const struct request *r)
{
	if (open_socket(a, r) < 0)
		end(a, "socket of the kernel: %s", strerror(errno));
	else if (r->locals > 0 && set(a, SCTP_SOCKOPT_BINDX_ADD, r->local, (socklen_t)r->local_length) < 0)
		end(a, "bind: %s", strerror(errno));
	else if (set(a, SCTP_SOCKOPT_CONNECTX, r->remote, (socklen_t)r->remote_length) < 0 && errno != EINPROGRESS)
		end(a, "connect: %s", strerror(errno));
}

static int
send_message(struct association *a, uint16_t stream, uint32_t ppid, const uint8_t *data, size_t length)
{
	const struct sctp_sndinfo info = {.snd_sid = stream, .snd_ppid = htonl(ppid)};
	struct iovec octets = {.iov_base = (void *)data, .iov_len = length};
	union {
		struct cmsghdr head;
		uint8_t room[CMSG_SPACE(sizeof(info))];
	} control = {0};
	struct msghdr m = {
		.msg_iov = &octets, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)};

	control.head.cmsg_level = IPPROTO_SCTP;
	control.head.cmsg_type = SCTP_SNDINFO;
	control.head.cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(&control.head), &info, sizeof(info));
	return sendmsg(a->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

// The stream and the payload protocol identifier of a received part.
static bool
find_info(struct msghdr *m, struct sctp_rcvinfo *info)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_SCTP && c->cmsg_type == SCTP_RCVINFO &&
			c->cmsg_len >= CMSG_LEN(sizeof(*info))) {
			memcpy(info, CMSG_DATA(c), sizeof(*info));
			return true;
		}
	}
	return false;
}

static size_t
receive(struct association *a)
{
	static uint8_t part[MAX_MESSAGE + 1];
	struct iovec octets = {.iov_base = part, .iov_len = sizeof(part)};
	union {
		struct cmsghdr head;
		uint8_t room[256];
	} control;
	struct msghdr m = {
		.msg_iov = &octets, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)};
	ssize_t count = recvmsg(a->fd, &m, MSG_DONTWAIT);
	struct sctp_rcvinfo info;

	if (count < 0) {
		if (errno != EAGAIN && errno != EINTR)
			end(a, "receive: %s", strerror(errno));
		return 0;
	}
	if (count == 0) {
		// The peer sent SHUTDOWN.
		a->finishing = true;
		end(a, "the association was shut down");
		return 0;
	}
	if (m.msg_flags & MSG_NOTIFICATION)
		notified(a, part, (size_t)count);
	else if (!find_info(&m, &info))
		end(a, "a message without its stream");
	else
		got_part(a, info.rcv_sid, ntohl(info.rcv_ppid), part, (size_t)count, m.msg_flags & MSG_EOR);
	return (size_t)count;
}

static int
shut_down(struct association *a)
{
	return shutdown(a->fd, SHUT_WR);
}

static void
close_association(struct association *a)
{
	struct linger abort = {.l_onoff = 1};

	if (a->fd < 0)
		return;
	if (!a->finishing)
		setsockopt(a->fd, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
	close(a->fd);
	a->fd = -1;
}

const struct stack kernel_stack = {
	.name = "kernel",
	.restarts = true,
	.usable = usable,
	.start = start,
	.open = open_association,
	.send = send_message,
	.receive = receive,
	.shutdown = shut_down,
	.close = close_association,
};
