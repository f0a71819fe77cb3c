/* tables.c: the kernel tables, from the plainest to the best. */
#include "relpos.h"

const rp_table *const rp_tables[RP_TABLES] = {
    &rp_table_base,
    &rp_table_avx2,
    &rp_table_avx512,
};

const rp_table *
rp_best_table(void)
{
    for (int i = RP_TABLES - 1; i > 0; i--)
        if (rp_tables[i]->supported())
            return rp_tables[i];
    return rp_tables[0];
}
