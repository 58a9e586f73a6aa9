// SPDX-License-Identifier: Apache-2.0
// Writing the record of a session while workers read it.
//
// Each value that a chain's steps need is stored before the chain. A chain that loses a step keeps the step's value, for
// packets that are between the two; it stays valid as long as they can be (core/rcu.h).
#include "session/record.h"

#include <string.h>

#include "fib/hop.h"
#include "session/header.h"

static void
write_sources(struct session *s, const struct session_spec *spec)
{
	struct session none = {.source4 = UINT32_MAX, .mask4 = UINT32_MAX, .length6 = 128};
	bool have4 = spec->any_source, have6 = spec->any_source;

	memset(none.source6, 0xff, sizeof(none.source6));
	if (spec->any_source) {
		none.prefix4 = 0;
		none.length6 = 0;
		memset(none.source6, 0, sizeof(none.source6));
	}
	for (unsigned i = 0; i < spec->prefix_count; i++) {
		const struct session_prefix *p = &spec->prefixes[i];

		if (p->family == 4 && !have4) {
			memcpy(&none.source4, p->address, sizeof(none.source4));
			none.mask4 = p->length ? rte_cpu_to_be_32(UINT32_MAX << (32 - p->length)) : 0;
			have4 = true;
		} else if (p->family == 6 && !have6) {
			memcpy(none.source6, p->address, sizeof(none.source6));
			none.length6 = p->length;
			have6 = true;
		}
	}
	__atomic_store_n(&s->prefix4, none.prefix4, __ATOMIC_RELEASE);
	if (memcmp(s->source6, none.source6, sizeof(s->source6)) == 0 && s->length6 == none.length6)
		return;
	// In between only the list counts.
	__atomic_store_n(&s->length6, 128, __ATOMIC_RELEASE);
	memcpy(s->source6, none.source6, sizeof(s->source6));
	__atomic_store_n(&s->length6, none.length6, __ATOMIC_RELEASE);
}

uint16_t
session_usual_tpids(const struct session_key *key)
{
	uint16_t tpid = RTE_BE16(RTE_ETHER_TYPE_VLAN);

	return session_tpids(key->circuit.outer_vlan ? tpid : 0, key->circuit.inner_vlan ? tpid : 0);
}

void
session_write_header(struct session *s, const struct session_key *key, uint16_t tpids)
{
	struct session_header header = {
		.destination = key->mac,
		.outer_tpid = RTE_BE16(RTE_ETHER_TYPE_VLAN),
		.inner_tpid = RTE_BE16(RTE_ETHER_TYPE_VLAN),
		.outer_vlan = key->circuit.outer_vlan,
		.inner_vlan = key->circuit.inner_vlan,
		.behind_length = sizeof(uint16_t),
	};
	uint64_t mac = 0;

	s->access = key->access->number;
	s->port = key->circuit.port;
	if (key->access->out) {
		s->header_length = 0;
		s->seen = 0;
		return;
	}
	header.source = ports[key->circuit.port].mac;
	if (key->access->header)
		header.behind_length = (uint8_t)key->access->header(key, header.behind);
	memcpy(&mac, &key->mac, sizeof(key->mac));
	s->header_length = (uint8_t)session_header_write(&header, s->header);
	session_header_tpids(s->header, session_tags(key), s->header_length, tpids);
	s->seen = mac | (uint64_t)tpids << SESSION_MAC_BITS;
}

void
session_write_mtu(struct session *s, struct session_detail *d, uint16_t mtu)
{
	__atomic_store_n(&d->mtu, mtu, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (session_mac_known(s) && !d->moving)
		__atomic_store_n(&s->mtu, mtu, __ATOMIC_SEQ_CST);
}

void
session_write_record(struct session *s, struct session_detail *d, const struct session_plan *w)
{
	uint8_t flags = (uint8_t)((s->flags & SESSION_SHARES) | (w->spec.any_source ? SESSION_ANY_SOURCE : 0) |
				  (w->spec.proxy_arp ? SESSION_PROXY_ARP : 0) |
				  (w->spec.key.access->resolves ? 0 : SESSION_POINT) |
				  (w->spec.key.has_mac ? 0 : SESSION_LEARNS_MAC) | (d->frames ? SESSION_FRAMES : 0));
	const struct session_access *access = w->spec.key.access;
	uint64_t out;

	__atomic_store_n(&d->has_core, w->core_kind != NULL, __ATOMIC_RELEASE);
	// The list before the record's own prefixes: an address that stays is always in one of them.
	__atomic_store_n(&d->prefixes, w->prefixes, __ATOMIC_RELEASE);
	write_sources(s, &w->spec);
	__atomic_store_n(&s->flags, flags, __ATOMIC_RELEASE);
	session_write_mtu(s, d, w->mtu);
	session_steps_publish((uint32_t)(s - session_at(0)), &w->parts);
	if (access->publish)
		access->publish((uint32_t)(s - session_at(0)), &w->spec.key);
	if (w->core_kind)
		__atomic_store_n(&s->core, w->core, __ATOMIC_RELEASE);
	__atomic_store_n(&s->vrf, w->vrf_index, __ATOMIC_RELEASE);
	__atomic_store_n(&s->up4, session_steps_chain(&w->parts, UP, w->core_kind ? w->encap : &ip4_lookup_node, NULL),
		__ATOMIC_RELEASE);
	__atomic_store_n(&s->up6, session_steps_chain(&w->parts, UP, w->core_kind ? w->encap : &ip6_lookup_node, NULL),
		__ATOMIC_RELEASE);
	out = session_steps_chain(&w->parts, DOWN,
		access->out      ? w->spec.frames ? &session_frames_point_out_node : &session_point_out_node
		: w->spec.frames ? &session_frames_out_node
				 : &session_out_node,
		access->out);
	__atomic_store_n(&s->down4, out, __ATOMIC_RELEASE);
	__atomic_store_n(&s->down6, out, __ATOMIC_RELEASE);
}
