// SPDX-License-Identifier: Apache-2.0
// The API's lists of the states of SAs and of tunnels.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "ipsec.pb-c.h"
#include "ipsec/sa.h"
#include "ipsec/tunnel.h"
#include "server/api.h"

struct row {
	Sluice__V1__SecurityAssociationState state;
	char remote[INET6_ADDRSTRLEN];
};

static void
fill(struct row *row, uint32_t index)
{
	const struct ipsec_sa *sa = ipsec_sa_at(index);
	struct ipsec_path_counters path;
	struct ipsec_sa_counters c;
	uint8_t address[16];
	uint16_t port;

	sluice__v1__security_association_state__init(&row->state);
	ipsec_sa_count(index, &c);
	ipsec_sa_remote(sa, address, &port);
	counters_sum(&ipsec_path_counters, index, &path);
	row->state.path_mtu_learned = path.learned;
	row->state.path_mtu_refused = path.refused;
	row->state.name = (char *)ipsec_sa_name(index);
	row->state.packets = c.packets;
	row->state.bytes = c.bytes;
	row->state.sequence = __atomic_load_n(&sa->sequence, __ATOMIC_RELAXED);
	row->state.remote_address =
		(char *)inet_ntop(sa->family == 4 ? AF_INET : AF_INET6, address, row->remote, sizeof(row->remote));
	row->state.remote_port = rte_be_to_cpu_16(port);
	if (sa->flags & SA_OUTBOUND) {
		row->state.path_mtu = sa->path_mtu;
		row->state.mtu = ipsec_sa_room(sa, sa->path_mtu);
		// A worker takes a number before it finds that it was the last one.
		row->state.sequence = RTE_MIN(row->state.sequence, sa->last ? sa->last : row->state.sequence);
	}
	row->state.ended = __atomic_load_n(&sa->events, __ATOMIC_RELAXED) & (SA_DEAD | SA_EXHAUSTED);
	row->state.replays = c.replays;
	row->state.bad_icv = c.bad_icv;
	row->state.malformed = c.malformed;
	row->state.wrong_selector = c.wrong_selector;
	row->state.over_limit = c.over_limit;
	row->state.other_drops = c.other;
	row->state.engine = (char *)crypto_key_engine(sa->key);
}

// A page's token is the number of the SA that it begins with.
static void
serve(struct api_call *call, const void *asked)
{
	const Sluice__V1__SecurityAssociationStatesQuery *query = asked;
	Sluice__V1__SecurityAssociationStates list = SLUICE__V1__SECURITY_ASSOCIATION_STATES__INIT;
	uint32_t limit = api_limit(query->limit), index;
	struct row *rows;
	uint64_t cursor;
	char next[24];

	if (!api_page(call, query->page, SA_LIMIT, &cursor))
		return;
	rows = api_rows(call, limit, sizeof(*rows), &list.states);
	if (!rows)
		return;
	index = (uint32_t)cursor;
	for (size_t i = 0; i < query->n_names && i < limit; i++) {
		const struct object *object = object_find(&security_association_kind, query->names[i]);

		if (object)
			fill(&rows[list.n_states++], (uint32_t)(uintptr_t)object->state);
	}
	for (; query->n_names == 0 && list.n_states < limit && index < ipsec_sas.used; index++) {
		if (ipsec_sa_object(index))
			fill(&rows[list.n_states++], index);
	}
	snprintf(next, sizeof(next), "%u", index);
	if (query->n_names == 0 && list.n_states == limit)
		list.next_page = next;
	api_answer(call, &list.base);
}

STATE_QUERY(security_association_states_query, sluice__v1__security_association_states_query__descriptor, serve)

struct tunnel_row {
	Sluice__V1__IpsecTunnelState state;
	char remote[INET6_ADDRSTRLEN];
};

// Add an SA's counters to its tunnel's row.
static void
add(struct tunnel_row *row, uint32_t index)
{
	const struct ipsec_sa *sa = ipsec_sa_at(index);
	struct ipsec_sa_counters c;
	rte_be16_t port;
	uint8_t address[16];

	ipsec_sa_count(index, &c);
	ipsec_sa_remote(sa, address, &port);
	row->state.remote_address =
		(char *)inet_ntop(sa->family == 4 ? AF_INET : AF_INET6, address, row->remote, sizeof(row->remote));
	row->state.engine = (char *)crypto_key_engine(sa->key);
	row->state.security_associations++;
	if (__atomic_load_n(&sa->events, __ATOMIC_RELAXED) & (SA_DEAD | SA_EXHAUSTED))
		row->state.ended++;
	else if (sa->flags & SA_OUTBOUND)
		row->state.usable_outbound++;
	else
		row->state.usable_inbound++;
	if (sa->flags & SA_OUTBOUND) {
		row->state.encrypted_packets += c.packets;
		row->state.encrypted_bytes += c.bytes;
	} else {
		row->state.decrypted_packets += c.packets;
		row->state.decrypted_bytes += c.bytes;
	}
	row->state.drops += c.replays + c.bad_icv + c.malformed + c.wrong_selector + c.over_limit + c.other;
}

// A page's token is the number of the tunnel that it begins with.
static void
serve_tunnels(struct api_call *call, const void *asked)
{
	const Sluice__V1__IpsecTunnelStatesQuery *query = asked;
	Sluice__V1__IpsecTunnelStates list = SLUICE__V1__IPSEC_TUNNEL_STATES__INIT;
	uint32_t limit = api_limit(query->limit), index;
	struct tunnel_row *rows, **row_of;
	uint64_t cursor;
	char next[24];

	if (!api_page(call, query->page, UINT32_MAX, &cursor))
		return;
	rows = api_rows(call, limit, sizeof(*rows), &list.tunnels);
	if (!rows)
		return;
	row_of = api_memory(call, ipsec_tunnels.used + 1, sizeof(struct tunnel_row *));
	if (!row_of)
		return;
	index = (uint32_t)cursor;
	for (; list.n_tunnels < limit && index < ipsec_tunnels.used; index++) {
		const struct object *object = ipsec_tunnel_object(index);
		struct tunnel_row *row = &rows[list.n_tunnels];

		// Policies have records of tunnels, too.
		if (!object || object->kind != &ipsec_tunnel_kind ||
			(query->tunnel[0] != '\0' && strcmp(query->tunnel, object->name) != 0))
			continue;
		sluice__v1__ipsec_tunnel_state__init(&row->state);
		row->state.tunnel = object->name;
		row->state.mtu = ipsec_tunnel_at(index)->mtu;
		row_of[index] = row;
		list.n_tunnels++;
	}
	for (uint32_t sa = 0; sa < ipsec_sas.used; sa++) {
		struct tunnel_row *row = ipsec_sa_object(sa) ? row_of[ipsec_sa_at(sa)->tunnel] : NULL;

		if (row)
			add(row, sa);
	}
	snprintf(next, sizeof(next), "%u", index);
	if (list.n_tunnels == limit && index < ipsec_tunnels.used)
		list.next_page = next;
	api_answer(call, &list.base);
}

STATE_QUERY(ipsec_tunnel_states_query, sluice__v1__ipsec_tunnel_states_query__descriptor, serve_tunnels)
