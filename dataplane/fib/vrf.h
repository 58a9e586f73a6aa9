// SPDX-License-Identifier: Apache-2.0
// VRFs: a routing table for each family (kind Vrf). "default" is always there and has index 0.
#pragma once

#include <string.h>

#include "core/address.h"
#include "fib/fib.h"
#include "server/object.h"

enum { VRF_LIMIT = 4096 };

struct vrf {
	struct fib *fib4; // NULL: there is no such VRF
	struct fib *fib6;
};

extern struct vrf vrfs[VRF_LIMIT];

// The VRF that a spec's field names ("" is default): its index, and its object in *object (NULL for default), which is counted as
// used from then on: object_unuse() it when it no longer is.
int vrf_need(const char *name, const char *field, uint16_t *vrf, struct object **object, struct fault *f);

// Its name, for people; "?" if there is none. Main thread.
const char *vrf_name(uint16_t vrf);

// Whether two fields name the same VRF.
static inline bool
same_vrf(const char *a, const char *b)
{
	return strcmp(a[0] ? a : "default", b[0] ? b : "default") == 0;
}

static inline struct fib *
vrf_fib(uint16_t vrf, uint8_t family)
{
	return family == 4 ? vrfs[vrf].fib4 : vrfs[vrf].fib6;
}

// The strongest source of a prefix counts; the others wait behind it: local over connected over session over neighbour over
// Route object over special addresses of the RFCs.
enum route_source {
	ROUTE_LOCAL,
	ROUTE_CONNECTED,
	ROUTE_SESSION,
	ROUTE_NEIGHBOR,
	ROUTE_STATIC,
	ROUTE_SPECIAL,
	ROUTE_SOURCES
};
// 0, -EEXIST if this source has that prefix already (two sessions, say), -ENOMEM. Bits of the address past `length` do not
// matter. The hop must stay until the route is removed and rcu_wait() or hop_retire() has let its last reader go.
int route_add(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source,
	uint32_t hop, struct fault *f);
// The same route over another hop, without a moment between: 0, -ENOENT, -ENOMEM.
int route_change(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source,
	uint32_t hop, struct fault *f);
void route_remove(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source);
// The hop this source has given the prefix, or 0.
uint32_t route_find(uint16_t vrf, uint8_t family, const uint8_t *address, uint8_t length, enum route_source source);

// Any address of ours in the VRF, to be a source: the one that shares the longest prefix with `near` (16 bytes, IPv4 in the
// first four). -ENOENT if there is none of the family. Workers may ask, too. Link-local addresses are not counted.
int vrf_local_address(uint16_t vrf, uint8_t family, const uint8_t *near, uint8_t address[16]);
// The same, but rather one of this interface (or of the one whose addresses count there) than another.
int vrf_local_address_at(uint16_t vrf, uint8_t family, uint32_t interface, const uint8_t *near, uint8_t address[16]);
// The interface whose network holds the address, or NO_INTERFACE.
uint32_t vrf_connected(uint16_t vrf, uint8_t family, const uint8_t *address);
