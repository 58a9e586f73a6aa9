// SPDX-License-Identifier: Apache-2.0
// Arithmetic in registers that keeps a core's execution units busy: a second thread slows it down only if both share them.
#pragma once

#include <stdint.h>

// Its TSC cycles: about a millisecond.
uint64_t compute(void);
