/* errors.c: how a gufunc's inner loop, which returns nothing, reports a failure. */
#include <stdatomic.h>

#include "../relpos.h"

static const rp_loop_hooks *_Atomic hooks; /* NULL: nobody is to hear */

void
rp_set_loop_hooks(const rp_loop_hooks *installed)
{
    atomic_store(&hooks, installed);
}

void
rp_loop_error(const char *message)
{
    const rp_loop_hooks *installed = atomic_load(&hooks);
    if (installed != NULL)
        installed->error(message);
}

void
rp_loop_status(rp_status status)
{
    const rp_loop_hooks *installed = atomic_load(&hooks);
    if (status != RP_OK && installed != NULL)
        installed->status(status);
}
