/* Preloaded before libfaketime, whose version 0.9.10 leaves this wait alone: Python's locks use it. A wait on the clock that
   runs SPEED times as fast ends after its share of real time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline) {
    static int (*wait)(sem_t *, clockid_t, const struct timespec *);
    struct timespec now;
    if (!wait) *(void **)&wait = dlsym(RTLD_NEXT, "sem_clockwait");
    clock_gettime(clock, &now);
    long long left = (deadline->tv_sec - now.tv_sec) * SECOND + deadline->tv_nsec - now.tv_nsec;
    syscall(SYS_clock_gettime, clock, &now);
    long long until = now.tv_nsec + (left > 0 ? (long long)(left / SPEED) : 0);
    struct timespec really = {now.tv_sec + until / SECOND, until % SECOND};
    return wait(semaphore, clock, &really);
}
