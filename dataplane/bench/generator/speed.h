// SPDX-License-Identifier: Apache-2.0
// Whether two processors have their whole speed.
#pragma once

#include <stdint.h>

// TSC cycles that arithmetic takes on this thread's processor and on another at the same time, before all other programs there: more
// than at other times means that others have a part of a core, or that the two are one. 0 or a negative errno.
int speed_measure(unsigned other, uint64_t cycles[2]);
