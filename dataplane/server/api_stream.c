// SPDX-License-Identifier: Apache-2.0
// The API's sockets: Unix, or TCP with mutual TLS (1.2 and later).
#include "server/api_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <rte_random.h>

#include "core/loop.h"
#include "server/api_peer.h"

enum {
	HANDSHAKE_SECONDS = 5,
	// A frame that is not whole holds memory: it comes at this rate (bytes a second) but for so many seconds.
	FRAME_RATE = 64 << 10,
	FRAME_SECONDS = 10,
	// Answers and events that a peer does not take hold memory, too: it takes so many bytes of them, or all, in so many seconds.
	TAKEN_MIN = 64 << 10,
	TAKEN_SECONDS = 60,
	// Peers that are not identified yet: beyond this number a new one replaces one of them.
	SHAKING_MAX = 256,
	// Accepted in one turn of the loop.
	WELCOME_MAX = 16,
	READ_ROOM = 256 << 10, // bytes
	READ_TURN = 1 << 20,   // then others have theirs
};

struct buffer {
	uint8_t *bytes;
	size_t start, end, room; // valid from start to end
};

struct stream {
	int fd;
	SSL *tls; // NULL on a Unix socket
	const struct stream_user *user;
	void *state;
	struct buffer in, out;
	uint32_t events; // that epoll watches for
	bool shaken;     // the TLS handshake is done
	unsigned age;    // seconds, until then
	size_t received; // bytes of the frame that is not whole, in this second
	unsigned slow;   // seconds in which it came too slowly
	size_t taken;    // bytes that the peer took while some were left unsent, since `unread` was 0
	unsigned unread; // seconds
	struct listener *listener;
	struct stream *next;
	bool held;   // no frames are handed over
	bool broken; // closed as soon as no call uses it
};

struct listener {
	int fd;
	SSL_CTX *tls;
	const struct stream_user *user;
	unsigned streams; // of its own: the ones of TCP leave room for those of the Unix socket
	unsigned shaking; // that are in their TLS handshake; not among `streams`
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static struct listener listeners[2];
static unsigned listener_count;
static struct stream *streams;

// Objects with keys may have been in it.
static void
forget(struct buffer *b)
{
	if (b->bytes)
		explicit_bzero(b->bytes, b->end);
	free(b->bytes);
}

static int
room_for(struct buffer *b, size_t more)
{
	size_t held = b->end - b->start;

	if (b->end + more <= b->room)
		return 0;
	if (held + more > b->room) {
		size_t room = b->room ? b->room : 4096;
		uint8_t *grown;

		while (room < held + more)
			room *= 2;
		grown = malloc(room);
		if (!grown)
			return -ENOMEM;
		if (held)
			memcpy(grown, b->bytes + b->start, held);
		forget(b);
		b->bytes = grown;
		b->room = room;
	} else {
		memmove(b->bytes, b->bytes + b->start, held);
		explicit_bzero(b->bytes + held, b->end - held);
	}
	b->start = 0;
	b->end = held;
	return 0;
}

// Free the memory of a large buffer that is empty now.
static void
shrink(struct buffer *b)
{
	if (b->start != b->end)
		return;
	if (b->bytes)
		explicit_bzero(b->bytes, b->end);
	b->start = b->end = 0;
	if (b->room > 1 << 20) {
		free(b->bytes);
		*b = (struct buffer){0};
	}
}

static void
cut(struct stream *s)
{
	struct stream **link = &streams;

	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
	if (s->shaken)
		s->listener->streams--;
	else
		s->listener->shaking--;
	loop_remove(s->fd);
	if (s->state)
		s->user->closed(s, s->state);
	if (s->tls)
		SSL_free(s->tls);
	close(s->fd);
	forget(&s->in);
	forget(&s->out);
	free(s);
}

size_t
stream_backlog(const struct stream *s)
{
	return s->out.end - s->out.start;
}

// Bytes moved, 0 when the socket would block, negative when the peer is gone.
static ssize_t
move(struct stream *s, bool out, uint8_t *bytes, size_t length)
{
	ssize_t n;

	if (length > 1 << 20)
		length = 1 << 20;
	if (s->tls) {
		n = out ? SSL_write(s->tls, bytes, (int)length) : SSL_read(s->tls, bytes, (int)length);
		if (n > 0)
			return n;
		switch (SSL_get_error(s->tls, (int)n)) {
		case SSL_ERROR_WANT_READ:
		case SSL_ERROR_WANT_WRITE:
			return 0;
		default:
			ERR_clear_error();
			return -1;
		}
	}
	n = out ? send(s->fd, bytes, length, MSG_NOSIGNAL) : recv(s->fd, bytes, length, 0);
	if (n > 0)
		return n;
	return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

static void
flush(struct stream *s)
{
	while (s->out.start < s->out.end) {
		ssize_t n = move(s, true, s->out.bytes + s->out.start, s->out.end - s->out.start);

		if (n < 0)
			s->broken = true;
		if (n <= 0)
			break;
		s->out.start += (size_t)n;
		s->taken += (size_t)n;
	}
	if (stream_backlog(s) == 0 || s->taken >= TAKEN_MIN) {
		s->taken = 0;
		s->unread = 0;
	}
	shrink(&s->out);
}

// Whether further requests are read: the peer reads its replies, and earlier requests are carried out.
static bool
reads(const struct stream *s)
{
	return !s->held && stream_backlog(s) < BACKLOG_REQUESTS;
}

static void
watch_for(struct stream *s)
{
	uint32_t events = (stream_backlog(s) ? EPOLLOUT : 0u) | (reads(s) ? EPOLLIN : 0u);

	if (events != s->events) {
		s->events = events;
		loop_change(s->fd, events);
	}
}

uint8_t *
stream_frame(struct stream *s, size_t length)
{
	uint32_t prefix = htonl((uint32_t)length);
	uint8_t *frame;

	if (s->broken || length > FRAME_MAX || room_for(&s->out, length + sizeof(prefix))) {
		s->broken = true;
		return NULL;
	}
	memcpy(s->out.bytes + s->out.end, &prefix, sizeof(prefix));
	frame = s->out.bytes + s->out.end + sizeof(prefix);
	s->out.end += length + sizeof(prefix);
	return frame;
}

void
stream_hold(struct stream *s, bool hold)
{
	if (s->held == hold)
		return;
	s->held = hold;
	// Frames may be here already: being writable wakes it, in the loop.
	s->events = (hold ? 0u : EPOLLIN) | EPOLLOUT;
	loop_change(s->fd, s->events);
}

void
stream_send(struct stream *s)
{
	if (s->shaken)
		flush(s);
	watch_for(s);
}

// Hand over the whole frames that there are.
static void
take_frames(struct stream *s)
{
	while (!s->broken && reads(s) && s->in.end - s->in.start >= sizeof(uint32_t)) {
		uint32_t length;

		memcpy(&length, s->in.bytes + s->in.start, sizeof(length));
		length = ntohl(length);
		if (length > FRAME_MAX) {
			s->broken = true;
			break;
		}
		if (s->in.end - s->in.start < sizeof(length) + length)
			break;
		if (!s->user->frame(s, s->state, s->in.bytes + s->in.start + sizeof(length), length))
			s->broken = true;
		s->in.start += sizeof(length) + length;
		s->slow = 0;
	}
	shrink(&s->in);
}

static void
receive(struct stream *s)
{
	ssize_t n;

	for (size_t all = 0; all < READ_TURN && !s->broken && reads(s); all += (size_t)n) {
		if (room_for(&s->in, READ_ROOM)) {
			s->broken = true;
			return;
		}
		n = move(s, false, s->in.bytes + s->in.end, s->in.room - s->in.end);
		if (n < 0)
			s->broken = true;
		if (n <= 0)
			return;
		s->in.end += (size_t)n;
		s->received += (size_t)n;
		take_frames(s);
	}
}

// Give a place to an accepted peer. False: there is none.
static bool
admit(struct stream *s)
{
	if (s->listener->streams == STREAMS_MAX)
		return false;
	s->state = s->user->opened(s);
	if (!s->state)
		return false;
	s->shaken = true;
	s->listener->streams++;
	return true;
}

static void
shake(struct stream *s)
{
	int done = SSL_accept(s->tls);

	if (done == 1) {
		if (admit(s))
			s->listener->shaking--;
		else
			s->broken = true;
		return;
	}
	switch (SSL_get_error(s->tls, done)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return;
	default:
		// A refused name is logged already.
		if (SSL_get_verify_result(s->tls) != X509_V_ERR_CERT_REJECTED)
			fprintf(stderr, "api: a TLS peer was refused: %s\n",
				ERR_reason_error_string(ERR_peek_last_error()));
		ERR_clear_error();
		s->broken = true;
	}
}

static void
ready(int fd, uint32_t events, void *argument)
{
	struct stream *s = argument;

	if (!s->shaken)
		shake(s);
	// No reader would notice it.
	if (!reads(s) && (events & (EPOLLHUP | EPOLLERR)))
		s->broken = true;
	if (s->shaken && !s->broken && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		receive(s);
	if (s->shaken && !s->broken && (events & EPOLLOUT)) {
		flush(s);
		take_frames(s);
	}
	if (s->broken) {
		cut(s);
		return;
	}
	watch_for(s);
}

// Close any one of the peers that are not identified yet. If the oldest were closed, a client that opens many connections at once
// would push out all slower ones.
static void
make_room(struct listener *l)
{
	unsigned nth = (unsigned)rte_rand_max(l->shaking);

	for (struct stream *s = streams; s; s = s->next) {
		if (s->listener == l && !s->shaken && nth-- == 0) {
			cut(s);
			return;
		}
	}
}

static void
begin(struct listener *l, int peer)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s) {
		close(peer);
		return;
	}
	*s = (struct stream){.fd = peer, .user = l->user, .events = EPOLLIN, .listener = l};
	if (l->tls) {
		setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
		s->tls = SSL_new(l->tls);
		if (!s->tls || SSL_set_fd(s->tls, peer) != 1)
			goto refuse;
		SSL_set_mode(s->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	}
	if (loop_add(peer, EPOLLIN, ready, s))
		goto refuse;
	if (l->tls) {
		if (l->shaking == SHAKING_MAX)
			make_room(l);
		l->shaking++;
	} else if (!admit(s)) {
		loop_remove(peer);
		goto refuse;
	}
	s->next = streams;
	streams = s;
	return;
refuse:
	if (s->tls)
		SSL_free(s->tls);
	close(peer);
	free(s);
}

static void
welcome(int fd, uint32_t events, void *argument)
{
	for (unsigned i = 0; i < WELCOME_MAX; i++) {
		int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (peer < 0)
			return;
		begin(argument, peer);
	}
}

// A peer that does not shake hands in time keeps others out.
static bool
shakes_too_long(struct stream *s)
{
	return !s->shaken && ++s->age > HANDSHAKE_SECONDS;
}

// A frame that is not whole does not come, or hardly. While nothing is read, that is not the peer's doing.
static bool
comes_too_slowly(struct stream *s)
{
	bool part = s->shaken && reads(s) && s->in.start < s->in.end;

	if (part && s->received < FRAME_RATE)
		s->slow++;
	s->received = 0;
	return part && s->slow > FRAME_SECONDS;
}

// The peer reads none of the queued data, or hardly any.
static bool
takes_too_slowly(struct stream *s)
{
	return s->shaken && stream_backlog(s) > 0 && ++s->unread > TAKEN_SECONDS;
}

static void
look_at_streams(void *unused)
{
	for (struct stream *s = streams, *next; s; s = next) {
		next = s->next;
		if (shakes_too_long(s)) {
			cut(s);
		} else if (comes_too_slowly(s)) {
			fprintf(stderr,
				"api: a client sent part of a request and not the rest in time; it is disconnected\n");
			cut(s);
		} else if (takes_too_slowly(s)) {
			fprintf(stderr, "api: a client did not read its answers for %d seconds; it is disconnected\n",
				TAKEN_SECONDS);
			cut(s);
		}
	}
}

static int
serve(int fd, const struct stream_user *user, SSL_CTX *tls, const char *path)
{
	struct listener *l = &listeners[listener_count++];

	*l = (struct listener){.fd = fd, .tls = tls, .user = user};
	snprintf(l->path, sizeof(l->path), "%s", path);
	if (listen(fd, SHAKING_MAX))
		return -errno;
	if (listener_count == 1)
		loop_every(1000000000, look_at_streams, NULL);
	return loop_add(fd, EPOLLIN, welcome, l);
}

// The folder that the socket lies in, such as /run/sluice, unless it is there; not those above it.
static int
make_folder(const char *path)
{
	char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	char *slash;
	int error;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return 0;
	*slash = '\0';
	if (mkdir(folder, 0755) == 0 || errno == EEXIST)
		return 0;
	error = -errno;
	fprintf(stderr, "api: the folder %s for the socket is not there and cannot be made: %s\n", folder,
		strerror(-error));
	return error;
}

int
stream_listen_unix(const char *path, const struct stream_user *user)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), probe, made;
	struct stat there;
	mode_t mask;

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(address.sun_path)) {
		fprintf(stderr, "api: the socket's path is longer than %zu bytes: %s\n", sizeof(address.sun_path) - 1,
			path);
		close(fd);
		return -ENAMETOOLONG;
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	// Remove the socket of a killed predecessor; a running one keeps its socket.
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof(address)) == 0) {
		fprintf(stderr, "api: another process serves %s\n", path);
		close(probe);
		close(fd);
		return -EADDRINUSE;
	}
	if (probe >= 0)
		close(probe);
	if (lstat(path, &there) == 0) {
		if (!S_ISSOCK(there.st_mode)) {
			fprintf(stderr, "api: %s exists and is not a socket; it is left as it is\n", path);
			close(fd);
			return -EEXIST;
		}
		unlink(path);
	}
	made = make_folder(path);
	if (made) {
		close(fd);
		return made;
	}
	mask = umask(0177);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		int error = errno;

		umask(mask);
		fprintf(stderr, "api: cannot make the socket %s: %s\n", path, strerror(error));
		close(fd);
		return -error;
	}
	umask(mask);
	return serve(fd, user, NULL, path);
}

static SSL_CTX *
tls_context(const char *certificate, const char *key, const char *authority, const char *names)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
	const char *wrong = NULL;

	if (!tls)
		return NULL;
	SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	peer_accept_names(tls, names);
	if (SSL_CTX_use_certificate_chain_file(tls, certificate) != 1)
		wrong = certificate;
	else if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(tls) != 1)
		wrong = key;
	else if (SSL_CTX_load_verify_locations(tls, authority, NULL) != 1)
		wrong = authority;
	if (!wrong) {
		SSL_CTX_set_client_CA_list(tls, SSL_load_client_CA_file(authority));
		return tls;
	}
	fprintf(stderr, "api: cannot use %s: %s\n", wrong, ERR_reason_error_string(ERR_peek_last_error()));
	SSL_CTX_free(tls);
	return NULL;
}

int
stream_listen_tls(const char *address_port, const char *certificate, const char *key, const char *authority,
	const char *names, const struct stream_user *user)
{
	const char *colon = strrchr(address_port, ':');
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM},
			*found;
	char host[64] = "";
	SSL_CTX *tls;
	int fd, error;

	if (!colon || (size_t)(colon - address_port) >= sizeof(host)) {
		fprintf(stderr, "api: --listen takes ADDRESS:PORT, not %s\n", address_port);
		return -EINVAL;
	}
	memcpy(host, address_port, (size_t)(colon - address_port));
	if (host[0] == '[' && colon > address_port && colon[-1] == ']') {
		memmove(host, host + 1, strlen(host));
		host[strlen(host) - 1] = '\0';
	}
	if (getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &found)) {
		fprintf(stderr, "api: --listen takes a numeric ADDRESS:PORT, not %s\n", address_port);
		return -EINVAL;
	}
	tls = tls_context(certificate, key, authority, names);
	if (!tls) {
		freeaddrinfo(found);
		return -EINVAL;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	error = fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) ? -errno : 0;
	freeaddrinfo(found);
	if (error) {
		fprintf(stderr, "api: cannot listen on %s: %s\n", address_port, strerror(-error));
		if (fd >= 0)
			close(fd);
		SSL_CTX_free(tls);
		return error;
	}
	return serve(fd, user, tls, "");
}

void
stream_stop(void)
{
	for (unsigned i = 0; i < listener_count; i++) {
		loop_remove(listeners[i].fd);
		close(listeners[i].fd);
		if (listeners[i].path[0])
			unlink(listeners[i].path);
		SSL_CTX_free(listeners[i].tls);
	}
	listener_count = 0;
}
