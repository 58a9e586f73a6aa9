// SPDX-License-Identifier: Apache-2.0
// The broadband network gateway's chains: PPPoE, meters, many routes.
#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"
#include "bench/scenarios/subscribers.h"

// The papers' gateways have more routes than one: 100,000 for 128,000 subscribers, and 150,000 for 192,000.
static uint32_t
bng_routes(const struct scenario *s)
{
	return s->flows / 128 * 100;
}

static unsigned
bng_up_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned prefix_length;
	uint32_t to = prefix4((uint32_t)(flow * 7919u % bng_routes(s)), &prefix_length);

	return up_frame_to(to + 7, 0x1100, flow, length, h);
}

static int
bng_up(const struct scenario *s)
{
	if (make_ground() || make_routes4(bng_routes(s)) || make_meter())
		return -1;
	return make_sessions(s->flows, PPPOE | METER);
}

static int
bng_down(const struct scenario *s)
{
	if (make_ground() || make_routes4(bng_routes(s)) || make_meter())
		return -1;
	return make_sessions(s->flows, PPPOE | METER | DOWN_STREAM);
}

// Subscribers as a BNG with dialled in ones has them: source check, a meter up, the shaper down, an IPoE subscriber known by its MAC.
static unsigned
ipoe_up_frame(const struct scenario *s, uint32_t flow, uint16_t length, uint8_t *h)
{
	unsigned prefix_length;
	uint32_t to = prefix4((uint32_t)(flow * 7919u % bng_routes(s)), &prefix_length);

	return up_frame_to(to + 7, 0, flow, length, h);
}

static int
ipoe_up(const struct scenario *s)
{
	if (make_ground() || make_routes4(bng_routes(s)) || make_meter())
		return -1;
	return make_sessions(s->flows, METER | BY_MAC);
}

static int
shaped_down(const struct scenario *s, unsigned with)
{
	if (make_ground() || make_routes4(bng_routes(s)) || make_schedulers(s->flows, 1))
		return -1;
	return make_sessions(s->flows, with | SHAPED | DOWN_STREAM);
}

static int
pppoe_down_shaped(const struct scenario *s)
{
	return shaped_down(s, PPPOE);
}

static int
ipoe_down_shaped(const struct scenario *s)
{
	return shaped_down(s, BY_MAC);
}

static int
pppoe_echo_64k(const struct scenario *s)
{
	if (make_ground())
		return -1;
	return make_sessions(s->flows, PPPOE | ECHO);
}

const struct scenario bng_scenarios[] = {
	{"bng-up-128k", 128000, SIZES_BNG, bng_up, bng_up_frame, "in", .scaling = true},
	{"bng-down-128k", 128000, SIZES_BNG, bng_down, down_frame, "in", .scaling = true},
	{"bng-up-192k", 192000, SIZES_BNG, bng_up, bng_up_frame, "in", .scaling = true},
	{"bng-down-192k", 192000, SIZES_BNG, bng_down, down_frame, "in", .scaling = true},
	{"pppoe-up-192k", 192000, SIZES_BNG, bng_up, bng_up_frame, "in"},
	{"pppoe-down-192k", 192000, SIZES_BNG, pppoe_down_shaped, down_frame, "in"},
	{"pppoe-echo-64k", 64000, {64}, pppoe_echo_64k, echo_frame, "in", .consumed = true},
	{"ipoe-up-192k", 192000, SIZES_BNG, ipoe_up, ipoe_up_frame, "in"},
	{"ipoe-down-192k", 192000, SIZES_BNG, ipoe_down_shaped, down_frame, "in"},
	{0},
};
