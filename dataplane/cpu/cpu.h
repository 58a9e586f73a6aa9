// SPDX-License-Identifier: Apache-2.0
// The CPU features that a program needs, and those of them that a CPU lacks. The levels are those of the x86-64 psABI (section 3.1.1, "Processor
// Architecture"): each is named as compilers name it, and has all that the one before has.
//
// All but needs.c is compiled for the first x86-64, so that it can speak on every CPU.
#pragma once

#include <stdint.h>

// Feature bits: only features that a compiler uses by itself, or our own code by intrinsics.
enum cpu_feature {
	CPU_CX16,
	CPU_SAHF,
	CPU_POPCNT,
	CPU_SSE3,
	CPU_SSSE3,
	CPU_SSE4_1,
	CPU_SSE4_2,
	CPU_AVX,
	CPU_AVX2,
	CPU_BMI,
	CPU_BMI2,
	CPU_F16C,
	CPU_FMA,
	CPU_LZCNT,
	CPU_MOVBE,
	CPU_AVX512F,
	CPU_AVX512BW,
	CPU_AVX512CD,
	CPU_AVX512DQ,
	CPU_AVX512VL,
	CPU_AVX512IFMA,
	CPU_AVX512VBMI,
	CPU_AVX512VBMI2,
	CPU_AVX512VNNI,
	CPU_AVX512BITALG,
	CPU_AVX512VPOPCNTDQ,
	CPU_AVX512BF16,
	CPU_AVX512FP16,
	CPU_AVX_VNNI,
	CPU_GFNI,
	CPU_VAES,
	CPU_VPCLMULQDQ,
	CPU_SSE4A,
	CPU_XOP,
	CPU_FMA4,
	CPU_TBM,
	CPU_AES,
	CPU_PCLMULQDQ,
	CPU_FEATURES,
};

struct cpu_level {
	const char *name;
	uint64_t needs;
};

// The least first.
enum { CPU_LEVELS = 3 };
extern const struct cpu_level cpu_levels[CPU_LEVELS];

// The name of a feature that is needed, and that this CPU, or its operating system, does not have; NULL: it has all.
const char *cpu_lacks(uint64_t needs);

// The features that the program is compiled for: needs.c.
extern const uint64_t cpu_needs;
extern const char cpu_built_for[];
