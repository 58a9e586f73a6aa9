// SPDX-License-Identifier: Apache-2.0
// Path management (TS 29.281 section 7.2, TS 23.007 section 20.3.1): each path in use is sent an echo request now and then, which is
// repeated until it is answered or N3-REQUESTS were sent. A path that had answered before is down then, until it answers again.
//
// Paths that are made in one moment are not asked in one moment: each has a place in the interval by its number.
//
// Main thread; workers see of it one number for each path, the largest packet that it takes, which is none while it is down.
#include "gtpu/path.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/loop.h"
#include "core/map64.h"
#include "core/punt.h"
#include "core/slab.h"
#include "core/worker.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "gtpu/mtu.h"
#include "gtpu/peer.h"
#include "gtpu/signal.h"
#include "server/event.h"

enum {
	TURN_EVERY_NS = 100 * 1000 * 1000,
	ANSWERS_A_SECOND = 10000,
	TURNS = 1024, // paths that are due later are looked at in each round
	NEW = TURNS,  // the place of paths that have no time yet
	NOWHERE,
};

DROP(drop_unexpected, "gtpu-echo-unexpected", "A GTP-U echo response that answers no request of ours.")

uint16_t gtpu_path_mtu[PATHS_LIMIT];

static struct slab paths;      // struct gtpu_path
static struct map64 *numbers;  // of paths, by their ends'
static bool down[PATHS_LIMIT]; // for workers

// A ring of turns: the first and last of the paths that something may be due for in each, or NO_END.
static struct {
	uint32_t first, last;
} turns[TURNS + 1];
static uint64_t turned; // the turn up to which all has been done; turn 0 is the clock's 0
static uint32_t looked; // the path whose way is looked at next

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

// ---- The routes of paths.

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
	return hop_forwards(hop) && hop->mtu != 0 ? hop->mtu : least;
}

static void
look(uint32_t index, uint32_t second)
{
	const struct gtpu_path *p = at(index);
	uint32_t address4;
	uint16_t mtu;

	memcpy(&address4, p->ends.remote, sizeof(address4));
	mtu = p->state == PATH_DOWN ? 0
				    : mtu_of(p->ends.family == 4 ? fib4_lookup(vrfs[p->vrf].fib4, address4)
								 : fib6_lookup(vrfs[p->vrf].fib6, p->ends.remote));
	__atomic_store_n(&gtpu_path_mtu[index], gtpu_mtu_limit(index, mtu, second), __ATOMIC_RELAXED);
}

void
gtpu_paths_look(uint32_t second)
{
	for (uint32_t some = 0; some < paths.used / PATH_LOOKS + 1; some++) {
		if (looked >= paths.used)
			looked = 0;
		if (looked < paths.used && at(looked)->tunnels > 0)
			look(looked, second);
		looked++;
	}
}

// ---- When something is to be done for a path.

static void
leave_turn(uint32_t path)
{
	struct gtpu_path *p = at(path);

	if (p->place == NOWHERE)
		return;
	if (p->previous != NO_END)
		at(p->previous)->next = p->next;
	else
		turns[p->place].first = p->next;
	if (p->next != NO_END)
		at(p->next)->previous = p->previous;
	else
		turns[p->place].last = p->previous;
	p->place = NOWHERE;
}

// Sorted in by its due time, or into the next turn if that is past.
static void
join_turn(uint32_t path)
{
	struct gtpu_path *p = at(path);
	uint64_t turn = RTE_MAX((p->due + TURN_EVERY_NS - 1) / TURN_EVERY_NS, turned + 1);
	uint16_t place = (uint16_t)(p->due == 0 ? NEW : turn % TURNS);

	leave_turn(path);
	p->place = place;
	p->previous = turns[place].last;
	p->next = NO_END;
	if (p->previous != NO_END)
		at(p->previous)->next = path;
	else
		turns[place].first = path;
	turns[place].last = path;
}

// A path's own part of a time: of paths whose numbers follow each other those of neighbours are far apart, and all together are
// spread evenly (multiples of the golden ratio).
static uint64_t
part_of(uint64_t time, uint32_t path)
{
	return (uint64_t)((unsigned __int128)time * (path * UINT64_C(0x9e3779b97f4a7c15)) >> 64);
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
	look(path, worker_second());
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
	// A new path waits at least as long as one that has just answered: a path that comes and goes is not asked each time.
	if (p->due == 0)
		p->due = now + p->watch.interval + part_of(p->watch.interval, path);
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

// Paths of one turn, at most `most`. How many there were.
static unsigned
turn_some(uint16_t place, uint64_t now, unsigned most)
{
	uint32_t last = turns[place].last;
	unsigned count = 0;

	// Paths that come back to the same place are appended.
	while (count < most && turns[place].first != NO_END) {
		uint32_t path = turns[place].first;

		leave_turn(path);
		turn(path, now);
		if (!at(path)->watch.silent)
			join_turn(path);
		count++;
		if (path == last)
			break;
	}
	return count;
}

void
gtpu_paths_turn(uint64_t now)
{
	uint64_t current = now / TURN_EVERY_NS;
	unsigned done = turn_some(NEW, now, PATHS_A_TURN);

	// A clock that has stood still, or the first one: each place once.
	if (current > turned + TURNS)
		turned = current - TURNS;
	while (turned < current && done < PATHS_A_TURN) {
		uint16_t place = (uint16_t)((turned + 1) % TURNS);

		done += turn_some(place, now, PATHS_A_TURN - done);
		if (done < PATHS_A_TURN || turns[place].first == NO_END)
			turned++;
	}
}

static void
turn_all(void *unused)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	gtpu_paths_turn((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
	gtpu_paths_look(worker_second());
}

// The restart counter. It has no use (section 8.2), but some peers count all the same. A change is an event, and has no other effect.
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

uint32_t
gtpu_path_find(uint16_t vrf, const struct gtpu_ends *ends)
{
	uint32_t local = gtpu_end_find(LOCAL_ENDS, vrf, ends->family, ends->local),
		 remote = gtpu_end_find(REMOTE_ENDS, vrf, ends->family, ends->remote), path;

	if (local == NO_END || remote == NO_END)
		return NO_END;
	path = map64_get(numbers, key_of(local, remote));
	return path == MAP64_NONE ? NO_END : path;
}

// Whether it answers the current request, or the last one that was given up: a peer that answers late is up all the same.
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
	path = gtpu_path_find(packet_of(m)->vrf, &ends);
	if (path == NO_END)
		return false;
	p = at(path);
	if (packet.sequence != p->sequence || (p->tries == 0 && (p->state == PATH_UP || p->requests == 0)))
		return false;
	p->tries = 0;
	p->responses++;
	p->due = p->began + p->watch.interval;
	join_turn(path);
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
		join_turn(path);
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
		.place = NOWHERE,
		.changed = wall_clock(),
		.watch = gtpu_peer_watch(vrf, ends->family, ends->remote)};
	down[*path] = false;
	gtpu_mtu_forget(*path);
	look(*path, worker_second());
	if (map64_put(numbers, key_of(local, remote), *path)) {
		at(*path)->tunnels = 0;
		slab_give(&paths, *path);
		return fault(f, ENOMEM, "gtpu.remoteAddress: there is no memory for its path");
	}
	join_turn(*path);
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
	leave_turn(path);
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
	for (unsigned i = 0; i < RTE_DIM(turns); i++)
		turns[i].first = turns[i].last = NO_END;
	gtpu_mtu_start();
	gtpu_peer_watcher(set_watch);
	loop_every(TURN_EVERY_NS, turn_all, NULL);
	return 0;
}
