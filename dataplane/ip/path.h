// Paths: sets of next hops that routes share. A million routes through the same neighbours are one path, and what happens to
// the neighbours, their interfaces and ports touches that path alone. Main thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/object.h"
#include "ether/interface.h"

enum { PATH_MEMBERS = 64 };

struct next_hop {
	uint8_t address[16]; // all zero: the destination itself, on `interface`
	uint32_t interface;  // NO_INTERFACE: the one whose network holds the address
	uint8_t weight;
};

// A user of the path with these next hops in this VRF: its number from 0 on, in *path. -ENOENT: no network of ours holds a
// next hop's address; -EINVAL, -ENOSPC, -ENOMEM.
int path_take(uint16_t vrf, uint8_t family, const struct next_hop *next_hops, unsigned count, uint32_t *path,
	struct fault *f);
void path_release(uint32_t path);

// Where its packets go. A path of one next hop leads elsewhere when its next hop has moved to another interface's network or
// is gone; routes_follow() then moves the routes that use it. One of several has a hop of its own, which stays.
uint32_t path_hop(uint32_t path);
bool path_moved(uint32_t path);

// These networks have come or gone (count 0: none has), or a port's link has changed, or whether a neighbour answers.
void path_refresh(const struct interface_address *networks, unsigned count);

// Paths have moved: put their routes where they lead now. (route.c)
void routes_follow(void);
