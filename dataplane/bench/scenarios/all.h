// SPDX-License-Identifier: Apache-2.0
// The scenarios, by concept: each list ends with a scenario without a name.
#pragma once

#include "bench/bench.h"

extern const struct scenario ip_scenarios[], session_scenarios[], agf_scenarios[], flow_scenarios[], bng_scenarios[],
	queue_scenarios[], rate_scenarios[], cipher_scenarios[], ipsec_scenarios[], n3iwf_scenarios[];

// Sizes of frames: of plain ones, of IPv6, and of those that come in by a tunnel.
#define SIZES \
	{ \
		64, 128, 650, 1418 \
	}
#define SIZES6 \
	{ \
		78, 128, 650, 1418 \
	}
#define SIZES_TUNNEL \
	{ \
		128, 650, 1418 \
	}
// The papers' vAGF: 128 bytes up and 504 down, or 650 both ways; and their vBNG.
#define SIZES_AGF \
	{ \
		128, 504, 650 \
	}
#define SIZES_BNG \
	{ \
		256, 512, 1024 \
	}
// Frame sizes of ESP scenarios.
#define SIZES_CIPHER \
	{ \
		64, 650, 1418, 1518, SIZE_IMIX \
	}
