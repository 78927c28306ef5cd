/* Preloaded into a store server: every fdatasync takes as long as a bad disk needs. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    usleep(DELAY_US);
    return (int)syscall(SYS_fdatasync, fd);
}
