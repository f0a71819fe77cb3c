/* fuzz.c: the target of libFuzzer: its bytes choose the problem. */
#include "others.h"
#include "run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Pairs times columns of a problem that the definition may take: inputs are to be many. */
enum { MOST_WORK = 400000 };

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static case_t c;
    const rp_attention *p = &c.g.forward;
    int dtype = rp_isas[0].kernels[RP_F32] ? RP_F32 : RP_F64, is_wrong;
    source_t s = {.at = data, .end = data + bytes, .state = 12345};
    start_case(&c, s, dtype);
    is_wrong = p->B * p->H * p->Lq * p->Lk * (p->D + p->Dv) < MOST_WORK &&
               check_case(&c, &rp_isas[0]);
    free_case(&c);
    if (is_wrong || check_loops(s, &rp_isas[0], dtype) ||
        check_others(s, &rp_isas[0], dtype))
        abort();
    return 0;
}
