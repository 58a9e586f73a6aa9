// Writing the record of a session while workers read it.
//
// Each value that a chain's steps need is stored before the chain. A chain that loses a step keeps the step's value, for
// packets that are between the two; it stays valid as long as they can be (core/rcu.h).
#include "session/record.h"

#include <string.h>

#include "acl/acl.h"
#include "flow/flow.h"
#include "hqos/hqos.h"
#include "ip/hop.h"
#include "meter/meter.h"
#include "session/header.h"

static uint64_t
chain_up(const struct session_wanted *w, const struct node *look_up)
{
	const struct node *steps[6];
	unsigned count = 0;

	if (w->acl[UP])
		steps[count++] = &acl_up_node;
	if (w->flows)
		steps[count++] = &flow_up_node;
	if (w->meter_profile[UP])
		steps[count++] = &meter_up_node;
	if (w->spec.mss)
		steps[count++] = &mss_clamp_node;
	if (w->queue[UP] != NO_QUEUE)
		steps[count++] = &hqos_classify_node;
	steps[count++] = w->core_kind ? w->encap : look_up;
	return chain_of(steps, count);
}

static uint64_t
chain_down(const struct session_wanted *w)
{
	const struct node *steps[6];
	unsigned count = 0;

	if (w->acl[DOWN])
		steps[count++] = &acl_down_node;
	if (w->flows)
		steps[count++] = &flow_down_node;
	if (w->meter_profile[DOWN])
		steps[count++] = &meter_down_node;
	if (w->spec.mss)
		steps[count++] = &mss_clamp_node;
	if (w->queue[DOWN] != NO_QUEUE)
		steps[count++] = &hqos_classify_node;
	steps[count++] = w->spec.frames ? &session_frames_out_node : &session_out_node;
	return chain_of(steps, count);
}

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
session_write_header(
	struct session *s, const struct session_key *key, const struct rte_ether_addr *source, uint16_t tpids)
{
	struct session_header header = {
		.destination = key->mac,
		.source = *source,
		.outer_tpid = RTE_BE16(RTE_ETHER_TYPE_VLAN),
		.inner_tpid = RTE_BE16(RTE_ETHER_TYPE_VLAN),
		.outer_vlan = key->circuit.outer_vlan,
		.inner_vlan = key->circuit.inner_vlan,
		.pppoe_session = key->pppoe_session,
	};
	uint64_t mac = 0;

	memcpy(&mac, &key->mac, sizeof(key->mac));
	s->header_length = (uint8_t)session_header_write(&header, s->header);
	session_header_tpids(s->header, session_tags(key), s->header_length, tpids);
	s->pppoe = key->pppoe_session != 0;
	s->port = key->circuit.port;
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
session_write_record(struct session *s, struct session_detail *d, const struct session_wanted *w)
{
	uint8_t flags = (uint8_t)((s->flags & SESSION_SHARES) | (w->spec.any_source ? SESSION_ANY_SOURCE : 0) |
				  (w->spec.proxy_arp ? SESSION_PROXY_ARP : 0) |
				  (w->spec.key.pppoe_session ? SESSION_PPPOE : 0) |
				  (w->spec.key.has_mac ? 0 : SESSION_LEARNS_MAC) | (d->frames ? SESSION_FRAMES : 0));

	__atomic_store_n(&d->has_core, w->core_kind != NULL, __ATOMIC_RELEASE);
	// The list before the record's own prefixes: an address that stays is always in one of them.
	__atomic_store_n(&d->prefixes, w->prefixes, __ATOMIC_RELEASE);
	write_sources(s, &w->spec);
	__atomic_store_n(&s->flags, flags, __ATOMIC_RELEASE);
	session_write_mtu(s, d, w->mtu);
	if (w->spec.mss)
		__atomic_store_n(&s->mss, w->spec.mss, __ATOMIC_RELEASE);
	if (w->acl[UP])
		__atomic_store_n(&s->acl_up, acl_of(w->acl[UP]), __ATOMIC_RELEASE);
	if (w->acl[DOWN])
		__atomic_store_n(&s->acl_down, acl_of(w->acl[DOWN]), __ATOMIC_RELEASE);
	if (w->meter_profile[UP])
		__atomic_store_n(&s->meter_up, w->meter[UP], __ATOMIC_RELEASE);
	if (w->meter_profile[DOWN])
		__atomic_store_n(&s->meter_down, w->meter[DOWN], __ATOMIC_RELEASE);
	if (w->flows)
		__atomic_store_n(&session_flows[s - session_at(0)], flow_of(w->flows), __ATOMIC_RELEASE);
	if (w->core_kind)
		__atomic_store_n(&s->core, w->core, __ATOMIC_RELEASE);
	__atomic_store_n(&s->vrf, w->vrf_index, __ATOMIC_RELEASE);
	__atomic_store_n(&s->up4, chain_up(w, &ip4_lookup_node), __ATOMIC_RELEASE);
	__atomic_store_n(&s->up6, chain_up(w, &ip6_lookup_node), __ATOMIC_RELEASE);
	__atomic_store_n(&s->down4, chain_down(w), __ATOMIC_RELEASE);
	__atomic_store_n(&s->down6, chain_down(w), __ATOMIC_RELEASE);
}
