// SPDX-License-Identifier: Apache-2.0
// The CPU features of the compiler's options. This file has no code: it is compiled with the options of the rest of
// the program.
#include "cpu/cpu.h"

const char cpu_built_for[] = SLUICE_CPU;

// gcc and clang define a name for each part of the instruction set that they may use.
const uint64_t cpu_needs = 0
#ifdef __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16
			   | UINT64_C(1) << CPU_CX16
#endif
#ifdef __LAHF_SAHF__
			   | UINT64_C(1) << CPU_SAHF
#endif
#ifdef __POPCNT__
			   | UINT64_C(1) << CPU_POPCNT
#endif
#ifdef __SSE3__
			   | UINT64_C(1) << CPU_SSE3
#endif
#ifdef __SSSE3__
			   | UINT64_C(1) << CPU_SSSE3
#endif
#ifdef __SSE4_1__
			   | UINT64_C(1) << CPU_SSE4_1
#endif
#ifdef __SSE4_2__
			   | UINT64_C(1) << CPU_SSE4_2
#endif
#ifdef __AVX__
			   | UINT64_C(1) << CPU_AVX
#endif
#ifdef __AVX2__
			   | UINT64_C(1) << CPU_AVX2
#endif
#ifdef __BMI__
			   | UINT64_C(1) << CPU_BMI
#endif
#ifdef __BMI2__
			   | UINT64_C(1) << CPU_BMI2
#endif
#ifdef __F16C__
			   | UINT64_C(1) << CPU_F16C
#endif
#ifdef __FMA__
			   | UINT64_C(1) << CPU_FMA
#endif
#ifdef __LZCNT__
			   | UINT64_C(1) << CPU_LZCNT
#endif
#ifdef __MOVBE__
			   | UINT64_C(1) << CPU_MOVBE
#endif
#ifdef __AVX512F__
			   | UINT64_C(1) << CPU_AVX512F
#endif
#ifdef __AVX512BW__
			   | UINT64_C(1) << CPU_AVX512BW
#endif
#ifdef __AVX512CD__
			   | UINT64_C(1) << CPU_AVX512CD
#endif
#ifdef __AVX512DQ__
			   | UINT64_C(1) << CPU_AVX512DQ
#endif
#ifdef __AVX512VL__
			   | UINT64_C(1) << CPU_AVX512VL
#endif
#ifdef __AVX512IFMA__
			   | UINT64_C(1) << CPU_AVX512IFMA
#endif
#ifdef __AVX512VBMI__
			   | UINT64_C(1) << CPU_AVX512VBMI
#endif
#ifdef __AVX512VBMI2__
			   | UINT64_C(1) << CPU_AVX512VBMI2
#endif
#ifdef __AVX512VNNI__
			   | UINT64_C(1) << CPU_AVX512VNNI
#endif
#ifdef __AVX512BITALG__
			   | UINT64_C(1) << CPU_AVX512BITALG
#endif
#ifdef __AVX512VPOPCNTDQ__
			   | UINT64_C(1) << CPU_AVX512VPOPCNTDQ
#endif
#ifdef __AVX512BF16__
			   | UINT64_C(1) << CPU_AVX512BF16
#endif
#ifdef __AVX512FP16__
			   | UINT64_C(1) << CPU_AVX512FP16
#endif
#ifdef __AVXVNNI__
			   | UINT64_C(1) << CPU_AVX_VNNI
#endif
#ifdef __GFNI__
			   | UINT64_C(1) << CPU_GFNI
#endif
#ifdef __VAES__
			   | UINT64_C(1) << CPU_VAES
#endif
#ifdef __VPCLMULQDQ__
			   | UINT64_C(1) << CPU_VPCLMULQDQ
#endif
#ifdef __SSE4A__
			   | UINT64_C(1) << CPU_SSE4A
#endif
#ifdef __XOP__
			   | UINT64_C(1) << CPU_XOP
#endif
#ifdef __FMA4__
			   | UINT64_C(1) << CPU_FMA4
#endif
#ifdef __TBM__
			   | UINT64_C(1) << CPU_TBM
#endif
#ifdef __AES__
			   | UINT64_C(1) << CPU_AES
#endif
#ifdef __PCLMUL__
			   | UINT64_C(1) << CPU_PCLMULQDQ
#endif
	;
