// Walking over kinds and their objects, for the API.
#pragma once

#include "core/names.h"
#include "core/object.h"

struct kind *kind_by_name(const char *name);
struct kind *kind_by_id(unsigned id); // 0, 1, ... until NULL

// The object after the cursor (0: the first), which moves on to it. Objects may come and go in between.
struct object *object_next(const struct kind *kind, uint64_t *cursor);
