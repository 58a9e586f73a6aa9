// SPDX-License-Identifier: Apache-2.0
// Sockets of the API: listening, TLS, buffers and frames. api.c interprets the frames.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FRAME_MAX = 16 << 20,        // bytes of one frame
	BACKLOG_EVENTS = 4 << 20,    // with more than this unsent, events are left out
	BACKLOG_REQUESTS = 16 << 20, // no further request is read
	STREAMS_MAX = 64,
};

struct stream;

struct stream_user {
	// A new peer. Returns its state, which the stream stores. NULL: there is no room for it.
	void *(*opened)(struct stream *stream);
	// A whole frame. false: the peer does not speak the protocol and is cut off.
	bool (*frame)(struct stream *stream, void *state, const uint8_t *bytes, size_t length);
	void (*closed)(struct stream *stream, void *state);
};

// 0 or a negative errno, explained on stderr.
int stream_listen_unix(const char *path, const struct stream_user *user);
// `names`: of clients, as peer_accept_names() has them, or NULL.
int stream_listen_tls(const char *address_port, const char *certificate, const char *key, const char *authority,
	const char *names, const struct stream_user *user);
void stream_stop(void);

// Room for a frame of `length` bytes, to be filled in at once, and then sent. NULL: no memory; the peer will be cut off.
uint8_t *stream_frame(struct stream *stream, size_t length);
void stream_send(struct stream *stream);
// Hand over no further frames, or do so again.
void stream_hold(struct stream *stream, bool hold);
size_t stream_backlog(const struct stream *stream);
