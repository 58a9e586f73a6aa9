// SPDX-License-Identifier: Apache-2.0
// State queries over a socket: of a type that the test registers. Its query and its answer are messages that the contract has for other things.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "dataplane.pb-c.h"
#include "port/all_nodes.h"
#include "server/api.h"

enum { ROWS_MAX = 20000 };

struct row {
	Sluice__V1__ObjectName message;
	char name[16];
};

// A page from the message of the first result on: a name for each result.
static void
serve_results(struct api_call *call, const void *asked)
{
	const Sluice__V1__Results *query = asked;
	Sluice__V1__Delete answer = SLUICE__V1__DELETE__INIT;
	uint64_t cursor = 0;
	struct row *rows;

	if (query->n_results > 0 && !api_page(call, query->results[0]->message, 9, &cursor))
		return;
	rows = api_rows(call, query->n_results, sizeof(*rows), &answer.names);
	assert_non_null(rows);
	while (answer.n_names < query->n_results) {
		struct row *row = &rows[answer.n_names++];

		sluice__v1__object_name__init(&row->message);
		snprintf(row->name, sizeof(row->name), "%lu", cursor++);
		row->message.name = row->name;
	}
	api_answer(call, &answer.base);
}

STATE_QUERY(results_query, sluice__v1__results__descriptor, serve_results)

static char socket_path[64];
static int client;

static void
read_exactly(uint8_t *to, size_t length)
{
	for (size_t had = 0; had < length;) {
		ssize_t got = read(client, to + had, length - had);

		had += got > 0 ? (size_t)got : 0;
		loop_once(0);
	}
}

// The reply, to be freed.
static Sluice__V1__Reply *
ask(Sluice__V1__Request *request)
{
	size_t length = sluice__v1__request__get_packed_size(request);
	uint8_t *frame = malloc(length + 4), head[4], *bytes;
	uint32_t prefix = htonl((uint32_t)length);
	Sluice__V1__Reply *reply;

	assert_non_null(frame);
	memcpy(frame, &prefix, sizeof(prefix));
	sluice__v1__request__pack(request, frame + 4);
	for (size_t sent = 0; sent < length + 4;) {
		ssize_t more = write(client, frame + sent, length + 4 - sent);

		sent += more > 0 ? (size_t)more : 0;
		loop_once(0);
	}
	free(frame);
	read_exactly(head, sizeof(head));
	memcpy(&prefix, head, sizeof(prefix));
	length = ntohl(prefix);
	bytes = malloc(length);
	assert_non_null(bytes);
	read_exactly(bytes, length);
	reply = sluice__v1__reply__unpack(NULL, length, bytes);
	free(bytes);
	assert_non_null(reply);
	assert_int_equal(reply->id, request->id);
	assert_true(reply->last);
	return reply;
}

static Sluice__V1__Reply *
query(const char *type, const uint8_t *bytes, size_t length)
{
	Sluice__V1__Request request = SLUICE__V1__REQUEST__INIT;
	Sluice__V1__StateQuery state = SLUICE__V1__STATE_QUERY__INIT;

	state.type = (char *)type;
	state.query.data = (uint8_t *)bytes;
	state.query.len = length;
	request.id = 7;
	request.operation_case = SLUICE__V1__REQUEST__OPERATION_STATE;
	request.state = &state;
	return ask(&request);
}

// So many results, of which the first has this message.
static Sluice__V1__Reply *
query_results(size_t count, const char *message)
{
	Sluice__V1__Results results = SLUICE__V1__RESULTS__INIT;
	Sluice__V1__Result first = SLUICE__V1__RESULT__INIT, more = SLUICE__V1__RESULT__INIT, *list[ROWS_MAX];
	static uint8_t bytes[4 * ROWS_MAX];

	first.message = (char *)message;
	for (size_t i = 0; i < count; i++)
		list[i] = i == 0 ? &first : &more;
	results.results = list;
	results.n_results = count;
	assert_true(sluice__v1__results__get_packed_size(&results) <= sizeof(bytes));
	return query("Results", bytes, sluice__v1__results__pack(&results, bytes));
}

static void
assert_refused(Sluice__V1__Reply *reply, int code, const char *message)
{
	assert_non_null(reply->result);
	assert_int_equal(reply->result->code, code);
	assert_string_equal(reply->result->message, message);
	assert_int_equal(reply->answer_case, SLUICE__V1__REPLY__ANSWER__NOT_SET);
	sluice__v1__reply__free_unpacked(reply, NULL);
}

static void
an_unknown_type_is_refused_by_its_name(void **state)
{
	assert_refused(query("", NULL, 0), EOPNOTSUPP, "type: this data plane does not know \"\"");
	assert_refused(query("Rain", NULL, 0), EOPNOTSUPP, "type: this data plane does not know \"Rain\"");
	// A message, but no query.
	assert_refused(query("Hello", NULL, 0), EOPNOTSUPP, "type: this data plane does not know \"Hello\"");
}

static void
a_query_that_is_no_such_message_is_refused(void **state)
{
	// A list of results whose first is cut off, and one in which a text is not UTF-8.
	assert_refused(query("Results", (const uint8_t[]){0x0a, 0x05, 0x08}, 3), EINVAL, "query: not a valid Results");
	assert_refused(query_results(1, "\xff"), EINVAL, "results[0].message: not valid UTF-8");
	assert_refused(query_results(1, "here"), EINVAL, "page: only what next_page said is accepted");
	assert_refused(query_results(1, "10"), EINVAL, "page: only what next_page said is accepted");
}

static void
a_query_that_takes_much_more_memory_than_its_bytes_is_refused(void **state)
{
	assert_refused(query_results(ROWS_MAX, ""), E2BIG, "query: it says too much at once; send it in parts");
}

static void
the_answer_of_a_query_is_whole_at_any_length(void **state)
{
	// The length of an answer has one, two and three bytes.
	for (size_t count = 0; count < 400; count += count < 50 ? 1 : 50) {
		Sluice__V1__Reply *reply = query_results(count, "9");
		Sluice__V1__Delete *answer;

		assert_null(reply->result);
		assert_int_equal(reply->answer_case, SLUICE__V1__REPLY__ANSWER_STATE);
		answer = sluice__v1__delete__unpack(NULL, reply->state.len, reply->state.data);
		assert_non_null(answer);
		assert_int_equal(answer->n_names, count);
		for (size_t i = 0; i < count; i++)
			assert_int_equal(atoi(answer->names[i]->name), i + 9);
		sluice__v1__delete__free_unpacked(answer, NULL);
		sluice__v1__reply__free_unpacked(reply, NULL);
	}
}

static int
start(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	Sluice__V1__Request request = SLUICE__V1__REQUEST__INIT;
	Sluice__V1__Hello hello = SLUICE__V1__HELLO__INIT;

	if (all_nodes_start(1, 4096, NULL, 0))
		return -1;
	snprintf(socket_path, sizeof(socket_path), "/tmp/sluice-state-api-test-%d.sock", getpid());
	if (api_start(socket_path, NULL, NULL, NULL, NULL, NULL))
		return -1;
	memcpy(address.sun_path, socket_path, sizeof(socket_path));
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	hello.version = 2;
	request.operation_case = SLUICE__V1__REQUEST__OPERATION_HELLO;
	request.hello = &hello;
	sluice__v1__reply__free_unpacked(ask(&request), NULL);
	return 0;
}

static int
stop(void **state)
{
	close(client);
	api_stop();
	return all_nodes_stop(state);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unknown_type_is_refused_by_its_name),
		cmocka_unit_test(a_query_that_is_no_such_message_is_refused),
		cmocka_unit_test(a_query_that_takes_much_more_memory_than_its_bytes_is_refused),
		cmocka_unit_test(the_answer_of_a_query_is_whole_at_any_length),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
