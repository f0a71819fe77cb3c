/* symbols.h: functions of libraries that are loaded at run time. */
#ifndef RELPOS_SYMBOLS_H
#define RELPOS_SYMBOLS_H

#include <dlfcn.h>
#include <string.h>

/* Looks a symbol up; POSIX lets dlsym's result become a function through memcpy. */
static inline int
find_symbol(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

#endif
