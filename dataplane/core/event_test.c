// Punted packets to an agent that watches, and to one that does not read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "core/api.h"
#include "dataplane.pb-c.h"
#include "port/all_nodes.h"

enum { AT_ONCE = 200, FRAME = 1900, ROUNDS = 200 };

PUNT(punt_wanted, "test-wanted", 100000000, NULL)

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
	char *punts[] = {"test-wanted"};

	memcpy(address.sun_path, socket_path, sizeof(socket_path));
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	hello.version = 1;
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
	if (api_start(socket_path, NULL, NULL, NULL, NULL))
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
		packet_punt(packet_of(m), &punt_wanted);
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

// The packets among it, and how many more the data plane says that there were.
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
an_agent_that_does_not_read_costs_named_drops_and_is_told_how_many_it_missed(void **state)
{
	uint64_t before = dropped("punt-watcher-slow"), given = 0, slow, packets, lost;

	for (unsigned i = 0; i < ROUNDS && dropped("punt-watcher-slow") == before; i++) {
		punt_some(AT_ONCE);
		given += AT_ONCE;
	}
	slow = dropped("punt-watcher-slow") - before;
	assert_in_range(slow, 1, AT_ONCE);
	read_all();
	// What was missed is said before the next packet.
	punt_some(1);
	read_all();
	count_events(&packets, &lost);
	assert_int_equal(packets, given - slow + 1);
	assert_int_equal(lost, slow);
}

static void
what_one_agent_does_not_take_another_gets(void **state)
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_agent_that_does_not_read_costs_named_drops_and_is_told_how_many_it_missed),
		cmocka_unit_test(what_one_agent_does_not_take_another_gets),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
