// Differentiated services code points by name (RFC 2474, 2597, 3246, 5865).
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <strings.h>

// The code point that a name ("ef", "af41", "cs6") or a number below 64 means, or -EINVAL.
static inline int
dscp_parse(const char *text)
{
	static const struct {
		const char *name;
		uint8_t dscp;
	} names[] = {{"default", 0}, {"be", 0}, {"cs0", 0}, {"cs1", 8}, {"cs2", 16}, {"cs3", 24}, {"cs4", 32},
		{"cs5", 40}, {"cs6", 48}, {"cs7", 56}, {"af11", 10}, {"af12", 12}, {"af13", 14}, {"af21", 18},
		{"af22", 20}, {"af23", 22}, {"af31", 26}, {"af32", 28}, {"af33", 30}, {"af41", 34}, {"af42", 36},
		{"af43", 38}, {"ef", 46}, {"va", 44}, {"voice-admit", 44}, {"le", 1}};
	char *end;
	unsigned long number;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(text, names[i].name) == 0)
			return names[i].dscp;
	}
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	number = strtoul(text, &end, 10);
	return *end == '\0' && number < 64 ? (int)number : -EINVAL;
}
