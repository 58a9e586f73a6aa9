// SPDX-License-Identifier: Apache-2.0
// The part that accesses by circuit and session id have in common: PPPoE, and other versions of its header. The id is the first of the key's
// own words.
#pragma once

#include "pppoe/table.h"
#include "session/session.h"
#include "session/spec.h"

static inline uint16_t
pppoe_access_id(const struct session_key *key)
{
	return (uint16_t)key->own[0];
}

static inline uint32_t
pppoe_access_find(const struct pppoe_table *table, const struct session_key *key)
{
	return pppoe_find(table, &key->circuit, pppoe_access_id(key));
}

bool pppoe_access_same(const struct session_key *a, const struct session_key *b);
// `field` is the id's in Access, for the fault: "pppoeSessionId".
int pppoe_access_bind(
	struct pppoe_table *table, const struct session_key *key, uint32_t session, const char *field, struct fault *f);
void pppoe_access_unbind(struct pppoe_table *table, const struct session_key *key);
void pppoe_access_rebind(struct pppoe_table *table, const struct session_key *key, uint32_t session);
