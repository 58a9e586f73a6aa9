// SPDX-License-Identifier: Apache-2.0
#include "core/number.h"

long
number_parse(const char *text, long most, const char **end)
{
	long value = 0;

	*end = text;
	while (**end >= '0' && **end <= '9' && value <= most)
		value = value * 10 + *(*end)++ - '0';
	return *end == text || value > most ? -1 : value;
}

bool
range_parse(const char *text, long most, long *first, long *last)
{
	const char *end;

	*first = *last = number_parse(text, most, &end);
	if (*first >= 0 && *end == '-')
		*last = number_parse(end + 1, most, &end);
	return *first >= 0 && *last >= *first && *end == '\0';
}
