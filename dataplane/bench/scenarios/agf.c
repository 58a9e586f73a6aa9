// SPDX-License-Identifier: Apache-2.0
// The access gateway function's chains, up and down, with and without its scheduler.
#include "bench/scenarios/all.h"
#include "bench/scenarios/frames.h"
#include "bench/scenarios/ground.h"
#include "bench/scenarios/subscribers.h"

static int
agf_up(const struct scenario *s)
{
	if (make_ground() || make_block_list() || make_meter())
		return -1;
	return make_sessions(s->flows, GTPU | METER | ACL_UP);
}

static int
agf_up_one_queue(const struct scenario *s)
{
	int error;

	ground_spread = SLUICE__V1__PORT_SPREAD__ATOMIC;
	error = agf_up(s);
	ground_spread = SLUICE__V1__PORT_SPREAD__RSS;
	return error;
}

static int
agf_up_pppoe(const struct scenario *s)
{
	if (make_ground() || make_block_list() || make_meter())
		return -1;
	return make_sessions(s->flows, PPPOE | GTPU | METER | ACL_UP);
}

static int
agf_up_five_we(const struct scenario *s)
{
	if (make_ground() || make_block_list() || make_meter())
		return -1;
	return make_sessions(s->flows, FIVE_WE | GTPU | METER | ACL_UP);
}

static int
agf_down(const struct scenario *s)
{
	if (make_ground() || make_allow_list(s->flows) || make_meter())
		return -1;
	return make_sessions(s->flows, GTPU | METER | ACL_DOWN | DOWN_STREAM);
}

static int
agf_down_pppoe(const struct scenario *s)
{
	if (make_ground() || make_allow_list(s->flows) || make_meter())
		return -1;
	return make_sessions(s->flows, PPPOE | GTPU | METER | ACL_DOWN | DOWN_STREAM);
}

static int
agf_down_five_we(const struct scenario *s)
{
	if (make_ground() || make_allow_list(s->flows) || make_meter())
		return -1;
	return make_sessions(s->flows, FIVE_WE | GTPU | METER | ACL_DOWN | DOWN_STREAM);
}

static int
agf_down_hqos(const struct scenario *s)
{
	if (make_ground() || make_allow_list(s->flows) || make_meter() || make_schedulers(s->flows, 1))
		return -1;
	return make_sessions(s->flows, GTPU | METER | ACL_DOWN | SHAPED | DOWN_STREAM);
}

static int
agf_down_hqos_pppoe(const struct scenario *s)
{
	if (make_ground() || make_allow_list(s->flows) || make_meter() || make_schedulers(s->flows, 1))
		return -1;
	return make_sessions(s->flows, PPPOE | GTPU | METER | ACL_DOWN | SHAPED | DOWN_STREAM);
}

// Subscribers behind two ports in turn.
static int
two_ports(const struct scenario *s, unsigned with)
{
	if (make_ground() || make_second_port() || make_allow_list(s->flows) || make_meter() ||
		make_schedulers(s->flows, 2))
		return -1;
	return make_sessions(s->flows, with | GTPU | METER | ACL_DOWN | SHAPED | DOWN_STREAM | TWO_PORTS);
}

static int
agf_down_hqos_ports(const struct scenario *s)
{
	return two_ports(s, 0);
}

static int
agf_down_hqos_ports_pppoe(const struct scenario *s)
{
	return two_ports(s, PPPOE);
}

const struct scenario agf_scenarios[] = {
	{"agf-up-4k", 4096, SIZES, agf_up, up_frame, "in", .scaling = true},
	{"agf-up-4k-pppoe", 4096, SIZES, agf_up_pppoe, up_frame, "in", .scaling = true},
	{"agf-5we-up", 4096, {128, 504}, agf_up_five_we, up_frame, "in", .scaling = true},
	{"agf-5we-down", ALLOWED, {128, 504}, agf_down_five_we, gtpu_down_frame, "in", .scaling = true},
	{"agf-up-64k", 65536, SIZES_AGF, agf_up, up_frame, "in"},
	{"agf-down-4k", ALLOWED, SIZES_AGF, agf_down, gtpu_down_frame, "in", .scaling = true},
	{"agf-down-4k-pppoe", ALLOWED, SIZES_AGF, agf_down_pppoe, gtpu_down_frame, "in", .scaling = true},
	{"agf-down-64k", 65000, SIZES_AGF, agf_down, gtpu_down_frame, "in"},
	{"agf-down-4k-hqos", ALLOWED, SIZES_AGF, agf_down_hqos, gtpu_down_frame, "in", .scaling = true,
		.schedulers = 1},
	{"agf-down-4k-hqos-pppoe", ALLOWED, SIZES_AGF, agf_down_hqos_pppoe, gtpu_down_frame, "in", .scaling = true,
		.schedulers = 1},
	{"agf-down-4k-hqos-ports", ALLOWED, SIZES_AGF, agf_down_hqos_ports, gtpu_down_frame, "in", .scaling = true,
		.schedulers = 2},
	{"agf-down-4k-hqos-steered", ALLOWED, SIZES_AGF, agf_down_hqos_ports, gtpu_down_frame, "in", .scaling = true,
		.schedulers = 2, .steered = true},
	{"agf-down-4k-hqos-pppoe-steered", ALLOWED, SIZES_AGF, agf_down_hqos_ports_pppoe, gtpu_down_frame, "in",
		.scaling = true, .schedulers = 2, .steered = true},
	{"agf-down-64k-hqos", 65000, SIZES_AGF, agf_down_hqos, gtpu_down_frame, "in"},
	{"one-queue-agf-up-4k", 4096, SIZES, agf_up_one_queue, up_frame, "in", .one_queue = true, .scaling = true},
	{0},
};
