// SPDX-License-Identifier: Apache-2.0
// The loop that sends and receives.
//
// The rate is exact: at each moment a stream has sent what is due since the start. Packets that are late because this
// process was not running (another had the processor) are no burst afterwards; the time is added to the trial
// instead. If the process is too slow, packets are not sent, which shows as `offered` below `intended`; streams keep
// their shares.
#include "trial.h"

#include <math.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

enum { SEND_BURST = 32, RECEIVE_BURST = 64, STALL_MICROSECONDS = 100, QUIET_MICROSECONDS = 20000 };

struct run {
	struct stream *streams;
	unsigned stream_count;
	uint16_t ports, trial;
	struct rte_mempool *pool;
	uint64_t strangers;
};

static void
send_due(struct run *r, unsigned number, uint64_t due, uint64_t now)
{
	struct stream *s = &r->streams[number];
	struct rte_mbuf *m[SEND_BURST];
	unsigned count = (unsigned)RTE_MIN(due - s->offered, (uint64_t)s->burst);
	uint16_t sent;

	if (due <= s->offered || rte_pktmbuf_alloc_bulk(r->pool, m, count))
		return;
	stream_fill(s, (uint8_t)number, r->trial, now, m, count);
	sent = rte_eth_tx_burst(s->from, 0, m, (uint16_t)count);
	if (sent < count)
		rte_pktmbuf_free_bulk(m + sent, count - sent);
	s->offered += count;
	s->refused += count - sent;
}

static unsigned
receive(struct run *r, uint16_t port)
{
	struct rte_mbuf *m[RECEIVE_BURST];
	uint16_t count = rte_eth_rx_burst(port, 0, m, RECEIVE_BURST);
	uint64_t now = rte_rdtsc();

	for (unsigned i = 0; i < count; i++) {
		const struct mark *mark = stream_mark(m[i], r->trial);

		if (mark && mark->stream < r->stream_count && r->streams[mark->stream].to == port)
			stream_count(&r->streams[mark->stream], m[i], mark, now);
		else
			r->strangers++;
	}
	if (count > 0)
		rte_pktmbuf_free_bulk(m, count);
	return count;
}

static unsigned
receive_all(struct run *r)
{
	unsigned count = 0;

	for (uint16_t port = 0; port < r->ports; port++)
		count += receive(r, port);
	return count;
}

// Returns whether everything that is due in the whole trial has been sent.
static bool
send_all_due(struct run *r, uint64_t elapsed, uint64_t now)
{
	bool done = true;

	for (unsigned i = 0; i < r->stream_count; i++) {
		struct stream *s = &r->streams[i];
		uint64_t due = (uint64_t)((double)elapsed * s->rate) + 1;

		send_due(r, i, RTE_MIN(due, s->intended), now);
		done &= s->offered >= s->intended;
	}
	return done;
}

static void
send_phase(struct run *r, const struct trial *t, struct outcome *o)
{
	uint64_t hz = rte_get_tsc_hz(), stall = hz / 1000000 * STALL_MICROSECONDS;
	// A round longer than asked, so that the last packets are sent, too.
	uint64_t length = (uint64_t)(t->seconds * (double)hz) + stall;
	uint64_t start = rte_rdtsc(), before = start, stalled = 0;

	for (;;) {
		uint64_t now = rte_rdtsc();

		if (now - before > stall)
			stalled += now - before;
		before = now;
		if (send_all_due(r, now - start - stalled, now) || now - start - stalled > length)
			break;
		receive_all(r);
	}
	o->seconds = (double)(before - start - stalled) / (double)hz;
	o->stalled = (double)stalled / (double)hz;
}

// Until everything has come, or nothing has for a while.
static void
drain_phase(struct run *r, double seconds)
{
	uint64_t hz = rte_get_tsc_hz(), end = rte_rdtsc() + (uint64_t)(seconds * (double)hz);
	uint64_t quiet = hz / 1000000 * QUIET_MICROSECONDS, last = rte_rdtsc();

	while (rte_rdtsc() < end) {
		bool missing = false;

		if (receive_all(r) > 0)
			last = rte_rdtsc();
		for (unsigned i = 0; i < r->stream_count; i++)
			missing |= r->streams[i].received + r->streams[i].refused < r->streams[i].offered;
		if (!missing || rte_rdtsc() - last > quiet)
			break;
	}
}

void
trial_run(const struct trial *t, struct stream *streams, unsigned stream_count, uint16_t ports,
	struct rte_mempool *pool, struct outcome *o)
{
	static uint16_t number;
	struct run r = {
		.streams = streams, .stream_count = stream_count, .ports = ports, .trial = ++number, .pool = pool};

	double fastest = 0;

	while (receive_all(&r) > 0)
		;
	r.strangers = 0;
	for (unsigned i = 0; i < stream_count; i++)
		fastest = RTE_MAX(fastest, t->rates[i]);
	for (unsigned i = 0; i < stream_count; i++) {
		stream_clear(&streams[i]);
		streams[i].intended = (uint64_t)(t->rates[i] * t->seconds + 0.5);
		streams[i].rate = t->rates[i] / (double)rte_get_tsc_hz();
		streams[i].burst = (uint16_t)ceil(t->rates[i] / RTE_MAX(fastest, 1e-9) * SEND_BURST);
	}
	send_phase(&r, t, o);
	drain_phase(&r, t->drain);
	o->strangers = r.strangers;
}
