// SPDX-License-Identifier: Apache-2.0
// The GTP-U core of sessions: its spec, its record, and the table of TEIDs.
#include "gtpu/tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/rcu.h"
#include "fib/vrf.h"
#include "gtpu/reflect.h"
#include "inet/header.h"
#include "ip/local.h"
#include "session.pb-c.h"
#include "session/spec.h"

// The prefixes that a tunnel accepts packets from besides its peer. Never changed: a changed session has another tunnel.
struct sources {
	size_t count;
	struct session_prefix list[];
};

// The main thread's part of a tunnel.
struct tunnel_detail {
	struct object *vrf;
	uint64_t key; // of gtpu_teids
	uint32_t session;
	uint32_t path; // or NO_END
	bool bound;    // the key is there for this tunnel
};

struct slab gtpu_tunnels;
struct map64 *gtpu_teids;
uint32_t *gtpu_peers;

static struct tunnel_detail *details;
static struct sources **sources; // by tunnel; NULL: only the peer
static uint32_t last_rules;

uint32_t
gtpu_session_of(uint32_t tunnel)
{
	return details[tunnel].session;
}

bool
gtpu_accepts(uint32_t session, const uint8_t *ip)
{
	uint32_t tunnel = __atomic_load_n(&session_at(session)->core, __ATOMIC_ACQUIRE);
	const struct sources *accepted = __atomic_load_n(&sources[tunnel], __ATOMIC_ACQUIRE);
	uint8_t family = ip[0] >> 4;
	const uint8_t *source =
		ip + (family == 4 ? offsetof(struct ip4_header, source) : offsetof(struct ip6_header, source));

	for (size_t i = 0; accepted && i < accepted->count; i++)
		if (session_prefix_has(&accepted->list[i], family, source))
			return true;
	return false;
}

// Into `*made`, NULL if there are none.
static int
parse_sources(const Sluice__V1__Gtpu *spec, uint8_t family, struct sources **made, struct fault *f)
{
	size_t count = spec->n_accepted_sources;

	*made = NULL;
	if (count == 0)
		return 0;
	*made = calloc(1, sizeof(**made) + count * sizeof((*made)->list[0]));
	if (!*made)
		return fault(f, ENOMEM, "gtpu.acceptedSources: there is no memory for them");
	(*made)->count = count;
	for (size_t i = 0; i < count; i++) {
		const char *text = spec->accepted_sources[i];
		struct session_prefix *p = &(*made)->list[i];
		int error = 0;

		if (prefix_parse(text, p->address, &p->family, &p->length))
			error = fault(f, EINVAL,
				"gtpu.acceptedSources[%zu]: \"%.64s\" is not a prefix; \"192.0.2.16/28\" would be", i,
				text);
		else if (p->family != family)
			error = fault(f, EINVAL,
				"gtpu.acceptedSources[%zu]: \"%.64s\" is not of the same IP version as "
				"gtpu.localAddress "
				"\"%.48s\"",
				i, text, spec->local_address);
		if (error) {
			free(*made);
			*made = NULL;
			return error;
		}
	}
	return 0;
}

static int
parse_end(const char *text, const char *field, uint8_t *family, uint8_t address[16], struct fault *f)
{
	if (address_parse(text, address, family))
		return fault(f, EINVAL, "%s: \"%.64s\" is not an IP address; \"192.0.2.1\" or \"2001:db8::1\" would be",
			field, text);
	if (*family == 4 ? address[0] >= 224 || address[0] == 0
			 : ip6_is_multicast(address) || ip6_is_unspecified(address))
		return fault(f, EINVAL, "%s: \"%.64s\" cannot be a tunnel's end; a unicast address can", field, text);
	return 0;
}

static int
parse(const Sluice__V1__Gtpu *spec, struct gtpu_ends *ends, struct fault *f)
{
	uint8_t family;
	int error = parse_end(spec->local_address, "gtpu.localAddress", &ends->family, ends->local, f);

	if (error == 0)
		error = parse_end(spec->remote_address, "gtpu.remoteAddress", &family, ends->remote, f);
	if (error)
		return error;
	if (family != ends->family)
		return fault(f, EINVAL,
			"gtpu.remoteAddress: \"%.48s\" is not of the same IP version as gtpu.localAddress \"%.48s\"",
			spec->remote_address, spec->local_address);
	if (spec->reflective_qos && !spec->pdu_session_container)
		return fault(f, EINVAL, "gtpu.reflectiveQos: needs gtpu.pduSessionContainer, which carries the QFI");
	return 0;
}

static void
write_tunnel(struct gtpu_tunnel *t, const Sluice__V1__Gtpu *spec, const struct gtpu_ends *ends)
{
	bool four = ends->family == 4;
	uint8_t *room = four ? t->header4 : t->header6, *start;
	uint64_t sum;

	t->family = ends->family;
	t->flags = (uint8_t)((spec->pdu_session_container ? TUNNEL_CONTAINER : 0) |
			     (spec->reflective_qos ? TUNNEL_REFLECTIVE : 0) |
			     (spec->clear_outer_ecn ? TUNNEL_CLEAR_ECN : 0));
	t->qfi = (uint8_t)spec->qfi;
	t->length = (uint8_t)gtpu_write_header(
		room, ends, spec->remote_teid, spec->pdu_session_container, (uint8_t)spec->qfi);
	start = room + (four ? GTPU_ENCAP4 : GTPU_ENCAP6) - t->length;
	if (four) {
		sum = checksum_add(0, start, sizeof(struct ip4_header));
	} else {
		sum = ip6_pseudo_sum(ends->local, ends->remote, 0, PROTOCOL_UDP);
		sum = checksum_add(sum, start + sizeof(struct ip6_header), t->length - sizeof(struct ip6_header));
	}
	t->checksum = checksum_fold(sum);
}

// The session has the TEID already, or it is free.
static int
check_teid(uint32_t session, uint32_t teid, struct tunnel_detail *d, struct fault *f)
{
	uint32_t holder;

	d->key = gtpu_teid_key(gtpu_path_at(d->path)->local, teid);
	holder = map64_get(gtpu_teids, d->key);
	if (holder == MAP64_NONE || holder == session)
		return 0;
	return fault(f, EEXIST, "gtpu.localTeid: %u at this local address is Session \"%.64s\"'s; choose another", teid,
		session_name(holder));
}

static void
unuse(const struct tunnel_detail *d)
{
	if (d->path != NO_END)
		gtpu_path_unuse(d->path);
	object_unuse(d->vrf);
}

static int
gtpu_put(uint32_t session, const void *message, uint32_t *core, const struct node **encap, struct fault *f)
{
	const Sluice__V1__Gtpu *spec = ((const Sluice__V1__Session *)message)->gtpu;
	struct tunnel_detail d = {.session = session, .path = NO_END};
	struct gtpu_ends ends = {0};
	struct gtpu_tunnel *t;
	struct sources *accepted = NULL;
	uint16_t vrf;
	int error = parse(spec, &ends, f);

	if (error == 0)
		error = parse_sources(spec, ends.family, &accepted, f);
	if (error == 0)
		error = vrf_need(spec->vrf, "gtpu.vrf", &vrf, &d.vrf, f);
	if (error) {
		free(accepted);
		return error;
	}
	*core = slab_take(&gtpu_tunnels);
	if (*core == UINT32_MAX)
		error = fault(f, ENOSPC, "gtpu: %d tunnels are the most there can be", TUNNEL_LIMIT);
	if (error == 0)
		error = gtpu_path_use(vrf, &ends, &d.path, f);
	if (error == 0)
		error = check_teid(session, spec->local_teid, &d, f);
	if (error) {
		if (*core != UINT32_MAX)
			slab_give(&gtpu_tunnels, *core);
		unuse(&d);
		free(accepted);
		return error;
	}
	__atomic_store_n(&sources[*core], accepted, __ATOMIC_RELEASE);
	t = tunnel_at(*core);
	t->rules = ++last_rules;
	t->vrf = vrf;
	t->path = (uint16_t)d.path;
	write_tunnel(t, spec, &ends);
	details[*core] = d;
	*encap = ends.family == 4 ? &gtpu_encap_node : &gtpu_encap6_node;
	return 0;
}

// A session that is changed keeps the rules that were derived.
static void
keep_rules(uint32_t core, uint32_t old)
{
	struct gtpu_tunnel *t = tunnel_at(core), *was = tunnel_at(old);

	if (!(t->flags & was->flags & TUNNEL_REFLECTIVE))
		return;
	t->rules = was->rules;
	t->reflecting = __atomic_load_n(&was->reflecting, __ATOMIC_RELAXED);
}

// The peer as gtpu_peers has it.
static uint32_t
peer_of(const struct gtpu_path *p)
{
	uint32_t address4;

	if (p->ends.family != 4)
		return p->remote;
	memcpy(&address4, p->ends.remote, sizeof(address4));
	return address4;
}

static int
gtpu_bind(uint32_t core, uint32_t old, struct fault *f)
{
	struct tunnel_detail *d = &details[core];
	uint32_t *peer = &gtpu_peers[d->session], before = *peer;

	// The peer first: a worker that finds the session by the TEID compares with this session's peer, not with that of its number's last owner.
	__atomic_store_n(peer, peer_of(gtpu_path_at(d->path)), __ATOMIC_RELEASE);
	if (map64_put(gtpu_teids, d->key, d->session)) {
		__atomic_store_n(peer, before, __ATOMIC_RELEASE);
		return fault(f, ENOMEM, "gtpu.localTeid: there is no memory for it");
	}
	d->bound = true;
	if (old != UINT32_MAX)
		keep_rules(core, old);
	// The session's tunnel so far may have had the same TEID: the entry is this one's now.
	if (old != UINT32_MAX && details[old].key == d->key)
		details[old].bound = false;
	return 0;
}

static void
gtpu_remove(uint32_t core)
{
	struct tunnel_detail *d = &details[core];
	struct sources *accepted = sources[core];

	if (d->bound)
		map64_delete(gtpu_teids, d->key);
	unuse(d);
	if (accepted) {
		__atomic_store_n(&sources[core], NULL, __ATOMIC_RELEASE);
		rcu_retire(free, accepted);
	}
	slab_give_later(&gtpu_tunnels, core);
}

static int
gtpu_start(void)
{
	int error = slab_create(&gtpu_tunnels, sizeof(struct gtpu_tunnel), TUNNEL_LIMIT);

	if (error == 0)
		error = gtpu_paths_start();
	if (error)
		return error;
	details = slab_reserve(sizeof(*details) * TUNNEL_LIMIT);
	sources = slab_reserve(sizeof(struct sources *) * TUNNEL_LIMIT);
	gtpu_peers = slab_reserve(sizeof(*gtpu_peers) * SESSION_LIMIT);
	gtpu_teids = map64_create();
	if (!details || !sources || !gtpu_peers || !gtpu_teids)
		return -ENOMEM;
	error = gtpu_encap_start();
	if (error)
		return error;
	ip_local_udp(GTPU_PORT, &gtpu_input_node);
	return reflect_start();
}

static bool
gtpu_takes(const Sluice__V1__Session *spec)
{
	return spec->core_case == SLUICE__V1__SESSION__CORE_GTPU;
}

static const char *
gtpu_frames(const Sluice__V1__Session *spec)
{
	return spec->gtpu->ethernet ? "gtpu.ethernet" : NULL;
}

static struct session_core gtpu_core = {
	.takes = gtpu_takes,
	.frames = gtpu_frames,
	.start = gtpu_start,
	.put = gtpu_put,
	.bind = gtpu_bind,
	.remove = gtpu_remove,
};

RTE_INIT(register_gtpu_core)
{
	session_core_register(&gtpu_core);
}
