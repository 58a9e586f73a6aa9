// SPDX-License-Identifier: Apache-2.0
// CPUID and XGETBV (Intel SDM volume 2, AMD APM volume 3) as feature bits.
#include "cpu/cpu.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <stddef.h>

#define BIT(feature) (UINT64_C(1) << (feature))

_Static_assert(CPU_FEATURES < 64, "features are bits, and one says that they are known");

enum { V2 = CPU_SSE4_2, V3 = CPU_MOVBE, V4 = CPU_AVX512VL };

// Features stand in the order of levels.
const struct cpu_level cpu_levels[CPU_LEVELS] = {
	{"x86-64-v2", BIT(V2 + 1) - 1},
	{"x86-64-v3", BIT(V3 + 1) - 1},
	{"x86-64-v4", BIT(V4 + 1) - 1},
};

// Which registers of SIMD the operating system keeps for a program, from XCR0.
enum state { STATE_SSE = 0, STATE_AVX = 0x06, STATE_AVX512 = 0xe6 };
enum { EAX, EBX, ECX, EDX };

static const struct {
	const char *name;
	uint32_t leaf, subleaf;
	uint8_t reg, bit;
	uint8_t state;
} features[CPU_FEATURES] = {
	[CPU_CX16] = {"cmpxchg16b", 1, 0, ECX, 13, 0},
	[CPU_SAHF] = {"lahf and sahf", 0x80000001, 0, ECX, 0, 0},
	[CPU_POPCNT] = {"popcnt", 1, 0, ECX, 23, 0},
	[CPU_SSE3] = {"SSE3", 1, 0, ECX, 0, 0},
	[CPU_SSSE3] = {"SSSE3", 1, 0, ECX, 9, 0},
	[CPU_SSE4_1] = {"SSE4.1", 1, 0, ECX, 19, 0},
	[CPU_SSE4_2] = {"SSE4.2", 1, 0, ECX, 20, 0},
	[CPU_AVX] = {"AVX", 1, 0, ECX, 28, STATE_AVX},
	[CPU_AVX2] = {"AVX2", 7, 0, EBX, 5, STATE_AVX},
	[CPU_BMI] = {"BMI1", 7, 0, EBX, 3, 0},
	[CPU_BMI2] = {"BMI2", 7, 0, EBX, 8, 0},
	[CPU_F16C] = {"F16C", 1, 0, ECX, 29, STATE_AVX},
	[CPU_FMA] = {"FMA", 1, 0, ECX, 12, STATE_AVX},
	[CPU_LZCNT] = {"lzcnt", 0x80000001, 0, ECX, 5, 0},
	[CPU_MOVBE] = {"movbe", 1, 0, ECX, 22, 0},
	[CPU_AVX512F] = {"AVX-512F", 7, 0, EBX, 16, STATE_AVX512},
	[CPU_AVX512BW] = {"AVX-512BW", 7, 0, EBX, 30, STATE_AVX512},
	[CPU_AVX512CD] = {"AVX-512CD", 7, 0, EBX, 28, STATE_AVX512},
	[CPU_AVX512DQ] = {"AVX-512DQ", 7, 0, EBX, 17, STATE_AVX512},
	[CPU_AVX512VL] = {"AVX-512VL", 7, 0, EBX, 31, STATE_AVX512},
	[CPU_AVX512IFMA] = {"AVX-512 IFMA", 7, 0, EBX, 21, STATE_AVX512},
	[CPU_AVX512VBMI] = {"AVX-512 VBMI", 7, 0, ECX, 1, STATE_AVX512},
	[CPU_AVX512VBMI2] = {"AVX-512 VBMI2", 7, 0, ECX, 6, STATE_AVX512},
	[CPU_AVX512VNNI] = {"AVX-512 VNNI", 7, 0, ECX, 11, STATE_AVX512},
	[CPU_AVX512BITALG] = {"AVX-512 BITALG", 7, 0, ECX, 12, STATE_AVX512},
	[CPU_AVX512VPOPCNTDQ] = {"AVX-512 VPOPCNTDQ", 7, 0, ECX, 14, STATE_AVX512},
	[CPU_AVX512BF16] = {"AVX-512 BF16", 7, 1, EAX, 5, STATE_AVX512},
	[CPU_AVX512FP16] = {"AVX-512 FP16", 7, 0, EDX, 23, STATE_AVX512},
	[CPU_AVX_VNNI] = {"AVX-VNNI", 7, 1, EAX, 4, STATE_AVX},
	[CPU_GFNI] = {"GFNI", 7, 0, ECX, 8, 0},
	[CPU_VAES] = {"VAES", 7, 0, ECX, 9, STATE_AVX},
	[CPU_VPCLMULQDQ] = {"VPCLMULQDQ", 7, 0, ECX, 10, STATE_AVX},
	[CPU_SSE4A] = {"SSE4A", 0x80000001, 0, ECX, 6, 0},
	[CPU_XOP] = {"XOP", 0x80000001, 0, ECX, 11, STATE_AVX},
	[CPU_FMA4] = {"FMA4", 0x80000001, 0, ECX, 16, STATE_AVX},
	[CPU_TBM] = {"TBM", 0x80000001, 0, ECX, 21, 0},
	[CPU_AES] = {"AES-NI", 1, 0, ECX, 25, 0},
	[CPU_PCLMULQDQ] = {"PCLMULQDQ", 1, 0, ECX, 1, 0},
};

static uint32_t
kept_state(void)
{
	uint32_t r[4], low, high;

	// Whether there is XGETBV at all.
	if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] >> 27 & 1))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

// The features of this CPU and its operating system. In a virtual machine each CPUID takes a visit to the host: they are asked once.
static uint64_t
features_found(void)
{
	static _Atomic uint64_t found;
	uint64_t all = atomic_load_explicit(&found, memory_order_relaxed);
	uint32_t kept;

	if (all)
		return all;
	all = BIT(CPU_FEATURES);
	kept = kept_state();
	for (unsigned i = 0; i < CPU_FEATURES; i++) {
		uint32_t r[4];

		if (__get_cpuid_count(features[i].leaf, features[i].subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
			r[features[i].reg] >> features[i].bit & 1 && (kept & features[i].state) == features[i].state)
			all |= BIT(i);
	}
	atomic_store_explicit(&found, all, memory_order_relaxed);
	return all;
}

const char *
cpu_lacks(uint64_t needs)
{
	uint64_t lacking = needs & ~features_found();

	return lacking ? features[__builtin_ctzll(lacking)].name : NULL;
}
