// SPDX-License-Identifier: Apache-2.0
// Reads IP addresses and prefixes.
#include "core/address.h"

#include <errno.h>
#include <string.h>
#include <arpa/inet.h>

int
address_parse(const char *text, uint8_t address[16], uint8_t *family)
{
	memset(address, 0, 16);
	*family = strchr(text, ':') ? 6 : 4;
	return inet_pton(*family == 4 ? AF_INET : AF_INET6, text, address) == 1 ? 0 : -EINVAL;
}

int
prefix_parse(const char *text, uint8_t address[16], uint8_t *family, uint8_t *length)
{
	const char *slash = strchr(text, '/');
	char alone[INET6_ADDRSTRLEN];
	unsigned bits = 0;

	if (!slash || (size_t)(slash - text) >= sizeof(alone) || slash[1] == '\0' || strlen(slash) > 4)
		return -EINVAL;
	memcpy(alone, text, (size_t)(slash - text));
	alone[slash - text] = '\0';
	if (address_parse(alone, address, family))
		return -EINVAL;
	for (const char *c = slash + 1; *c; c++) {
		if (*c < '0' || *c > '9')
			return -EINVAL;
		bits = 10 * bits + (unsigned)(*c - '0');
	}
	if (bits > (*family == 4 ? 32 : 128))
		return -EINVAL;
	*length = (uint8_t)bits;
	for (unsigned i = 0; i < 16; i++)
		if (address[i] & ~prefix_mask(bits, i))
			return -EINVAL;
	return 0;
}
