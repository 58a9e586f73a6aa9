// SPDX-License-Identifier: Apache-2.0
// Punted packets to an agent that watches, and to one that does not read.
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#include <cmocka.h>

#include "dataplane.pb-c.h"
#include "port/all_nodes.h"
#include "server/api.h"

enum { AT_ONCE = 200, FRAME = 1900, ROUNDS = 200 };

static const uint64_t SECOND = 1000000000;

// The clock of this process, which a test can put forward.
static uint64_t ahead;

int
clock_gettime(clockid_t clock, struct timespec *t)
{
	int error = (int)syscall(SYS_clock_gettime, clock, t);
	uint64_t time = (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec + ahead;

	*t = (struct timespec){.tv_sec = (time_t)(time / SECOND), .tv_nsec = (long)(time % SECOND)};
	return error;
}

// The data plane's system calls that send to a client.
static unsigned sends;

ssize_t
send(int fd, const void *bytes, size_t length, int flags)
{
	sends++;
	return sendto(fd, bytes, length, flags, NULL, 0);
}

static void
pass(unsigned seconds)
{
	for (unsigned i = 0; i < seconds; i++) {
		ahead += SECOND;
		for (unsigned j = 0; j < 4; j++)
			loop_once(0);
	}
}

PUNT(punt_watched_test, "test-watched", 100000000, NULL)

static char socket_path[64];
static int client;
static uint8_t received[16 << 20];
static size_t received_length;

static void
ask(uint64_t id, Sluice__V1__Request *request)
{
	uint8_t frame[256];
	size_t length;

	request->id = id;
	length = sluice__v1__request__pack(request, frame + 4);
	memcpy(frame, (uint8_t[4]){0, 0, (uint8_t)(length >> 8), (uint8_t)length}, 4);
	assert_int_equal(write(client, frame, length + 4), length + 4);
	for (unsigned i = 0; i < 10; i++)
		loop_once(0);
}

// Another agent, which asks for the packets of the test.
static int
connect_client(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	Sluice__V1__Request request = SLUICE__V1__REQUEST__INIT;
	Sluice__V1__Hello hello = SLUICE__V1__HELLO__INIT;
	Sluice__V1__Watch watch = SLUICE__V1__WATCH__INIT;
	char *punts[] = {"test-watched"};

	memcpy(address.sun_path, socket_path, sizeof(socket_path));
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	hello.version = 2;
	request.operation_case = SLUICE__V1__REQUEST__OPERATION_HELLO;
	request.hello = &hello;
	ask(1, &request);
	watch.punts = punts;
	watch.n_punts = 1;
	request.operation_case = SLUICE__V1__REQUEST__OPERATION_WATCH;
	request.watch = &watch;
	ask(2, &request);
	return 0;
}

static int
start(void **state)
{
	if (all_nodes_start(1, 4096, NULL, 0))
		return -1;
	snprintf(socket_path, sizeof(socket_path), "/tmp/sluice-event-test-%d.sock", getpid());
	if (api_start(socket_path, NULL, NULL, NULL, NULL, NULL))
		return -1;
	return connect_client();
}

static int
stop(void **state)
{
	close(client);
	api_stop();
	return all_nodes_stop(state);
}

static void
punt_some(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packet_new();

		memset(rte_pktmbuf_append(m, FRAME), 0x5a, FRAME);
		packet_punt(packet_of(m), &punt_watched_test);
		node_edge(&inject_node, &punt_node);
		inject(m, &punt_node);
	}
	walk();
}

// All that the data plane has to say.
static void
read_all(void)
{
	unsigned quiet = 0;

	while (quiet < 10) {
		ssize_t got = read(client, received + received_length, sizeof(received) - received_length);

		quiet = got > 0 ? 0 : quiet + 1;
		received_length += got > 0 ? (size_t)got : 0;
		assert_true(received_length < sizeof(received));
		loop_once(0);
	}
}

// The packets in it, and the number of missed packets in its last event.
static void
count_events(uint64_t *packets, uint64_t *lost)
{
	size_t at = 0;

	*packets = *lost = 0;
	while (at + 4 <= received_length) {
		size_t length = (size_t)received[at] << 24 | (size_t)received[at + 1] << 16 |
				(size_t)received[at + 2] << 8 | received[at + 3];
		Sluice__V1__Reply *reply = sluice__v1__reply__unpack(NULL, length, received + at + 4);

		assert_non_null(reply);
		if (reply->answer_case == SLUICE__V1__REPLY__ANSWER_EVENT) {
			*packets += reply->event->event_case == SLUICE__V1__EVENT__EVENT_PACKET_IN;
			*lost += reply->event->event_case == SLUICE__V1__EVENT__EVENT_LOST ? reply->event->lost : 0;
		}
		sluice__v1__reply__free_unpacked(reply, NULL);
		at += 4 + length;
	}
	assert_int_equal(at, received_length);
}

static void
an_agent_that_does_not_read_costs_named_drops_and_gets_their_number(void **state)
{
	uint64_t before = dropped("punt-watcher-slow"), given = 0, slow, packets, lost;

	for (unsigned i = 0; i < ROUNDS && dropped("punt-watcher-slow") == before; i++) {
		punt_some(AT_ONCE);
		given += AT_ONCE;
	}
	slow = dropped("punt-watcher-slow") - before;
	assert_in_range(slow, 1, AT_ONCE);
	read_all();
	// The number of missed packets precedes the next packet.
	punt_some(1);
	read_all();
	count_events(&packets, &lost);
	assert_int_equal(packets, given - slow + 1);
	assert_int_equal(lost, slow);
}

static void
packets_that_come_together_take_one_system_call(void **state)
{
	uint64_t packets, lost;

	received_length = 0;
	sends = 0;
	punt_some(AT_ONCE);
	read_all();
	count_events(&packets, &lost);
	assert_int_equal(packets, AT_ONCE);
	assert_int_equal(lost, 0);
	assert_in_range(sends, 1, AT_ONCE / 10);
}

static void
packets_that_one_agent_does_not_take_go_to_another(void **state)
{
	uint64_t before = dropped("punt-watcher-slow"), packets, lost;
	int first = client;

	// The newest is asked first, and stops reading; the one before has the rest.
	connect_client();
	for (unsigned i = 0; i < ROUNDS / 2; i++) {
		int newest = client;

		punt_some(AT_ONCE);
		client = first;
		received_length = 0;
		read_all();
		client = newest;
		if (received_length > 0)
			break;
	}
	count_events(&packets, &lost);
	assert_in_range(packets, 1, AT_ONCE);
	assert_int_equal(lost, 0);
	assert_int_equal(dropped("punt-watcher-slow"), before);
	close(client);
	client = first;
}

static bool
disconnected(void)
{
	struct pollfd p = {.fd = client};

	poll(&p, 1, 0);
	return p.revents & POLLHUP;
}

// Reads at most `most` bytes of the data plane's output.
static size_t
read_some(size_t most)
{
	size_t all = 0;
	ssize_t got;

	while (all < most && (got = read(client, received, RTE_MIN(most - all, sizeof(received)))) > 0) {
		all += (size_t)got;
		loop_once(0);
	}
	return all;
}

static void
a_client_that_does_not_read_for_a_minute_is_disconnected(void **state)
{
	int first = client;

	connect_client();
	// More than the socket holds.
	for (unsigned i = 0; i < 8; i++)
		punt_some(AT_ONCE);
	// It is slow, but reads.
	for (unsigned i = 0; i < 4; i++) {
		pass(40);
		assert_false(disconnected());
		assert_int_equal(read_some(256 << 10), 256 << 10);
	}
	pass(30);
	assert_false(disconnected());
	pass(40);
	assert_true(disconnected());
	close(client);

	// One that has read all is not, however long there is nothing.
	client = first;
	received_length = 0;
	read_all();
	pass(200);
	assert_false(disconnected());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_agent_that_does_not_read_costs_named_drops_and_gets_their_number),
		cmocka_unit_test(a_client_that_does_not_read_for_a_minute_is_disconnected),
		cmocka_unit_test(packets_that_come_together_take_one_system_call),
		cmocka_unit_test(packets_that_one_agent_does_not_take_go_to_another),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
