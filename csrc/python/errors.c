/* errors.c: what the C code reports becomes Python's exceptions, and its signals are heard. */
#include "module.h"

#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <pthread.h>
#include <unistd.h>

void
raise_status(rp_status status)
{
    if (status == RP_NO_MEMORY)
        PyErr_NoMemory();
    else if (status == RP_INTERRUPTED && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError,
                        "relpos: the process was forked inside this call, which "
                        "cannot go on in the child");
}

static void
set_loop_error(const char *message)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_SetString(PyExc_ValueError, message);
    PyGILState_Release(gil);
}

static void
set_loop_status(rp_status status)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    raise_status(status);
    PyGILState_Release(gil);
}

/* Python runs signal handlers in its main thread only. Asking the system first spares
 * every other thread a wait for the interpreter's lock. */
static int
poll_signals(void)
{
#ifdef __linux__
    if (syscall(SYS_gettid) != getpid())
        return 0;
#elif defined(__APPLE__)
    if (!pthread_main_np())
        return 0;
#endif
    PyGILState_STATE gil = PyGILState_Ensure();
    int interrupted = PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);
    return interrupted;
}

void
install_hooks(void)
{
    static const rp_loop_hooks hooks = {set_loop_error, set_loop_status};
    rp_set_poll(poll_signals);
    rp_set_loop_hooks(&hooks);
}
