// SPDX-License-Identifier: Apache-2.0

// SCTP (RFC 9260) in a process of its own, so that packets of a network are not parsed in the agent: the kernel's where there is one, else
// libusrsctp. The argument `kernel` or `libusrsctp` chooses. The agent starts it with a socket of packets as file descriptor 3;
// agent/sctp/process.go is the other end. Each packet begins with a kind (1 octet) and the number of an association (4 octets, network order). See
// enum command and enum event.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "association.h"

enum {
	AGENT = 3,
	HEAD = 5,
	MAX_ASSOCIATIONS = 256,
	// The limit of data that waits for a peer with a closed window, of one association.
	MAX_QUEUED = 8 << 20,
	RETRY_MILLISECONDS = 10,
	IDLE_MILLISECONDS = 200,
	RETIRED = 64,
	// Parts of messages, and octets, between two looks at the room of the agent's socket. It has room if three quarters of its buffer are free.
	MAX_PARTS = 16,
	MAX_OCTETS = MAX_MESSAGE,
};

enum command {
	// heartbeat interval ms (4), local port (2), remote port (2), streams (2), count of local (1) and of remote (1) addresses, then each
	// address: 4 or 6 (1) and 16 octets.
	COMMAND_OPEN = 1,
	// stream (2), payload protocol identifier (4), message.
	COMMAND_SEND = 2,
	// SHUTDOWN, and ABORT.
	COMMAND_CLOSE = 3,
	COMMAND_ABORT = 4,
	// The agent has taken so many (4) EVENT_RESTART of the association: the next messages are for the new one.
	COMMAND_RENEW = 5,
};

enum event {
	// outbound streams (2), inbound streams (2).
	EVENT_UP = 1,
	// stream (2), payload protocol identifier (4), message.
	EVENT_MESSAGE = 2,
	// Text. The number is free again.
	EVENT_DOWN = 3,
	// The peer started anew (RFC 9260 section 5.2): outbound streams (2), inbound streams (2).
	EVENT_RESTART = 4,
	// reachable (1), address as in COMMAND_OPEN.
	EVENT_PATH = 5,
	// The name of the SCTP stack, at the start. The number is 0.
	EVENT_STACK = 6,
};

// A message that the peer has no room for.
struct waiting {
	struct waiting *next;
	size_t length;
	uint16_t stream;
	uint32_t ppid;
	uint8_t data[];
};

static struct association *associations[MAX_ASSOCIATIONS];
static const struct stack *stack;

static void
put16(uint8_t *at, uint16_t value)
{
	value = htons(value);
	memcpy(at, &value, 2);
}

static void
put32(uint8_t *at, uint32_t value)
{
	value = htonl(value);
	memcpy(at, &value, 4);
}

static uint16_t
get16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, 2);
	return ntohs(value);
}

static uint32_t
get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, 4);
	return ntohl(value);
}

// Send an event. Without an agent there is nothing to do.
static void
event(uint32_t id, uint8_t kind, const void *data, size_t length)
{
	uint8_t packet[HEAD + 6 + MAX_MESSAGE];

	packet[0] = kind;
	put32(packet + 1, id);
	memcpy(packet + HEAD, data, length);
	while (send(AGENT, packet, HEAD + length, MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			_exit(0);
	}
}

void
end(struct association *a, const char *format, ...)
{
	char text[200];
	va_list arguments;
	int length;

	if (__atomic_exchange_n(&a->down, true, __ATOMIC_ACQ_REL))
		return;
	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	event(a->id, EVENT_DOWN, text, length < (int)sizeof(text) ? (size_t)length : sizeof(text) - 1);
}

void
got_path(struct association *a, const struct sockaddr_storage *address, bool reachable)
{
	uint8_t path[1 + ADDRESS] = {reachable};

	if (address->ss_family == AF_INET) {
		path[1] = 4;
		memcpy(path + 2, &((const struct sockaddr_in *)address)->sin_addr, 4);
	} else if (address->ss_family == AF_INET6) {
		const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
		// An IPv4 address of a socket that has both families.
		bool mapped = IN6_IS_ADDR_V4MAPPED(v6);

		path[1] = mapped ? 4 : 6;
		memcpy(path + 2, v6->s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
	} else {
		return;
	}
	event(a->id, EVENT_PATH, path, sizeof(path));
}

static void
send_streams(struct association *a, uint8_t kind, uint16_t out, uint16_t in)
{
	uint8_t streams[4];

	put16(streams, out);
	put16(streams + 2, in);
	event(a->id, kind, streams, sizeof(streams));
}

void
got_up(struct association *a, uint16_t out, uint16_t in)
{
	send_streams(a, EVENT_UP, out, in);
}

void
got_restart(struct association *a, uint16_t out, uint16_t in)
{
	if (!stack->restarts) {
		end(a, "the peer started anew");
		return;
	}
	a->length = 0;
	__atomic_add_fetch(&a->restarts, 1, __ATOMIC_ACQ_REL);
	send_streams(a, EVENT_RESTART, out, in);
}

void
got_part(struct association *a, uint16_t stream, uint32_t ppid, const uint8_t *data, size_t length, bool last)
{
	if (__atomic_load_n(&a->down, __ATOMIC_ACQUIRE))
		return;
	if (length > MAX_MESSAGE - a->length) {
		end(a, "a message of more than %d octets", MAX_MESSAGE);
		return;
	}
	memcpy(a->message + 6 + a->length, data, length);
	a->length += length;
	if (!last)
		return;
	put16(a->message, stream);
	put32(a->message + 2, ppid);
	event(a->id, EVENT_MESSAGE, a->message, 6 + a->length);
	a->length = 0;
}

static struct association **
find(uint32_t id)
{
	for (int i = 0; i < MAX_ASSOCIATIONS; i++) {
		if (associations[i] != NULL && associations[i]->id == id)
			return &associations[i];
	}
	return NULL;
}

static socklen_t
get_address(const uint8_t *at, uint16_t port, uint8_t *to)
{
	if (at[0] == 4) {
		struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};

		memcpy(&v4.sin_addr, at + 1, 4);
		memcpy(to, &v4, sizeof(v4));
		return sizeof(v4);
	}
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	memcpy(&v6.sin6_addr, at + 1, 16);
	memcpy(to, &v6, sizeof(v6));
	return sizeof(v6);
}

static void
drop_queue(struct association *a)
{
	while (a->first != NULL) {
		struct waiting *w = a->first;

		a->first = w->next;
		free(w);
	}
	a->last = &a->first;
	a->queued = 0;
}

// Whether the peer has started anew since the agent last knew. The messages that wait are dropped.
static bool
outdated(struct association *a)
{
	if (__atomic_load_n(&a->restarts, __ATOMIC_ACQUIRE) == a->renewed)
		return false;
	drop_queue(a);
	return true;
}

static void
free_association(struct association **slot)
{
	static struct association *retired[RETIRED];
	static int next;
	struct association *a = *slot;

	*slot = NULL;
	stack->close(a);
	drop_queue(a);
	// A callback of libusrsctp that began before may still hold it.
	if (retired[next] != NULL) {
		free(retired[next]->message);
		free(retired[next]);
	}
	retired[next] = a;
	next = (next + 1) % RETIRED;
}

static void
open_association(uint32_t id, const uint8_t *data, size_t length)
{
	struct association **slot = NULL, *a;
	struct request r = {0};

	if (length < 12 || find(id) != NULL)
		return;
	r.heartbeat = get32(data);
	r.streams = get16(data + 8);
	r.locals = data[10];
	r.remotes = data[11];
	if (r.locals > MAX_ADDRESSES || r.remotes == 0 || r.remotes > MAX_ADDRESSES ||
		length != 12 + (r.locals + r.remotes) * ADDRESS)
		return;
	for (size_t i = 0; i < r.locals + r.remotes; i++) {
		const uint8_t *address = data + 12 + i * ADDRESS;

		r.v6 = r.v6 || address[0] == 6;
		if (i < r.locals)
			r.local_length += get_address(address, get16(data + 4), r.local + r.local_length);
		else
			r.remote_length += get_address(address, get16(data + 6), r.remote + r.remote_length);
	}
	for (int i = 0; i < MAX_ASSOCIATIONS && slot == NULL; i++) {
		if (associations[i] == NULL)
			slot = &associations[i];
	}
	a = calloc(1, sizeof(*a));
	if (a == NULL)
		return;
	a->id = id;
	a->fd = -1;
	a->last = &a->first;
	a->message = malloc(6 + MAX_MESSAGE);
	if (slot == NULL || a->message == NULL) {
		end(a, "too many associations");
		free(a->message);
		free(a);
		return;
	}
	*slot = a;
	stack->open(a, &r);
}

// Returns whether the message is on its way, or can never be.
static bool
transmit(struct association *a, uint16_t stream, uint32_t ppid, const uint8_t *data, size_t length)
{
	if (stack->send(a, stream, ppid, data, length) == 0)
		return true;
	if (errno == EWOULDBLOCK || errno == EAGAIN)
		return false;
	end(a, "send: %s", strerror(errno));
	return true;
}

static void
flush(struct association *a)
{
	while (!outdated(a) && a->first != NULL && !a->down) {
		struct waiting *w = a->first;

		if (!transmit(a, w->stream, w->ppid, w->data, w->length))
			return;
		a->first = w->next;
		if (a->first == NULL)
			a->last = &a->first;
		a->queued -= w->length;
		free(w);
	}
}

static void
send_message(struct association *a, const uint8_t *data, size_t length)
{
	struct waiting *w;

	if (length < 6 || a->down || a->closing || outdated(a))
		return;
	if (a->first == NULL && transmit(a, get16(data), get32(data + 2), data + 6, length - 6))
		return;
	if (a->queued + length > MAX_QUEUED) {
		end(a, "the peer takes no messages");
		return;
	}
	w = malloc(sizeof(*w) + length);
	if (w == NULL) {
		end(a, "out of memory");
		return;
	}
	*w = (struct waiting){.length = length - 6, .stream = get16(data), .ppid = get32(data + 2)};
	memcpy(w->data, data + 6, length - 6);
	*a->last = w;
	a->last = &w->next;
	a->queued += w->length;
}

static void
command(const uint8_t *packet, size_t length)
{
	struct association **slot;
	uint32_t id;

	if (length < HEAD)
		return;
	id = get32(packet + 1);
	if (packet[0] == COMMAND_OPEN) {
		open_association(id, packet + HEAD, length - HEAD);
		return;
	}
	slot = find(id);
	if (slot == NULL)
		return;
	switch (packet[0]) {
	case COMMAND_SEND:
		send_message(*slot, packet + HEAD, length - HEAD);
		break;
	case COMMAND_CLOSE:
		(*slot)->closing = true;
		if (stack->shutdown(*slot) < 0)
			end(*slot, "shutdown: %s", strerror(errno));
		break;
	case COMMAND_ABORT:
		end(*slot, "aborted");
		break;
	case COMMAND_RENEW:
		if (length == HEAD + 4) {
			drop_queue(*slot);
			(*slot)->renewed = get32(packet + HEAD);
		}
		break;
	}
}

// Receive from the associations whose socket is ready. Returns whether the agent has room: while it has none, the kernel keeps messages, so that
// this process always takes commands.
static bool
receive_ready(const struct pollfd *ready)
{
	static int turn;
	struct pollfd agent = {.fd = AGENT, .events = POLLOUT};
	size_t octets = 0;
	int parts = 0;

	if (poll(&agent, 1, 0) != 1 || !(agent.revents & POLLOUT))
		return false;
	// The one that was served last comes last.
	for (int i = 1, begin = turn; i <= MAX_ASSOCIATIONS && parts < MAX_PARTS && octets < MAX_OCTETS; i++) {
		int at = (begin + i) % MAX_ASSOCIATIONS;

		if (ready[at].revents == 0)
			continue;
		turn = at;
		while (parts < MAX_PARTS && octets < MAX_OCTETS && !associations[at]->down) {
			size_t length = stack->receive(associations[at]);

			if (length == 0)
				break;
			octets += length;
			parts++;
		}
	}
	return true;
}

static bool
choose(int count, char **arguments)
{
	const char *name = count > 1 ? arguments[1] : "auto";

	if (strcmp(name, "auto") == 0)
		stack = kernel_stack.usable() ? &kernel_stack : &libusrsctp_stack;
	else if (strcmp(name, kernel_stack.name) == 0)
		stack = &kernel_stack;
	else if (strcmp(name, libusrsctp_stack.name) == 0)
		stack = &libusrsctp_stack;
	return stack != NULL;
}

int
main(int count, char **arguments)
{
	static uint8_t packet[HEAD + 6 + MAX_MESSAGE];
	static struct pollfd sockets[1 + MAX_ASSOCIATIONS];
	bool waiting = false, room = true;

	if (!choose(count, arguments)) {
		fprintf(stderr, "sluice-sctp: %s: accepted: auto, kernel, libusrsctp\n", arguments[1]);
		return 2;
	}
	stack->start();
	event(0, EVENT_STACK, stack->name, strlen(stack->name));
	for (;;) {
		sockets[0] = (struct pollfd){.fd = AGENT, .events = room ? POLLIN : POLLIN | POLLOUT};
		for (int i = 0; i < MAX_ASSOCIATIONS; i++) {
			const struct association *a = associations[i];

			// poll() ignores negative descriptors.
			sockets[1 + i] =
				(struct pollfd){.fd = room && a != NULL && !a->down ? a->fd : -1, .events = POLLIN};
		}
		poll(sockets, stack->receive != NULL ? 1 + MAX_ASSOCIATIONS : 1,
			waiting ? RETRY_MILLISECONDS : IDLE_MILLISECONDS);
		waiting = false;
		if (sockets[0].revents & POLLOUT)
			room = true;
		// A restart of a peer comes before messages that would be for its old association.
		for (int i = 1; i <= MAX_ASSOCIATIONS && stack->receive != NULL; i++) {
			if (sockets[i].revents != 0) {
				room = receive_ready(sockets + 1);
				break;
			}
		}
		if (sockets[0].revents & ~POLLOUT) {
			ssize_t length = recv(AGENT, packet, sizeof(packet), MSG_DONTWAIT);

			if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
				break;
			if (length > 0)
				command(packet, (size_t)length);
		}
		for (int i = 0; i < MAX_ASSOCIATIONS; i++) {
			if (associations[i] == NULL)
				continue;
			if (__atomic_load_n(&associations[i]->down, __ATOMIC_ACQUIRE))
				free_association(&associations[i]);
			else if (associations[i]->first != NULL)
				flush(associations[i]);
			waiting = waiting || (associations[i] != NULL && associations[i]->first != NULL);
		}
	}
	// The agent is gone: abort the associations, so that the peers notice at once.
	for (int i = 0; i < MAX_ASSOCIATIONS; i++) {
		if (associations[i] != NULL)
			free_association(&associations[i]);
	}
	usleep(10000);
	return 0;
}
