// SPDX-License-Identifier: Apache-2.0

// RFC 6458: what libusrsctp and the kernel do alike. Their structures have the same names, and other layouts and constants: the file that includes
// this one first includes the structures of its stack, and declares set().
#pragma once

#include <string.h>

#include "association.h"

// Consecutive time-outs after which an association of one path is lost.
enum { MAX_RETRANSMISSIONS = 4 };

static int set(const struct association *a, int option, const void *value, socklen_t length);

// Set the options of a socket before it connects.
static bool
prepare(const struct association *a, const struct request *r)
{
	static const uint16_t events[] = {SCTP_ASSOC_CHANGE, SCTP_PEER_ADDR_CHANGE};
	struct sctp_initmsg init = {.sinit_num_ostreams = r->streams,
		.sinit_max_instreams = r->streams,
		.sinit_max_attempts = 4,
		.sinit_max_init_timeo = 2000};
	struct sctp_paddrparams paths = {
		.spp_hbinterval = r->heartbeat, .spp_flags = SPP_HB_ENABLE, .spp_pathmaxrxt = 2};
	// Time-outs of all paths count for the association: one that has several paths outlives the loss of all but one.
	struct sctp_assocparams association = {
		.sasoc_asocmaxrxt = (uint16_t)(MAX_RETRANSMISSIONS * r->remotes * (r->remotes > 1 ? 2 : 1))};
	struct sctp_rtoinfo rto = {.srto_initial = 500, .srto_min = 200, .srto_max = 2000};
	const int on = 1;

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		struct sctp_event subscription = {.se_assoc_id = SCTP_ALL_ASSOC, .se_type = events[i], .se_on = 1};

		if (set(a, SCTP_EVENT, &subscription, sizeof(subscription)) < 0)
			return false;
	}
	return set(a, SCTP_INITMSG, &init, sizeof(init)) == 0 && set(a, SCTP_NODELAY, &on, sizeof(on)) == 0 &&
	       set(a, SCTP_RTOINFO, &rto, sizeof(rto)) == 0 &&
	       set(a, SCTP_ASSOCINFO, &association, sizeof(association)) == 0 &&
	       set(a, SCTP_PEER_ADDR_PARAMS, &paths, sizeof(paths)) == 0;
}

static void
changed(struct association *a, const struct sctp_assoc_change *change)
{
	switch (change->sac_state) {
	case SCTP_COMM_UP:
		got_up(a, change->sac_outbound_streams, change->sac_inbound_streams);
		break;
	case SCTP_RESTART:
		got_restart(a, change->sac_outbound_streams, change->sac_inbound_streams);
		break;
	case SCTP_COMM_LOST:
		end(a, "the association was lost");
		break;
	case SCTP_SHUTDOWN_COMP:
		end(a, "the association was shut down");
		break;
	case SCTP_CANT_STR_ASSOC:
		end(a, "the peer does not answer, or refuses the association");
		break;
	}
}

// A notification of the stack. One that is shorter than its type is ignored. Structures are copied: `data` has any alignment.
static void
notified(struct association *a, const uint8_t *data, size_t length)
{
	union {
		struct sctp_assoc_change change;
		struct sctp_paddr_change path;
	} n;
	// Every type begins with type (2), flags (2) and length (4).
	uint16_t type;
	uint32_t announced;

	if (length < 8)
		return;
	memcpy(&type, data, sizeof(type));
	memcpy(&announced, data + 4, sizeof(announced));
	if (announced > length)
		return;
	if (type == SCTP_ASSOC_CHANGE && announced >= sizeof(n.change)) {
		memcpy(&n.change, data, sizeof(n.change));
		changed(a, &n.change);
	} else if (type == SCTP_PEER_ADDR_CHANGE && announced >= sizeof(n.path)) {
		struct sockaddr_storage address;

		memcpy(&n.path, data, sizeof(n.path));
		// The kernel's structure is packed.
		address = n.path.spc_aaddr;
		got_path(a, &address, n.path.spc_state != SCTP_ADDR_UNREACHABLE);
	}
}
