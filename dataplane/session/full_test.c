// SPDX-License-Identifier: Apache-2.0
// Tables of sessions, tunnels and token buckets that are full: their limits are lowered, which is all that differs.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "core/loop.h"
#include "core/start.h"
#include "gtpu/tunnel.h"
#include "meter.pb-c.h"
#include "meter/profile.h"
#include "port.pb-c.h"
#include "session.pb-c.h"
#include "session/session.h"

enum { ROOM = 3 };

static struct fault f;

static int
put(const char *kind, const char *name, const void *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(length + 1);
	int error;

	protobuf_c_message_pack(message, packed);
	f.text[0] = '\0';
	error = object_put(kind, name, packed, length, &f);
	free(packed);
	return error;
}

static int
put_session(unsigned number, bool tunnel, const char *meter)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	char name[16], address[32];

	snprintf(name, sizeof(name), "s%u", number);
	snprintf(address, sizeof(address), "100.64.0.%u/32", number);
	access.port = "access";
	access.outer_vlan = number;
	session.access = &access;
	session.addresses = (char *[]){address};
	session.n_addresses = 1;
	gtpu.local_address = "192.0.2.1";
	gtpu.remote_address = "192.0.2.2";
	gtpu.local_teid = gtpu.remote_teid = number;
	if (tunnel) {
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
		session.gtpu = &gtpu;
	}
	if (meter) {
		policy.meter_up = (char *)meter;
		session.policy = &policy;
	}
	return put("Session", name, &session);
}

static void
delete_session(unsigned number)
{
	char name[16];

	snprintf(name, sizeof(name), "s%u", number);
	assert_int_equal(object_delete("Session", name, &f), 0);
	// Records that workers might have seen are freed after a grace period.
	for (unsigned i = 0; i < 5; i++)
		loop_once(1);
}

// With room for ROOM sessions of this shape: one more is refused with these words, and there is room again after a deletion.
static void
fills_and_recovers(bool tunnel, const char *meter, const char *words)
{
	for (unsigned i = 1; i <= ROOM; i++)
		assert_int_equal(put_session(i, tunnel, meter), 0);
	for (unsigned again = 0; again < 3; again++) {
		assert_int_equal(put_session(ROOM + 1, tunnel, meter), -ENOSPC);
		assert_non_null(strstr(f.text, words));
	}
	assert_int_equal(put_session(2, tunnel, meter), 0);
	delete_session(1);
	assert_int_equal(put_session(ROOM + 1, tunnel, meter), 0);
	for (unsigned i = 2; i <= ROOM + 1; i++)
		delete_session(i);
}

static void
fill_slab(struct slab *slab, bool tunnel, const char *meter, const char *words)
{
	uint32_t limit = slab->limit;

	slab->limit = slab->used + ROOM - slab->unused_count - slab->resting_count;
	fills_and_recovers(tunnel, meter, words);
	slab->limit = limit;
}

static void
a_session_too_many_is_refused_and_has_room_after_a_deletion(void **state)
{
	fill_slab(&sessions, false, NULL, "sessions are the most there can be");
}

static void
a_tunnel_too_many_is_refused_and_has_room_after_a_deletion(void **state)
{
	fill_slab(&gtpu_tunnels, true, NULL, "gtpu: ");
}

static void
token_buckets_too_many_are_refused_and_have_room_after_a_deletion(void **state)
{
	fill_slab(&meters, false, "meter", "policy.meterUp: there is no room for more token buckets");
}

// A refusal, after other resources were taken, frees all of them.
static void
resources_of_a_refused_session_are_released(void **state)
{
	uint32_t limit = meters.limit;
	unsigned count = 0;

	meters.limit = meters.used;
	while (count < 100 && put_session(count + 1, false, "meter") == 0)
		count++;
	assert_in_range(count, 1, 99);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(put_session(count + 1, false, "meter"), -ENOSPC);
	meters.limit = limit;
	while (count > 0)
		delete_session(count--);
	assert_int_equal(sessions.used, sessions.unused_count + sessions.resting_count);
	assert_int_equal(meters.used, meters.unused_count + meters.resting_count);
}

static int
start(void **state)
{
	char prefix[32];
	struct options o = {.workers = 1, .buffers = 4096, .log_level = "error", .prefix = prefix, .memory = 128};
	Sluice__V1__Port port = SLUICE__V1__PORT__INIT;
	Sluice__V1__Meter meter = SLUICE__V1__METER__INIT;

	snprintf(prefix, sizeof(prefix), "full-test-%d", getpid());
	if (core_start(&o))
		return -1;
	port.device = "net_null0,no-rx=1";
	meter.committed_rate = 1000000;
	meter.committed_burst = 10000;
	return put("Port", "access", &port) || put("Meter", "meter", &meter);
}

static int
stop(void **state)
{
	return rte_eal_cleanup();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_too_many_is_refused_and_has_room_after_a_deletion),
		cmocka_unit_test(a_tunnel_too_many_is_refused_and_has_room_after_a_deletion),
		cmocka_unit_test(token_buckets_too_many_are_refused_and_have_room_after_a_deletion),
		cmocka_unit_test(resources_of_a_refused_session_are_released),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
