// Path management (TS 29.281 section 7.2, TS 23.007 section 20.3.1): each path in use is sent an echo request now and then, which is
// repeated until it is answered or N3-REQUESTS were sent. A path that had answered before is down then, until it answers again.
//
// Main thread; workers see of it one number for each path, the largest packet that it takes, which is none while it is down.
#include "gtpu/path.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/event.h"
#include "core/loop.h"
#include "core/map64.h"
#include "core/punt.h"
#include "core/slab.h"
#include "gtpu/peer.h"
#include "gtpu/signal.h"
#include "ip/hop.h"
#include "ip/vrf.h"

enum { LOOK_EVERY_NS = 1000 * 1000 * 1000, TURN_EVERY_NS = 100 * 1000 * 1000, ANSWERS_A_SECOND = 10000 };

DROP(drop_unexpected, "gtpu-echo-unexpected", "A GTP-U echo response that answers no request of ours.")

uint16_t gtpu_path_mtu[PATHS_LIMIT];

static struct slab paths;      // struct gtpu_path
static struct map64 *numbers;  // of paths, by their ends'
static bool down[PATHS_LIMIT]; // for workers

static struct gtpu_path *
at(uint32_t path)
{
	return slab_at(&paths, path);
}

const struct gtpu_path *
gtpu_path_at(uint32_t path)
{
	return at(path);
}

bool
gtpu_path_is_down(uint32_t path)
{
	return __atomic_load_n(&down[path], __ATOMIC_RELAXED);
}

bool
gtpu_path_next(uint32_t *path)
{
	while (*path < paths.used && at(*path)->tunnels == 0)
		++*path;
	return *path < paths.used;
}

const char *
gtpu_path_state(const struct gtpu_path *p)
{
	static const char *const names[PATH_STATES] = {"unknown", "unanswered", "up", "down"};

	return names[p->state];
}

static uint64_t
key_of(uint32_t local, uint32_t remote)
{
	return 1ull << 63 | (uint64_t)local << 32 | remote;
}

// ---- What the routes say of the way.

static uint16_t
mtu_of(uint32_t index)
{
	const struct hop *hop = hop_at(index);
	uint16_t least = UINT16_MAX;

	if (hop->kind == HOP_SPREAD) {
		for (uint32_t i = 0; i < 1u << hop->spread_bits; i++) {
			const struct hop *one = hop_at(hop->spread[i]);

			if (one->mtu != 0)
				least = RTE_MIN(least, one->mtu);
		}
		return least;
	}
	return (hop->kind == HOP_ADJACENCY || hop->kind == HOP_GLEAN || hop->kind == HOP_SESSION) && hop->mtu != 0
		       ? hop->mtu
		       : least;
}

static void
look(uint32_t index)
{
	const struct gtpu_path *p = at(index);
	uint32_t address4;
	uint16_t mtu;

	memcpy(&address4, p->ends.remote, sizeof(address4));
	mtu = p->state == PATH_DOWN ? 0
				    : mtu_of(p->ends.family == 4 ? fib4_lookup(vrfs[p->vrf].fib4, address4)
								 : fib6_lookup(vrfs[p->vrf].fib6, p->ends.remote));
	__atomic_store_n(&gtpu_path_mtu[index], mtu, __ATOMIC_RELAXED);
}

static void
look_all(void *unused)
{
	for (uint32_t path = 0; gtpu_path_next(&path); path++)
		look(path);
}

// ---- Whether the peer is alive.

static void
tell(const struct gtpu_path *p)
{
	Sluice__V1__Event event = SLUICE__V1__EVENT__INIT;
	Sluice__V1__GtpuPathChange change = SLUICE__V1__GTPU_PATH_CHANGE__INIT;
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];
	int family = p->ends.family == 4 ? AF_INET : AF_INET6;

	change.vrf = (char *)vrf_name(p->vrf);
	change.local_address = (char *)inet_ntop(family, p->ends.local, local, sizeof(local));
	change.remote_address = (char *)inet_ntop(family, p->ends.remote, remote, sizeof(remote));
	change.state = (char *)gtpu_path_state(p);
	change.restarts = p->restarts;
	event.event_case = SLUICE__V1__EVENT__EVENT_GTPU_PATH;
	event.gtpu_path = &change;
	event_send(&event);
}

static uint64_t
wall_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void
set_state(uint32_t path, enum path_state state)
{
	struct gtpu_path *p = at(path);

	if (p->state == state)
		return;
	p->state = state;
	p->changed = wall_clock();
	__atomic_store_n(&down[path], state == PATH_DOWN, __ATOMIC_RELAXED);
	look(path);
	tell(p);
}

static void
request(struct gtpu_path *p, uint64_t now)
{
	p->tries++;
	p->requests++;
	p->due = now + p->watch.wait;
	gtpu_send(p->vrf, &p->ends, GTPU_ECHO_REQUEST, p->sequence, NULL, 0);
}

static void
turn(uint32_t path, uint64_t now)
{
	struct gtpu_path *p = at(path);

	if (p->watch.silent)
		return;
	// A new path waits as long as one that has just answered: requests are rare.
	if (p->due == 0)
		p->due = now + p->watch.interval;
	if (now < p->due)
		return;
	if (p->tries == 0) {
		p->sequence++;
		p->began = now;
		request(p, now);
	} else if (p->tries < p->watch.most) {
		// Section 7.2.1 with TS 29.060 section 7.6: a repeated request has the same number.
		request(p, now);
	} else {
		p->failures++;
		p->tries = 0;
		p->due = RTE_MAX(p->began + p->watch.interval, now + p->watch.wait);
		set_state(path, p->answered ? PATH_DOWN : PATH_UNANSWERED);
	}
}

void
gtpu_paths_turn(uint64_t now)
{
	for (uint32_t path = 0; gtpu_path_next(&path); path++)
		turn(path, now);
}

static void
turn_all(void *unused)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	gtpu_paths_turn((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

// The restart counter. It has no use (section 8.2), but some peers count all the same; a change is told, and nothing else done.
static void
take_recovery(struct gtpu_path *p, const uint8_t *elements, size_t length)
{
	uint8_t recovery = length >= 2 && elements[0] == IE_RECOVERY ? elements[1] : p->recovery;

	if (p->answered && recovery != p->recovery) {
		p->restarts++;
		p->changed = wall_clock();
		if (p->state == PATH_UP)
			tell(p);
	}
	p->recovery = recovery;
	p->answered = true;
}

// The path of a packet that came to us, or NO_END.
static uint32_t
path_of(uint16_t vrf, const struct gtpu_ends *ends)
{
	uint32_t local = gtpu_end_find(LOCAL_ENDS, vrf, ends->family, ends->local),
		 remote = gtpu_end_find(REMOTE_ENDS, vrf, ends->family, ends->remote), path;

	if (local == NO_END || remote == NO_END)
		return NO_END;
	path = map64_get(numbers, key_of(local, remote));
	return path == MAP64_NONE ? NO_END : path;
}

// Whether it answered what is asked.
static bool
answered(struct rte_mbuf *m)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *), *bytes;
	struct gtpu_packet packet;
	struct gtpu_ends ends;
	struct gtpu_path *p;
	uint16_t length;
	unsigned udp = gtpu_find_udp(ip, m->data_len, m->pkt_len, &length);
	size_t available;
	uint32_t path;

	if (udp == 0)
		return false;
	bytes = ip + udp + UDP_HEADER;
	available = RTE_MIN((size_t)(m->data_len - udp - UDP_HEADER), (size_t)length);
	if (gtpu_parse(bytes, available, length, &packet) != GTPU_FINE)
		return false;
	gtpu_ends_of(ip, &ends);
	path = path_of(packet_of(m)->vrf, &ends);
	if (path == NO_END)
		return false;
	p = at(path);
	if (p->tries == 0 || packet.sequence != p->sequence)
		return false;
	p->tries = 0;
	p->responses++;
	p->due = p->began + p->watch.interval;
	take_recovery(p, bytes + packet.offset,
		packet.offset < available ? RTE_MIN((size_t)packet.length, available - packet.offset) : 0);
	set_state(path, PATH_UP);
	return true;
}

static void
take_answer(struct rte_mbuf *m)
{
	bool known = answered(m);

	if (punt_watched(packet_of(m)))
		punt_to_watcher(m);
	else if (known)
		rte_pktmbuf_free(m);
	else
		drop_now(m, &drop_unexpected);
}

PUNT(punt_echo_response, "gtpu-echo-response", ANSWERS_A_SECOND, take_answer)

uint16_t
gtpu_path_answer(struct packet *p)
{
	return packet_punt(p, &punt_echo_response);
}

// ---- Tunnels come and go.

// A path's settings are a peer's, which may have changed.
static void
set_watch(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	for (uint32_t path = 0; gtpu_path_next(&path); path++) {
		struct gtpu_path *p = at(path);

		if (p->vrf != vrf || p->ends.family != family ||
			memcmp(p->ends.remote, address, family == 4 ? 4 : 16) != 0)
			continue;
		p->watch = gtpu_peer_watch(vrf, family, address);
		p->tries = 0;
		p->due = 0;
		if (p->watch.silent)
			set_state(path, PATH_UNKNOWN);
	}
}

static int
create(uint16_t vrf, const struct gtpu_ends *ends, uint32_t local, uint32_t remote, uint32_t *path, struct fault *f)
{
	*path = slab_take(&paths);
	if (*path == UINT32_MAX)
		return fault(f, ENOSPC, "gtpu.remoteAddress: %d paths are the most there can be", PATHS_LIMIT);
	*at(*path) = (struct gtpu_path){.ends = *ends,
		.vrf = vrf,
		.local = local,
		.remote = remote,
		.tunnels = 1,
		.changed = wall_clock(),
		.watch = gtpu_peer_watch(vrf, ends->family, ends->remote)};
	down[*path] = false;
	look(*path);
	if (map64_put(numbers, key_of(local, remote), *path)) {
		at(*path)->tunnels = 0;
		slab_give(&paths, *path);
		return fault(f, ENOMEM, "gtpu.remoteAddress: there is no memory for its path");
	}
	return 0;
}

int
gtpu_path_use(uint16_t vrf, const struct gtpu_ends *ends, uint32_t *path, struct fault *f)
{
	uint32_t local, remote, known;
	int error = gtpu_end_use(LOCAL_ENDS, vrf, ends->family, ends->local, &local, f);

	*path = NO_END;
	if (error)
		return error;
	error = gtpu_end_use(REMOTE_ENDS, vrf, ends->family, ends->remote, &remote, f);
	if (error) {
		gtpu_end_unuse(LOCAL_ENDS, local);
		return error;
	}
	known = map64_get(numbers, key_of(local, remote));
	if (known != MAP64_NONE) {
		*path = known;
		at(known)->tunnels++;
	} else {
		error = create(vrf, ends, local, remote, path, f);
	}
	// A path uses its ends once.
	if (error || known != MAP64_NONE) {
		gtpu_end_unuse(LOCAL_ENDS, local);
		gtpu_end_unuse(REMOTE_ENDS, remote);
	}
	if (error)
		*path = NO_END;
	return error;
}

void
gtpu_path_unuse(uint32_t path)
{
	struct gtpu_path *p = at(path);

	if (--p->tunnels > 0)
		return;
	map64_delete(numbers, key_of(p->local, p->remote));
	gtpu_end_unuse(LOCAL_ENDS, p->local);
	gtpu_end_unuse(REMOTE_ENDS, p->remote);
	slab_give_later(&paths, path);
}

int
gtpu_paths_start(void)
{
	int error = slab_create(&paths, sizeof(struct gtpu_path), PATHS_LIMIT);

	if (error == 0)
		error = gtpu_ends_start();
	if (error)
		return error;
	numbers = map64_create();
	if (!numbers)
		return -ENOMEM;
	gtpu_peer_watcher(set_watch);
	loop_every(LOOK_EVERY_NS, look_all, NULL);
	loop_every(TURN_EVERY_NS, turn_all, NULL);
	return 0;
}
