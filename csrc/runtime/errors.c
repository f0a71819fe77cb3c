/* errors.c: how a gufunc's inner loop, which returns nothing, reports a failure. */
#include "../relpos.h"

static rp_loop_hooks hooks;

void
rp_set_loop_hooks(rp_loop_hooks installed)
{
    hooks = installed;
}

void
rp_loop_error(const char *message)
{
    if (hooks.error != NULL)
        hooks.error(message);
}

void
rp_loop_status(rp_status status)
{
    /* RP_INTERRUPTED needs nothing: the poll hook has set the exception */
    if (status == RP_NO_MEMORY && hooks.no_memory != NULL)
        hooks.no_memory();
}
