// SPDX-License-Identifier: Apache-2.0
// The start of IPsec, before workers run.
#include <errno.h>
#include <limits.h>
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
#include "ipsec/sa.h"
#include "ipsec/sa_events.h"
#include "ipsec/sequence_file.h"

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

// ---- Sequence numbers in a file: of --sequences, or beside the API's socket.

static const char *sequences;

static int
use_file(const char *path)
{
	sequences = path;
	return 0;
}

static struct part_option sequences_option = {.name = "sequences",
	.argument = "FILE",
	.help = "keeps the sequence numbers of ESP over a restart (default: SOCKET.sequences); on a disk\n"
		"also over one of the machine",
	.take = use_file};
OPTION_REGISTER(sequences_option)

static int
open_file(void)
{
	char beside[PATH_MAX];

	if (!sequences && !core_socket())
		return 0;
	snprintf(beside, sizeof(beside), "%s.sequences", core_socket());
	return sequence_file_open(sequences ? sequences : beside);
}

static void
close_file(void)
{
	ipsec_sas_settle();
	sequence_file_close();
}

static struct part sequences_part = {
	.name = "ESP sequence numbers", .phase = PART_WITH_SOCKET, .start = open_file, .stop = close_file};
PART_REGISTER(sequences_part)
