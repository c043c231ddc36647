/* Another time of day for a process and all below it: CLOCK_REALTIME is $CLOCK_AHEAD_S seconds ahead, other clocks are as they are.
   If there is a $CLOCK_AHEAD_FILE of eight bytes, it is as far ahead as that says now: a clock that jumps.

   Loaded by LD_PRELOAD. What waits until a time of day is given the kernel's own; a monotonic deadline is told by its size. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_TIME_OF_DAY(at) ((at)->tv_sec > 1000000000)

static time_t given_s;
static const volatile time_t *ahead_s = &given_s;
static int (*next_clock_gettime)(clockid_t, struct timespec *);
static int (*next_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("CLOCK_AHEAD_S");
    const char *path = getenv("CLOCK_AHEAD_FILE");
    given_s = given ? atol(given) : 0;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(time_t), PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) ahead_s = mapped;
        close(file);
    }
    next_clock_gettime = NEXT(clock_gettime);
    /* Without a version the one before glibc 2.3.2 is found, which knows other condition variables. */
    *(void **)&next_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!next_cond_timedwait) next_cond_timedwait = NEXT(pthread_cond_timedwait);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!next_clock_gettime) begin();
    int failed = next_clock_gettime(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec fine;
    int failed = clock_gettime(CLOCK_REALTIME, &fine);
    if (!failed) {
        now->tv_sec = fine.tv_sec;
        now->tv_usec = fine.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *now) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (now) *now = fine.tv_sec;
    return fine.tv_sec;
}

static const struct timespec *kernels(const struct timespec *at, struct timespec *moved) {
    if (!at || !IS_TIME_OF_DAY(at)) return at;
    *moved = *at;
    moved->tv_sec -= *ahead_s;
    return moved;
}

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    struct timespec moved;
    if (!next_cond_timedwait) begin();
    return next_cond_timedwait(c, m, kernels(at, &moved));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    struct timespec moved;
    return NEXT(pthread_mutex_timedlock)(m, kernels(at, &moved));
}

int sem_timedwait(sem_t *restrict s, const struct timespec *restrict at) {
    struct timespec moved;
    return NEXT(sem_timedwait)(s, kernels(at, &moved));
}
