// SPDX-License-Identifier: Apache-2.0
// Look-up of sessions for operators. Main thread.
#pragma once

#include <stdint.h>

#include "ether/circuit.h"
#include "server/object.h"
#include "session.pb-c.h"

// The session is reached by this circuit from now on, or no longer. While it moves to another one, the new one counts.
void session_index_add(uint32_t index, const struct circuit *circuit);
void session_index_remove(uint32_t index, const struct circuit *circuit);
// Each session of a circuit, the newest first.
void session_index_each(const struct circuit *circuit, void (*each)(uint32_t index, void *argument), void *argument);

enum { SESSION_FOUND_MAX = 1000 };

struct session_found {
	char *names[SESSION_FOUND_MAX];
	size_t count;
};

// The sessions that match the query. 0; -EINVAL, -ENOENT with the fault explained.
int session_search(const Sluice__V1__SessionSearch *query, struct session_found *found, struct fault *f);
