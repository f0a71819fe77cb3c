/* team.c: lends PyTorch's threads, which are those of an OpenMP library, to calls. */
#include "module.h"

#include "../runtime/symbols.h"

/* Lends the threads of the OpenMP library that `library` is, or needs; returns 0 if there is
 * none. */
static int
use_team_of(void *library)
{
    rp_run_team run;
    int (*size)(void);
    if (library == NULL || !find_symbol(library, "GOMP_parallel", &run) ||
        !find_symbol(library, "omp_get_max_threads", &size))
        return 0;
    rp_set_team(run, size);
    return 1;
}

/* Takes the path of a library that is loaded. One of the libraries that it needs, or that
 * these need, has to be the OpenMP library. */
PyObject *
py_use_team(PyObject *Py_UNUSED(module), PyObject *value)
{
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(value, &path))
        return NULL;
    dlerror();
    void *library = dlopen(PyBytes_AS_STRING(path), RTLD_LAZY | RTLD_NOLOAD);
    if (use_team_of(library)) {
        /* The linker looks for the library's functions in those that the whole process sees
         * first, as LD_PRELOAD names them: an OpenMP library there runs PyTorch's threads. */
        use_team_of(dlopen(NULL, RTLD_LAZY));
        Py_DECREF(path);
        Py_RETURN_NONE; /* the libraries stay open */
    }
    const char *reason = dlerror();
    PyErr_Format(PyExc_OSError, "%s: %s", PyBytes_AS_STRING(path),
                 reason != NULL ? reason : "is not loaded");
    Py_DECREF(path);
    if (library != NULL)
        dlclose(library);
    return NULL;
}
