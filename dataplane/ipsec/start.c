// SPDX-License-Identifier: Apache-2.0
// The start of IPsec, before workers run.
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "core/start.h"
#include "inet/header.h"
#include "ip/local.h"
#include "ipsec/esp.h"
#include "ipsec/iv.h"
#include "ipsec/nodes.h"
#include "ipsec/path_mtu.h"
#include "ipsec/policy.h"
#include "ipsec/sa_events.h"

static int
start(void)
{
	if (getentropy(esp_iv_secret, sizeof(esp_iv_secret)))
		return -errno;
	ip_local_protocol(PROTOCOL_ESP, &esp_decrypt_node);
	ip_local_udp(IKE_PORT, &ipsec_udp_node);
	ip_local_udp(ESP_UDP_PORT, &ipsec_udp_node);
	ip_local_check_whole(&ipsec_policy_waits, &ipsec_policy_in_node);
	ipsec_path_mtu_start();
	return ipsec_look_start();
}

static struct part ipsec_part = {.name = "IPsec", .phase = PART_BEFORE_WORKERS, .start = start};
PART_REGISTER(ipsec_part)
