/* threads.c: how many threads a call uses unless it says otherwise. relpos/_settings.py
 * chooses, since only Python knows its contexts and who started the process; kept here is
 * its choice, so that a kernel need not ask, and the CPUs this process may run on
 * (affinity), cut to the CPU time its control groups allow (cgroup quota, v1 and v2). */
#define _GNU_SOURCE

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../relpos.h"

static atomic_int chosen;     /* for the whole process; 0: to be asked for */
static atomic_int by_context; /* contexts may have numbers of their own: always ask */
static int (*_Atomic ask_hook)(void);

static int
clamp_threads(long n)
{
    return n < 1 ? 1 : n > RP_MAX_THREADS ? RP_MAX_THREADS : (int)n;
}

static int
threads_from_affinity(void)
{
#ifdef __linux__
    /* larger sets for machines with more CPUs than the fixed cpu_set_t holds */
    for (int cpus = CPU_SETSIZE; cpus <= CPU_SETSIZE * 64; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return clamp_threads(count);
    }
#endif
    return clamp_threads(sysconf(_SC_NPROCESSORS_ONLN));
}

#ifdef __linux__

/* First line of a small file below directory; 0 when there is none. */
static int
read_line(const char *directory, const char *name, char *line, int size)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (length < 0 || length >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int got = fgets(line, size, file) != NULL;
    fclose(file);
    return got;
}

/* CPUs allowed by one group directory, rounded up; 0 when it sets no quota. */
static long
quota_of_directory(const char *directory)
{
    char line[64];
    long long quota = 0, period = 0;
    if (read_line(directory, "cpu.max", line, sizeof line)) /* v2: "max 100000" */
        sscanf(line, "%lld %lld", &quota, &period);
    else if (read_line(directory, "cpu.cfs_quota_us", line, sizeof line)) {
        sscanf(line, "%lld", &quota); /* -1: no quota */
        if (read_line(directory, "cpu.cfs_period_us", line, sizeof line))
            sscanf(line, "%lld", &period);
    }
    if (quota <= 0 || period <= 0 || quota > LLONG_MAX - period)
        return 0;
    long long cpus = (quota + period - 1) / period;
    return cpus < RP_MAX_THREADS ? (long)cpus : RP_MAX_THREADS;
}

/* Smallest quota from the group up to the mount point. Inside a container the path may
 * be the host's; then only its mount point exists, and is reached last. */
static long
quota_of_group(const char *mount, const char *group)
{
    char directory[PATH_MAX];
    size_t root = strlen(mount);
    long smallest = 0;
    int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || length >= (int)sizeof directory)
        return 0;
    for (;;) {
        long cpus = quota_of_directory(directory);
        if (cpus > 0 && (smallest == 0 || cpus < smallest))
            smallest = cpus;
        char *slash = strrchr(directory, '/');
        if (slash == NULL || strlen(directory) <= root)
            return smallest;
        *slash = '\0';
    }
}

/* Whether a v1 controller list such as "cpu,cpuacct" names the cpu controller. */
static int
names_cpu(const char *controllers)
{
    for (const char *at = controllers; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (length == 3 && strncmp(at, "cpu", 3) == 0)
            return 1;
        at += length + (at[length] == ',');
    }
    return 0;
}

static int
threads_from_quota(void)
{
    char line[PATH_MAX + 256];
    long smallest = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) { /* "4:cpu,cpuacct:/group" */
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *controllers++ = *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        long cpus = 0;
        if (controllers[0] == '\0')
            cpus = quota_of_group("/sys/fs/cgroup", group);
        else if (names_cpu(controllers))
            cpus = quota_of_group("/sys/fs/cgroup/cpu", group);
        if (cpus > 0 && (smallest == 0 || cpus < smallest))
            smallest = cpus;
    }
    fclose(file);
    return (int)smallest;
}

#else

static int
threads_from_quota(void)
{
    return 0;
}

#endif

int
rp_count_cpus(int *limited)
{
    int cpus = threads_from_affinity(), quota = threads_from_quota();
    *limited = quota > 0 && quota < cpus;
    return *limited ? quota : cpus;
}

void
rp_set_threads_hook(int (*ask)(void))
{
    atomic_store(&ask_hook, ask);
}

void
rp_always_ask_threads(void)
{
    atomic_store(&by_context, 1);
}

void
rp_set_num_threads(int threads)
{
    atomic_store(&chosen, threads > 0 ? clamp_threads(threads) : 0);
}

int
rp_get_num_threads(void)
{
    int always = atomic_load(&by_context), n = always ? 0 : atomic_load(&chosen);
    int (*ask)(void) = atomic_load(&ask_hook);
    if (n > 0 || ask == NULL)
        return clamp_threads(n);
    n = ask();
    if (n > 0 && !always) { /* the process's; one set meanwhile stays */
        int none = 0;
        atomic_compare_exchange_strong(&chosen, &none, n);
    }
    return clamp_threads(n);
}
