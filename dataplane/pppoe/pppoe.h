// PPPoE sessions on circuits (RFC 2516).
#pragma once

#include "ether/circuit.h"

// Frames with this session id on this circuit are the session's from then on. 0, -EEXIST, -ENOMEM.
int pppoe_bind(const struct circuit *c, uint16_t pppoe_session, uint32_t session, struct fault *f);
void pppoe_unbind(const struct circuit *c, uint16_t pppoe_session);

// Once, before any worker runs: the table, and the Ethernet types. 0 or -ENOMEM.
int pppoe_start(void);

// In: what follows Ethernet type 0x8864. Out: IP of a session, its header not checked yet, with the chain {session-up}.
extern struct node pppoe_session_node;
