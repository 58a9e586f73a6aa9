// SPDX-License-Identifier: Apache-2.0
// Numbers and ranges of numbers in the specs of objects.
#pragma once

#include <stdbool.h>

// The decimal number at the start of a text; *end is behind it. -1: there is none, or it is larger than `most`.
long number_parse(const char *text, long most, const char **end);
// "5" or "5-9", up to `most`. False: it is neither, or the second number is the smaller one.
bool range_parse(const char *text, long most, long *first, long *last);
