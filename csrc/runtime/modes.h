/* modes.h: how floats are rounded, and what is done with denormals and flags. */
#ifndef RELPOS_MODES_H
#define RELPOS_MODES_H

#ifndef __x86_64__
#include <fenv.h>
#endif

/* On x86-64 those of vectors are one register; fenv.h knows those of the x87 as well, which
 * nothing here uses, and takes 0.2 us of each call for them. */
#ifdef __x86_64__
typedef unsigned fp_modes;
enum { FLAGS = 0x3f, MASKS = 0x1f80 };

static void
set_modes(fp_modes modes)
{
    __builtin_ia32_ldmxcsr(modes);
}

/* The modes, which then have no flag and no trap; these are *held. */
static fp_modes
hold_modes(fp_modes *held)
{
    fp_modes before = __builtin_ia32_stmxcsr();
    *held = (before & ~(fp_modes)FLAGS) | MASKS;
    set_modes(*held);
    return before;
}
#else
typedef fenv_t fp_modes;

static void
set_modes(fp_modes modes)
{
    fesetenv(&modes);
}

static fp_modes
hold_modes(fp_modes *held)
{
    fp_modes before;
    feholdexcept(&before);
    fegetenv(held);
    return before;
}
#endif

#endif
