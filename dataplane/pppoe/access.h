// SPDX-License-Identifier: Apache-2.0
// Accesses by circuit and session id: PPPoE, and other versions of its header. The id is the first of the key's own words.
#pragma once

#include "pppoe/table.h"
#include "session/session.h"
#include "session/spec.h"

struct pppoe_access {
	struct session_access access; // its name, takes() and parse(), and what the others do not have
	struct pppoe_table *table;
	const char *field;    // of the id in Access: "pppoeSessionId"
	uint8_t version_type; // the first byte of the header
};

// Fills in the part that these accesses have in common, and registers the access.
void pppoe_access_register(struct pppoe_access *access);
#define PPPOE_ACCESS_REGISTER(access) \
	RTE_INIT(register_##access) \
	{ \
		pppoe_access_register(&access); \
	}
