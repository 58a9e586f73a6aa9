// SPDX-License-Identifier: Apache-2.0
// The flow of a frame, and that frames of any length and content are read within their bounds.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dispatch/flow.h"

enum { FRAME_MAX = 128 };

struct frame {
	uint8_t bytes[FRAME_MAX];
	size_t length;
};

static void
add(struct frame *f, const void *bytes, size_t length)
{
	memcpy(f->bytes + f->length, bytes, length);
	f->length += length;
}

static void
add16(struct frame *f, uint16_t value)
{
	add(f, (uint8_t[]){(uint8_t)(value >> 8), (uint8_t)value}, 2);
}

struct fields {
	uint16_t outer, inner, pppoe, source_port, fragment;
	uint8_t address, priority;
	uint32_t teid;
	bool ip6;
};

static struct frame
make(const struct fields *w)
{
	static const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
	uint8_t ip4[20] = {0x45, 0, 0, 60, 0, 1, (uint8_t)(w->fragment >> 8), (uint8_t)w->fragment, 64, 17, 0, 0, 10, 0,
		0, w->address, 10, 0, 1, 1};
	uint8_t ip6[40] = {0x60, 0, 0, 0, 0, 40, 17, 64, 0x20, 1, [23] = w->address, 0x20, 1, [39] = 9};
	struct frame f = {.length = 0};

	add(&f, macs, sizeof(macs));
	if (w->outer) {
		add16(&f, 0x88a8);
		add16(&f, (uint16_t)(w->outer | w->priority << 13));
	}
	if (w->inner) {
		add16(&f, 0x8100);
		add16(&f, w->inner);
	}
	if (w->pppoe) {
		add16(&f, 0x8864);
		add16(&f, 0x1100);
		add16(&f, w->pppoe);
		add16(&f, 62);
		add16(&f, w->ip6 ? 0x57 : 0x21);
	} else {
		add16(&f, w->ip6 ? 0x86dd : 0x0800);
	}
	if (w->ip6)
		add(&f, ip6, sizeof(ip6));
	else
		add(&f, ip4, sizeof(ip4));
	add16(&f, w->source_port);
	add16(&f, w->teid ? 2152 : 80);
	add16(&f, 40);
	add16(&f, 0);
	add16(&f, 0x34ff);
	add16(&f, 20);
	add16(&f, (uint16_t)(w->teid >> 16));
	add16(&f, (uint16_t)w->teid);
	add(&f, (uint8_t[24]){0}, 24);
	return f;
}

static uint64_t
flow(const struct fields *w)
{
	struct frame f = make(w);

	return flow_of_frame(f.bytes, f.length);
}

static void
frames_that_differ_in_a_field_of_the_flow_are_of_different_flows(void **state)
{
	const struct fields different[] = {{0}, {.address = 1}, {.source_port = 1}, {.ip6 = true},
		{.ip6 = true, .address = 1}, {.ip6 = true, .source_port = 1}, {.outer = 100}, {.outer = 101},
		{.outer = 100, .inner = 1}, {.outer = 100, .inner = 2}, {.outer = 100, .inner = 1, .pppoe = 7},
		{.outer = 100, .inner = 1, .pppoe = 8}, {.pppoe = 7}, {.pppoe = 7, .ip6 = true}, {.teid = 1},
		{.teid = 2}, {.teid = 1, .ip6 = true}, {.teid = 2, .ip6 = true}};
	enum { COUNT = sizeof(different) / sizeof(different[0]) };

	for (unsigned i = 0; i < COUNT; i++)
		for (unsigned j = 0; j < i; j++)
			assert_true(flow(&different[i]) != flow(&different[j]));
}

static void
a_flow_does_not_depend_on_priority_and_payload(void **state)
{
	struct fields one = {.outer = 100, .inner = 7}, other = one;
	struct frame f = make(&one);

	other.priority = 5;
	assert_true(flow(&one) == flow(&other));
	f.bytes[f.length - 1] = 99;
	assert_true(flow_of_frame(f.bytes, f.length) == flow(&one));
}

static void
all_fragments_of_a_datagram_are_one_flow(void **state)
{
	struct fields first = {.fragment = 0x2000, .source_port = 5},
		      last = {.fragment = 5, .source_port = 9, .teid = 3};

	assert_true(flow(&first) == flow(&last));
}

// In memory that ends where the frame does.
static void
a_frame_may_be_cut_anywhere(void **state)
{
	const struct fields kinds[] = {{.teid = 1}, {.teid = 1, .ip6 = true}, {.outer = 1, .inner = 2, .pppoe = 3},
		{.outer = 1, .inner = 2, .pppoe = 3, .ip6 = true}};

	for (unsigned k = 0; k < 4; k++) {
		struct frame f = make(&kinds[k]);

		for (size_t length = 0; length <= f.length; length++) {
			uint8_t *exact = malloc(length + 1);

			memcpy(exact + 1, f.bytes, length);
			flow_of_frame(exact + 1, length);
			free(exact);
		}
	}
}

static void
frames_that_are_not_ip_are_told_apart_by_their_source(void **state)
{
	struct fields plain = {0};
	struct frame one = make(&plain), other;

	one.bytes[12] = 0x08;
	one.bytes[13] = 0x06;
	other = one;
	other.bytes[30] = 1;
	assert_true(flow_of_frame(one.bytes, 42) == flow_of_frame(other.bytes, 42));
	other.bytes[11] = 9;
	assert_true(flow_of_frame(one.bytes, 42) != flow_of_frame(other.bytes, 42));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_that_differ_in_a_field_of_the_flow_are_of_different_flows),
		cmocka_unit_test(a_flow_does_not_depend_on_priority_and_payload),
		cmocka_unit_test(all_fragments_of_a_datagram_are_one_flow),
		cmocka_unit_test(a_frame_may_be_cut_anywhere),
		cmocka_unit_test(frames_that_are_not_ip_are_told_apart_by_their_source),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
