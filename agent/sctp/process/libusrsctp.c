// SPDX-License-Identifier: Apache-2.0

// SCTP for hosts whose kernel has none: libusrsctp above raw sockets. It knows the addresses that the host has when it starts.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <usrsctp.h>

#include "sockets.h"

// The IPv4 addresses of an association that has several local ones.
struct ends {
	const struct association *of;
	in_addr_t local[MAX_ADDRESSES], remote[MAX_ADDRESSES];
	size_t locals, remotes;
	struct ends *next;
};

// libusrsctp sends from threads of its own.
static pthread_mutex_t ends_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ends *first_ends;

static void
remember_ends(const struct association *a, const struct request *r)
{
	const struct sockaddr_in *local = (const void *)r->local, *remote = (const void *)r->remote;
	struct ends *e;

	if (r->v6 || r->locals < 2 || (e = calloc(1, sizeof(*e))) == NULL)
		return;
	e->of = a;
	for (e->locals = 0; e->locals < r->locals; e->locals++)
		e->local[e->locals] = local[e->locals].sin_addr.s_addr;
	for (e->remotes = 0; e->remotes < r->remotes; e->remotes++)
		e->remote[e->remotes] = remote[e->remotes].sin_addr.s_addr;
	pthread_mutex_lock(&ends_lock);
	e->next = first_ends;
	first_ends = e;
	pthread_mutex_unlock(&ends_lock);
}

static void
forget_ends(const struct association *a)
{
	pthread_mutex_lock(&ends_lock);
	for (struct ends **at = &first_ends; *at != NULL; at = &(*at)->next) {
		if ((*at)->of == a) {
			struct ends *e = *at;

			*at = e->next;
			free(e);
			break;
		}
	}
	pthread_mutex_unlock(&ends_lock);
}

static bool
has(const in_addr_t *addresses, size_t count, in_addr_t address)
{
	for (size_t i = 0; i < count; i++) {
		if (addresses[i] == address)
			return true;
	}
	return false;
}

// The source address that the route to an address prefers; 0 without a route.
static in_addr_t
preferred_source(in_addr_t destination)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = destination};
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool known = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
		     getsockname(fd, (struct sockaddr *)&at, &length) == 0;

	if (fd >= 0)
		close(fd);
	return known ? at.sin_addr.s_addr : 0;
}

// The source address of a packet: that of its route if it is a local address of the same association.
static in_addr_t
best_source(in_addr_t source, in_addr_t destination)
{
	in_addr_t best = source;

	pthread_mutex_lock(&ends_lock);
	for (const struct ends *e = first_ends; e != NULL; e = e->next) {
		if (has(e->local, e->locals, source) && has(e->remote, e->remotes, destination)) {
			in_addr_t preferred = preferred_source(destination);

			if (has(e->local, e->locals, preferred))
				best = preferred;
			break;
		}
	}
	pthread_mutex_unlock(&ends_lock);
	return best;
}

// libusrsctp sends through this function instead of that of the C library. It does not know which local address belongs to the route of a remote
// one and takes them in turn: a path would use the network of another, and be lost with it. Its IPv4 packets begin with their IP header, and the
// checksum of SCTP does not cover addresses. The kernel computes the checksum of the header.
ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
	const struct sockaddr_in *to = message->msg_name;

	if (to != NULL && to->sin_family == AF_INET && message->msg_iovlen > 0 &&
		message->msg_iov[0].iov_len >= sizeof(struct iphdr)) {
		struct iphdr *ip = message->msg_iov[0].iov_base;

		ip->saddr = best_source(ip->saddr, ip->daddr);
	}
	return syscall(SYS_sendmsg, fd, message, flags);
}

static int
set(const struct association *a, int option, const void *value, socklen_t length)
{
	return usrsctp_setsockopt(a->socket, IPPROTO_SCTP, option, value, length);
}

// Receives from libusrsctp: a notification, or a part of a message. It is called from one thread.
static int
received(struct socket *socket, union sctp_sockstore from, void *data, size_t length, struct sctp_rcvinfo info,
	int flags, void *of)
{
	struct association *a = of;

	(void)socket;
	(void)from;
	if (data == NULL) {
		end(a, "the association ended");
		return 1;
	}
	if (flags & MSG_NOTIFICATION)
		notified(a, data, length);
	else
		got_part(a, info.rcv_sid, ntohl(info.rcv_ppid), data, length, flags & MSG_EOR);
	free(data);
	return 1;
}

static bool
usable(void)
{
	return true;
}

static void
start(void)
{
	usrsctp_init(0, NULL, NULL);
	// Another SCTP on this host has packets of its own: they are not answered with ABORT.
	usrsctp_sysctl_set_sctp_blackhole(2);
	usrsctp_sysctl_set_sctp_no_csum_on_loopback(0);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
}

static void
open_association(struct association *a, const struct request *r)
{
	sctp_assoc_t ignored;

	a->socket = usrsctp_socket(r->v6 ? AF_INET6 : AF_INET, SOCK_STREAM, IPPROTO_SCTP, received, NULL, 0, a);
	if (a->socket == NULL || !prepare(a, r) || usrsctp_set_non_blocking(a->socket, 1) != 0) {
		end(a, "socket: %s", strerror(errno));
		return;
	}
	if (r->locals > 0 &&
		usrsctp_bindx(a->socket, (struct sockaddr *)r->local, (int)r->locals, SCTP_BINDX_ADD_ADDR) < 0) {
		// The agent knows these words: it starts another process, which has the host's addresses of that time.
		end(a, "local address: %s", strerror(errno));
		return;
	}
	remember_ends(a, r);
	if (usrsctp_connectx(a->socket, (struct sockaddr *)r->remote, (int)r->remotes, &ignored) < 0 &&
		errno != EINPROGRESS)
		end(a, "connect: %s", strerror(errno));
}

static int
send_message(struct association *a, uint16_t stream, uint32_t ppid, const uint8_t *data, size_t length)
{
	struct sctp_sndinfo info = {.snd_sid = stream, .snd_ppid = htonl(ppid)};

	return usrsctp_sendv(a->socket, data, length, NULL, 0, &info, sizeof(info), SCTP_SENDV_SNDINFO, 0) < 0 ? -1 : 0;
}

static int
shut_down(struct association *a)
{
	return usrsctp_shutdown(a->socket, SHUT_WR);
}

static void
close_association(struct association *a)
{
	struct linger abort = {.l_onoff = 1};

	if (a->socket == NULL)
		return;
	usrsctp_setsockopt(a->socket, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
	usrsctp_close(a->socket);
	forget_ends(a);
	a->socket = NULL;
}

const struct stack libusrsctp_stack = {
	.name = "libusrsctp",
	// libusrsctp 0.9.5 counts data that was on its way as still there, and sends no more.
	.restarts = false,
	.usable = usable,
	.start = start,
	.open = open_association,
	.send = send_message,
	.shutdown = shut_down,
	.close = close_association,
};
