// SPDX-License-Identifier: Apache-2.0
// Path MTU discovery outside of tunnels.
#pragma once

enum { PATH_MTU_SECONDS = 600 };

void ipsec_path_mtu_start(void);
