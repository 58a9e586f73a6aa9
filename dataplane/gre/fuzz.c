// SPDX-License-Identifier: Apache-2.0
// A UE: its packets come in by gre-in.
#include <stdbool.h>

#include "fuzz/part.h"
#include "gre.pb-c.h"
#include "session.pb-c.h"

static void
put(void)
{
	Sluice__V1__GreTunnel gre = SLUICE__V1__GRE_TUNNEL__INIT;
	Sluice__V1__GreChild child = SLUICE__V1__GRE_CHILD__INIT, *children[] = {&child};
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	gre.local_address = "10.200.0.1";
	gre.remote_address = "10.201.0.7";
	child.tunnel = "gre";
	gre.children = children;
	gre.n_children = 1;
	fuzz_put("GreTunnel", "ue", &gre);
	access.gre_tunnel = "ue";
	policy.flow_profile = "flows";
	gtpu.local_address = "192.0.2.1";
	gtpu.remote_address = "192.0.2.2";
	gtpu.local_teid = gtpu.remote_teid = 20;
	gtpu.pdu_session_container = true;
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){"100.64.0.20/32", "2001:db8:1:20::/64"};
	session.n_addresses = 2;
	session.gtpu = &gtpu;
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	fuzz_put("Session", "ue", &session);
}

static struct fuzz_part gre_part = {.put = put};
FUZZ_PART_REGISTER(gre_part)
