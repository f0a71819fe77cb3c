/* team.c: lends PyTorch's threads, which are those of an OpenMP library, to calls. */
#include "module.h"

#include "../runtime/symbols.h"

/* Takes the path of a library that is loaded, and has the OpenMP library among those that it
 * needs, or that they need. */
PyObject *
py_use_team(PyObject *Py_UNUSED(module), PyObject *value)
{
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(value, &path))
        return NULL;
    dlerror();
    void *library = dlopen(PyBytes_AS_STRING(path), RTLD_LAZY | RTLD_NOLOAD);
    rp_run_team run;
    int (*size)(void);
    if (library != NULL && find_symbol(library, "GOMP_parallel", &run) &&
        find_symbol(library, "omp_get_max_threads", &size)) {
        rp_set_team(run, size); /* the library stays open */
        Py_DECREF(path);
        Py_RETURN_NONE;
    }
    const char *reason = dlerror();
    PyErr_Format(PyExc_OSError, "%s: %s", PyBytes_AS_STRING(path),
                 reason != NULL ? reason : "is not loaded");
    Py_DECREF(path);
    if (library != NULL)
        dlclose(library);
    return NULL;
}
