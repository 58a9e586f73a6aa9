// SPDX-License-Identifier: Apache-2.0

// An association of sluice-sctp, and what an SCTP stack does for it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
	MAX_ADDRESSES = 8,
	MAX_MESSAGE = 1 << 16,
	ADDRESS = 17,
};

struct waiting;

// Of the thread that receives are message and length, of the main thread the queue. `id` is written before the socket exists. `down` goes from the
// thread that receives to the main thread, which frees.
struct association {
	uint32_t id;
	// libusrsctp's socket, or the kernel's.
	struct socket *socket;
	int fd;
	uint8_t *message;
	size_t length;
	struct waiting *first, **last;
	size_t queued;
	// How often the peer started anew, from the thread that receives. While `renewed` is another number, what the agent sends is of an association
	// that is gone.
	uint32_t restarts, renewed;
	bool closing;
	// The peer shut the association down: the stack ends it without ABORT.
	bool finishing;
	bool down;
};

// Addresses are of struct sockaddr_in and sockaddr_in6, one after the other.
struct request {
	// Milliseconds.
	uint32_t heartbeat;
	uint16_t streams;
	bool v6;
	size_t locals, remotes;
	size_t local_length, remote_length;
	uint8_t local[MAX_ADDRESSES * 28], remote[MAX_ADDRESSES * 28];
};

// Functions that return int return 0, or -1 with errno.
struct stack {
	const char *name;
	// It can send in an association whose peer started anew.
	bool restarts;
	bool (*usable)(void);
	void (*start)(void);
	// Calls end() on failure.
	void (*open)(struct association *a, const struct request *r);
	// Without waiting: EAGAIN. `ppid` is in host order.
	int (*send)(struct association *a, uint16_t stream, uint32_t ppid, const uint8_t *data, size_t length);
	// Receive one part of a message or a notification from a->fd. Returns its octets, 0 if there is none. NULL: the stack has a thread for it.
	size_t (*receive)(struct association *a);
	int (*shutdown)(struct association *a);
	// With ABORT if the association is up.
	void (*close)(struct association *a);
};

extern const struct stack libusrsctp_stack, kernel_stack;

// Events of the peer and of the stack; from one thread.
void got_up(struct association *a, uint16_t out, uint16_t in);
void got_restart(struct association *a, uint16_t out, uint16_t in);
void got_path(struct association *a, const struct sockaddr_storage *address, bool reachable);
// A part of a message; `last`: its last one.
void got_part(struct association *a, uint16_t stream, uint32_t ppid, const uint8_t *data, size_t length, bool last);
// The association goes down, with a reason. Only the first call counts.
void __attribute__((format(printf, 2, 3))) end(struct association *a, const char *format, ...);
