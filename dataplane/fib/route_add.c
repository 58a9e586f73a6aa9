// SPDX-License-Identifier: Apache-2.0
// Routes of all sources into the tables that workers read.
//
// A prefix that only a Route object has is in the fib alone: a million of them need no second table. Other sources of
// a prefix are recorded (fib/precedence.h).
#include <errno.h>
#include <string.h>

#include <arpa/inet.h>

#include "fib/precedence.h"
#include "fib/vrf.h"
#include "inet/header.h"

static_assert((int)ROUTE_SOURCES <= (int)PRECEDENCE_SOURCES, "every source has its place");

static struct precedence routes;

// The routes of a prefix.
struct candidates {
	struct precedence_key key;
	struct fib *fib;
	uint32_t hops[PRECEDENCE_SOURCES];
	unsigned present; // a bit for each source
	bool recorded;    // false: at most a lone Route object
};

static void
find(struct candidates *c, uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length)
{
	*c = (struct candidates){.key = {.vrf = vrf, .family = family, .length = length}, .fib = vrf_fib(vrf, family)};
	for (unsigned i = 0; i < (family == 4 ? 4 : 16); i++)
		c->key.address[i] = address[i] & prefix_mask(length, i);
	c->present = precedence_find(&routes, &c->key, c->hops);
	c->recorded = c->present != 0;
	if (!c->recorded) {
		c->hops[ROUTE_STATIC] = fib_find(c->fib, c->key.address, length);
		c->present = (unsigned)(c->hops[ROUTE_STATIC] != 0) << ROUTE_STATIC;
	}
}

static void
describe(const struct precedence_key *key, char text[INET6_ADDRSTRLEN])
{
	if (!inet_ntop(key->family == 4 ? AF_INET : AF_INET6, key->address, text, INET6_ADDRSTRLEN))
		text[0] = '\0';
}

static int
no_memory(const struct candidates *c, struct fault *f)
{
	char text[INET6_ADDRSTRLEN];

	describe(&c->key, text);
	return fault(f, ENOMEM, "there is no memory for the route to %s/%u", text, c->key.length);
}

static int
into_fib(const struct candidates *c, uint32_t hop, struct fault *f)
{
	return fib_put(c->fib, c->key.address, c->key.length, hop) ? no_memory(c, f) : 0;
}

int
route_add(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source, uint32_t hop,
	struct fault *f)
{
	struct candidates c;
	int error;

	find(&c, vrf, family, address, length);
	if (c.present & 1u << source) {
		char text[INET6_ADDRSTRLEN];

		describe(&c.key, text);
		return fault(f, EEXIST, "there is such a route to %s/%u already", text, length);
	}
	if (c.present == 0 && source == ROUTE_STATIC)
		return into_fib(&c, hop, f);
	if (c.present != 0 && !c.recorded && precedence_put(&routes, &c.key, ROUTE_STATIC, c.hops[ROUTE_STATIC]))
		return no_memory(&c, f);
	error = precedence_put(&routes, &c.key, source, hop) ? no_memory(&c, f) : 0;
	if (error == 0 && (c.present == 0 || source < (unsigned)__builtin_ctz(c.present))) {
		error = into_fib(&c, hop, f);
		if (error)
			precedence_delete(&routes, &c.key, source);
	}
	if (error && c.present != 0 && !c.recorded)
		precedence_delete(&routes, &c.key, ROUTE_STATIC);
	return error;
}

int
route_change(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source,
	uint32_t hop, struct fault *f)
{
	struct candidates c;

	find(&c, vrf, family, address, length);
	if (!(c.present & 1u << source))
		return fault(f, ENOENT, "there is no such route to change");
	if (c.hops[source] == hop)
		return 0;
	if ((unsigned)__builtin_ctz(c.present) == source && into_fib(&c, hop, f))
		return -ENOMEM;
	if (c.recorded)
		precedence_put(&routes, &c.key, source, hop); // replaces: needs no memory
	return 0;
}

uint32_t
route_find(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source)
{
	struct candidates c;

	find(&c, vrf, family, address, length);
	return c.present & 1u << source ? c.hops[source] : 0;
}

void
route_remove(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source)
{
	struct candidates c;
	unsigned rest;

	find(&c, vrf, family, address, length);
	if (!(c.present & 1u << source))
		return;
	rest = c.present & ~(1u << source);
	if (rest == 0)
		fib_delete(c.fib, c.key.address, length);
	else if (source < (unsigned)__builtin_ctz(rest))
		fib_put(c.fib, c.key.address, length, c.hops[__builtin_ctz(rest)]); // replaces: needs no memory
	if (!c.recorded)
		return;
	precedence_delete(&routes, &c.key, source);
	if (rest == 1u << ROUTE_STATIC)
		precedence_delete(&routes, &c.key, ROUTE_STATIC);
}
