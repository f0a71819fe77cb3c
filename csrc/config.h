/* config.h: what this build has. setup.py writes its choices to relpos_config.h; without
 * that file there is no BLAS, and the kernels are compiled for every instruction set of the
 * processor. */
#ifndef RELPOS_CONFIG_H
#define RELPOS_CONFIG_H

#ifdef __has_include
#if __has_include("relpos_config.h")
#include "relpos_config.h"
#endif
#endif

/* The tables beside that of base. RELPOS_TABLES: setup.py was asked for some of them alone,
 * and each of those has a macro RELPOS_TABLE_.. */
#if defined(__x86_64__) && (!defined(RELPOS_TABLES) || defined(RELPOS_TABLE_AVX2))
#define RP_TABLE_AVX2 1
#else
#define RP_TABLE_AVX2 0
#endif
#if defined(__x86_64__) && (!defined(RELPOS_TABLES) || defined(RELPOS_TABLE_AVX512))
#define RP_TABLE_AVX512 1
#else
#define RP_TABLE_AVX512 0
#endif
#if defined(__aarch64__) && (!defined(RELPOS_TABLES) || defined(RELPOS_TABLE_NEON))
#define RP_TABLE_NEON 1
#else
#define RP_TABLE_NEON 0
#endif

#endif
