// SPDX-License-Identifier: Apache-2.0

// SCTP for hosts whose kernel has none: libusrsctp above raw sockets. It knows the addresses that the host has when it starts.
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include <usrsctp.h>

#include "sockets.h"

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
	a->socket = NULL;
}

const struct stack libusrsctp_stack = {
	.name = "libusrsctp",
	.usable = usable,
	.start = start,
	.open = open_association,
	.send = send_message,
	.shutdown = shut_down,
	.close = close_association,
};
