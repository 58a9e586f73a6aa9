// SPDX-License-Identifier: Apache-2.0
// Paths: sets of next hops that routes share. A million routes through the same neighbours are one path. A change of
// the neighbours, their interfaces and ports changes that path alone. Main thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ether/interface.h"
#include "fib/next_hop.h"
#include "server/object.h"

enum { PATH_MEMBERS = 64 };

// A user of the path with these next hops in this VRF: its number from 0 on, in *path. -ENOENT: no network of ours holds a
// next hop's address; -EINVAL, -ENOSPC, -ENOMEM.
int path_take(uint16_t vrf, uint8_t family, const struct next_hop *next_hops, unsigned count, uint32_t *path,
	struct fault *f);
void path_use(uint32_t path); // a user more
void path_release(uint32_t path);
uint32_t path_users(uint32_t path);

// A path of its own that no path_take() finds, and whose next hops may change: its hop stays. Its next hops need not be in any network.
int path_make(uint16_t vrf, uint8_t family, const struct next_hop *next_hops, unsigned count, uint32_t *path,
	struct fault *f);
// The next hops of such a path from now on; flows whose next hop stays keep it. It takes the same time for any number of users. After
// an error it is as before.
int path_change(uint32_t path, const struct next_hop *next_hops, unsigned count, struct fault *f);

// Where its packets go. A path of one next hop leads elsewhere when its next hop has moved to another interface's network or
// is gone; routes_follow() then moves the routes that use it. One of several, or of path_make(), has a hop of its own, which stays.
uint32_t path_hop(uint32_t path);
bool path_moved(uint32_t path);

// These networks have come or gone (count 0: none has), or a port's link has changed, or whether a neighbour answers.
void path_refresh(const struct interface_address *networks, unsigned count);

// Paths have moved: put their routes where they lead now. (route.c)
void routes_follow(void);
