// SPDX-License-Identifier: Apache-2.0
// Walking over kinds and their objects, for the API.
#pragma once

#include "server/names.h"
#include "server/object.h"

// At start: kinds have numbers, and none has been started.
int object_registry_start(void);

struct kind *kind_by_name(const char *name);
struct kind *kind_by_id(unsigned id); // 0, 1, ... until NULL

// The object after the cursor (0: the first), which moves on to it. Objects may come and go in between.
struct object *object_next(const struct kind *kind, uint64_t *cursor);
